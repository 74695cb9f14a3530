"""The process that makes the report, however the program ends.

Without -o there is a report to be made and a temporary file to be removed,
also when the program is killed, calls os._exit() or becomes another one: so
somebody else has to wait for its end.  That is a shell, which takes no memory
to speak of, at the other end of a socket: it reads a line when the program
has ended as it should (begin.py), or the end of file when it is gone.
"""
from __future__ import annotations

import fcntl
import os
import resource

from vmprof_allocation import detached
from vmprof_allocation.begin import NO_WATCHER

#: stdin is the socket
_WAIT = """\
salvage=--salvage
if IFS= read -r line; then salvage=; fi
"""

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
    connection = detached.start(_WAIT + report_script(profile))
    return NO_WATCHER if connection is None else move_up(connection.detach())


# ____________________________________________________________
# the report

def report_script(profile: str) -> str:
    """For /bin/sh: print the report of `profile` and remove it.

    It is a process of its own, as it takes memory; away from the program's
    folder, where modules may have any name; and without the settings that
    were made for the program: its nursery may be huge.
    """
    return _REPORT % {"folder": detached.packages(), "profile": detached.quote(profile),
                      "interpreter": detached.interpreter()}


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
