"""Columns of as many numbers as there are samples, in pieces: no memory has to hold all
of them at once."""
from __future__ import annotations

import array
import bisect
import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Union, overload

from vmprof_convert.profile.store import Kept, Store, is_one

_BITS = 14
#: numbers of a piece; only the last one is shorter
PIECE = 2**_BITS
_IN_PIECE = PIECE - 1
#: rows that are sorted at once
_RUN = 2**15

#: numbers that are written or looked at together; too large ones, of a damaged profile,
#: are in lists
Numbers = Union["array.array[int]", "list[int]"]


class Long(Sequence[int]):
    """What was added stays as it is."""

    def __init__(self, typecode: str, store: Store) -> None:
        self.typecode = typecode
        self.store = store
        self._kept: list[Kept] = []
        self._last: array.array[int] = array.array(typecode)
        #: the piece that was asked for last, and which it is
        self._piece: array.array[int] = array.array(typecode)
        self._number = -1

    def __del__(self) -> None:
        for kept in self._kept:
            self.store.drop(kept, self.typecode, PIECE)

    def __len__(self) -> int:
        whole: int = PIECE * len(self._kept)
        return whole + len(self._last)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.pieces())

    def pieces(self) -> Iterator[array.array[int]]:
        """Nobody may change them."""
        for number in range(len(self._kept)):
            yield self.store.load(self._kept[number], self.typecode, PIECE)
        if self._last:
            yield self._last

    def piece(self, number: int) -> array.array[int]:
        """Likewise."""
        if number == len(self._kept):
            return self._last
        if number != self._number:
            self._piece = self.store.load(self._kept[number], self.typecode, PIECE)
            self._number = number
        return self._piece

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> array.array[int]: ...

    def __getitem__(self, index: int | slice) -> int | array.array[int]:
        found: int
        if isinstance(index, slice):
            return self._slice(*index.indices(len(self)))
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        found = self.piece(index >> _BITS)[index & _IN_PIECE]
        return found

    def _slice(self, start: int, stop: int, step: int) -> array.array[int]:
        if step != 1:
            return array.array(self.typecode, map(self.__getitem__,
                                                  range(start, stop, step)))
        found = array.array(self.typecode)
        while start < stop:
            number, at = start >> _BITS, start & _IN_PIECE
            part = self.piece(number)[at:at + stop - start]
            if found:
                found.extend(part)
            else:
                found = part
            start += len(part)
        return found

    def extend(self, numbers: Iterable[int]) -> None:
        """Raises OverflowError."""
        if isinstance(numbers, array.array) and numbers.typecode == self.typecode:
            self._last += numbers
        elif isinstance(numbers, (array.array, list, tuple)):
            # (from a list it takes half the time)
            self._last += array.array(self.typecode, numbers)
        elif isinstance(numbers, Long):
            for piece in numbers.pieces():
                self.extend(piece)
        else:
            numbers = iter(numbers)
            while part := list(islice(numbers, PIECE)):
                self.extend(part)
        if len(self._last) >= PIECE:
            self._keep()

    def _keep(self) -> None:
        whole = self._last
        for start in range(0, len(whole) - PIECE + 1, PIECE):
            self._kept.append(self.store.keep(
                whole if len(whole) == PIECE else whole[start:start + PIECE]))
        self._last = whole[len(whole) & ~_IN_PIECE:]

    def short(self) -> Sequence[int]:
        """Itself, or what takes less if it is short."""
        return self if self._kept else self._last

    def count(self, number: int) -> int:
        # of a piece that has one number throughout, nobody looks at all of it
        return sum(
            piece.count(number) * (PIECE if len(piece) == 1 else 1)
            if isinstance(piece, array.array)
            else self.store.load(piece, self.typecode, PIECE).count(number)
            for piece in self._kept) + self._last.count(number)

    def different(self) -> set[int]:
        """The numbers that there are."""
        found = set(self._last)
        for piece in self._kept:
            found.update(piece if isinstance(piece, array.array)
                         else self.store.load(piece, self.typecode, PIECE))
        return found

    def changed(self, rows: Sequence[int], numbers: Sequence[int]) -> Long:
        """The same with these numbers in these rows, which ascend; of those that are
        there twice, the last."""
        result = Long(self.typecode, self.store)
        done = at = 0
        for piece in self.pieces():
            after = bisect.bisect_left(rows, done + len(piece), at)
            if at < after:
                piece = piece[:]
                for row, number in zip(rows[at:after], numbers[at:after]):
                    piece[row - done] = number
            result.extend(piece)
            done, at = done + len(piece), after
        return result


def made(typecode: str, store: Store, pieces: Iterable[Iterable[int]]) -> Long:
    """Raises OverflowError."""
    result = Long(typecode, store)
    for piece in pieces:
        result.extend(piece)
    return result


def pieces_of(column: Sequence[Any]) -> Iterator[Any]:
    """As long as those of all others."""
    if isinstance(column, Long):
        return column.pieces()
    return (column[start:start + PIECE] for start in range(0, len(column), PIECE))


def picked(column: Sequence[int], rows: Sequence[int]) -> Sequence[int]:
    """These rows of it: the column itself if they are all."""
    if isinstance(rows, range) and len(rows) == len(column):
        return column
    if len(rows) > PIECE and isinstance(column, Long):
        return made(column.typecode, column.store, picked_pieces(column, rows))
    return _picked(column, rows)


def picked_pieces(column: Sequence[int], rows: Sequence[int]) -> Iterator[Numbers]:
    """Likewise, piece by piece."""
    if isinstance(rows, range) and len(rows) == len(column):
        return pieces_of(column)
    return (_picked(column, some) for some in pieces_of(rows))


def _picked(column: Sequence[int], rows: Sequence[int]) -> Numbers:
    if isinstance(column, Long) and not column._kept:
        column = column._last
    if isinstance(column, array.array):
        return array.array(column.typecode, map(column.__getitem__, rows))
    if not isinstance(column, Long):
        return list(map(column.__getitem__, rows))
    # rows that are near are in few pieces; of others, all are in memory for a moment
    numbers = {row >> _BITS for row in rows}
    if len(numbers) == 1:
        number, = numbers
        at: Iterable[int] = map((number << _BITS).__rsub__, rows)
        # (of a single row, there would be no tuple)
        return array.array(column.typecode,
                           itemgetter(*at, 0)(column.piece(number))[:-1])
    pieces = {number: column.piece(number) for number in sorted(numbers)}
    return array.array(column.typecode, [
        pieces[row >> _BITS][row & _IN_PIECE] for row in rows])


def until(ascending: Sequence[float], limit: float, start: int) -> int:
    """How many of them are below the limit; those before `start` are.  Looks at what
    is near first, as bisect does not."""
    low, step, end = start, 1, len(ascending)
    while low + step < end and ascending[low + step] < limit:
        low += step
        step *= 2
    return bisect.bisect_left(ascending, limit, low, min(low + step, end))


def does_ascend(numbers: Sequence[int]) -> bool:
    if isinstance(numbers, array.array):
        return all(map(operator.le, numbers, islice(numbers, 1, None)))
    last: int | None = None
    for piece in pieces_of(numbers):
        if (last is not None and piece[0] < last) or not all(
                map(operator.le, piece, islice(piece, 1, None))):
            return False
        last = piece[-1]
    return True


def _in_order(columns: list[array.array[int]]) -> list[array.array[int]]:
    """Rows by the first column, of which two at least differ."""
    keys = columns[0]
    get = itemgetter(*sorted(range(len(keys)), key=keys.__getitem__))
    return [array.array(column.typecode, get(column)) for column in columns]


class Runs:
    """Rows that are sorted by their first column, and as they came where that is the
    same: a part at a time, as the parts of long tables are in order as they come, or
    nearly."""

    def __init__(self, typecodes: str, store: Store) -> None:
        self._typecodes = typecodes
        self._store = store
        self._runs: list[list[Long]] = []
        self._begin()

    def _begin(self) -> None:
        self._columns = [array.array(typecode) for typecode in self._typecodes]

    def __len__(self) -> int:
        return sum(len(run[0]) for run in self._runs) + len(self._columns[0])

    def add(self, *columns: Iterable[int]) -> None:
        """Raises OverflowError."""
        for column, numbers in zip(self._columns, columns):
            column.extend(numbers if isinstance(numbers, array.array) else array.array(
                column.typecode, numbers))
        if len(self._columns[0]) >= _RUN:
            self._close()

    def _close(self) -> None:
        keys = self._columns[0]
        if not keys:
            return
        if not does_ascend(keys):
            self._columns = _in_order(self._columns)
            keys = self._columns[0]
        if not self._runs or self._runs[-1][0][-1] > keys[0]:
            self._runs.append([Long(typecode, self._store)
                               for typecode in self._typecodes])
        for long, column in zip(self._runs[-1], self._columns):
            long.extend(column)
        self._begin()

    def parts(self, limits: Iterable[int]) -> Iterator[list[array.array[int]]]:
        """All rows with less than each of the limits, which ascend, and not with less
        than the one before."""
        self._close()
        starts = [0] * len(self._runs)
        for limit in limits:
            found = [array.array(typecode) for typecode in self._typecodes]
            is_mixed = False
            for number, run in enumerate(self._runs):
                start = starts[number]
                if start == len(run[0]) or run[0][start] >= limit:
                    continue
                starts[number] = end = until(run[0], limit, start)
                is_mixed = is_mixed or len(found[0]) > 0
                found = [column + long[start:end] if column else long[start:end]
                         for column, long in zip(found, run)]
            # (those of one key are in the order in which they came)
            if is_mixed and not is_one(found[0]):
                found = _in_order(found)
            yield found

    def merged(self) -> list[Long]:
        """All of them, as columns."""
        self._close()
        if len(self._runs) == 1:
            return self._runs[0]
        result = [Long(typecode, self._store) for typecode in self._typecodes]
        # a part has a piece's rows, or as many as have one key
        step = max(PIECE // max(len(self._runs), 1), 1)
        limits = sorted({key + 1 for run in self._runs for piece in run[0].pieces()
                         for key in (*piece[step - 1::step], piece[-1])})
        for part in self.parts(limits):
            for long, column in zip(result, part):
                long.extend(column)
        return result
