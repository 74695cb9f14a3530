"""This process's objects, read where they are: what the other modules here
look with, and the type table, learned and cross-checked."""
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

#: PyPy's, which has more than others
gc: Any = _gc

#: an entry of the type table has no more, in bytes
ENTRY = 64
#: bytes of the smallest object: there is room for a forwarding address
SMALLEST = 16
#: a header: the type's number is its lower half, the flags are its upper one
TYPE = 0xffffffff


class NotCertain(Exception):
    """The message says what was not as it has to be."""


class Own(Process):
    """This process, if it runs the build that was searched."""

    def __init__(self, layout: Layout):
        self._searched = layout
        super().__init__()

    def _load_layout(self, told: str) -> Layout:
        build_id = self._build_id()
        if build_id != self._searched.build_id:
            raise NotCertain("this process runs another build, %s" % build_id)
        self.place.types = self._ffi.NULL
        return self._searched

    def data(self) -> tuple[int, int]:
        """Where the segment that the GC's own words are in is, and its size."""
        for kind, _, start, size in self._segments():
            if kind == PT_LOAD and start <= self._searched.gc < start + size:
                return self.place.base + start, size
        raise NotCertain("the GC's own words are in no segment")


def limits(is_wanted: Callable[[Mapping], bool]) -> list[int]:
    """Of what is mapped now: where each part begins and ends, sorted."""
    return sorted(limit for mapping in read_maps() if is_wanted(mapping)
                  for limit in (mapping.start, mapping.end))


def is_within(limits: list[int], address: int) -> bool:
    # (most words are small numbers)
    return limits[0] <= address and bisect_right(limits, address) % 2 == 1


def is_data(mapping: Mapping) -> bool:
    return mapping.permissions[:3] == "rw-"


class Differing(NamedTuple):
    """Objects that look different in two walks."""

    #: negative: hook_held()'s outcome, as there is no answer
    found: int
    #: of some of them
    addresses: list[int]


class Snapshot:
    """Of a part of the nursery: `made` and what came along with it."""

    def __init__(self, made: Any, start: int, words: list[int]):
        self.made = made
        self.start = start
        self.words = words


class Memory:
    """Addresses are absolute."""

    def __init__(self, layout: Layout):
        process = Own(layout)
        self._ffi, self.layout = process.place.ffi, layout
        self._lib = process.place.lib
        self.gc = process.place.base + layout.gc
        self.free = process.place.word(layout.nursery_free)
        self.table = process.place.base + layout.type_info
        #: start and size of what the GC's own words are part of
        self.data = process.data()
        self._file = os.open("/proc/self/mem", os.O_RDONLY)
        self._copy = self._ffi.new("uint64_t[]", 2**16)

    def bytes_at(self, address: int, size: int) -> bytes:
        """Nothing, if there is nothing to read: a wrong address does no
        harm."""
        try:
            data = os.pread(self._file, size, address)
        except (OSError, OverflowError):
            return b""
        return data if len(data) == size else b""

    def words(self, address: int, count: int) -> list[int]:
        """None, if there are none."""
        return memoryview(self.bytes_at(address, count * 8)).cast("Q").tolist()

    def word(self, address: int) -> int:
        """0, if there is none."""
        return (self.words(address, 1) or [0])[0]

    def _take(self, start: int, end: int) -> None:
        """At once: other ways to read overwrite the nursery, or have it
        collected."""
        self._ffi.memmove(self._copy, self._ffi.cast("char *", start),
                          end - start)

    def _taken(self, start: int, end: int) -> list[int]:
        return list(self._copy[0:(end - start) // 8])

    def held_compare(self, types: bytes, question: int, dump: bytes,
                     most: int) -> Differing:
        """hook_held_compare(): a process looks at the heap, and compares."""
        words = self._ffi.new("int64_t[]", len(dump) // 8)
        self._ffi.memmove(words, dump, len(words) * 8)
        text = self._ffi.new("char[]", types)
        differ = self._ffi.new("uint64_t[]", most)
        count = int(self._lib.hook_held_compare(
            self.table, text, len(types), question, words, len(words), differ, most))
        return Differing(count, list(differ[0:max(0, min(count, most))]))

    def again(self, snapshot: Snapshot) -> list[int]:
        """The same memory, right after a collection."""
        end = snapshot.start + len(snapshot.words) * 8
        self._take(snapshot.start, end)
        if int(self.free[0]) >= snapshot.start:
            raise NotCertain("there is no room in front of new objects")
        return self._taken(snapshot.start, end)

    def made_by(self, make: Callable[[], Any]) -> Snapshot:
        """What is allocated in the nursery while `make` runs."""
        for _ in range(10):
            start = int(self.free[0])
            made = make()
            end = int(self.free[0])
            # what follows allocates, too
            if 0 < end - start <= len(self._copy) * 8:
                self._take(start, end)
                if int(self.free[0]) >= end:
                    return Snapshot(made, start, self._taken(start, end))
        raise NotCertain("a collection comes each time that objects are made")


class Types:
    """The type table.  A type's number is the offset of its entry."""

    #: offsets in an entry, and a bit of the word at the first one
    bits: int
    is_varsize: int
    length: int

    def __init__(self, memory: Memory):
        self._memory = memory
        #: of each row, the GC's own name, without "memberN"
        self.names: list[str] = []
        for i, line in enumerate(
                zlib.decompress(gc.get_typeids_z()).decode().splitlines()):
            member, _, name = line.partition(" ")
            if member != "member%d" % i:
                raise NotCertain("line %d of the GC's list of types is about %s"
                                 % (i, member))
            self.names.append(name.strip())
        #: of each row, its number; row 0, and what is no type, has 0
        self.numbers: list[int] = gc.get_typeids_list()
        if not 0 <= len(self.names) - len(self.numbers) <= 1:
            raise NotCertain("%d types have %d names" % (
                len(self.numbers), len(self.names)))
        self.rows = {number: row for row, number in enumerate(self.numbers)
                     if number}
        self._look()

    def entry(self, number: int) -> list[int]:
        return self._memory.words(self._memory.table + number, ENTRY // 8)

    def _look(self) -> None:
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
        # of a type without a length, the entry ends with the common part
        for i in range(min(known) + 1):
            every, some = ~0, 0
            for entry in arrays:
                every &= entry[i]
            for entry in instances:
                some |= entry[i]
            bits = every & ~some & (2**64 - 1)
            if i not in known and bits and not bits & bits - 1:
                found.append((i * 8, bits))
        # of an array, the length is behind the header; of a string, behind
        # its hash
        lengths = [i * 8 for i in range(ENTRY // 8) if i not in known
                   and strings[0][i] == 16 and all(a[i] == 8 for a in arrays)]
        if len(found) != 1 or len(lengths) != 1:
            raise NotCertain("%d bits tell arrays from classes, %d words the "
                             "length's offset" % (len(found), len(lengths)))
        ((self.bits, self.is_varsize),), (self.length,) = found, lengths

    def size(self, words: list[int], at: int = 0) -> int:
        """In bytes, of the object whose header is words[at], as the GC
        reserves them; 0: it is none."""
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
        """Of an object or GcRef, as the GC says."""
        return self.numbers[int(gc.get_rpy_type_index(thing))]

    def walk(self, snapshot: Snapshot) -> Iterator[tuple[int, int]]:
        """Header and address of the objects there, if they fit exactly."""
        at, words = 0, snapshot.words
        while at < len(words):
            yield words[at], snapshot.start + at * 8
            size = self.size(words, at)
            at += size // 8
            if size == 0 or at > len(words):
                raise NotCertain("objects that were made together are not side "
                                 "by side")
