"""The process that makes the report, however the program ends.

Without -o there is a report to be made and a temporary file to be removed,
also when the program is killed, calls os._exit() or becomes another one: so
somebody else has to wait for its end.  That is a shell, which takes no memory
to speak of, at the other end of a socket: it reads a line when the program
has ended as it should (begin.py), or the end of file when it is gone.

Nobody may notice it.  It is no child of the program's, which may wait for any
child; it is in a session of its own, where Ctrl-C and the end of the terminal
don't reach it; it holds no file but stderr, and no folder.
"""
from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import sys

from vmprof_allocation.begin import NO_WATCHER

_SHELL = "/bin/sh"
#: The socket is its stdin, and stderr its stdout: a shell needs more
#: descriptors for each redirection, and there may be no more.
_WAIT = """\
salvage=--salvage
if IFS= read -r line; then salvage=; fi
"""
#: it holds the socket until the report is out, whoever closes stdin
_HELD = 3

#: Numbers in which no program takes an interest: it finds the low ones free,
#: as it would without us.  Never 0 to 2, even if those are closed: they would
#: be its stdin, stdout and stderr.
_HIGH = 1000


def move_up(fd: int) -> int:
    """Another descriptor of the same file, which exec keeps."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    high = limit == resource.RLIM_INFINITY or limit > _HIGH
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD, _HIGH if high else 3)
    os.close(fd)
    return moved


def start(profile: str) -> int:
    """Start the watcher of this process.  Returns the program's end of the
    socket, which exec keeps, or NO_WATCHER where that is not possible: then
    who is there at the end has to make the report."""
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        return NO_WATCHER
    with ours:
        with theirs:
            try:
                child = os.fork()
            except OSError:
                return NO_WATCHER
            if child == 0:
                try:
                    ours.close()
                    _detach(theirs, profile)
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
                return move_up(ours.detach())
        except (OSError, ValueError):
            pass
    try:
        if grandchild:
            os.waitpid(grandchild, 0)
    except ChildProcessError:
        pass        # as it should be: nobody's
    return NO_WATCHER


def _detach(connection: socket.socket, profile: str) -> None:
    """Become the watcher; returns if that can't be."""
    program = os.getppid()
    os.setsid()
    child = os.fork()
    if child != 0:
        connection.sendall(b"%d" % child)
        os._exit(0)
    connection.recv(1)      # the one between us and the program is gone
    if os.getppid() == program:
        return              # it adopts orphans, as process 1 of a container
    if not os.access(_SHELL, os.X_OK):
        return
    for number in signal.SIGHUP, signal.SIGINT, signal.SIGTERM:
        signal.signal(number, signal.SIG_IGN)
    script = _WAIT + report_script(profile)
    high = _HELD + 1
    null = fcntl.fcntl(os.open(os.devnull, os.O_RDWR), fcntl.F_DUPFD, high)
    held = fcntl.fcntl(connection.fileno(), fcntl.F_DUPFD, high)
    os.dup2(held, 0)
    os.dup2(held, _HELD)
    try:
        os.fstat(2)
    except OSError:
        os.dup2(null, 2)
    os.dup2(2, 1)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > _HELD:
            try:
                os.set_inheritable(fd, False)
            except OSError:
                pass        # that of the list itself
    os.chdir("/")
    os.write(_HELD, b"!")
    os.execve(_SHELL, [_SHELL, "-c", script], os.environ)


# ____________________________________________________________
# the report

def report_script(profile: str) -> str:
    """For /bin/sh: print the report of `profile` and remove it.

    It is a process of its own, as it takes memory; away from the program's
    folder, where modules may have any name; and without the settings that
    were made for the program: its nursery may be huge.
    """
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    flags = "".join(flag for flag, is_set in (
        (" -I", sys.flags.isolated), (" -E", sys.flags.ignore_environment),
        (" -s", sys.flags.no_user_site)) if is_set)
    return _REPORT % {"folder": _quote(folder), "profile": _quote(profile),
                      "interpreter": _quote(sys.executable) + flags}


_REPORT = """\
unset PYPY_GC_NURSERY PYPY_GC_MAX
cd %(folder)s
if [ ! -s %(profile)s ] ||
        %(interpreter)s -m vmprof_allocation report $salvage %(profile)s; then
    %(interpreter)s -m vmprof_allocation.temporary %(profile)s
else
    echo "vmprof: the report could not be made; the profile is in" %(profile)s
    exit 3
fi
"""


def _quote(text: str) -> str:
    return "'%s'" % text.replace("'", "'\\''")
