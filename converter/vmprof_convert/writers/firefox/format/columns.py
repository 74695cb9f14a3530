"""Long columns of numbers: as arrays, or made when they are written, as a second copy
of a million rows is what no memory is for."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple, Union, overload

from vmprof_convert.profile.long_columns import Numbers

#: so many numbers are written at once, or a few more
PIECE = 2**15


class Milliseconds(Sequence[float]):
    """Whole microseconds, as the milliseconds that the format has: as integers, they
    are written in a third of the time."""

    def __init__(self, microseconds: Sequence[int]) -> None:
        self.microseconds = microseconds

    def __len__(self) -> int:
        return len(self.microseconds)

    def __iter__(self) -> Iterator[float]:
        # (Sequence's own asks for each by its place, which takes five times as long)
        return map(operator.truediv, self.microseconds, repeat(1e3))

    @overload
    def __getitem__(self, index: int) -> float: ...

    @overload
    def __getitem__(self, index: slice) -> Milliseconds: ...

    def __getitem__(self, index: int | slice) -> float | Milliseconds:
        if isinstance(index, slice):
            return Milliseconds(self.microseconds[index])
        return self.microseconds[index] / 1e3


class Same(NamedTuple):
    """A number, so many times."""

    number: int
    times: int


#: of a column: numbers; those that follow one another; the same, again and again
Piece = Union[Numbers, range, Same]


class Column(NamedTuple):
    """What is made when it is written."""

    length: int
    #: one after the other
    pieces: Callable[[], Iterator[Piece]]
    #: and the numbers ascend
    are_microseconds: bool = False
    #: most numbers come again
    are_few: bool = False
