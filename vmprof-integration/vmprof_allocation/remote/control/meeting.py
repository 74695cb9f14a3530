"""The socket, and the format of requests, for commands and the sampled process."""
from __future__ import annotations

import os
import stat

# keep imports to a minimum: see engines/base.py

#: maximum size in bytes of a request, and of an answer
MAX_MESSAGE = 65536
#: separator of the fields of requests and answers, which no path contains
BETWEEN = "\0"
#: first field of an answer
DONE, REFUSED = "done", "refused"
#: names of the requests
STATUS, START, STOP, RATE, SNAPSHOT, HELD, MEMORY = (
    "status", "start", "stop", "rate", "snapshot", "held", "memory")
#: Request like START. The sampling ends when the connection is closed, or if no request
#: follows within the given number of seconds.
HOLD = "hold"

_RUNTIME = "/run/user/%d"
_TEMPORARY = "/tmp"
_FOLDER = "vmprof-allocation-%d"


def folder(uid: int) -> str:
    """Return the folder of the sockets for this user's processes.

    The folder does not depend on the environment, which may differ between the command
    and the process.
    """
    runtime = _RUNTIME % uid
    return os.path.join(runtime if _is_private(runtime, uid) else _TEMPORARY,
                        _FOLDER % uid)


def socket_of(pid: int, uid: int) -> str:
    """Return the path of the socket for a process of this user."""
    return os.path.join(folder(uid), str(pid))


def make_folder(uid: int) -> None:
    """Create the folder of the sockets.

    Raises:
        OSError: the folder cannot be created, or is accessible to other users.
    """
    path = folder(uid)
    try:
        os.mkdir(path, 0o700)
        if uid != os.geteuid():
            # O_NOFOLLOW, because the user may have replaced the folder by a link
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                os.fchown(fd, uid, -1)
            finally:
                os.close(fd)
    except FileExistsError:
        pass
    if not _is_private(path, uid):
        raise PermissionError("%r is not a folder that only user %d can access. Remove "
                              "it, or ask root to remove it" % (path, uid))


def is_safe(path: str, uid: int) -> bool:
    """Return whether only this user, or root, can have created this socket."""
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
