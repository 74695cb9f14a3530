"""The errors that a user may meet, each with a message that is complete."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator


class ProfileError(Exception):
    """The file is not a profile, or is damaged; the message says where, in one
    line."""


class NotThere(ProfileError):
    """What was asked for is in another process's profile, or is misspelt."""

    short = "nothing that was asked for is there"


class FileError(Exception):
    """A ProfileError of a named file: the message begins with its name."""


@contextlib.contextmanager
def about(name: str) -> Iterator[None]:
    """What goes wrong inside is about the file of this name: raises FileError."""
    try:
        yield
    except ProfileError as error:
        raise FileError("%s: %s" % (name, error)) from error
    except MemoryError as error:
        raise FileError("%s: this machine's memory is too small for it"
                        % name) from error
    except OSError as error:
        raise FileError("%s: %s" % (name, error.strerror)) from error
