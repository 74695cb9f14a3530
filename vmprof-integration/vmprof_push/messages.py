"""Write the pusher's messages to the program's stderr without keeping it open.

A reader of a pipe or a pseudo-terminal waits until all writers have closed it.  The
pusher outlives the program, so it opens such a file for each message.
"""
from __future__ import annotations

import contextlib
import os
import stat
import sys

#: the variable in which systemd names the journal's socket, as DEVICE:INODE
_JOURNAL = "JOURNAL_STREAM"


def is_inherited() -> bool:
    """Return whether the pusher can keep file descriptor 2 open.

    The pusher can keep open a regular file and the journal's socket, because their
    readers do not wait for the end of the file.
    """
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) or os.environ.get(_JOURNAL) == "%d:%d" % (
        status.st_dev, status.st_ino)


def reopened() -> list[str]:
    """Return the path and the identity of this process's stderr for `write()`.

    The pusher writes to stderr with these arguments.  The list is empty if stderr is
    closed, if the pusher inherits it, or if it is a socket, which Linux cannot open by
    its path.
    """
    try:
        status = os.fstat(2)
    except OSError:
        return []
    if is_inherited() or stat.S_ISSOCK(status.st_mode):
        return []
    path = "/proc/%d/fd/2" % os.getpid()
    with contextlib.suppress(OSError):
        path = os.ttyname(2)        # the terminal may outlive the program
    return [path, _identity(status)]


def write(text: str, path: str = "", identity: str = "") -> None:
    """Write the printable `text` to the file `path` if it still has this identity.

    Without a path, the function writes to this process's stderr.  The line is lost if
    the file is gone, or if a pipe is full.
    """
    line = "vmprof: %s\n" % text
    with contextlib.suppress(OSError, ValueError):
        if not path:
            sys.stderr.write(line)
            sys.stderr.flush()
        # the path contains the program's pid, which another process may have by now
        elif _identity(os.stat(path)) == identity:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
            try:
                os.write(fd, line.encode("utf-8", "backslashreplace"))
            finally:
                os.close(fd)


def _identity(status: os.stat_result) -> str:
    return "%d:%d:%d" % (status.st_dev, status.st_ino, status.st_rdev)
