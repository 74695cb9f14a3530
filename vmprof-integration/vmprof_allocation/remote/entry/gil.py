"""PyPy's lock, in a program that never used threads: it has none yet, and who waits for
it ends the process.

What makes it is RPyGilAllocate(), which no build exports.  It is found by what it does:
it is the function that leaves alone what is not negative, and else makes two mutexes
and a condition, stores zero there, and goes on in pthread_atfork().  That word is -42
in PyPy's file.
"""
from __future__ import annotations

import os
from typing import BinaryIO, NamedTuple

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry.gil_code import MACHINES
from vmprof_allocation.remote.entry.maps import Mapping

#: rpy_waiting_threads, where there is no lock
NOT_MADE = -42


class Gil(NamedTuple):
    """Addresses, in this process: those of another one with the same file are as far
    from each other."""

    #: rpy_waiting_threads
    waiting: int
    #: RPyGilAllocate()
    allocate: int


def find(maps: list[Mapping], libpypy: Mapping, machine: str | None = None) -> Gil:
    """In this process's maps.  `machine`: another one than this, as os.uname() has it.
    Raises AllocationSamplingError."""
    in_code = MACHINES[machine or os.uname().machine]
    found = set()
    ours = [m for m in maps if m.file == libpypy.file]
    with open(libpypy.path, "rb") as file:
        for code in ours:
            if "x" not in code.permissions:
                continue
            file.seek(code.offset)
            for one in in_code(file.read(code.end - code.start)):
                if one.asked == one.stored:
                    found.add(Gil(code.start + one.asked, code.start + one.function))
        good = [gil for gil in found for data in ours
                if data.start <= gil.waiting < data.end
                and "w" in data.permissions and _is_initial(file, data, gil.waiting)]
    if len(good) != 1:
        raise AllocationSamplingError(
            "this build of PyPy is not known: what makes its lock was found %d times "
            "in %s, and not once" % (len(good), libpypy.path))
    return good[0]


def _is_initial(file: BinaryIO, data: Mapping, address: int) -> bool:
    file.seek(data.offset + address - data.start)
    return int.from_bytes(file.read(8), "little", signed=True) == NOT_MADE
