"""Long columns of numbers, as the format has them."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple, Union, overload


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


class Texts(NamedTuple):
    """A column that is made when it is written, in pieces: all columns together would
    be as large as the profile."""

    #: with a comma behind each number (encoding.text)
    make: Callable[[], Iterator[str]]


Column = Union[Sequence[float], Same, Texts]
