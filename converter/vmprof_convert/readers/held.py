"""Samples of which more may be said, by their keys, as columns."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, compress

from vmprof_convert.model import ALIVE, Columns, Row, Samples

#: so many wait before it is worth while to look which of them do
_MOST = 2**13
#: so many are handed on at once
_TOGETHER = 2**11
#: for translate()
_NOT = bytes([1, *[0] * 255])


class Held:
    """As a table: an object for each takes most of the time and memory that there
    is."""

    def __init__(self, keeps_all: bool) -> None:
        """`keeps_all`: until the end."""
        self._keeps_all = keeps_all
        self.samples = Samples()
        #: of each row, whether all is known but what becomes of it if it is old
        self.met = bytearray()
        #: row self._start has the key self._first, and so on; of the rows before it,
        #: which have waited for long, each row by its key
        self._first, self._start = 1, 0
        self._early: dict[int, int] = {}

    def extend(self, rows: Columns, met: bytes) -> None:
        """Samples with the keys that follow."""
        self.samples.extend(rows)
        self.met += met

    def row(self, key: int, count: int = 1) -> int:
        """Where it is, and those of the next keys, so many in all; -1: they are
        not."""
        if key < self._first:
            return self._early.get(key, -1) if count == 1 else -1
        row = key - self._first + self._start
        return row if row + count <= len(self.met) else -1

    def get(self, row: int) -> Row:
        return Row(*[column[row] for column in self.samples.columns()])

    def set(self, row: int, new: Row) -> None:
        for column, value in zip(self.samples.columns(), new):
            column[row] = value

    def take(self, wanted: Iterable[int]) -> Iterator[Columns]:
        """Those of which nothing more will be said, and which are no longer here then,
        some at a time; none, if it is not worth while yet.  `wanted`: keys of some that
        stay."""
        # what waits is looked at again only when there is twice as much
        if self._keeps_all or len(self.met) <= max(_MOST, 2 * self._start):
            return
        waits = bytearray([not met or fate == ALIVE
                           for met, fate in zip(self.met, self.samples.fate)])
        for row in map(self.row, wanted):
            if row >= 0:
                waits[row] = True
        keys = chain(self._early, range(
            self._first, self._first + len(self.met) - self._start))
        self._first += len(self.met) - self._start
        self._early = {key: row for row, key in enumerate(compress(keys, waits))}
        self._start = len(self._early)
        old, self.samples = self.samples, Samples()
        self.met = bytearray(compress(self.met, waits))
        for start, piece in enumerate(pieces(old)):
            of_piece = waits[start * _TOGETHER:(start + 1) * _TOGETHER]
            self.samples.extend(piece.chosen(of_piece))
            yield piece.chosen(of_piece.translate(_NOT))


def pieces(samples: Samples) -> Iterator[Columns]:
    """All of them, some at a time."""
    columns = samples.columns()
    for start in range(0, len(samples), _TOGETHER):
        yield Columns(*[column[start:start + _TOGETHER] for column in columns])
