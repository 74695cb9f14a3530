"""Read the memory counts of Linux, malloc and the garbage collector in this process.

vmprof_convert.analysis.where_memory makes a table of these counts that adds up. Reading
the counts starts no collection, returns no memory to the system, and keeps no memory.
"""
from __future__ import annotations

import gc as _gc
import os

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.memory import cgroup, mappings
from vmprof_allocation.memory.allocator import (
    ARENA,
    FREE,
    MAPPED,
    USED,
    Allocator,
    address_in_pypy,
)

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: PyPy's module gc, which has more functions than other interpreters'
gc: Any = _gc

#: value of the field gc_state of the GC (incminimark) while it sweeps
_SWEEPING = 2
#: bytes that the GC requests for the nursery's block in addition to the nursery's size:
#: the size of the largest object that it allocates there (nonlarge_max + 1 in
#: incminimark)
_BESIDE_NURSERY = (16384 + 512) * 8
#: value of `state` in read() for a GC whose count of blocks is also valid while it
#: sweeps
COUNTED_ON = "counted-on"


def read(state: str = "") -> dict[str, int]:
    """Return counts and sizes, in bytes; unknown counts are missing.

    ===================  ============================================================
    KIND.resident        For each kind of mapping, with KIND.private, KIND.swapped and
                         KIND.size (mappings.Amount).
    arenas, huge         Number of malloc's arenas; bytes of huge pages that are
                         reserved (hugetlbfs), which no other count contains.
    transparent          Part of the resident bytes in pages that the kernel made huge.
    peak                 Largest number of resident bytes since the process began.
    gc.blocks            Objects in the GC's arenas, including dead objects that are not
                         swept. Missing while the GC sweeps, because it counts anew.
    gc.arenas, gc.large  Memory that the GC has from malloc for its arenas, for larger
    gc.nursery           objects (including dead ones), and for the nursery.
    gc.nursery.written   Bytes of the nursery that are resident or swapped out. The
                         nursery's block is found by its size; missing if the size is
                         not unique.
    gc.sweeps            1 if the GC sweeps, otherwise 0; missing if unknown.
    malloc.used          Used bytes of malloc's arenas, free bytes, and the sum of both,
    malloc.free          which includes malloc's bookkeeping.
    malloc.arenas
    malloc.mapped        Bytes of blocks with their own mapping, all in use. These four
                         counts exist only if malloc is glibc's.
    cgroup.limit         Limit of the cgroup with the least bytes left, the usage of its
    cgroup.used          processes, and the part of the usage for cached files, which
    cgroup.files         the kernel can free.
    threads              Number of threads.
    ===================  ============================================================

    Args:
        state: where to read whether the GC sweeps; the result of Engine.gc_state() in
            this process, or in another process with the same build.

    Raises:
        AllocationSamplingError: /proc cannot be read, or this interpreter does not have
            the counts.
    """
    found: dict[str, int] = {}
    try:
        maps = mappings.places()
        sweeps = _Sweeping(maps, state)
        before = sweeps.now()
        # from here on, allocate as little as possible
        told = gc._get_stats()
        after = sweeps.now()
        counted = _malloc(maps)
        maps = mappings.read()
        kinds = mappings.Kinds(maps, address_in_pypy())
        written = kinds.written(int(told.nursery_size) + _BESIDE_NURSERY)
    except (OSError, ValueError) as e:
        raise AllocationSamplingError(
            "cannot read the uses of the resident memory from /proc: %s" % e) from None
    except AttributeError as e:
        raise AllocationSamplingError(
            "this interpreter does not report the memory of its garbage collector: %s"
            % e) from None
    for kind, amount in kinds.amounts.items():
        for name in amount.__slots__:
            found["%s.%s" % (kind, name)] = getattr(amount, name)
    found["arenas"] = len(kinds.arenas)
    found["huge"] = sum(mapping.huge for mapping in maps)
    found["transparent"] = sum(mapping.transparent for mapping in maps)
    for line in cgroup.read("/proc/self/status").splitlines():
        if line.startswith("VmHWM:"):
            found["peak"] = int(line.split()[1]) * 1024
    large, nursery = int(told.total_rawmalloced_memory), int(told.nursery_size)
    found["gc.large"], found["gc.nursery"] = large, nursery
    if written is not None:
        found["gc.nursery.written"] = min(written, nursery)
    found["gc.arenas"] = int(told.total_allocated_memory) - large - nursery
    if before is not None and after is not None:
        found["gc.sweeps"] = int(before or after)
        if state == COUNTED_ON or not found["gc.sweeps"]:
            found["gc.blocks"] = int(told.total_arena_memory)
    found.update(counted)
    limit = cgroup.tightest()
    if limit is not None:
        found.update({"cgroup.limit": limit.most, "cgroup.used": limit.used,
                      "cgroup.files": limit.files})
    found["threads"] = len(os.listdir("/proc/self/task"))
    return found


def _malloc(maps: list[mappings.Mapping]) -> dict[str, int]:
    """Return malloc's counts, or {} if they are unknown."""
    try:
        allocator = Allocator()
    except AttributeError:
        return {}
    library = mappings.file_at(maps, allocator.address())
    if library is not None and os.path.basename(library.name) == "_hook.so":
        # Native memory is sampled. The sampler replaces malloc, but it does not replace
        # malloc_usable_size.
        library = mappings.file_at(maps, allocator.address("malloc_usable_size"))
    if library is None or not os.path.basename(library.name).startswith(
            ("libc.so", "libc-")):
        return {}
    counted = allocator.count()
    return {"malloc.used": counted[USED], "malloc.free": counted[FREE],
            "malloc.arenas": counted[ARENA], "malloc.mapped": counted[MAPPED]}


class _Sweeping:
    """A reader of the GC's state, for whether the GC sweeps."""

    def __init__(self, maps: list[mappings.Mapping], state: str) -> None:
        self._is_counted_on = state == COUNTED_ON
        self._address = 0
        words = state.split()
        if len(words) == 3:
            device, inode, offset = words
            for mapping in maps:
                if (mapping.device, mapping.inode, mapping.offset) == (
                        device, int(inode), 0):
                    self._address = mapping.start + int(offset)
                    break

    def now(self) -> bool | None:
        """Return whether the GC sweeps now, or None if this is unknown.

        For COUNTED_ON, the result is always False.
        """
        if self._is_counted_on:
            return False
        if not self._address:
            return None
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(self._address)
            word = memory.read(4)
        return int.from_bytes(word, "little") == _SWEEPING


def gc_state(library: str, offset: int) -> str:
    """Return as text where the GC's state is in memory, for read() in any process.

    Args:
        library: path of the file with PyPy's code.
        offset: bytes from the load address of this file to the GC's state.

    Returns:
        The text, or "" if this process has not mapped the file.
    """
    for mapping in mappings.places():
        if mapping.name == library and mapping.offset == 0:
            return "%s %d %d" % (mapping.device, mapping.inode, offset)
    return ""
