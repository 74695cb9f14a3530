"""Where the memory of this process is: what Linux, malloc and the garbage collector
say, side by side.  vmprof_convert.analysis.where_memory makes a table of it that adds
up.

Nothing is collected for it, and nothing given back.  What it reads it does not keep.
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

#: PyPy's, which has more than others
gc: Any = _gc

#: incminimark's state
_SWEEPING = 2
#: bytes that the GC requests in addition to the nursery's size: room for the largest
#: object that it allocates there (nonlarge_max + 1 in incminimark)
_BESIDE_NURSERY = (16384 + 512) * 8
#: instead of where the GC's state is: it counts its objects also while it sweeps
COUNTED_ON = "counted-on"


def read(state: str = "") -> dict[str, int]:
    """Return counts and sizes, in bytes; unknown entries are missing.

    ===================  ============================================================
    KIND.resident        and .private, .swapped, .size: of each kind of mapping
                         (mappings.Amount)
    arenas, huge         how many arenas malloc has; bytes of huge pages that are
                         reserved (hugetlbfs), which no other figure has
    transparent          of what is resident, in pages that the kernel made huge by
                         itself
    peak                 the most that was resident since the process began
    gc.blocks            objects in the GC's arenas, dead ones included that it has
                         not swept yet.  Not there while it sweeps: it counts anew
    gc.arenas, gc.large  what it has of malloc: for these; for each larger object,
    gc.nursery           dead ones included; and for its nursery
    gc.nursery.written   bytes of the nursery that are resident or swapped out. The
                         nursery's block is found by its size; absent if that is not
                         unique
    gc.sweeps            1 or 0; not there: it is not known
    malloc.used          of malloc's arenas, in use; free; both, and what it needs
    malloc.free          itself
    malloc.arenas
    malloc.mapped        blocks with a mapping each, in use.  These four are there if
                         malloc is glibc's
    cgroup.limit         of the cgroup that has the least left; and what its
    cgroup.used          processes have together
    cgroup.files         of files, which it gives back
    threads
    ===================  ============================================================

    `state`: where the GC says whether it sweeps, as the engine of another process that
    runs the same build has it (Engine.gc_state()).  Raises AllocationSamplingError.
    """
    found: dict[str, int] = {}
    try:
        maps = mappings.places()
        sweeps = _Sweeping(maps, state)
        before = sweeps.now()
        # from here on, as little as possible is allocated
        told = gc._get_stats()
        after = sweeps.now()
        counted = _malloc(maps)
        maps = mappings.read()
        kinds = mappings.Kinds(maps, address_in_pypy())
        written = kinds.written(int(told.nursery_size) + _BESIDE_NURSERY)
    except (OSError, ValueError) as e:
        raise AllocationSamplingError(
            "where the memory is can't be read in /proc: %s" % e) from None
    except AttributeError as e:
        raise AllocationSamplingError(
            "this interpreter does not tell what its garbage collector has: %s"
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
    """Empty: it is not known."""
    try:
        allocator = Allocator()
    except AttributeError:
        return {}
    library = mappings.file_at(maps, allocator.address())
    if library is not None and os.path.basename(library.name) == "_hook.so":
        # raw memory is sampled: of what has malloc's place, this is left alone
        library = mappings.file_at(maps, allocator.address("malloc_usable_size"))
    if library is None or not os.path.basename(library.name).startswith(
            ("libc.so", "libc-")):
        return {}
    counted = allocator.count()
    return {"malloc.used": counted[USED], "malloc.free": counted[FREE],
            "malloc.arenas": counted[ARENA], "malloc.mapped": counted[MAPPED]}


class _Sweeping:
    """Whether the GC sweeps."""

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
        """None: it is not known."""
        if self._is_counted_on:
            return False
        if not self._address:
            return None
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(self._address)
            word = memory.read(4)
        return int.from_bytes(word, "little") == _SWEEPING


def gc_state(library: str, offset: int) -> str:
    """For read(), in another process: where the GC's state is.  `offset`: in bytes from
    where PyPy's library is loaded.  Empty: this process has no such file."""
    for mapping in mappings.places():
        if mapping.name == library and mapping.offset == 0:
            return "%s %d %d" % (mapping.device, mapping.inode, offset)
    return ""
