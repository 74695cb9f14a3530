"""The sampled objects of a profile, when all else is known: each row of theirs says
what the object is, and Contents.ends when it ended."""
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

#: outcomes in a profile; another number means that it is not known
_DIED, _PROMOTED, _NOT_RECORDED, _NOT_KNOWN, _YOUNG, _YOUNG_NOT_KNOWN = range(6)
#: columns of a record of objects
(_KEYS, _WHICH, _TIMES, _THREADS, _NODES, _LABELS, _MEMORIES, _SIZES, _INTERVALS,
 _TYPES, _OUTCOMES, _COLLECTIONS, _LIVE_SIZES) = range(13)
_FATES = {_DIED: DIED, _PROMOTED: ALIVE, _NOT_KNOWN: UNKNOWN, _YOUNG: PENDING,
          _YOUNG_NOT_KNOWN: UNKNOWN, _NOT_RECORDED: UNTOLD}
#: no collection met these, or nobody knows which
_UNMET = (UNTOLD, PENDING)
#: one of the columns, by its number
_Column = Callable[[int], "array.array[int]"]


class Objects:
    """Hands the rows of all parts to who wants them."""

    def __init__(self, contents: Contents, rows: Rows) -> None:
        self._contents = contents
        self._rows = rows
        #: keys of the part that is read: objects, though the totals say that they wait
        self._told: set[int] = set()
        #: ends that belong to an object
        self._ended = 0
        self._is_raw = contents.settings.get("samples") == "raw"
        facts = contents.settings.get("facts", "").split(",")
        self._has_lifetimes = "lifetimes" in facts

    @property
    def misfits(self) -> int:
        """Ends that belong to no object."""
        return len(self._contents.ends) - self._ended

    def read_waiting(self, part: Part) -> None:
        """Those that still waited when the part ended.  Raises Damaged."""
        while part.waiting:
            _, record = part.waiting.popleft()
            self._read(_chosen(record.column, [
                key >= part.waits and key not in self._told
                for key in record.column(_KEYS)]), part)
        self._told.clear()

    def read(self, record: Record, part: Part) -> None:
        """A record of objects of this part.  Raises Damaged."""
        if not record.rows:
            return
        if part.waiting:
            # a pinned object still waits when later ones don't
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
        """Of each row, whether the sample is of this part.  Those of earlier parts go
        elsewhere, unless these parts are read, too: then those that say something new
        stay."""
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
        """Of what was in the nursery when the part ended, a later part says more."""
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
            # raw memory is known from the first moment on
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
        raise Damaged("an object of no size, or no interval")
    if (live_sizes[0] or not is_one(live_sizes)) and not all(
            0 <= live < size for live, size in zip(live_sizes, sizes)):
        raise Damaged("an object that takes more than it was allocated")


def _collected(collections: array.array[int], fates: array.array[int], part: Part) -> (
        array.array[int]):
    """When the first minor collection met the objects.  Raises Damaged."""
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
    """The function of each: they are few different ones."""
    if is_one(numbers):
        return array.array(typecode, [function(numbers[0])]) * len(numbers)
    known = {number: function(number) for number in set(numbers)}
    return array.array(typecode, map(known.__getitem__, numbers))
