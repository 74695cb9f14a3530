"""Make the folder for a program's segments, and start the pusher that sends them.

vmprof_allocation.push() and the option --push call `start()` in the program's process.
"""
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

#: variables with paths, which are made absolute for the pusher
_FILES = credentials.FILE_VARIABLE, "SSL_CERT_FILE", "SSL_CERT_DIR"
#: largest heap of the pusher
_MEMORY = "256M"
#: time limit of each step of a request, in seconds
_TIMEOUT = 10.0
#: seconds without any writer after which the program counts as ended; longer than the
#: time between two segments of one process
_QUIET = 3.0
#: seconds that the pusher waits after the program's end for a server that does not
#: answer
_DRAIN = 10.0
#: Shell script that runs the pusher.  The shell has its own session, so that Ctrl-C and
#: the end of the terminal do not reach the pusher.  The shell is not a child of the
#: program, because the program may wait for any child.  If a signal kills the pusher,
#: the script restarts it after 5 seconds; Linux may kill the pusher when memory is
#: short.  The program stops sampling when the folder is gone.
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
    """Start a pusher for this process.

    Args:
        settings: The program's settings.  The function sets the time between two
            segments and the limits of their number and size.
        url: The server's address (target.py).
        every: Seconds between two segments, or None for `DEFAULT_EVERY`.
        service: The service's name, or "" to use the environment or the script.
        version: The service's version, or "" to use the environment.

    Returns:
        The path at which the program has to write its first segment.

    Raises:
        AllocationSamplingError: An argument is invalid, or the folder or the process
            cannot be made.  No folder remains then.
    """
    target = Target(url)
    settings.rotate = DEFAULT_EVERY if every is None else parse_every(every)
    # The pusher drops and counts the segments above its limits.  The program has twice
    # these limits, and removes segments only if the pusher does not run.
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
                "the file system of %s does not support locks, which are necessary to "
                "detect the end of a profile. Set TMPDIR to another "
                "folder" % os.path.dirname(folder))
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
        "cannot make a folder for the profiles to be pushed: %s. Set TMPDIR to another "
        "folder" % error.strerror)


def _run(script: str) -> None:
    """Start the script in the background, in a new session.

    Raises:
        AllocationSamplingError: /bin/sh cannot be started.
    """
    stderr = None if messages.is_inherited() else subprocess.DEVNULL
    try:
        # The current folder may contain modules with the names of the pusher's modules,
        # so the pusher runs in the folder of this package.
        subprocess.Popen(
            ["/bin/sh", "-c", "(%s) &" % script], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=stderr, start_new_session=True,
            cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__)))).wait()
    except OSError as error:
        raise AllocationSamplingError(
            "cannot start the process that pushes the profiles with /bin/sh: %s"
            % error.strerror) from None


def _interpreter() -> str:
    """Return the shell words that run this interpreter with its isolation flags."""
    return shlex.quote(sys.executable) + "".join(flag for flag, is_set in (
        (" -I", sys.flags.isolated), (" -E", sys.flags.ignore_environment),
        (" -s", sys.flags.no_user_site)) if is_set)


def _files() -> str:
    """Return shell commands that export `_FILES` with absolute paths.

    The script runs in another folder, where relative paths would be wrong.
    """
    return "\n".join("export %s=%s" % (name, shlex.quote(_absolute(path)))
                     for name in _FILES if (path := os.environ.get(name)))


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError:
        return path         # the current folder was removed; the path leads nowhere


def _write(folder: str, name: str, text: str) -> None:
    fd = os.open(os.path.join(folder, name),
                 os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)


def _can_lock(path: str) -> bool:
    """Return whether the file system supports flock()."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
