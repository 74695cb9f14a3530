"""Columns of numbers in the Profiler's format that take little time or memory."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import NamedTuple, Union, overload


class Milliseconds(Sequence[float]):
    """A column of times in milliseconds, stored as whole microseconds.

    Integers can be written in a third of the time that floats need.
    """

    def __init__(self, microseconds: Sequence[int]) -> None:
        """Wrap a sequence of microseconds."""
        self.microseconds = microseconds

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.microseconds)

    def __iter__(self) -> Iterator[float]:
        """Iterate over the milliseconds."""
        # Sequence.__iter__() gets each number by its index, which takes five times as
        # long
        return map(operator.truediv, self.microseconds, repeat(1e3))

    @overload
    def __getitem__(self, index: int) -> float: ...

    @overload
    def __getitem__(self, index: slice) -> Milliseconds: ...

    def __getitem__(self, index: int | slice) -> float | Milliseconds:
        """Return the milliseconds of a row, or a column for a slice of the rows."""
        if isinstance(index, slice):
            return Milliseconds(self.microseconds[index])
        return self.microseconds[index] / 1e3


class Same(NamedTuple):
    """A column that repeats a number."""

    number: int
    times: int


class Texts(NamedTuple):
    """A column that is created in pieces while it is written.

    All columns together would need as much memory as the profile.
    """

    #: function that yields the numbers as text, with a comma after each
    #: (encoding.text())
    make: Callable[[], Iterator[str]]


Column = Union[Sequence[float], Same, Texts]
