"""The sampled objects of a profile, when all else is known: each row of theirs says
what the object is, and Contents.ends when it ended."""
from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Sequence

from vmprof_convert.profile.columns import chosen
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
from vmprof_convert.readers.records import Damaged, Record

#: outcomes in a profile; another number means that it is not known
_DIED, _PROMOTED, _NOT_RECORDED, _NOT_KNOWN, _YOUNG, _YOUNG_NOT_KNOWN = range(6)
_Columns = list["array.array[int]"]
_FATES = {_DIED: DIED, _PROMOTED: ALIVE, _NOT_KNOWN: UNKNOWN, _YOUNG: PENDING,
          _YOUNG_NOT_KNOWN: UNKNOWN, _NOT_RECORDED: UNTOLD}


class Objects:
    """Hands the rows of all parts to who wants them."""

    def __init__(self, contents: Contents, rows: Rows) -> None:
        self._contents = contents
        self._rows = rows
        #: ends that belong to an object
        self._ended = 0
        facts = contents.settings.get("facts", "").split(",")
        self._has_lifetimes = "lifetimes" in facts

    @property
    def misfits(self) -> int:
        """Ends that belong to no object."""
        return len(self._contents.ends) - self._ended

    def read(self, record: Record, part: Part) -> None:
        """A record of objects, or of those that wait, of this part.  Raises Damaged."""
        columns = record.decoded()
        keys = columns[0]
        if not keys:
            return
        if min(keys) < 1:
            raise Damaged("a sample whose key is %d" % min(keys))
        if min(keys) < part.first:
            columns = self._without_inherited(columns, part)
        if part is not self._contents.parts[-1]:
            columns = self._without_told_again(columns)
        if columns[0]:
            self._hand_on(columns, part)

    def _without_inherited(self, columns: _Columns, part: Part) -> _Columns:
        """Rows of samples of earlier parts go elsewhere, unless these parts are read,
        too: then those that say something new stay."""
        stay = []
        for row in zip(*columns):
            key, outcome, collection = row[0], row[10], row[11]
            if key >= part.first:
                stay.append(True)
            elif self._contents.is_known(key, part):
                stay.append(not is_start(outcome, collection))
            else:
                stay.append(False)
                self._carry(row, part)
        return _chosen(columns, stay)

    def _without_told_again(self, columns: _Columns) -> _Columns:
        """Of what was in the nursery when the part ended, a later part says more."""
        again = self._contents.told_again
        if not again:
            return columns
        return _chosen(columns, [
            not (outcome in (_YOUNG, _YOUNG_NOT_KNOWN) and key in again)
            for key, outcome in zip(columns[0], columns[10])])

    def _carry(self, row: Sequence[int], part: Part) -> None:
        (key, which, _, _, node, label, _, size, interval, type_, outcome, collection,
         live_size) = row
        _check([size], [interval], [live_size])
        fates, ended = array.array("b", [self._fate(outcome)]), array.array("q", [-1])
        self._end([key], [which], fates, ended)
        stack, = self._contents.stacks_of([node], [label], part)
        self._rows.carry(Carried(
            stack, size, interval, self._contents.type_index(type_, part), fates[0],
            part.collected.get(collection, -1), ended[0], live_size))

    def _hand_on(self, columns: _Columns, part: Part) -> None:
        (keys, which, times, threads, nodes, labels, memories, sizes, intervals, types,
         outcomes, collections, live_sizes) = columns
        _check(sizes, intervals, live_sizes)
        contents = self._contents
        fates = array.array("b", _mapped(outcomes, self._fate))
        ended = array.array("q", [-1]) * len(keys)
        if ALIVE in fates:
            self._end(keys, which, fates, ended)
        collected = array.array("q", _mapped(
            collections, lambda number: part.collected.get(number, -1)))
        if UNTOLD in fates or PENDING in fates:
            collected = array.array("q", [
                -1 if fate in (UNTOLD, PENDING) else time
                for fate, time in zip(fates, collected)])
        self._rows.extend(Columns(
            part.shifted(times), threads,
            contents.stacks_of(nodes, labels, part), sizes,
            intervals, memories,
            array.array("i", _mapped(types, lambda number: contents.type_index(
                number, part))), fates, collected, ended, live_sizes))

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


def _check(sizes: Sequence[int], intervals: Sequence[int], live_sizes: Sequence[int]
           ) -> None:
    if min(sizes) <= 0 or min(intervals) <= 0:
        raise Damaged("an object of no size, or no interval")
    if any(live_sizes) and not all(
            0 <= live < size for live, size in zip(live_sizes, sizes)):
        raise Damaged("an object that takes more than it was allocated")


def _chosen(columns: _Columns, which: Sequence[bool]) -> _Columns:
    if all(which):
        return columns
    return [chosen(column, which) for column in columns]


def _mapped(numbers: Sequence[int], function: Callable[[int], int]) -> Iterable[int]:
    """The function of each: they are few different ones."""
    known = {number: function(number) for number in set(numbers)}
    return map(known.__getitem__, numbers)
