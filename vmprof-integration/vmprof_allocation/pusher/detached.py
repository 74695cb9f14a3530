"""A process that is away from the program: nobody's child, in a session of its own.

Nobody may notice it.  It is no child of the program's, which may wait for any
child; Ctrl-C and the end of the terminal don't reach it; it holds no file but
stderr, and no folder.  It is a shell, which takes no memory to speak of, at the
other end of a socket.
"""
from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys

_SHELL = "/bin/sh"
#: a script's end of the socket, whoever closes stdin, which is the same; stderr is
#: its stdout: a shell needs more descriptors for each redirection, and there may be
#: no more
HELD = 3


def start(script: str) -> socket.socket | None:
    """Have a shell run `script`.  Returns the other end of its socket, or None where
    that is not possible."""
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        return None
    with theirs:
        try:
            child = os.fork()
        except OSError:
            ours.close()
            return None
        if child == 0:
            try:
                ours.close()
                _detach(theirs, script)
            finally:
                os._exit(1)
        try:
            os.waitpid(child, 0)
        except ChildProcessError:
            pass        # who ignores SIGCHLD has no dead children
    grandchild = 0
    try:
        grandchild = int(ours.recv(32))
        ours.sendall(b"?")
        if ours.recv(1) == b"!":
            return ours
    except (OSError, ValueError):
        pass
    ours.close()
    try:
        if grandchild:
            os.waitpid(grandchild, 0)
    except ChildProcessError:
        pass        # as it should be: nobody's
    return None


def _detach(connection: socket.socket, script: str) -> None:
    """Become the shell; returns if that can't be."""
    os.setsid()
    child = os.fork()
    if child != 0:
        connection.sendall(b"%d" % child)
        os._exit(0)
    connection.recv(1)      # the one between us and the program is gone
    if not os.access(_SHELL, os.X_OK):
        return
    for number in signal.SIGHUP, signal.SIGINT, signal.SIGTERM:
        signal.signal(number, signal.SIG_IGN)
    high = HELD + 1
    null = fcntl.fcntl(os.open(os.devnull, os.O_RDWR), fcntl.F_DUPFD, high)
    held = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD, high)
    os.dup2(held, 0)
    os.dup2(held, HELD)
    try:
        os.fstat(2)
    except OSError:
        os.dup2(null, 2)
    os.dup2(2, 1)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > HELD:
            try:
                os.set_inheritable(fd, False)
            except OSError:
                pass        # that of the list itself
    os.chdir("/")
    os.write(HELD, b"!")
    os.execve(_SHELL, [_SHELL, "-c", script], os.environ)


def interpreter() -> str:
    """This one, with its flags, for a script."""
    return quote(sys.executable) + "".join(flag for flag, is_set in (
        (" -I", sys.flags.isolated), (" -E", sys.flags.ignore_environment),
        (" -s", sys.flags.no_user_site)) if is_set)


def packages() -> str:
    """The folder to be in: modules of the program's may have any name."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return quote(os.path.dirname(package))


def quote(text: str) -> str:
    """One word for a shell."""
    return "'%s'" % text.replace("'", "'\\''")
