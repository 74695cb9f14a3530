"""Many objects that a collection met, as columns: those of one piece follow one
another, and what they leave of it may hold one more."""
from __future__ import annotations

import array
import operator
from collections.abc import Iterator, Sequence
from itertools import accumulate, compress, count
from typing import NamedTuple

#: for translate()
_NOT = bytes([1, *[0] * 255])


class Objects(NamedTuple):
    """Columns of Samples."""

    size: array.array[int]
    type: array.array[int]
    fate: array.array[int]


class Run(NamedTuple):
    """Pieces of keys that follow one another."""

    key: int
    #: bytes of each; and of these, what is left
    wholes: array.array[int]
    lefts: array.array[int]
    #: objects so far; None: one in each
    counts: array.array[int] | None = None

    def piece(self, at: int) -> tuple[int, int, int] | None:
        """How many objects there were so far, and the bytes that are left, and of all;
        None: nothing is left."""
        if not self.lefts[at]:
            return None
        return self.counts[at] if self.counts else 1, self.lefts[at], self.wholes[at]

    def pieces(self) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """By their keys."""
        for at in range(len(self.wholes)):
            piece = self.piece(at)
            if piece is not None:
                yield self.key + at, piece


def of_pieces(key: int, wholes: array.array[int], own: array.array[int],
              sizes: Sequence[int], more: bytes) -> Run | None:
    """`own` are the sizes of the first objects, `sizes` of all, of which some are
    `more` ones of a piece.  None: not all fit."""
    if min(compress(sizes, more)) <= 0:
        return None
    # where pieces begin, and the last one ends
    bounds = first_ones(more) + b"\1"
    until = list(compress(
        accumulate(map(operator.mul, sizes, more), initial=0), bounds))
    starts = list(compress(count(), bounds))
    lefts = list(map(operator.sub, map(operator.sub, wholes, own),
                     map(operator.sub, until[1:], until)))
    if min(lefts) < 0:
        return None
    return Run(key, wholes, array.array("q", lefts), array.array(
        "i", list(map(operator.sub, starts[1:], starts))))


def first_ones(more: bytes) -> bytes:
    """Likewise, of which of them it is not true."""
    return more.translate(_NOT)


def rows_of(more: bytes, row: int) -> array.array[int]:
    """Of those that are `more`, the row of the first one, which is at `row` for the
    first piece."""
    rows = accumulate(first_ones(more), initial=row - 1)
    next(rows)
    return array.array("i", compress(rows, more))


def first_places(rows: Sequence[int], first: int = 0) -> dict[int, int]:
    """Where each of these rows is, if that of the first one is `first`; if it is there
    more than once, where it is first."""
    return dict(zip(reversed(rows), range(first + len(rows) - 1, first - 1, -1)))


def with_fate(fate: int, fates: array.array[int], rows: array.array[int]) -> Iterator[
        tuple[int, int]]:
    """Of what is behind the first ones, in their `rows`: where there is this fate, and
    which of its piece that object is, from 1 on."""
    if fate not in fates:
        return
    flags = [one == fate for one in fates]
    before = first_places(rows, -1)
    for at, row in zip(compress(count(), flags), compress(rows, flags)):
        yield at, at - before[row]
