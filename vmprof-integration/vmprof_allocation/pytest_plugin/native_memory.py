"""The number of bytes that C code has allocated outside of the GC's heap.

malloc counts exactly how many bytes are in use, and PyPy's GC allocates all of its heap
with malloc.  The process's private memory would be a worse measure: malloc and the GC
keep freed memory, so that it grows and shrinks by 5 MiB with work that leaks nothing.
"""
from __future__ import annotations

import functools
import gc

from vmprof_allocation.memory.allocator import MAPPED, USED, Allocator

#: Growth in bytes that is not yet a leak.  Without a leak, the count grew by up to 79
#: KiB during the first ten calls, and by 2 KiB during the next ten (11 kinds of work).
NOISE = 2**15


#: The object is made once, because its own memory would count as the test's.
_allocator = functools.cache(Allocator)


def read_bytes() -> int | None:
    """Return the count.

    Returns:
        None if this PyPy or this C library has no such count (glibc before 2.33), or if
        the program uses another malloc than glibc's.
    """
    try:
        malloc = _allocator()
        # the properties of gc.get_stats() are texts, such as "2.4MB"
        heap: int = gc.get_stats()._s.total_allocated_memory  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None
    counted = malloc.count()
    bytes_ = counted[USED] + counted[MAPPED] - heap
    return bytes_ if bytes_ >= 0 else None
