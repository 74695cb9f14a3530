"""Samples of which more may be said, by their keys, as columns."""
from __future__ import annotations

import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, compress
from typing import NamedTuple

from vmprof_convert.profile.model import ALIVE, Columns, Row

#: so many wait before it is worth while to look which of them do
_MOST = 2**13
#: so many are handed on at once
_TOGETHER = 2**11
#: for translate()
_NOT = bytes([1, *[0] * 255])


class Table:
    """Columns as in model.Samples, which may be changed: an object for each row takes
    most of the time and memory that there is."""

    def __init__(self) -> None:
        self.time, self.thread = array.array("q"), array.array("q")
        self.stack, self.size = array.array("i"), array.array("q")
        self.interval, self.memory = array.array("q"), array.array("q")
        self.type, self.fate = array.array("i"), array.array("b")
        self.collected, self.ended = array.array("q"), array.array("q")
        self.live_size = array.array("q")

    def columns(self) -> list[array.array[int]]:
        return [getattr(self, name) for name in Row._fields]

    def extend(self, rows: Columns) -> None:
        for column, values in zip(self.columns(), rows):
            column.extend(values)

    def get(self, row: int) -> Row:
        return Row(*[column[row] for column in self.columns()])

    def set(self, row: int, new: Row) -> None:
        for column, value in zip(self.columns(), new):
            column[row] = value


class Part(NamedTuple):
    """Where samples are."""

    table: Table
    #: of each row, whether all is known but what becomes of it if it is old
    met: bytearray
    row: int
    #: how many there are of those that were asked for
    number: int


class Held:
    """For who wants them as soon as all is known."""

    def __init__(self) -> None:
        self._table = Table()
        self._met = bytearray()
        #: row self._start has the key self._first, and so on; the rows before it have
        #: waited for long, with these keys
        self._first, self._start = 1, 0
        self._early = array.array("q")

    def extend(self, rows: Columns, met: bytes) -> None:
        """Samples with the keys that follow."""
        self._table.extend(rows)
        self._met += met

    def find(self, key: int, count: int = 1) -> Part | None:
        """Where it is, and the next keys, so many in all or fewer; None: it is not."""
        if key < self._first:
            row = bisect_left(self._early, key)
            if row == self._start or self._early[row] != key:
                return None
            count = min(count, self._start - row)
            if self._early[row + count - 1] != key + count - 1:
                count = 1
        else:
            row = key - self._first + self._start
            count = min(count, len(self._met) - row)
        return Part(self._table, self._met, row, count) if count > 0 else None

    def end(self, key: int, number: int, fate: int, time: int) -> bool:
        """The object of this key, or the one of this number behind it in its piece, was
        FREED, or is LOST; returns whether that can be."""
        found = self.find(key) if not number else None
        if found is None or found.table.fate[found.row] != ALIVE:
            return False
        found.table.fate[found.row], found.table.ended[found.row] = fate, time
        return True

    def end_all(self, objects: Iterable[tuple[int, int]], fate: int, time: int) -> (
            list[tuple[int, int]]):
        """As end(), of many; returns those that can't be."""
        return [object_ for object_ in objects if not self.end(*object_, fate, time)]

    def take(self, wanted: Iterable[int]) -> Iterator[Columns]:
        """Those of which nothing more will be said, and which are no longer here then,
        some at a time; none, if it is not worth while yet.  `wanted`: keys of some that
        stay."""
        # what waits is looked at again only when there is twice as much
        if len(self._met) <= max(_MOST, 2 * self._start):
            return
        waits = bytearray([not met or fate == ALIVE
                           for met, fate in zip(self._met, self._table.fate)])
        for part in map(self.find, wanted):
            if part is not None:
                waits[part.row] = True
        keys = chain(self._early, range(
            self._first, self._first + len(self._met) - self._start))
        self._first += len(self._met) - self._start
        self._early = array.array("q", compress(keys, waits))
        self._start = len(self._early)
        old, self._table = self._table, Table()
        self._met = bytearray(compress(self._met, waits))
        for start, piece in enumerate(_pieces(old)):
            of_piece = waits[start * _TOGETHER:(start + 1) * _TOGETHER]
            self._table.extend(piece.chosen(of_piece))
            yield piece.chosen(of_piece.translate(_NOT))

    def rest(self) -> Iterator[Columns]:
        """All that are here, when nothing more is said."""
        return _pieces(self._table)


def _pieces(table: Table) -> Iterator[Columns]:
    """All of them, some at a time."""
    columns = table.columns()
    for start in range(0, len(table.time), _TOGETHER):
        yield Columns(*[column[start:start + _TOGETHER] for column in columns])
