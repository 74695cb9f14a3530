"""The number of bytes that C code has allocated outside of the GC's heap.

malloc counts exactly how many bytes are in use.  This number minus the size of the GC's
heap is the result, because PyPy's GC allocates its whole heap with malloc.  The
process's private memory would be a worse measure.  It grows and shrinks by 5 MiB with
work that leaks nothing, because malloc and the GC keep freed memory.
"""
from __future__ import annotations

import functools
import gc

from vmprof_allocation.memory.allocator import MAPPED, USED, Allocator

#: Maximum growth in bytes that is no leak.  In 11 kinds of work without a leak, the
#: number of bytes grew by up to 79 KiB during the first ten calls, and by 2 KiB during
#: the next ten.
NOISE = 2**15


#: The Allocator is made once, because its own memory would count as the test's.
_allocator = functools.cache(Allocator)


def read_bytes() -> int | None:
    """Return the number of bytes in use that malloc has outside of the GC's heap.

    Returns:
        None if this PyPy or this C library does not count bytes (glibc before 2.33), or
        if the program uses another malloc than glibc's.
    """
    try:
        malloc = _allocator()
        # public attributes of gc.get_stats() are texts, such as "2.4MB"
        heap: int = gc.get_stats()._s.total_allocated_memory  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None
    counted = malloc.count()
    bytes_ = counted[USED] + counted[MAPPED] - heap
    return bytes_ if bytes_ >= 0 else None
