"""PyPy's lock, in a program that never used threads: it has none yet, and who waits for
it ends the process.

What makes it is RPyGilAllocate(), which no build exports.  It is found by what it does:
it is the function that leaves alone what is not negative, and else makes two mutexes
and a condition, stores zero there, and goes on in pthread_atfork().  That word is -42
in PyPy's file.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry.maps import Mapping

#: rpy_waiting_threads, where there is no lock
NOT_MADE = -42

#: what is rare in it: pthread_atfork(0, 0, f), jumped to
_LAST = b"\x31\xf6\x31\xff\x48\x83\xc4\x08\xe9"
_MAX_SIZE = 300
_FUNCTION = re.compile(
    rb"(?:\xf3\x0f\x1e\xfa)?"               # endbr64
    rb"\x48\x83\x3d(?P<asked>.{4})\x00"     # cmpq $0, waiting
    rb"\x78.\xc3.{0,8}?"                    # js +; ret; nop
    rb"\x48\x83\xec\x08\x31\xf6\x48\x8d\x3d.{4}\xe8.{4}\x85\xc0"    # pthread_mutex_init
    rb".{1,160}?"
    rb"\x48\xc7\x05(?P<stored>.{4})\x00{4}"     # movq $0, waiting
    rb"\x48\x8d\x15.{4}" + re.escape(_LAST), re.DOTALL)


class Gil(NamedTuple):
    """Addresses, in this process: those of another one with the same file are as far
    from each other."""

    #: rpy_waiting_threads
    waiting: int
    #: RPyGilAllocate()
    allocate: int


def find(maps: list[Mapping], libpypy: Mapping) -> Gil:
    """In this process's maps.  Raises AllocationSamplingError."""
    found = set()
    ours = [m for m in maps if m.file == libpypy.file]
    with open(libpypy.path, "rb") as file:
        for code in ours:
            if "x" not in code.permissions:
                continue
            file.seek(code.offset)
            for match in _matches(file.read(code.end - code.start)):
                words = {code.start + match.end(name) + behind + int.from_bytes(
                    match[name], "little", signed=True)
                    for name, behind in (("asked", 1), ("stored", 4))}
                if len(words) == 1:
                    found.add(Gil(words.pop(), code.start + match.start()))
        good = [gil for gil in found for data in ours
                if data.start <= gil.waiting < data.end
                and "w" in data.permissions and _is_initial(file, data, gil.waiting)]
    if len(good) != 1:
        raise AllocationSamplingError(
            "this build of PyPy is not known: what makes its lock was found %d times "
            "in %s, and not once" % (len(good), libpypy.path))
    return good[0]


def _matches(code: bytes) -> Iterator[re.Match[bytes]]:
    at = code.find(_LAST)
    while at >= 0:
        end = at + len(_LAST)
        yield from _FUNCTION.finditer(code, max(0, end - _MAX_SIZE), end)
        at = code.find(_LAST, end)


def _is_initial(file: BinaryIO, data: Mapping, address: int) -> bool:
    file.seek(data.offset + address - data.start)
    return int.from_bytes(file.read(8), "little", signed=True) == NOT_MADE
