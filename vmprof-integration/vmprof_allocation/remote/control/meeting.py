"""Where the two sides of a request meet.  In the program's process, too."""
from __future__ import annotations

import os
import stat

# keep imports to a minimum: see engines/base.py

#: of one request, and of its answer
MAX_MESSAGE = 65536
#: between the fields of both: no path has it
BETWEEN = "\0"
#: first of an answer
DONE, REFUSED = "done", "refused"
#: what can be asked for
STATUS, START, STOP, RATE, SNAPSHOT, HELD, MEMORY = (
    "status", "start", "stop", "rate", "snapshot", "held", "memory")
#: as START, but it ends with the connection, or if nothing is asked for so many seconds
HOLD = "hold"

_RUNTIME = "/run/user/%d"
_TEMPORARY = "/tmp"
_FOLDER = "vmprof-allocation-%d"


def folder(uid: int) -> str:
    """Of the sockets of this user's processes.  Not from the environment, which may be
    another one here and there."""
    runtime = _RUNTIME % uid
    return os.path.join(runtime if _is_private(runtime, uid) else _TEMPORARY,
                        _FOLDER % uid)


def socket_of(pid: int, uid: int) -> str:
    return os.path.join(folder(uid), str(pid))


def make_folder(uid: int) -> None:
    """Raises OSError."""
    path = folder(uid)
    try:
        os.mkdir(path, 0o700)
        if uid != os.geteuid():
            # the user may have put a link there meanwhile
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                os.fchown(fd, uid, -1)
            finally:
                os.close(fd)
    except FileExistsError:
        pass
    if not _is_private(path, uid):
        raise PermissionError("%r is not a folder that only user %d may look into; "
                              "remove it, or ask root to" % (path, uid))


def is_safe(path: str, uid: int) -> bool:
    """Nobody but the user, and root, can have put this socket there."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (stat.S_ISSOCK(status.st_mode) and status.st_uid in (0, uid)
            and _is_private(os.path.dirname(path), uid))


def _is_private(path: str, uid: int) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return (stat.S_ISDIR(status.st_mode) and status.st_uid == uid
            and not status.st_mode & 0o077)
