"""Where things are in this process: a layout, and where it is loaded."""
from __future__ import annotations

from vmprof_allocation.engines.hook.discovery.layout import SWAPPED

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vmprof_allocation.engines.hook.discovery.layout import Layout


class ProcessLayout:
    __slots__ = ("base", "ffi", "layout", "lib", "path", "types")

    #: what process.py knows next
    layout: Layout
    #: the names of types (hook_room()); NULL: they are not known
    types: Any

    def __init__(self, ffi: Any, lib: Any, path: str, base: int):
        #: cffi's FFI, and the native half of the engine
        self.ffi = ffi
        self.lib = lib
        #: the file that holds PyPy's code, and where it is loaded
        self.path = path
        self.base = base

    def bytes_at(self, address: int, size: int) -> bytes:
        """Memory of the library; `address` relative to where it is loaded."""
        return bytes(self.ffi.buffer(
            self.ffi.cast("char *", self.base + address), size))

    def entry(self, number: int) -> Any:
        """A cffi pointer to what is swapped at once at the entry of a function of
        ENTRIES."""
        return self.ffi.cast("uint%d_t *" % (8 * SWAPPED[self.layout.machine]),
                             self.base + self.layout.entry[number])

    def word(self, address: int) -> Any:
        """A cffi pointer to a word in memory; `address` likewise."""
        return self.ffi.cast("uint64_t *", self.base + address)
