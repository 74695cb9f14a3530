"""The second pass over a profile: the sampled objects and their outcomes.

Contents knows the stacks, the types and the ends of the objects after the first pass.
Objects combines them with each row of the records *objects* and *waiting* (or *raw
memory*), and gives the complete rows to a receiver (model.Rows). readers/__init__.py
runs both passes.
"""
from __future__ import annotations

import array
import functools
from collections.abc import Callable, Sequence

from vmprof_convert.profile.columns import chosen, is_one, least
from vmprof_convert.profile.model import (
    ALIVE,
    DIED,
    FREED,
    LOST,
    PENDING,
    UNKNOWN,
    UNTOLD,
    Carried,
    Columns,
    Rows,
)
from vmprof_convert.readers.contents import Contents, Part, is_start, place
from vmprof_convert.readers.records import COLUMNS, OBJECTS, Damaged, Record

#: Outcomes in a profile (PROFILE.rst). Another number is an unknown outcome.
_DIED, _PROMOTED, _NOT_RECORDED, _NOT_KNOWN, _YOUNG, _YOUNG_NOT_KNOWN = range(6)
#: columns of a record of objects
(_KEYS, _WHICH, _TIMES, _THREADS, _NODES, _LABELS, _MEMORIES, _SIZES, _INTERVALS,
 _TYPES, _OUTCOMES, _COLLECTIONS, _LIVE_SIZES) = range(13)
_FATES = {_DIED: DIED, _PROMOTED: ALIVE, _NOT_KNOWN: UNKNOWN, _YOUNG: PENDING,
          _YOUNG_NOT_KNOWN: UNKNOWN, _NOT_RECORDED: UNTOLD}
#: outcomes of objects without a known minor collection
_UNMET = (UNTOLD, PENDING)
#: a function that returns a column of a record by its number
_Column = Callable[[int], "array.array[int]"]


class Objects:
    """The reader of the objects of all segments of a profile."""

    def __init__(self, contents: Contents, rows: Rows) -> None:
        """Create a reader.

        Args:
            contents: The contents of the profile after the first pass.
            rows: The receiver of the objects.
        """
        self._contents = contents
        self._rows = rows
        #: keys of objects of the current segment that were already read, although the
        #: totals count their samples as waiting
        self._told: set[int] = set()
        #: number of ends that belong to an object
        self._ended = 0
        self._is_raw = contents.settings.get("samples") == "raw"
        facts = contents.settings.get("facts", "").split(",")
        self._has_lifetimes = "lifetimes" in facts

    @property
    def misfits(self) -> int:
        """The number of ends that belong to no object."""
        return len(self._contents.ends) - self._ended

    def read_waiting(self, part: Part) -> None:
        """Read the objects that were in the nursery when a segment ended.

        Call this method after read() got all records of the segment.

        Raises:
            Damaged: A row is invalid.
        """
        while part.waiting:
            _, record = part.waiting.popleft()
            self._read(_chosen(record.column, [
                key >= part.waits and key not in self._told
                for key in record.column(_KEYS)]), part)
        self._told.clear()

    def read(self, record: Record, part: Part) -> None:
        """Read a record of objects of a segment.

        Raises:
            Damaged: A row is invalid.
        """
        if not record.rows:
            return
        if part.waiting:
            # a pinned object stays in the nursery; its outcome may be recorded after
            # the outcomes of later samples
            self._told.update(key for key in record.column(_KEYS) if key >= part.waits)
        self._read(record.column, part)

    def _read(self, column: _Column, part: Part) -> None:
        first = min(column(_KEYS), default=part.first)
        if first < 1:
            raise Damaged("a sample whose key is %d" % first)
        if first < part.first:
            column = _chosen(column, self._is_of(column, part))
        if part is not self._contents.parts[-1] and self._contents.told_again:
            column = _chosen(column, self._is_last_word(column))
        if column(_KEYS):
            self._hand_on(column, part)

    def _is_of(self, column: _Column, part: Part) -> list[bool]:
        """Return for each row whether it belongs to the samples of the profile.

        The row of a sample from an earlier segment belongs to the samples if this
        segment is read, too, and the row contains a new outcome. If the earlier segment
        is not read, the receiver gets the row as an inherited object.
        """
        stay = []
        for row in zip(*map(column, range(COLUMNS[OBJECTS]))):
            key, outcome, collection = row[_KEYS], row[_OUTCOMES], row[_COLLECTIONS]
            if key >= part.first:
                stay.append(True)
            elif self._contents.is_known(key, part):
                stay.append(not is_start(outcome, collection))
            else:
                stay.append(False)
                self._carry(row, part)
        return stay

    def _is_last_word(self, column: _Column) -> list[bool]:
        """Return for each row whether no later segment has a newer row of the object.

        A later segment records again the objects that were in the nursery when this
        segment ended.
        """
        again = self._contents.told_again
        return [not (outcome in (_YOUNG, _YOUNG_NOT_KNOWN) and key in again)
                for key, outcome in zip(column(_KEYS), column(_OUTCOMES))]

    def _carry(self, row: Sequence[int], part: Part) -> None:
        (key, which, _, _, node, label, _, size, interval, type_, outcome, collection,
         live_size) = row
        _check(*(array.array("q", [one]) for one in (size, interval, live_size)))
        fates, ended = array.array("b", [self._fate(outcome)]), array.array("q", [-1])
        self._end([key], [which], fates, ended)
        stack, = self._contents.stacks_of([node], [label], part)
        self._rows.carry(Carried(
            stack, size, interval, self._contents.type_index(type_, part), fates[0],
            part.collected.get(collection, -1), ended[0], live_size))

    def _hand_on(self, column: _Column, part: Part) -> None:
        sizes, intervals = column(_SIZES), column(_INTERVALS)
        live_sizes = column(_LIVE_SIZES)
        _check(sizes, intervals, live_sizes)
        contents = self._contents
        fates = _mapped("b", column(_OUTCOMES), self._fate)
        ended = array.array("q", [-1]) * len(fates)
        if ALIVE in fates:
            self._end(column(_KEYS), column(_WHICH), fates, ended)

        def type_index(number: int) -> int:
            return contents.type_index(number, part)

        self._rows.extend(Columns(
            lambda: part.shifted(column(_TIMES)), functools.partial(column, _THREADS),
            contents.stacks_of(column(_NODES), column(_LABELS), part), sizes,
            intervals, functools.partial(column, _MEMORIES),
            _mapped("i", column(_TYPES), type_index), fates,
            # without a nursery, native memory is followed from its allocation on
            lambda: part.shifted(column(_TIMES))[:] if self._is_raw else _collected(
                column(_COLLECTIONS), fates, part), ended, live_sizes))

    def _fate(self, outcome: int) -> int:
        return _FATES.get(outcome, UNKNOWN) if self._has_lifetimes else UNTOLD

    def _end(self, keys: Sequence[int], which: Sequence[int],
             fates: array.array[int], ended: array.array[int]) -> None:
        ends = self._contents.ends.of(min(keys), max(keys))
        if not ends:
            return
        for row, fate in enumerate(fates):
            end = ends.get(place(keys[row], which[row])) if fate == ALIVE else None
            if end is not None:
                fates[row] = LOST if end & 1 else FREED
                ended[row] = end >> 1
                self._ended += 1


def _check(sizes: array.array[int], intervals: array.array[int],
           live_sizes: array.array[int]) -> None:
    if min(sizes) <= 0 or least(intervals) <= 0:
        raise Damaged("an object without a size or an interval")
    if (live_sizes[0] or not is_one(live_sizes)) and not all(
            0 <= live < size for live, size in zip(live_sizes, sizes)):
        raise Damaged("an object that is larger than its allocation")


def _collected(collections: array.array[int], fates: array.array[int], part: Part) -> (
        array.array[int]):
    """Return the end of the first minor collection after each object's allocation.

    Returns:
        Nanoseconds since the start for each object, -1 if unknown.

    Raises:
        Damaged: A time is too large.
    """
    if is_one(fates) and fates[0] in _UNMET:
        return array.array("q", [-1]) * len(fates)
    try:
        times = _mapped("q", collections, lambda number: part.collected.get(number, -1))
    except OverflowError:
        raise Damaged("a collection that ends too late") from None
    if not any(map(fates.__contains__, _UNMET)):
        return times
    return array.array("q", [-1 if fate in _UNMET else time
                             for fate, time in zip(fates, times)])


def _chosen(column: _Column, which: Sequence[bool]) -> _Column:
    if all(which):
        return column
    return functools.lru_cache(None)(lambda number: chosen(column(number), which))


def _mapped(typecode: str, numbers: array.array[int], function: Callable[[int], int]
            ) -> array.array[int]:
    """Return the result of `function` for each number; few numbers are distinct."""
    if is_one(numbers):
        return array.array(typecode, [function(numbers[0])]) * len(numbers)
    known = {number: function(number) for number in set(numbers)}
    return array.array(typecode, map(known.__getitem__, numbers))
