"""How many bytes C code has of malloc, beside those of the GC's heap: for the pytest
plugin, whose samples of it say who asked, where they are possible, and see not all.

malloc counts exactly what is in use, and PyPy's GC has all of its heap of malloc.  (The
process's private memory grows and shrinks by 5 MiB with work that keeps nothing, as
malloc and the GC keep what was freed; and a leak of C memory first takes that.)
"""
from __future__ import annotations

import functools
import gc

from vmprof_allocation.memory.allocator import MAPPED, USED, Allocator

#: bytes that are no leak yet: where nothing is kept, what is read here grew by up to
#: 79 KiB in the first ten calls, and by 2 KiB in the next ten (11 kinds of work)
NOISE = 2**15


#: made once: what is made to ask would count as the test's
_allocator = functools.cache(Allocator)


def read() -> int | None:
    """None: this PyPy or this C library doesn't tell (glibc does from 2.33 on), or
    malloc is another one than glibc's."""
    try:
        malloc = _allocator()
        # its properties are texts, as "2.4MB"
        heap: int = gc.get_stats()._s.total_allocated_memory  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None
    counted = malloc.count()
    bytes_ = counted[USED] + counted[MAPPED] - heap
    return bytes_ if bytes_ >= 0 else None
