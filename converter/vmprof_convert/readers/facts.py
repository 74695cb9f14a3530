"""What the garbage collector found out, and what the program said: the blocks
`facts`, `types`, `gc`, `marks` and `names`.  Their payloads are sequences of entries,
of which each says how long it is, and what it is about."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from vmprof_convert.model import Collection, Mark, Type
from vmprof_convert.readers.collector import Collector

_COLLECTION, _YOUNG, _FREED, _LOST = range(4)
_MINOR, _MAJOR = 1, 3
_MARK = 1
_THREAD, _COMMAND = 1, 2
#: the kinds of names, and the fields of Type that they are
_NAMES = {1: "layout", 2: "python", 3: "owner", 4: "internal"}
#: no number in an entry is larger
_LIMIT = 2**63


def entries(numbers: Iterator[int]) -> Iterator[list[int]]:
    """What each entry says, without its length.  Raises ValueError if they are
    none."""
    for length in numbers:
        entry = list(islice(numbers, length))
        if not entry or len(entry) < length or max(entry) >= _LIMIT:
            raise ValueError
        yield entry


def _text(numbers: Sequence[int]) -> str:
    """A length, and so many bytes."""
    length = numbers[0]
    data = bytes(numbers[1:1 + length])
    if len(data) < length:
        raise ValueError
    return data.decode("utf-8", "replace")


class Facts:
    """Reads these blocks, in their order.  All read_...() get the numbers of
    one, and raise ValueError or IndexError if it is damaged."""

    def __init__(self, collector: Collector, unknown: dict[str, int]) -> None:
        """`unknown`: of what nothing is known, and how often it was there."""
        self._collector = collector
        self._unknown = unknown
        self.types: list[Type] = []
        self.collections: list[Collection] = []
        self.marks: list[Mark] = []
        #: names of threads, by the kernel's numbers; and the program's own
        self.threads: dict[int, str] = {}
        self.command = ""
        #: samples in the earlier parts of a profile of several files
        self.before = 0
        #: index of each type, by the file's number
        self._types: dict[int, int] = {}
        #: of the collection that `facts` spoke of last
        self._time = self._number = 0

    def type_index(self, number: int, gc_number: int = -1) -> int:
        """In `types`, of the file's `number`; `gc_number` is the GC's."""
        found = self._types.get(number)
        if found is None:
            found = self._types[number] = len(self.types)
            self.types.append(Type(number=gc_number))
        return found

    def _pass_over(self, kind: str, number: int) -> None:
        name = "%s/%d" % (kind, number)
        self._unknown[name] = self._unknown.get(name, 0) + 1

    def read_facts(self, numbers: Iterator[int]) -> None:
        collector = self._collector
        time = key = 0
        for entry in entries(numbers):
            kind = entry[0]
            if kind == _COLLECTION:
                time += entry[1]
                if time >= _LIMIT:
                    raise ValueError
                if (time, entry[2]) != (self._time, self._number):
                    collector.begin_collection()
                self._time, self._number = time, entry[2]
                continue
            if kind not in (_YOUNG, _FREED, _LOST):
                self._pass_over("facts", kind)
                continue
            difference = entry[1]
            key += -(difference + 1 >> 1) if difference & 1 else difference >> 1
            if 0 < key <= self.before:
                continue            # an earlier part's sample: it is not here
            at = key - self.before
            if kind == _YOUNG:
                collector.young(
                    at, entry[2], self.type_index(entry[3]) if entry[3] else -1,
                    entry[4] if len(entry) > 4 else None, self._time)
            else:
                which = entry[2] if len(entry) > 2 else 0
                (collector.freed if kind == _FREED else collector.lose)(
                    at, which, self._time)

    def read_types(self, numbers: Iterator[int]) -> None:
        for kind, number, gc_number, *text in entries(numbers):
            field = _NAMES.get(kind)
            if field is None:
                self._pass_over("types", kind)
                continue
            if not number:
                raise ValueError
            at = self.type_index(number)
            type_ = self.types[at]
            if not getattr(type_, field):
                name: dict[str, Any] = {field: _text(text)}
                type_ = type_._replace(**name)
            if gc_number:
                type_ = type_._replace(number=gc_number - 1)
            self.types[at] = type_

    def read_gc(self, numbers: Iterator[int]) -> None:
        for entry in entries(numbers):
            kind, time, duration = entry[:3]
            if kind in (_MINOR, _MAJOR):
                self.collections.append(Collection(
                    kind == _MAJOR, time, duration, entry[3]))
            else:
                self._pass_over("gc", kind)

    def read_marks(self, numbers: Iterator[int]) -> None:
        for entry in entries(numbers):
            if entry[0] == _MARK:
                self.marks.append(Mark(entry[1], _text(entry[2:])))
            else:
                self._pass_over("marks", entry[0])

    def read_names(self, numbers: Iterator[int]) -> None:
        for entry in entries(numbers):
            if entry[0] == _THREAD:
                self.threads[entry[1]] = _text(entry[2:])
            elif entry[0] == _COMMAND:
                self.command = _text(entry[1:])
            else:
                self._pass_over("names", entry[0])
