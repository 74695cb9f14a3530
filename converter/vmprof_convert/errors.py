"""The errors that users see, with complete messages."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator


class ProfileError(Exception):
    """A file that is not a profile, or a damaged profile.

    The message has one line and contains the position in the file.
    """


class NotThere(ProfileError):
    """A requested item that is missing: misspelt, or in another process's profile."""

    short = "the requested items are missing"


class FileError(Exception):
    """A ProfileError of a named file; the message begins with the file's name."""


@contextlib.contextmanager
def about(name: str) -> Iterator[None]:
    """Convert errors in the `with` block into errors of a file.

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
