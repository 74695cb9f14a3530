"""Folders of commands about other processes, which those write into.

A command that is killed leaves its folder behind: the next one removes it.  Each holds
a lock on its own, so that it is known which ones are nobody's."""
from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator

_PREFIX = "vmprof-command-"
#: seconds; a younger one may be about to be locked
_NEW = 60.0
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def own(uid: int, gid: int) -> Iterator[str]:
    """A folder of this user's, who alone may look into it."""
    _clear()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        fd = os.open(folder, _FLAGS)
        try:
            # where there are no locks, those of killed ones stay
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if uid != os.geteuid():
                os.fchown(fd, uid, gid)
            yield folder
        finally:
            os.close(fd)


def _clear() -> None:
    """Remove those of commands that are gone."""
    parent = tempfile.gettempdir()
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_left(os.path.join(parent, name))


def _remove_if_left(folder: str) -> None:
    """Raises OSError, also if somebody holds it."""
    fd = os.open(folder, _FLAGS)
    try:
        status = os.fstat(fd)
        if (status.st_uid != os.geteuid() and os.geteuid() != 0) or (
                time.time() - status.st_mtime < _NEW
                or stat.S_IMODE(status.st_mode) != 0o700):
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # whatever is put there meanwhile, nothing outside of it is touched
        for name in os.listdir(fd):
            os.unlink(name, dir_fd=fd)
        os.rmdir(folder)
    finally:
        os.close(fd)
