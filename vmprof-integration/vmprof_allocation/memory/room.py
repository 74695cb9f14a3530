"""Check the limits of this process for its address space and the size of its files."""
from __future__ import annotations

import os

from vmprof_allocation.errors import AllocationSamplingError

#: Maximum of the bytes that the sampler's work at the end of the program takes, with
#: all modules. PyPy aborts if it gets no more memory. Before a heap snapshot,
#: snapshot_limits.c checks the memory again.
_ROOM = 2**25


def may_write(size: int) -> bool:
    """Return whether the limit RLIMIT_FSIZE permits a new file of `size` bytes.

    A write beyond this limit raises SIGXFSZ, whose default action ends the process.
    """
    try:
        return int(_limit("Max file size")) >= size
    except (OSError, ValueError):
        return True             # "unlimited", or no /proc


def _limit(name: str) -> str:
    """Return the soft limit with this name in /proc/self/limits.

    Raises:
        OSError: /proc cannot be read.
        ValueError: the file has no limit with this name.
    """
    with open("/proc/self/limits", encoding="ascii") as file:
        (limit,) = [line[len(name):].split()[0] for line in file
                    if line.startswith(name)]
    return limit


def refuse_if_short(what: str) -> None:
    """Check that the address space has room for the sampler's work at the end.

    Args:
        what: beginning of the message, such as "no heap snapshot is taken".

    Raises:
        AllocationSamplingError: less than _ROOM bytes are left.
    """
    try:
        limit = _limit("Max address space")
        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return                  # the limit is unknown, so try
    left = max(0, int(limit) - taken) if limit.isdigit() else _ROOM
    if left < _ROOM:
        raise AllocationSamplingError(
            "%s: the limit of the program's address space (RLIMIT_AS) leaves %d MiB, "
            "but this needs up to %d MiB" % (
                what, left >> 20, _ROOM >> 20))
