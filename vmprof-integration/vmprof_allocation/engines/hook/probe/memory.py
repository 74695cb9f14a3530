"""Read the objects of this process in memory, and check the type table.

The other modules of the probe use this module.  A type's *row* is its index in the GC's
list of types, and its *number* is the offset of its entry in the type table.
"""
from __future__ import annotations

import gc as _gc
import os
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from vmprof_allocation.engines.hook.discovery.layout import Layout
from vmprof_allocation.engines.hook.discovery.process import (
    PT_LOAD,
    Mapping,
    Process,
    read_maps,
)

#: PyPy's module, which has more functions than CPython's.
gc: Any = _gc

#: The maximum size of an entry of the type table in bytes.
ENTRY = 64
#: The size of the smallest object in bytes, which has room for a forwarding address.
SMALLEST = 16
#: The part of a header with the type's number; the upper half has the flags.
TYPE = 0xffffffff


class NotCertain(Exception):
    """The answer to a question is not certain; the message has the unexpected fact."""


class Own(Process):
    """This process, if it runs the build that was searched."""

    def __init__(self, layout: Layout):
        """Check that the result of the search fits this process.

        Args:
            layout: the result of the search.

        Raises:
            NotCertain: this process runs another build.
        """
        self._searched = layout
        super().__init__()

    def _load_layout(self, told: str) -> Layout:
        build_id = self._build_id()
        if build_id != self._searched.build_id:
            raise NotCertain("this process runs another build, %s" % build_id)
        self.place.types = self._ffi.NULL
        return self._searched

    def data(self) -> tuple[int, int]:
        """Return the address and size of the segment with the GC's fields."""
        for kind, _, start, size in self._segments():
            if kind == PT_LOAD and start <= self._searched.gc < start + size:
                return self.place.base + start, size
        raise NotCertain("the GC's own words are in no segment")


def limits(is_wanted: Callable[[Mapping], bool]) -> list[int]:
    """Return the sorted begins and ends of all mappings with is_wanted(mapping)."""
    return sorted(limit for mapping in read_maps() if is_wanted(mapping)
                  for limit in (mapping.start, mapping.end))


def is_within(limits: list[int], address: int) -> bool:
    """Return whether an address is within one of the mappings of limits()."""
    # most words are small numbers
    return limits[0] <= address and bisect_right(limits, address) % 2 == 1


def is_data(mapping: Mapping) -> bool:
    """Return whether a mapping is writable data."""
    return mapping.permissions[:3] == "rw-"


class Differing(NamedTuple):
    """The objects that differ between our walk of the heap and the GC's."""

    #: The number of these objects, or the negated error code of hook_held().
    found: int
    #: The addresses of some of these objects.
    addresses: list[int]


class Snapshot:
    """A copy of a part of the nursery, with the objects `made` and others."""

    def __init__(self, made: Any, start: int, words: list[int]):
        """Store the copy.

        Args:
            made: the objects for which the copy was made.
            start: the address of the copied memory.
            words: the content of this memory.
        """
        self.made = made
        self.start = start
        self.words = words


class Memory:
    """The memory of this process; addresses are absolute."""

    def __init__(self, layout: Layout):
        """Prepare to read the memory.

        Raises:
            NotCertain: this process runs another build.
        """
        process = Own(layout)
        self._ffi, self.layout = process.place.ffi, layout
        self._lib = process.place.lib
        self.gc = process.place.base + layout.gc
        self.free = process.place.word(layout.nursery_free)
        self.table = process.place.base + layout.type_info
        #: The address and size of the segment with the GC's fields.
        self.data = process.data()
        self._file = os.open("/proc/self/mem", os.O_RDONLY)
        self._copy = self._ffi.new("uint64_t[]", 2**16)

    def bytes_at(self, address: int, size: int) -> bytes:
        """Return the bytes at an address, or b"" if they are not mapped."""
        try:
            data = os.pread(self._file, size, address)
        except (OSError, OverflowError):
            return b""
        return data if len(data) == size else b""

    def words(self, address: int, count: int) -> list[int]:
        """Return the words at an address, or an empty list if they are not mapped."""
        return memoryview(self.bytes_at(address, count * 8)).cast("Q").tolist()

    def word(self, address: int) -> int:
        """Return the word at an address, or 0 if it is not mapped."""
        return (self.words(address, 1) or [0])[0]

    def _take(self, start: int, end: int) -> None:
        """Copy a part of the nursery in one call.

        Slower ways to read would allocate, and so overwrite the nursery, or cause a
        collection.
        """
        self._ffi.memmove(self._copy, self._ffi.cast("char *", start),
                          end - start)

    def _taken(self, start: int, end: int) -> list[int]:
        return list(self._copy[0:(end - start) // 8])

    def held_compare(self, types: bytes, question: int, dump: bytes,
                     most: int) -> Differing:
        """Compare the walk of native/held with a dump of the heap, in a forked process.

        Args:
            types: the text for native/held.
            question: the id() of the list from heap_snapshot.question().
            dump: the output of gc.dump_rpy_heap().
            most: the maximum number of addresses in the result.
        """
        words = self._ffi.new("int64_t[]", len(dump) // 8)
        self._ffi.memmove(words, dump, len(words) * 8)
        text = self._ffi.new("char[]", types)
        differ = self._ffi.new("uint64_t[]", most)
        count = int(self._lib.hook_held_compare(
            self.table, text, len(types), question, words, len(words), differ, most))
        return Differing(count, list(differ[0:max(0, min(count, most))]))

    def again(self, snapshot: Snapshot) -> list[int]:
        """Return the present words in the memory of a snapshot, after a collection.

        Raises:
            NotCertain: new objects have overwritten the memory.
        """
        end = snapshot.start + len(snapshot.words) * 8
        self._take(snapshot.start, end)
        if int(self.free[0]) >= snapshot.start:
            raise NotCertain("there is no free memory before the new objects")
        return self._taken(snapshot.start, end)

    def made_by(self, make: Callable[[], Any]) -> Snapshot:
        """Return a copy of the objects that `make` allocates in the nursery.

        Raises:
            NotCertain: in each attempt, a collection moved the objects.
        """
        for _ in range(10):
            start = int(self.free[0])
            made = make()
            end = int(self.free[0])
            # the following lines allocate, too
            if 0 < end - start <= len(self._copy) * 8:
                self._take(start, end)
                if int(self.free[0]) >= end:
                    return Snapshot(made, start, self._taken(start, end))
        raise NotCertain("a collection ran each time that objects were made")


class Types:
    """The type table, and the GC's list of types."""

    #: In an entry of the table: the offset of a word with flags, the flag for objects
    #: with a length, and the offset of the word that contains the offset of the length
    #: in an object.
    bits: int
    is_varsize: int
    length: int

    def __init__(self, memory: Memory):
        """Read the GC's list of types, and check it.

        Raises:
            NotCertain: the list is not as expected.
        """
        self._memory = memory
        #: RPython's name of each row, without "memberN".
        self.names: list[str] = []
        for i, line in enumerate(
                zlib.decompress(gc.get_typeids_z()).decode().splitlines()):
            member, _, name = line.partition(" ")
            if member != "member%d" % i:
                raise NotCertain("line %d of the GC's list of types describes %s"
                                 % (i, member))
            self.names.append(name.strip())
        #: The number of each row; 0 for row 0 and for rows without a type.
        self.numbers: list[int] = gc.get_typeids_list()
        if not 0 <= len(self.names) - len(self.numbers) <= 1:
            raise NotCertain("%d types have %d names" % (
                len(self.numbers), len(self.names)))
        self.rows = {number: row for row, number in enumerate(self.numbers)
                     if number}
        self._look()

    def entry(self, number: int) -> list[int]:
        """Return the words of an entry of the type table."""
        return self._memory.words(self._memory.table + number, ENTRY // 8)

    def _look(self) -> None:
        """Find `bits`, `is_varsize` and `length` in the entries of known types."""
        arrays = [self.entry(n) for n, row in self.rows.items()
                  if self.names[row].startswith("GcArray of ")]
        instances = [self.entry(n) for n, row in self.rows.items()
                     if self.names[row].startswith("GcStruct pypy.")]
        strings = [self.entry(n) for n, row in self.rows.items()
                   if self.names[row].startswith("GcStruct rpy_string {")]
        if len(arrays) < 50 or len(instances) < 500 or len(strings) != 1:
            raise NotCertain("the GC's list has %d arrays, %d classes, %d "
                             "strings" % (len(arrays), len(instances),
                                          len(strings)))
        known = {self._memory.layout.type_fixed_size // 8,
                 self._memory.layout.type_item_size // 8}
        found = []
        # the entry of a type without a length ends after the common part
        for i in range(min(known) + 1):
            every, some = ~0, 0
            for entry in arrays:
                every &= entry[i]
            for entry in instances:
                some |= entry[i]
            bits = every & ~some & (2**64 - 1)
            if i not in known and bits and not bits & bits - 1:
                found.append((i * 8, bits))
        # the length follows the header of an array, and the hash of a string
        lengths = [i * 8 for i in range(ENTRY // 8) if i not in known
                   and strings[0][i] == 16 and all(a[i] == 8 for a in arrays)]
        if len(found) != 1 or len(lengths) != 1:
            raise NotCertain("%d bits can distinguish arrays from classes, and %d "
                             "words can be the offset of the "
                             "length" % (len(found), len(lengths)))
        ((self.bits, self.is_varsize),), (self.length,) = found, lengths

    def size(self, words: list[int], at: int = 0) -> int:
        """Return the size in bytes that the GC reserves for an object.

        Args:
            words: the words of memory that contains the object.
            at: the index of the object's header in `words`.

        Returns:
            0 if the header is invalid.
        """
        number = words[at] & TYPE
        if number not in self.rows:
            return 0
        entry, layout = self.entry(number), self._memory.layout
        size = entry[layout.type_fixed_size // 8]
        if entry[self.bits // 8] & self.is_varsize:
            size += (entry[layout.type_item_size // 8]
                     * words[at + entry[self.length // 8] // 8])
        return max(size + 7 & ~7, SMALLEST)

    def number_of(self, thing: object) -> int:
        """Return the number of the type of an object or GcRef."""
        return self.numbers[int(gc.get_rpy_type_index(thing))]

    def walk(self, snapshot: Snapshot) -> Iterator[tuple[int, int]]:
        """Yield (header, address) of each object in a copy of the nursery.

        Raises:
            NotCertain: the objects do not fill the memory exactly.
        """
        at, words = 0, snapshot.words
        while at < len(words):
            yield words[at], snapshot.start + at * 8
            size = self.size(words, at)
            at += size // 8
            if size == 0 or at > len(words):
                raise NotCertain("objects that were made together are not consecutive")
