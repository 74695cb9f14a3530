"""Safepoint allocations: Python code enters the GC at a moment of its choice."""
from __future__ import annotations

# no import of typing at run time: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The size in bytes of an object that every version of PyPy allocates with
#: external_malloc(): it is larger than any nursery's limit for one object.
_LARGE = 2**18

_zero = b"\0"
#: The JIT cannot remove the allocation of an object that is stored here.
sink: list[Any] = [None, 0]


def reach_safepoint() -> None:
    """Allocate one large object, so that the native half runs within the GC.

    Within the GC, the native half handles the requests (native/hook/hook.h).  The size
    of the object changes with each call, because the JIT would otherwise compute the
    same object in advance.
    """
    sink[1] = size = (sink[1] + 1) % 1024
    sink[0] = _zero * (_LARGE + size)
    sink[0] = None
