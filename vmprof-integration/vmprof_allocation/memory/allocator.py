"""Read the byte counts of glibc's malloc, which are exact and need no sampling."""
from __future__ import annotations

import _cffi_backend as _backend

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: the part of cffi that does not contain its C parser
backend: Any = _backend
#: Fields of struct mallinfo2, in bytes. ARENA is the memory of malloc's arenas. USED
#: and FREE are parts of ARENA. MAPPED is blocks with their own mapping, all in use.
ARENA, USED, FREE, MAPPED = "arena", "uordblks", "fordblks", "hblkhd"
_FIELDS = (ARENA, "ordblks", "smblks", "hblks", MAPPED, "usmblks", "fsmblks", USED,
           FREE, "keepcost")


class Allocator:
    """malloc of this process, and its counters."""

    def __init__(self) -> None:
        """Find malloc's functions.

        Raises:
            AttributeError: this C library has no counters (musl), or its counters wrap
                at 4 GiB (glibc before 2.33).
        """
        self._library = backend.load_library(None, 0)
        number = backend.new_primitive_type("size_t")
        info = backend.new_struct_type("struct mallinfo2")
        backend.complete_struct_or_union(
            info, [(name, number, -1) for name in _FIELDS])
        self._mallinfo = self._library.load_function(
            backend.new_function_type((), info), "mallinfo2")

    def count(self) -> dict[str, int]:
        """Return the fields of struct mallinfo2, by name.

        The call takes the lock of each arena, one after the other. It lasts 6 ms with
        nine arenas that have 290 MB free.
        """
        told: Any = self._mallinfo()
        return {name: int(getattr(told, name)) for name in (ARENA, USED, FREE, MAPPED)}

    def address(self, name: str = "malloc") -> int:
        """Return the address of an allocator's function in this process.

        The address is outside of libc if another allocator has replaced malloc.
        """
        return _address_of(self._library, name)


def _address_of(library: Any, name: str) -> int:
    """Return the address of a library's function.

    Raises:
        AttributeError: the library does not have the function.
    """
    function = backend.new_function_type((), backend.new_void_type())
    return int(backend.cast(backend.new_primitive_type("uintptr_t"),
                            library.load_function(function, name)))


def address_in_pypy() -> int:
    """Return an address in PyPy's code, or 0 if pypy_main_startup is not exported."""
    try:
        return _address_of(backend.load_library(None, 0), "pypy_main_startup")
    except AttributeError:
        return 0
