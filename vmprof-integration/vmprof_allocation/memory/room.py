"""The limits of this process: its address space, and the size of its files."""
from __future__ import annotations

import os

from vmprof_allocation.errors import AllocationSamplingError

#: bytes that a question at the program's end takes at most, with all modules.
#: PyPy aborts if it gets no more memory.  snapshot_limits.c checks again.
_ROOM = 2**25


def may_write(size: int) -> bool:
    """Return whether a new file may have `size` bytes (RLIMIT_FSIZE).

    A larger one raises SIGXFSZ, whose default action ends the process.
    """
    try:
        return int(_limit("Max file size")) >= size
    except (OSError, ValueError):
        return True             # "unlimited", or no /proc


def _limit(name: str) -> str:
    """Return the soft limit of this `name`. Raises OSError or ValueError."""
    with open("/proc/self/limits", encoding="ascii") as file:
        (limit,) = [line[len(name):].split()[0] for line in file
                    if line.startswith(name)]
    return limit


def refuse_if_short(what: str) -> None:
    """Raise AllocationSamplingError if the process may hardly get more memory.  `what`
    is not done then, for people."""
    try:
        limit = _limit("Max address space")
        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return                  # it is tried
    left = max(0, int(limit) - taken) if limit.isdigit() else _ROOM
    if left < _ROOM:
        raise AllocationSamplingError(
            "%s: the limit of the program's address space "
            "(RLIMIT_AS) leaves it %d MiB, and that takes up to %d" % (
                what, left >> 20, _ROOM >> 20))
