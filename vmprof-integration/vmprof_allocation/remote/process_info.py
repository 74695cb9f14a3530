"""Messages and /proc readers that the commands for running processes share."""
from __future__ import annotations

import contextlib
import glob
import os
import sys

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.session.profile_file import check_replaceable

#: name of the program in messages
PROGRAM = "pypy-alloc"
#: exit code of a command with invalid arguments or unreadable input
EXIT_BAD_INPUT = 2
#: exit code after Ctrl-C
EXIT_INTERRUPTED = 130
#: default of --allocation-sampling
DEFAULT = "auto"
#: maximum number of seconds, because poll() counts milliseconds in an int
_MAX_SECONDS = 2 * 10**6


def printable(text: str) -> str:
    """Return the text with escapes for characters that control a terminal.

    The user of a process chooses the names of its files.
    """
    return "".join(c if c.isprintable() or 0xdc80 <= ord(c) <= 0xdcff
                   else ascii(c)[1:-1] for c in text)


def note(message: str) -> None:
    """Print a message to stderr."""
    print("%s: %s" % (PROGRAM, printable(message)), file=sys.stderr, flush=True)


def check_seconds(name: str, seconds: float) -> None:
    """Check the number of seconds in an option.

    Args:
        name: the option.
        seconds: its value.

    Raises:
        AllocationSamplingError: the number is out of range.
    """
    if not 0 < seconds <= _MAX_SECONDS:
        raise AllocationSamplingError(
            "invalid %s %r: write a number of seconds, such as 10"
            % (name, seconds))


def check_file(output: str) -> None:
    """Check that an output file does not exist, or is an earlier profile.

    A pipe is refused, because the program would wait for its reader.

    Raises:
        AllocationSamplingError: the file contains anything but a profile.
    """
    if not os.path.exists(output):
        return
    if not os.path.isfile(output):
        raise AllocationSamplingError(
            "cannot write the profile to %r: it is not a regular file" % output)
    try:
        fd = os.open(output, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return              # the sampled process may have access, or reports the error
    try:
        check_replaceable(fd, output)
    finally:
        os.close(fd)


def has_descriptors(pid: int) -> bool:
    """Return whether a process has a free descriptor; True if this is unknown."""
    try:
        with open("/proc/%d/limits" % pid, encoding="ascii") as file:
            limit = next(line.split()[3] for line in file
                         if line.startswith("Max open files"))
        return limit == "unlimited" or sum(
            int(fd) < int(limit) for fd in os.listdir("/proc/%d/fd" % pid)) < int(limit)
    except (OSError, ValueError, IndexError, StopIteration):
        return True


def read_status(pid: int | str) -> dict[str, str]:
    """Return the fields of /proc/PID/status.

    Raises:
        OSError: the process does not exist.
    """
    with open("/proc/%s/status" % pid, encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (
            line.partition(":") for line in file)}


def executable(pid: int) -> str | None:
    """Return the path of the program that a process runs, or None if it is unknown."""
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except OSError:
        return None


def children(pid: int) -> list[int]:
    """Return the children of a process that run the same program, as workers do.

    The list is empty if the process has ended, or if the kernel does not list children.
    """
    pids: list[int] = []
    # each thread has its own list of children
    for name in glob.glob("/proc/%d/task/*/children" % pid):
        with contextlib.suppress(OSError), open(name, encoding="ascii") as file:
            pids += map(int, file.read().split())
    own = executable(pid)
    return [child for child in sorted(pids) if own and executable(child) == own]


def family(pid: int) -> list[int]:
    """Return a process and its descendants; each one comes before its children."""
    found = [pid]
    for parent in found:
        found += children(parent)
    return found
