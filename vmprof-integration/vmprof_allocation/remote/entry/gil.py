"""Find the function that creates PyPy's GIL, for programs that never used threads.

Such a program has no GIL yet, and a thread that waits for the GIL ends the process.
RPyGilAllocate() creates the GIL, but no build exports this function. It is found by its
effect. The function returns if the word rpy_waiting_threads is not negative. Otherwise,
it makes two mutexes and a condition, stores 0 in this word, and jumps to
pthread_atfork(). The initial value of the word in PyPy's file is -42.
"""
from __future__ import annotations

import os
from typing import BinaryIO, NamedTuple

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry.gil_code import MACHINES
from vmprof_allocation.remote.entry.maps import Mapping

#: value of rpy_waiting_threads if the GIL does not exist
NOT_MADE = -42


class Gil(NamedTuple):
    """Addresses of the GIL's word and of its function in this process.

    In another process, they are at the same offsets from PyPy's load address.
    """

    #: the address of rpy_waiting_threads
    waiting: int
    #: the address of RPyGilAllocate()
    allocate: int


def find(maps: list[Mapping], libpypy: Mapping, machine: str | None = None) -> Gil:
    """Find RPyGilAllocate() and rpy_waiting_threads in the mappings of this process.

    Args:
        maps: the mappings of this process.
        libpypy: a mapping of the file that contains PyPy.
        machine: name of the machine that the file is for, as in os.uname(). None for
            this machine.

    Raises:
        AllocationSamplingError: the function was not found, or was found several times.
    """
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
            "this build of PyPy is not known: the function that makes its lock was "
            "found %d times in %s instead of once" % (len(good), libpypy.path))
    return good[0]


def _is_initial(file: BinaryIO, data: Mapping, address: int) -> bool:
    file.seek(data.offset + address - data.start)
    return int.from_bytes(file.read(8), "little", signed=True) == NOT_MADE
