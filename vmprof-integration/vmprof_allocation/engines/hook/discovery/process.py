"""Check that a build profile fits this process, before the sampler changes its memory.

The check reads /proc, the ELF header in memory, PyPy's code and the nursery.  Only the
start of sampling needs this module; engine.py removes the module afterwards.
"""
from __future__ import annotations

import errno
import os
import sys

from vmprof_allocation.engines.hook.discovery import lookup
from vmprof_allocation.engines.hook.discovery.layout import (
    ENTRIES,
    IMPORTS,
    SWAPPED,
    Layout,
)
from vmprof_allocation.engines.hook.discovery.process_layout import ProcessLayout
from vmprof_allocation.engines.hook.library import load
from vmprof_allocation.errors import AllocationSamplingError, Evidence

# import only necessary modules: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from vmprof_allocation.errors import Finding

#: The machines that native/hook supports, by their names in os.uname(), and their usual
#: names.
MACHINES = {"x86_64": "x86-64", "aarch64": "AArch64"}
#: Types and flags of segments in ELF.
PT_LOAD, PT_NOTE = 1, 4
PF_X, PF_W = 1, 2

_filler = b"x"
#: The JIT cannot remove the allocation of an object that is stored here.
_sink: list[Any] = [None]


def unsupported() -> str | None:
    """Return the reason why this interpreter cannot be sampled, or None."""
    if sys.implementation.name != "pypy":
        name = {"cpython": "CPython"}.get(sys.implementation.name,
                                          sys.implementation.name)
        return ("allocation sampling needs PyPy, but this is %s %d.%d. Run it with "
                "pypy3" % (name, *sys.version_info[:2]))
    if sys.platform != "linux":
        return ("sampling a stock PyPy needs Linux, but this is %s"
                % sys.platform)
    machine = os.uname().machine
    if machine not in MACHINES or sys.maxsize < 2**32:
        return ("sampling a stock PyPy is possible on %s, but this is %s"
                % (" and ".join(MACHINES.values()), machine))
    return None


def _number(data: bytes, at: int, size: int) -> int:
    """Return the number at an offset in `data`.

    The module struct is not used, because it would stay in the process.
    """
    return int.from_bytes(data[at:at + size], "little")


class Mapping:
    """A mapping of this process's memory, from /proc/self/maps."""

    __slots__ = ("end", "path", "permissions", "start")

    def __init__(self, line: str):
        """Parse a line of /proc/self/maps."""
        fields = line.split(None, 5)
        start, _, end = fields[0].partition("-")
        self.start, self.end = int(start, 16), int(end, 16)
        self.permissions = fields[1]
        self.path = fields[5].rstrip("\n") if len(fields) > 5 else ""


def read_maps() -> list[Mapping]:
    """Return the mappings of this process, in the order of their addresses.

    Raises:
        AllocationSamplingError: /proc is not mounted.
    """
    try:
        # binary, because text would cause a warning with -X warn_default_encoding
        with open("/proc/self/maps", "rb") as file:
            return [Mapping(os.fsdecode(line)) for line in file]
    except OSError as e:
        raise AllocationSamplingError(
            "sampling a stock PyPy needs /proc/self/maps: %s"
            % e.strerror) from None


class Process(Evidence):
    """The addresses of the hooks in this process, checked in memory."""

    def __init__(self, told: str = "") -> None:
        """Find the layout of this build, and check that it fits this process.

        Args:
            told: the text of a layout from another process, or "".

        Raises:
            AllocationSamplingError: this interpreter cannot be sampled.
        """
        super().__init__()
        reason = unsupported()
        if reason is not None:
            raise AllocationSamplingError(reason)
        self._ffi, self._lib = load()
        self.place = ProcessLayout(self._ffi, self._lib, *self._find_library())
        self.place.layout = self._load_layout(told)
        self._check_layout()
        self._check_memory()

    def _find_library(self) -> tuple[str, int]:
        """Return the path of the file with PyPy's code, and the file's load address."""
        maps = read_maps()
        inside = self._main_function(maps)
        for mapping in maps:
            if mapping.start <= inside < mapping.end:
                path = mapping.path
                break
        else:
            raise self.refuse("PyPy's code", "not mapped")
        if not path.startswith("/") or path.endswith(" (deleted)"):
            raise self.refuse(
                "PyPy's code", "its file %r was removed. Start PyPy again" % path)
        base = int(self._lib.hook_base(inside))
        if not base:
            raise self.refuse("PyPy's code", "not in a loaded file")
        self.found("PyPy's code", "%s at 0x%x" % (path, base))
        return path, base

    def _main_function(self, maps: list[Mapping]) -> int:
        """Return the address of a function that libpypy exports."""
        # None searches all files with global symbols.  If a program has loaded libpypy
        # as a plug-in, libpypy may be missing among these files.
        files = [None] + [m.path for m in maps
                          if "x" in m.permissions and "pypy" in m.path]
        for file in files:
            try:
                symbol = self._ffi.addressof(self._ffi.dlopen(file),
                                            "pypy_main_startup")
                return int(self._ffi.cast("uintptr_t", symbol))
            except (AttributeError, OSError, self._ffi.error):
                pass
        raise self.refuse(
            "PyPy's code", "no file of this process exports pypy_main_startup: the "
                           "hook engine needs a PyPy with the library libpypy "
                           "(translated with --shared)")

    def _segments(self) -> list[tuple[int, int, int, int]]:
        """Return (type, flags, address, size) of each segment.

        The ELF header is read from memory, because the file may have been replaced.
        """
        head = self.place.bytes_at(0, 64)
        if head[:6] != b"\x7fELF\x02\x01":
            raise self.refuse("PyPy's code", "it has no 64-bit ELF header")
        table = _number(head, 32, 8)
        entry_size, entries = _number(head, 54, 2), _number(head, 56, 2)
        segments = []
        for i in range(entries):
            entry = self.place.bytes_at(table + i * entry_size, 56)
            segments.append((_number(entry, 0, 4), _number(entry, 4, 4),
                             _number(entry, 16, 8), _number(entry, 40, 8)))
        return segments

    def _build_id(self) -> str:
        for kind, _, address, size in self._segments():
            note = self.place.bytes_at(address, size) if kind == PT_NOTE else b""
            while len(note) >= 12:
                value = 12 + (_number(note, 0, 4) + 3) // 4 * 4
                value_size = _number(note, 4, 4)
                if _number(note, 8, 4) == 3 and note[12:15] == b"GNU":
                    return note[value:value + value_size].hex()
                note = note[value + (value_size + 3) // 4 * 4:]
        raise self.refuse("build-id", "PyPy's library has no build ID")

    def _load_layout(self, told: str) -> Layout:
        """Return this build's layout, from another process, the cache or a search."""
        build_id = self._build_id()
        self.found("build-id", build_id)
        layout = lookup.known(self, build_id, told)
        if layout is None or not self._load_types(layout):
            layout = lookup.search(self, self.place.path, build_id)
            self._load_types(layout)
        return layout

    def _load_types(self, layout: Layout) -> bool:
        """Load the names of types into memory outside of the GC's heap.

        Returns:
            False if the file with the names is missing or invalid.
        """
        self.place.types = self._ffi.NULL
        size = layout.types_size
        memory = self._lib.hook_room(size) if size else self._ffi.NULL
        if not memory:
            return True
        if not lookup.fill(layout, self._ffi.buffer(memory, size)):
            return False
        self.place.types = memory
        return True

    def _check_layout(self) -> None:
        """Check that the layout's addresses are in segments with the right flags."""
        layout = self.place.layout
        machine = os.uname().machine
        if layout.machine != machine:
            raise self.refuse("the machine", "this is %s, but the build profile is for "
                                             "%s"
                              % (machine, layout.machine))
        loaded = [(address, address + size, flags) for kind, flags, address,
                  size in self._segments() if kind == PT_LOAD]
        for what, places, wanted in (
                ("code", layout.entry, PF_X), ("the type table",
                                               [layout.type_info], 0),
                ("data", [layout.gc, layout.nursery_free, layout.nursery_top]
                 + [slot for slot in layout.slot if slot]
                 + [word for word in self._heap(layout) if word]
                 + [word for word in [layout.codemap, layout.jit_phases, layout.roots]
                    if word], PF_W)):
            for place in places:
                if place % (SWAPPED[machine] if what == "code" else 8) or not any(
                        start <= place <= end - 16 and flags & wanted == wanted
                        for start, end, flags in loaded):
                    raise self.refuse("the address of %s" % what, "0x%x"
                                      % place)
        if not (len(layout.entry) == len(layout.moved) == len(layout.code)
                == len(ENTRIES) and len(layout.slot) == len(IMPORTS)
                and all(len(code) == 32 for code in layout.code)
                and 0 <= layout.type_fixed_size < 256
                and 0 <= layout.type_item_size < 256
                and -1 <= layout.type_info_bits < 256
                and -1 <= layout.type_length < 256
                and -1 <= layout.gc_state < layout.nursery_top - layout.gc):
            raise self.refuse("the layout", layout.text().strip()
                              .replace("\n", " "))

    @staticmethod
    def _heap(layout: Layout) -> list[int]:
        return [layout.heap_blocks, layout.heap_arenas, layout.heap_large,
                layout.heap_nursery]

    def _check_memory(self) -> None:
        """Check that PyPy's code and the nursery in memory agree with the layout."""
        layout = self.place.layout
        for name, address, code in zip(ENTRIES, layout.entry, layout.code):
            there = self.place.bytes_at(address, len(code) // 2).hex()
            if there != code:
                raise self.refuse(
                    "%s in memory" % name, "%s, but %s in the file (does "
                    "another tool patch this process?)" % (there, code))
        free = self.place.word(layout.nursery_free)
        top = self.place.word(layout.nursery_top)
        low, high = int(free[0]), int(top[0])
        if not (layout.gc < layout.nursery_free < layout.nursery_top
                and 0 < low <= high and low % 8 == 0):
            raise self.refuse(
                "the nursery", "nursery_free at 0x%x is 0x%x, nursery_top at "
                "0x%x is 0x%x" % (layout.nursery_free, low,
                                  layout.nursery_top, high))
        if not any(m.start <= low and high <= m.end and m.permissions[:2] == "rw"
                   for m in read_maps()):
            raise self.refuse("the nursery", "0x%x-0x%x is not a single writable "
                                             "mapping" % (low, high))
        small, large = 16, 8016
        for _ in range(20):
            # The two allocations differ only in the size of the object.  They are
            # repeated if a collection ran between them.
            high = int(top[0])
            moved = self._moved(free, large) - self._moved(free, small)
            # ljust() makes one object, or two of the same size
            if moved in (large - small, 2 * (large - small)) and high == int(top[0]):
                break
        else:
            if moved == 0:
                raise AllocationSamplingError(
                    "cannot check the address of the nursery: objects of %d bytes do "
                    "not fit. The nursery size %s of PYPY_GC_NURSERY is too small. Set "
                    "the variable to 64k or more, or unset it" % (
                        large, os.environ.get("PYPY_GC_NURSERY", "this size")))
            raise self.refuse(
                "allocating %d bytes more" % (large - small),
                "moved nursery_free by %d, and nursery_top by %d"
                % (moved, int(top[0]) - high))
        self.found("the nursery in memory", "0x%x-0x%x; allocating moves "
                   "nursery_free as expected" % (low, high))

    @staticmethod
    def _moved(free: Any, size: int) -> int:
        """Return by how many bytes nursery_free moves when an object is allocated."""
        before = int(free[0])
        # the JIT neither inlines nor delays this call, at any threshold
        _sink[0] = _filler.ljust(size)
        return int(free[0]) - before

    def prepare_hooks(self) -> None:
        """Pass the addresses to hook_prepare().

        One thread at a time may call this method.

        Raises:
            AllocationSamplingError: PyPy's code cannot be changed in this process.
        """
        place = self._ffi.new("struct hook_place *")
        base, layout = self.place.base, self.place.layout
        place.base = base
        place.nursery_free = base + layout.nursery_free
        place.nursery_top = base + layout.nursery_top
        place.entry = [base + entry for entry in layout.entry]
        place.moved = layout.moved
        place.slot = [slot and base + slot for slot in layout.slot]
        place.slots_read_only = layout.slots_read_only
        place.type_info = base + layout.type_info
        place.type_fixed_size = layout.type_fixed_size
        place.type_item_size = layout.type_item_size
        place.gc = base + layout.gc
        # with this variable, the GC overwrites the words that show which objects
        # survive
        place.gc_state = (-1 if os.environ.get("PYPY_GC_NURSERY_DEBUG")
                          else layout.gc_state)
        place.type_info_bits = layout.type_info_bits
        place.type_is_varsize = layout.type_is_varsize
        place.type_length = layout.type_length
        place.flag_visited = layout.flag_visited
        place.flag_pinned = layout.flag_pinned
        place.forwarded = layout.forwarded
        (place.heap_blocks, place.heap_arenas, place.heap_large,
         place.heap_nursery) = [word and base + word for word in self._heap(layout)]
        place.heap_is_counted_on = layout.heap_is_counted_on
        place.codemap = layout.codemap and base + layout.codemap
        place.jit_phases = layout.jit_phases and base + layout.jit_phases
        place.roots = layout.roots and base + layout.roots
        place.frame_fields = layout.frames or [0] * len(place.frame_fields)
        place.types = self.place.types
        place.types_size = layout.types_size
        error = self._lib.hook_prepare(place)
        if error == errno.ENOMEM:
            raise self.refuse("a page for the hooks", "no page is free within 2 GiB of "
                                                      "PyPy's code. Start the sampling "
                                                      "before the program maps its "
                                                      "memory")
        if error:
            raise self.refuse("changing PyPy's code in memory",
                              os.strerror(error))
        self.found("PyPy's code", "can be hooked")


def look(told: str) -> tuple[ProcessLayout, list[Finding], Callable[[], None]]:
    """Find the layout of this build, and check that it fits this process.

    Args:
        told: the text of a layout from another process, or "".

    Returns:
        The layout of this process, the findings, and Process.prepare_hooks().

    Raises:
        AllocationSamplingError: this interpreter cannot be sampled.
    """
    process = Process(told)
    return process.place, process.findings, process.prepare_hooks
