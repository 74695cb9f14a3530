"""At most so many allocation samples in a table: Poisson samples thin exactly.

An object of s bytes that was sampled at a mean interval of N bytes, with probability
p(s, N), stays with probability p(s, k*N) / p(s, N), and has the interval k*N then: as
though it had been sampled at that interval.  So what is estimated of those that stay is
unbiased, and its intervals hold the truth as often (meaning/estimator.py).

Each row has a random number of its own, by the order in which rows come: of the same
file, the same ones stay, and of those that stay for a k some for twice that k.  Objects
of earlier parts (Samples.carried) all stay: they are no rows of any format, which adds
them up for each stack.
"""
from __future__ import annotations

import array
import operator
import random
from collections.abc import Iterable, Sequence
from itertools import repeat, starmap

from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.columns import chosen
from vmprof_convert.profile.model import Columns, Samples, Thinned
from vmprof_convert.profile.probability import probability

#: ratios that are remembered
_MOST = 2**16


class Limit:
    """That of all tables of a run together."""

    def __init__(self, most: int) -> None:
        """`most`: allocation samples; 0: any number."""
        self._most = most
        #: k
        self.factor = 1
        self._tables: list[_Table] = []

    def table(self) -> Samples:
        """A new one, to be filled.  Raises ProfileError when rows can't be thinned."""
        if not self._most:
            return Samples()
        self._tables.append(_Table(self, len(self._tables)))
        return self._tables[-1]

    def keep(self) -> None:
        """Some rows more have come."""
        while sum(table.stayed for table in self._tables) > self._most:
            self.factor *= 2
            for table in self._tables:
                table.thin()

    def thinned(self) -> Thinned | None:
        """What became of all rows; None: they are all there."""
        return None if self.factor == 1 else Thinned(
            sum(table.stayed for table in self._tables),
            sum(table.came for table in self._tables))


class _Table(Samples):
    def __init__(self, limit: Limit, seed: int) -> None:
        super().__init__()
        self._limit = limit
        self._seed = seed
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        super().begin(settings)
        self._settings = settings
        self._random = random.Random(self._seed).random
        #: allocation samples, and those of them that are here
        self.came = self.stayed = 0
        #: of each row, a random number from 0 to 1; empty while all rows are here
        self._marks = array.array("d")
        #: of new rows
        self._ratios = self._new_ratios(1, self._limit.factor)

    def _new_ratios(self, before: int, after: int) -> _Ratios:
        return _Ratios(self._settings, before, after)

    def extend(self, rows: Columns) -> None:
        self.came += _allocations(rows.size)
        if self._limit.factor == 1:
            super().extend(rows)
            self.stayed = self.came
        else:
            marks = self._new_marks(len(rows.size))
            which = self._ratios.stay(marks, rows.size, rows.interval)
            rows = rows.chosen(which)
            rows = rows.replaced(interval=_times(rows.interval, self._limit.factor))
            for column, numbers in zip(self.columns(), rows):
                column.extend(numbers)
            self._marks.extend(chosen(marks, which))
            self.stayed += _allocations(rows.size)
        self._limit.keep()

    def _new_marks(self, count: int) -> array.array[float]:
        return array.array("d", starmap(self._random, repeat((), count)))

    def thin(self) -> None:
        """The limit's factor is twice what it was."""
        if not self._marks:
            self._marks = self._new_marks(len(self))
        factor = self._limit.factor
        which = self._new_ratios(factor // 2, factor).stay(
            self._marks, self.size, self.interval)
        self.change(lambda column: chosen(column, which))
        self.interval = _times(self.interval, 2)
        self._marks = chosen(self._marks, which)
        self.stayed = _allocations(self.size)
        self._ratios = self._new_ratios(1, factor)


def _allocations(sizes: Sequence[int]) -> int:
    return len(sizes) - sizes.count(0)


def _times(intervals: Iterable[int], factor: int) -> array.array[int]:
    try:
        return array.array("q", map(operator.mul, intervals, repeat(factor)))
    except OverflowError:
        raise ProfileError("its objects are so large that too few of them can be left "
                           "out, as though the interval were larger: the profile is "
                           "damaged, or --samples too small") from None


class _Ratios(dict[tuple[int, int], float]):
    """By size and interval, with which probability a sampled object stays."""

    def __init__(self, settings: dict[str, str], before: int, after: int) -> None:
        """`settings`: they may come later; `before`: in the interval, the factor that
        there is; `after`: and that there will be."""
        super().__init__()
        self._settings = settings
        self._before, self._after = before, after

    def __missing__(self, key: tuple[int, int]) -> float:
        if len(self) >= _MOST:
            self.clear()
        size, interval = key
        gaps = self._settings.get("gaps", "exponential")
        interval //= self._before
        # (time samples all stay)
        found = self[key] = probability(size, interval * self._after, gaps) / (
            probability(size, interval, gaps)) if size else 2.0
        return found

    def stay(self, marks: Iterable[float], sizes: Iterable[int],
             intervals: Iterable[int]) -> bytes:
        """Of each row, whether it does."""
        return bytes(map(operator.lt, marks, map(
            self.__getitem__, zip(sizes, intervals))))
