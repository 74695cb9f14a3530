"""The errors that users see, with complete messages."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator


class ProfileError(Exception):
    """An invalid profile, or options that the profile or the command does not support.

    The message has one line. If the profile is damaged, the message contains the
    position in the file.
    """


class NotThere(ProfileError):
    """A request for a thread, function, file, label or type that the profile lacks.

    The name may be misspelt, or in the profile of another process of the run.
    """

    short = "the requested items are missing"


class FileError(Exception):
    """An error in a file; the message begins with the name of the file."""


@contextlib.contextmanager
def about(name: str) -> Iterator[None]:
    """Convert errors in the `with` block into errors that name a file.

    Args:
        name: The name of the file.

    Raises:
        FileError: The block raised ProfileError, MemoryError or OSError.
    """
    try:
        yield
    except ProfileError as error:
        raise FileError("%s: %s" % (name, error)) from error
    except MemoryError as error:
        raise FileError("%s: this machine's memory is too small for it"
                        % name) from error
    except OSError as error:
        raise FileError("%s: %s" % (name, error.strerror)) from error
