"""How Python code enters the GC at a moment of its choice."""
from __future__ import annotations

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: bytes of an object that PyPy makes with external_malloc(), whatever its
#: version: more than fit into any nursery's share for one object
_LARGE = 2**18

_zero = b"\0"
#: what is stored here was really allocated, whatever the JIT thinks
sink: list[Any] = [None, 0]


def reach_safepoint() -> None:
    """Allocate one large object, each time of another size, as the JIT would work the
    same out beforehand.  The native half does there what it was asked for: see
    native/hook/hook.h."""
    sink[1] = size = (sink[1] + 1) % 1024
    sink[0] = _zero * (_LARGE + size)
    sink[0] = None
