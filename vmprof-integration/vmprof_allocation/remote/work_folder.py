"""Create and remove the folders of commands for the sampled process's files.

A command that is killed leaves its folder, and the next command removes this folder.
Each command holds a lock on its folder, which shows that the folder is in use.

A folder belongs to the user of the sampled process. This user can put links and pipes
into the folder, and can replace the folder itself. Therefore, root's commands reach the
files through the folder's descriptor, and do not follow links.
"""
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
#: age in seconds from which on a folder without a lock is removed; a new folder is not
#: locked yet
_NEW = 60.0
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_profile(path: str, owner: int, folder: int | None = None) -> int | None:
    """Open a profile that a process of user `owner` wrote, and return its descriptor.

    Args:
        path: the path that the request to the process contained.
        owner: the only user whose file is accepted, except for this command's user.
        folder: descriptor of the folder for a relative path.

    Returns:
        The descriptor, or None if the file does not exist or is empty.

    Raises:
        AllocationSamplingError: the file cannot be opened, or is not a regular file of
            an accepted user.
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
            "cannot read the profile %r: %s" % (path, e.strerror)) from None
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_uid in (owner, os.geteuid()):
        if status.st_size:
            return fd
        os.close(fd)
        return None
    os.close(fd)
    raise AllocationSamplingError(
        "cannot read the profile %r: it is not a regular file of user %d, the user of "
        "the process. Sample the program again with -o and a file in a folder that "
        "only root and that user can write to" % (path, owner))


class Folder:
    """A folder that a command created for one sampled process."""

    def __init__(self, path: str, fd: int, owner: int) -> None:
        """Store the path, the descriptor, and the user of the sampled process."""
        #: path of the folder for the sampled process
        self.path = path
        self._fd = fd
        self._owner = owner

    def open_profile(self, name: str, owner: int | None = None) -> int | None:
        """Open a profile in this folder, as the module's function of this name does.

        Args:
            name: the file's name.
            owner: the user who wrote the profile; None for the owner of the folder.
        """
        return open_profile(name, self._owner if owner is None else owner, self._fd)

    def remove(self, name: str) -> None:
        """Remove a file of this folder, if it exists."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._fd)


@contextlib.contextmanager
def own(uid: int, gid: int) -> Iterator[Folder]:
    """Make a folder that only user `uid` can access, and remove the folder at the end.

    Args:
        uid: the user of the sampled process.
        gid: the group of the sampled process.
    """
    _clear()
    path = tempfile.mkdtemp(prefix=_PREFIX)
    fd = os.open(path, _FLAGS)
    try:
        # without locks, which some file systems lack, folders of killed commands remain
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
    """Remove a folder if no command holds the lock on it.

    Raises:
        OSError: a command holds the lock.
    """
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
    """Remove a folder and its files.

    Args:
        path: path of the folder.
        fd: descriptor of the folder.

    Raises:
        OSError: the folder contains other folders, which the user of the folder made.
    """
    for name in os.listdir(fd):
        os.unlink(name, dir_fd=fd)
    os.rmdir(path)
