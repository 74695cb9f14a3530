"""What the commands about other processes have in common."""
from __future__ import annotations

import argparse
import contextlib
import glob
import os
import sys
from typing import Any, NoReturn

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.session.profile_file import check_replaceable

#: of --allocation-sampling
DEFAULT = "auto"
#: poll() counts milliseconds
_MAX_SECONDS = 2 * 10**6


def printable(text: str) -> str:
    """Return the text with escapes for the characters that control a terminal: the
    names of a process's files are chosen by its user."""
    return "".join(c if c.isprintable() or 0xdc80 <= ord(c) <= 0xdcff
                   else ascii(c)[1:-1] for c in text)


def note(message: str) -> None:
    print("vmprof_allocation: %s" % printable(message), file=sys.stderr, flush=True)


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, "vmprof_allocation: %s\n" % message)


def add_sampling(parser: Any, default: str | None = DEFAULT) -> None:
    """What is asked for of the sampling; `default`: of the interval."""
    parser.add_argument(
        "--allocation-sampling", default=default, metavar="BYTES",
        help="as of python -m vmprof (default: %s)" % DEFAULT)
    parser.add_argument("--no-lifetimes", action="store_true",
                        help="do not find out what becomes of the sampled objects")
    parser.add_argument(
        "--lines", action="store_true",
        help="with the line at which each function is (--by line), as far as it is "
             "known: what PyPy has compiled before has none; takes time whenever it "
             "compiles")


def add_raw_memory(parser: Any) -> None:
    parser.add_argument(
        "--raw-memory", metavar="BYTES",
        help="sample what C code has of malloc from now on, too, one sample in so many "
             "bytes, for example 512k; the report's --raw shows it")


def check_seconds(name: str, seconds: float) -> None:
    """Raise AllocationSamplingError."""
    if not 0 < seconds <= _MAX_SECONDS:
        raise AllocationSamplingError(
            "the %s %r is no number of seconds; write for example 10"
            % (name, seconds))


def check_file(output: str) -> None:
    """Raise AllocationSamplingError if `output` exists and is not an earlier profile.

    The program would wait for the reader of a pipe.
    """
    if not os.path.exists(output):
        return
    if not os.path.isfile(output):
        raise AllocationSamplingError(
            "can't write the profile to %r: it is no file" % output)
    try:
        fd = os.open(output, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return              # the program may read it, or reports the error
    try:
        check_replaceable(fd, output)
    finally:
        os.close(fd)


def has_descriptors(pid: int) -> bool:
    """Whether it can open a file; True if that is not known."""
    try:
        with open("/proc/%d/limits" % pid, encoding="ascii") as file:
            limit = next(line.split()[3] for line in file
                         if line.startswith("Max open files"))
        return limit == "unlimited" or sum(
            int(fd) < int(limit) for fd in os.listdir("/proc/%d/fd" % pid)) < int(limit)
    except (OSError, ValueError, IndexError, StopIteration):
        return True


def read_status(pid: int | str) -> dict[str, str]:
    """/proc/PID/status.  Raises OSError."""
    with open("/proc/%s/status" % pid, encoding="utf-8", errors="replace") as file:
        return {name: value.strip() for name, _, value in (
            line.partition(":") for line in file)}


def executable(pid: int) -> str | None:
    """The file that it runs; None: it is gone, or not for us to know."""
    try:
        return os.readlink("/proc/%d/exe" % pid)
    except OSError:
        return None


def children(pid: int) -> list[int]:
    """Those that run the same program, as workers do.  Empty, too, where `pid` is gone,
    or the kernel doesn't say."""
    pids: list[int] = []
    # of each thread those that it made
    for name in glob.glob("/proc/%d/task/*/children" % pid):
        with contextlib.suppress(OSError), open(name, encoding="ascii") as file:
            pids += map(int, file.read().split())
    own = executable(pid)
    return [child for child in sorted(pids) if own and executable(child) == own]


def family(pid: int) -> list[int]:
    """It, and what came of it; each before its own children."""
    found = [pid]
    for parent in found:
        found += children(parent)
    return found
