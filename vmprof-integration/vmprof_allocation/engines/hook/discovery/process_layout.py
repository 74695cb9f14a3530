"""The layout of this process: a build profile, and the load address of the build."""
from __future__ import annotations

from vmprof_allocation.engines.hook.discovery.layout import SWAPPED

# import only necessary modules: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vmprof_allocation.engines.hook.discovery.layout import Layout


class ProcessLayout:
    """The layout of this process, with access to the memory of PyPy's library."""

    __slots__ = ("base", "ffi", "layout", "lib", "path", "types")

    #: The build profile, which process.py sets.
    layout: Layout
    #: The names of types in memory of hook_room(); NULL if they are unknown.
    types: Any

    def __init__(self, ffi: Any, lib: Any, path: str, base: int):
        """Store the parameters.

        Args:
            ffi: cffi's FFI.
            lib: the native half of the engine.
            path: the file with PyPy's code.
            base: the address at which this file is loaded.
        """
        self.ffi = ffi
        self.lib = lib
        self.path = path
        self.base = base

    def bytes_at(self, address: int, size: int) -> bytes:
        """Return memory of the library; `address` is relative to `base`."""
        return bytes(self.ffi.buffer(
            self.ffi.cast("char *", self.base + address), size))

    def entry(self, number: int) -> Any:
        """Return a cffi pointer to the bytes that one store replaces.

        Args:
            number: the index of the function in ENTRIES.
        """
        return self.ffi.cast("uint%d_t *" % (8 * SWAPPED[self.layout.machine]),
                             self.base + self.layout.entry[number])

    def word(self, address: int) -> Any:
        """Return a cffi pointer to a word; `address` is relative to `base`."""
        return self.ffi.cast("uint64_t *", self.base + address)
