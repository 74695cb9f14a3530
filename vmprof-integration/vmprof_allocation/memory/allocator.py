"""What glibc's malloc counts: exact, also where no sampler was there."""
from __future__ import annotations

import _cffi_backend as _backend

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: cffi, without what reads C
backend: Any = _backend
#: of struct mallinfo2: bytes that its arenas have of the system; of these, in use and
#: free; and bytes of blocks that have a mapping each, all in use
ARENA, USED, FREE, MAPPED = "arena", "uordblks", "fordblks", "hblkhd"
_FIELDS = (ARENA, "ordblks", "smblks", "hblks", MAPPED, "usmblks", "fsmblks", USED,
           FREE, "keepcost")


class Allocator:
    """malloc, and what counts for it, in this process."""

    def __init__(self) -> None:
        """Raises AttributeError: this C library does not count, or wraps at 4 GiB
        (glibc before 2.33, musl)."""
        self._library = backend.load_library(None, 0)
        number = backend.new_primitive_type("size_t")
        info = backend.new_struct_type("struct mallinfo2")
        backend.complete_struct_or_union(
            info, [(name, number, -1) for name in _FIELDS])
        self._mallinfo = self._library.load_function(
            backend.new_function_type((), info), "mallinfo2")

    def count(self) -> dict[str, int]:
        """Takes the lock of each arena, one after the other: 6 ms with 290 MB that
        are free in nine of them."""
        told: Any = self._mallinfo()
        return {name: int(getattr(told, name)) for name in (ARENA, USED, FREE, MAPPED)}

    def address(self, name: str = "malloc") -> int:
        """Of this function: in another library, where another allocator has its
        place."""
        return _address_of(self._library, name)


def _address_of(library: Any, name: str) -> int:
    """Of a function.  Raises AttributeError: it has none."""
    function = backend.new_function_type((), backend.new_void_type())
    return int(backend.cast(backend.new_primitive_type("uintptr_t"),
                            library.load_function(function, name)))


def address_in_pypy() -> int:
    """Of its code; 0: that function has no name here."""
    try:
        return _address_of(backend.load_library(None, 0), "pypy_main_startup")
    except AttributeError:
        return 0
