"""Folders of attach, ctl and top, which the sampled process writes into.

A command that is killed leaves its folder, and the next command removes it.  Each
command holds a lock on its folder, which tells a folder in use from a left one.

A folder belongs to the user of the sampled process.  That user can put links and pipes
into it, and can replace the folder itself.  Root's commands therefore reach the files
through the folder's descriptor, and follow no links."""
from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator

from vmprof_allocation.errors import AllocationSamplingError

_PREFIX = "vmprof-command-"
#: seconds; a younger folder may not be locked yet
_NEW = 60.0
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_profile(path: str, owner: int, folder: int | None = None) -> int | None:
    """Open a profile that a process of user `owner` wrote, and return its descriptor.

    Args:
        path: The path that the request to the process contained.
        owner: the only user whose file is accepted, unless it is this command's own.
        folder: a descriptor that a relative `path` starts at.

    Returns:
        None if there is no such file, or if it is empty.

    Raises:
        AllocationSamplingError: the file cannot be opened, or is not a regular file of
            that user.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    if owner != os.geteuid():
        flags |= os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise AllocationSamplingError(
            "can't read the profile %r: %s" % (path, e.strerror)) from None
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_uid in (owner, os.geteuid()):
        if status.st_size:
            return fd
        os.close(fd)
        return None
    os.close(fd)
    raise AllocationSamplingError(
        "can't read the profile %r: it is not a regular file of user %d, which was to "
        "write it; sample the program again with -o and a file in a folder that only "
        "root and that user can write to" % (path, owner))


class Folder:
    """A folder that a command made for one sampled process."""

    def __init__(self, path: str, fd: int, owner: int) -> None:
        #: where the sampled process finds it
        self.path = path
        self._fd = fd
        self._owner = owner

    def open_profile(self, name: str, owner: int | None = None) -> int | None:
        """Open the profile `name` in this folder; see open_profile() above.

        Args:
            name: the file's name.
            owner: the user who wrote it, if not the owner of the folder.
        """
        return open_profile(name, self._owner if owner is None else owner, self._fd)

    def remove(self, name: str) -> None:
        """Remove a file of this folder, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._fd)


@contextlib.contextmanager
def own(uid: int, gid: int) -> Iterator[Folder]:
    """Make a folder that only this user can look into, and remove it at the end."""
    _clear()
    path = tempfile.mkdtemp(prefix=_PREFIX)
    fd = os.open(path, _FLAGS)
    try:
        # without locks (some file systems), left folders stay
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if uid != os.geteuid():
            os.fchown(fd, uid, gid)
        yield Folder(path, fd, uid)
    finally:
        with contextlib.suppress(OSError):
            _remove(path, fd)
        os.close(fd)


def _clear() -> None:
    """Remove the folders of commands that have ended."""
    parent = tempfile.gettempdir()
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_left(os.path.join(parent, name))


def _remove_if_left(path: str) -> None:
    """Remove a folder that no command holds.  Raises OSError if one does."""
    fd = os.open(path, _FLAGS)
    try:
        status = os.fstat(fd)
        if (status.st_uid != os.geteuid() and os.geteuid() != 0) or (
                time.time() - status.st_mtime < _NEW
                or stat.S_IMODE(status.st_mode) != 0o700):
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(path, fd)
    finally:
        os.close(fd)


def _remove(path: str, fd: int) -> None:
    """Remove the folder `path`, whose descriptor is `fd`, and its files.
    Raises OSError if its user has put folders into the folder: they stay."""
    for name in os.listdir(fd):
        os.unlink(name, dir_fd=fd)
    os.rmdir(path)
