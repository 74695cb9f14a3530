"""Make the folder of a program's windows, and start the pusher that empties it."""
from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import sys
import tempfile

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_push import credentials, messages
from vmprof_push.folder import MAX_BYTES, MAX_WINDOWS, SETTINGS, SUFFIX, remove
from vmprof_push.target import DEFAULT_EVERY, Target, parse_every

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.settings.settings import Settings

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
#: A process in a session of its own, which is nobody's child: the program may wait for
#: any child, and Ctrl-C and the end of the terminal don't reach it.  A pusher that is
#: killed (it may be what takes the most memory) comes again, a moment later.  The
#: program ends the sampling when the folder is gone.
_SCRIPT = """\
trap '' HUP INT TERM
unset PYPYLOG PYTHONTRACEMALLOC VMPROF_TRACEMALLOC
unset VMPROF_ALLOCATION VMPROF_ALLOCATION_RUN
PYPY_GC_NURSERY=1M
PYPY_GC_MAX=%(memory)s
export PYPY_GC_NURSERY PYPY_GC_MAX
%(files)s
while :; do
    %(interpreter)s -m vmprof_push %(folder)s %(stderr)s </dev/null
    [ $? -gt 128 ] || break
    sleep 5
done
[ ! -d %(folder)s ] || { mv %(folder)s %(folder)s.gone; rm -rf %(folder)s.gone; }
"""


def start(settings: Settings, url: object, every: object = None, service: str = "",
          version: str = "") -> str:
    """Returns where the program is to write its first profile; `settings` say then how
    often there is another one, and how many may be there.  Raises
    AllocationSamplingError."""
    target = Target(url)
    settings.rotate = DEFAULT_EVERY if every is None else parse_every(every)
    # the pusher drops what is too much, and counts it; if it can't, the program does
    settings.max_files, settings.max_bytes = 2 * MAX_WINDOWS, 2 * MAX_BYTES
    credentials.read(target.protocol)
    try:
        folder = tempfile.mkdtemp(prefix="vmprof-push-")
    except OSError as error:
        raise _no_folder(error) from None
    first = os.path.join(folder, "%d%s" % (os.getpid(), SUFFIX))
    try:
        _write(folder, SETTINGS, json.dumps({
            "url": url, "every": settings.rotate, "service": service,
            "version": version, "timeout": _TIMEOUT, "quiet": _QUIET, "drain": _DRAIN,
            "owner": os.getpid()}))
        if not _can_lock(os.path.join(folder, SETTINGS)):
            raise AllocationSamplingError(
                "the file system of %s knows no locks, which tell when a profile has "
                "ended; name another folder with TMPDIR" % os.path.dirname(folder))
        _run(_SCRIPT % {"interpreter": _interpreter(), "folder": shlex.quote(folder),
                        "memory": _MEMORY, "files": _files(),
                        "stderr": shlex.join(messages.reopened())})
    except BaseException as error:
        remove(folder)
        if isinstance(error, OSError):
            raise _no_folder(error) from None
        raise
    return first


def _no_folder(error: OSError) -> AllocationSamplingError:
    return AllocationSamplingError(
        "can't make a folder for what is to be pushed: %s; name another one with "
        "TMPDIR" % error.strerror)


def _run(script: str) -> None:
    """Raises AllocationSamplingError."""
    stderr = None if messages.is_inherited() else subprocess.DEVNULL
    try:
        # modules in the present folder may have any name
        subprocess.Popen(
            ["/bin/sh", "-c", "(%s) &" % script], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True,
            cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__)))).wait()
    except OSError as error:
        raise AllocationSamplingError(
            "the process that pushes can't be started by /bin/sh: %s"
            % error.strerror) from None


def _interpreter() -> str:
    """This one, with its flags, for a script."""
    return shlex.quote(sys.executable) + "".join(flag for flag, is_set in (
        (" -I", sys.flags.isolated), (" -E", sys.flags.ignore_environment),
        (" -s", sys.flags.no_user_site)) if is_set)


def _files() -> str:
    """What the environment names, for a script that is in another folder."""
    return "\n".join("export %s=%s" % (name, shlex.quote(_absolute(path)))
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
