"""What the garbage collector found out, what the program said, and what the
kernel counts: the blocks `facts`, `types`, `carried`, `gc`, `marks`, `figures`,
`names` and `labels`.
Their payloads are sequences of entries, of which each says how long it is, and
what it is about."""
from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from vmprof_convert.profile.model import (
    FREED,
    HEAP,
    HEAP_HAS,
    LOST,
    MAJOR_FAULTS,
    MINOR_FAULTS,
    NURSERY,
    PRIVATE,
    PROCESSOR,
    RESIDENT,
    Collection,
    Figure,
    Mark,
    Swept,
    Type,
)
from vmprof_convert.readers.collector import AS_SAMPLED, Collector
from vmprof_convert.readers.digits import MORE, Payload

_COLLECTION, _YOUNG, _FREED, _LOST = range(4)
_MINOR, _MAJOR, _SWEPT = 1, 3, 5
_CARRIED_OLD, _CARRIED_YOUNG = 1, 2
_MARK = 1
#: in `labels`: a set of them, and from which sample on it is that of the samples
_LABEL_SET, _LABEL = 1, 2
_BETWEEN_LABELS = "\x1f"
_THREAD, _COMMAND = 1, 2
#: the kinds of names, and the fields of Type that they are
_NAMES = {1: "layout", 2: "python", 3: "owner", 4: "internal"}
_FIGURES = {1: RESIDENT, 2: HEAP_HAS, 3: HEAP, 4: PROCESSOR, 6: MINOR_FAULTS,
            7: MAJOR_FAULTS, 8: PRIVATE, 9: NURSERY}
_MARK_OF_MORE = ord(MORE) & 31
#: no number in an entry is larger
_LIMIT = 2**63
#: entries of `facts` that are remembered, and how long their texts may be
_MOST_KNOWN, _SHORT = 2**12, 12


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


class _Entries(dict[str, "Sequence[int]"]):
    """What an entry of `facts` says, by its text."""

    def __init__(self) -> None:
        super().__init__()
        #: which knows how to read it
        self.payload: Payload

    def __missing__(self, text: str) -> Sequence[int]:
        numbers = self.payload.parse(text)
        if max(numbers) >= _LIMIT:
            raise ValueError
        entry = self.meaning(numbers)
        if len(text) <= _SHORT:
            self[text] = entry
        return entry

    def meaning(self, numbers: list[int]) -> Sequence[int]:
        """Without its length; the key as how much it is more than the one before."""
        kind, *rest = numbers[1:]
        if kind in (_YOUNG, _FREED, _LOST):
            rest[0] = -(rest[0] + 1 >> 1) if rest[0] & 1 else rest[0] >> 1
        return (kind, *rest)


class _Common(_Entries):
    """Of those that Payload.facts() has apart: what Collector.met() gets."""

    def __init__(self, type_index: Callable[[int], int]) -> None:
        super().__init__()
        self._type_index = type_index

    def meaning(self, numbers: list[int]) -> Sequence[int]:
        mark, outcome, type_, size = (
            (0, *numbers, AS_SAMPLED) if len(numbers) == 2 else numbers)
        return (self._type_index(type_) if type_ else -1, size, outcome,
                mark == _MARK_OF_MORE)


class Facts:
    """Reads these blocks, in their order.  All read_...() get the numbers of
    one, and raise ValueError or IndexError if it is
    damaged."""

    def __init__(self, collector: Collector, unknown: dict[str, int]) -> None:
        """`unknown`: of what nothing is known, and how often it was there."""
        self._collector = collector
        self._unknown = unknown
        self.types: list[Type] = []
        self.collections: list[Collection] = []
        self.marks: list[Mark] = []
        self.swept: list[Swept] = []
        self.figures: list[Figure] = []
        #: names of threads, by the kernel's numbers; and the program's own
        self.threads: dict[int, str] = {}
        self.command = ""
        #: samples in earlier parts of the profile, which are not read
        self.before = 0
        #: what the times of this part, and the bytes that it counts, begin with
        self.begin = self.allocated = 0
        #: index of each type, by the file's number
        self._types: dict[int, int] = {}
        #: sets of labels, the first of them empty; index of each by the file's number
        self.labels: list[dict[str, str]] = [{}]
        self._label_sets: dict[int, int] = {}
        self._label_indices: dict[frozenset[tuple[str, str]], int] = {frozenset(): 0}
        #: from which sample on which of them is that of the samples
        self.label_changes: collections.deque[tuple[int, int]] = collections.deque()
        #: of this part
        self._common = _Common(self.type_index)
        self._others = _Entries()
        #: in the block that is read: the last time, and the last key
        self._place = [0, 0]
        #: of the collection that `facts` spoke of last
        self._time = self._number = 0

    def begin_part(self, begin: int, allocated: int) -> None:
        """What is read from now on is of another file."""
        self._types = {}
        self._common.clear()
        self._label_sets = {}
        self.label_changes.clear()
        self._time = self._number = 0
        self.begin, self.allocated = begin, allocated

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

    def read_facts(self, payload: Payload) -> None:
        """Of what is read there is most of this, and most of it comes again, word for
        word: an entry of an object of some type that died young, and whose sample is
        behind that of the entry before."""
        self._place = [self.begin, 0]
        self._common.payload = self._others.payload = payload
        for is_common, texts in payload.facts():
            known = self._common if is_common else self._others
            entries_ = map(known.__getitem__, texts)
            if is_common:
                self._read_common(list(entries_))
            else:
                self._read_others(entries_)
            if len(known) > _MOST_KNOWN:
                known.clear()

    def _read_common(self, alike: list[Sequence[int]]) -> None:
        place = self._place
        first = 0
        while first < len(alike):
            key = place[1] + 1
            if alike[first][3] or key <= self.before:
                self._read_young(alike[first])
                first += 1
                continue
            keys, objects = self._collector.met(
                key - self.before, alike[first:] if first else alike, self._time)
            place[1] += keys
            first += objects
            if not keys:
                break
        for object_ in alike[first:]:
            self._read_young(object_)

    def _read_young(self, object_: Sequence[int]) -> None:
        type_, size, outcome, is_more = object_
        self._place[1] += not is_more
        if not self._is_elsewhere():
            self._collector.young(self._place[1] - self.before, outcome, type_, size,
                                  self._time)

    def _is_elsewhere(self) -> bool:
        """Whether the key is that of a sample of an earlier part, which is not here."""
        key = self._place[1]
        return 0 < key <= self.before and not self._collector.is_known(
            key - self.before)

    def _read_others(self, entries_: Iterable[Sequence[int]]) -> None:
        place = self._place
        freed: list[tuple[int, int]] = []
        for entry in entries_:
            if entry[0] == _FREED and not self.before:
                # of most objects that became old
                place[1] = key = place[1] + entry[1]
                freed.append((key, entry[2] if len(entry) > 2 else 0))
                continue
            if freed:
                self._collector.end(freed, FREED, self._time)
                freed = []
            self._read_fact(entry)
        self._collector.end(freed, FREED, self._time)

    def _read_fact(self, numbers: Sequence[int]) -> None:
        collector = self._collector
        kind = numbers[0]
        if kind == _COLLECTION:
            _, difference, number = numbers[:3]
            self._place[0] = time = self._place[0] + difference
            if time >= _LIMIT:
                raise ValueError
            if (time, number) != (self._time, self._number):
                collector.begin_collection()
            self._time, self._number = time, number
            return
        if kind > _LOST:
            self._pass_over("facts", kind)
            return
        self._place[1] += numbers[1]
        key = self._place[1] - self.before
        if self._is_elsewhere():
            return
        if kind == _YOUNG:
            outcome, type_, size, live_size = (*numbers[2:6], 0, 0)[:4]
            collector.young(key, outcome, self.type_index(type_) if type_ else -1,
                            size or AS_SAMPLED, self._time, live_size)
        else:
            collector.end([(key, numbers[2] if len(numbers) > 2 else 0)],
                          FREED if kind == _FREED else LOST, self._time)

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

    def read_carried(self, numbers: Iterator[int],
                     stacks: Sequence[int]) -> None:
        """`stacks`: the collector's numbers of those that were defined."""
        for kind, key, stack, size, interval, *more in entries(numbers):
            if kind > _CARRIED_YOUNG or not kind:
                self._pass_over("carried", kind)
                continue
            which = type_ = live_size = 0
            is_old = kind == _CARRIED_OLD
            if is_old:
                which, type_, live_size = (*more, 0)[:3]
            if not 0 < key <= self.before or not interval or not size > live_size:
                raise ValueError
            self._collector.carry(
                key - self.before, which, stacks[stack], size, interval,
                self.type_index(type_) if type_ else -1, is_old, live_size)

    def read_gc(self, numbers: Iterator[int]) -> None:
        for entry in entries(numbers):
            kind, time, duration = entry[:3]
            if kind in (_MINOR, _MAJOR):
                self.collections.append(Collection(
                    kind == _MAJOR, time + self.begin, duration,
                    entry[3] + self.allocated * (kind == _MINOR)))
            elif kind == _SWEPT:
                heap, heap_at_begin, *estimated = entry[3:8]
                self.swept.append(Swept(time + self.begin, heap, heap_at_begin - 1,
                                        *estimated))
            else:
                self._pass_over("gc", kind)

    def read_marks(self, numbers: Iterator[int]) -> None:
        for entry in entries(numbers):
            if entry[0] == _MARK:
                self.marks.append(Mark(entry[1] + self.begin,
                                       _text(entry[2:])))
            else:
                self._pass_over("marks", entry[0])

    def read_figures(self, numbers: Iterator[int]) -> None:
        for entry in entries(numbers):
            kind = _FIGURES.get(entry[0])
            if kind is None:
                self._pass_over("figures", entry[0])
            else:
                self.figures.append(Figure(kind, entry[1] + self.begin,
                                           entry[2]))

    def read_labels(self, numbers: Iterator[int]) -> None:
        for entry in entries(numbers):
            kind, number = entry[:2]
            if kind == _LABEL_SET:
                pairs = (pair.partition("=") for pair in
                         _text(entry[2:]).split(_BETWEEN_LABELS))
                labels = {key: value for key, _, value in pairs if key}
                index = self._label_indices.setdefault(
                    frozenset(labels.items()), len(self.labels))
                if index == len(self.labels):
                    self.labels.append(labels)
                self._label_sets[number] = index
            elif kind == _LABEL:
                set_ = entry[2]
                if set_ and set_ not in self._label_sets:
                    raise ValueError
                self.label_changes.append(
                    (number, self._label_sets[set_] if set_ else 0))
            else:
                self._pass_over("labels", kind)

    def read_names(self, numbers: Iterator[int]) -> None:
        for entry in entries(numbers):
            if entry[0] == _THREAD:
                self.threads[entry[1]] = _text(entry[2:])
            elif entry[0] == _COMMAND:
                self.command = _text(entry[1:])
            else:
                self._pass_over("names", entry[0])
