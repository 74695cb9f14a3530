"""Make the folder of a program's windows, and start the pusher that empties it."""
from __future__ import annotations

import fcntl
import json
import os
import tempfile

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.pusher import credentials, detached
from vmprof_allocation.pusher.folder import SETTINGS, remove
from vmprof_allocation.pusher.target import Target, parse_every
from vmprof_allocation.settings.processes import PUSH_EVERY

#: variables
_FILES = credentials.FILE_VARIABLE, "SSL_CERT_FILE", "SSL_CERT_DIR"
#: of the pusher's heap
_MEMORY = "256M"
#: seconds, for each step of a request
_TIMEOUT = 10.0
#: seconds in which nobody writes: it is not only between two windows
_QUIET = 3.0
#: when the program has ended: so long an engine that doesn't answer is waited for
_DRAIN = 10.0
#: One that is killed (it may be what takes the most memory) comes again, a moment
#: later.  Its folder is the program's to remove if it can't run at all.
_SCRIPT = """\
unset PYPYLOG VMPROF_TRACEMALLOC VMPROF_ALLOCATION VMPROF_ALLOCATION_RUN
PYPY_GC_NURSERY=1M
PYPY_GC_MAX=%(memory)s
export PYPY_GC_NURSERY PYPY_GC_MAX
%(files)s
cd %(packages)s
while :; do
    %(interpreter)s -m vmprof_allocation.pusher %(folder)s </dev/null
    [ $? -gt 128 ] || exit 0
    sleep 5
done
"""


def start(url: object, every: object, service: str = "", version: str = "") -> str:
    """Returns the folder.  Raises AllocationSamplingError."""
    target, seconds = Target(url), parse_every(every)
    credentials.read(target.protocol)
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="vmprof-push-")
        _write(folder, PUSH_EVERY, repr(seconds))
        _write(folder, SETTINGS, json.dumps({
            "url": url, "every": seconds, "service": service, "version": version,
            "timeout": _TIMEOUT, "quiet": _QUIET, "drain": _DRAIN,
            "owner": os.getpid()}))
    except OSError as error:
        if folder:
            remove(folder)
        raise AllocationSamplingError(
            "can't make a folder for what is to be pushed: %s; name another one with "
            "TMPDIR" % error.strerror) from None
    if not _can_lock(os.path.join(folder, SETTINGS)):
        remove(folder)
        raise AllocationSamplingError(
            "the file system of %s knows no locks, which tell when a profile has "
            "ended; name another folder with TMPDIR" % os.path.dirname(folder))
    connection = detached.start(_SCRIPT % {
        "packages": detached.packages(), "interpreter": detached.interpreter(),
        "folder": detached.quote(folder), "memory": _MEMORY, "files": _files()})
    if connection is None:
        remove(folder)
        raise AllocationSamplingError(
            "the process that pushes can't be started: is there no /bin/sh, or are "
            "there too many processes?")
    connection.close()
    return folder


def _files() -> str:
    """What the environment names, for a script that is in another folder."""
    return "\n".join("export %s=%s" % (name, detached.quote(_absolute(path)))
                     for name in _FILES if (path := os.environ.get(name)))


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError:
        return path         # the present folder was removed, and nothing is there


def _write(folder: str, name: str, text: str) -> None:
    fd = os.open(os.path.join(folder, name),
                 os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)


def _can_lock(path: str) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
