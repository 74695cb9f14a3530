"""Objects that are told of after the first one of their piece: as columns, until they
come to where they belong."""
from __future__ import annotations

import array
import operator
from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter

from vmprof_convert.model import Row, Samples

#: rows that are sorted at once
_TOGETHER = 2**15


class Late:
    """What they have that the others of their piece have not; the rest is as in the
    row of the first one."""

    def __init__(self) -> None:
        #: of each object, the row of that one
        self.rows = array.array("i")
        self.size = array.array("q")
        self.type = array.array("i")
        self.fate = array.array("b")
        self.collected = array.array("q")
        self.ended = array.array("q")

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, rows: Sequence[int], sizes: Sequence[int], types: Sequence[int],
            fates: Sequence[int], collected: Sequence[int]) -> None:
        """Some of which no end is known."""
        self.rows.extend(rows)
        self.size.extend(sizes)
        self.type.extend(types)
        self.fate.extend(fates)
        self.collected.extend(collected)
        self.ended.extend(array.array("q", [-1]) * len(rows))

    def insert_into(self, samples: Samples) -> None:
        """Each behind the others of its piece."""
        if not self.rows:
            return
        self._sort()
        end = len(samples)
        columns = []
        for name, column in zip(Row._fields, samples.columns()):
            own: array.array[int] | None = getattr(self, name, None)
            is_same = own is None and column.count(column[0]) == end
            column.extend(column[-1:] * len(self))
            if not is_same:
                columns.append((column, own))
        # from the end on, each moves to where nothing is any more: so no column is
        # there twice
        last = len(self)
        while last:
            start = (end - 1) // _TOGETHER * _TOGETHER
            first = bisect_left(self.rows, start, 0, last)
            new = slice(start + first, end + last)
            pieces = [*range(start, end), *self.rows[first:last]]
            # a merge of two that are sorted: the first of each piece stays in front
            order = sorted(range(len(pieces)), key=pieces.__getitem__)
            # (as lists: to make a number of each place takes longer than all the rest)
            in_order = itemgetter(*order, 0)
            of_pieces = itemgetter(*[pieces[at] - start for at in order], 0)
            for column, own in columns:
                old = column[start:end].tolist()
                column[new] = array.array(column.typecode, (
                    of_pieces(old) if own is None
                    else in_order(old + own[first:last].tolist()))[:-1])
            end, last = start, first

    def _sort(self) -> None:
        rows = self.rows
        if any(map(operator.gt, rows, islice(rows, 1, None))):
            order = sorted(range(len(rows)), key=rows.__getitem__)
            for name, column in vars(self).items():
                setattr(self, name, array.array(
                    column.typecode, map(column.__getitem__, order)))
