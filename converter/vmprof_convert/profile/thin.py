"""Downsampling: a table that keeps at most a given number of allocation samples.

Poisson samples can be downsampled exactly. An object of s bytes that was sampled at a
mean interval of N bytes has the probability p(s, N) (profile/probability.py). The table
keeps the sample with probability p(s, k*N) / p(s, N), and changes its interval to k*N.
The remaining samples are then distributed as if the sampler had used the interval k*N.
So estimates from the remaining samples are unbiased, and their 95 % intervals contain
the truth as often as before (meaning/estimator.py).

Each row gets a random number that depends only on the order of the rows. So the same
rows of a file remain each time. The rows that remain for the factor 2*k are a subset of
the rows that remain for the factor k. Inherited objects (Samples.carried) are never
removed, because all formats add them up for each stack instead of writing rows.

The command-line options create a Limit (cli/options.py), and the readers fill its
tables.
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

#: largest number of ratios that are cached
_MOST = 2**16


class Limit:
    """The limit of the number of samples in all tables of a run together."""

    def __init__(self, most: int) -> None:
        """Create a limit.

        Args:
            most: Largest number of allocation samples, 0 for any number.
        """
        self._most = most
        #: the factor k by which intervals are multiplied, a power of two
        self.factor = 1
        self._tables: list[_Table] = []

    def table(self) -> Samples:
        """Return a new empty table that observes the limit.

        Adding rows to the table raises ProfileError if the rows cannot be downsampled.
        """
        if not self._most:
            return Samples()
        self._tables.append(_Table(self, len(self._tables)))
        return self._tables[-1]

    def keep(self) -> None:
        """Double the factor until the tables observe the limit.

        A table calls this method after it has added rows.
        """
        while sum(table.stayed for table in self._tables) > self._most:
            self.factor *= 2
            for table in self._tables:
                table.thin()

    def thinned(self) -> Thinned | None:
        """Return the numbers of remaining and of all samples.

        Returns None if no sample was removed.
        """
        return None if self.factor == 1 else Thinned(
            sum(table.stayed for table in self._tables),
            sum(table.came for table in self._tables))


class _Table(Samples):
    """A table of samples that observes a Limit."""

    def __init__(self, limit: Limit, seed: int) -> None:
        super().__init__()
        self._limit = limit
        self._seed = seed
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        super().begin(settings)
        self._settings = settings
        self._random = random.Random(self._seed).random
        #: number of all allocation samples so far, and number of the remaining ones
        self.came = self.stayed = 0
        #: random number from 0 to 1 of each row; empty while no row was removed
        self._marks = array.array("d")
        #: probabilities to keep rows that are not in the table yet
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
        """Remove rows, after Limit.keep() has doubled the factor."""
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
        raise ProfileError("cannot keep fewer samples, because the objects are too "
                           "large: the profile is damaged, or --samples is too "
                           "small") from None


class _Ratios(dict[tuple[int, int], float]):
    """A cache of the probabilities to keep a sample, by its size and interval."""

    def __init__(self, settings: dict[str, str], before: int, after: int) -> None:
        """Create an empty cache.

        Args:
            settings: Settings of the profile, which may be filled later.
            before: Factor that the intervals of the rows already contain.
            after: Factor that the intervals will contain.
        """
        super().__init__()
        self._settings = settings
        self._before, self._after = before, after

    def __missing__(self, key: tuple[int, int]) -> float:
        if len(self) >= _MOST:
            self.clear()
        size, interval = key
        gaps = self._settings.get("gaps", "exponential")
        interval //= self._before
        # marks are below 1, so all CPU samples stay
        found = self[key] = probability(size, interval * self._after, gaps) / (
            probability(size, interval, gaps)) if size else 2.0
        return found

    def stay(self, marks: Iterable[float], sizes: Iterable[int],
             intervals: Iterable[int]) -> bytes:
        """Return a byte for each row: 1 if the row stays, otherwise 0."""
        return bytes(map(operator.lt, marks, map(
            self.__getitem__, zip(sizes, intervals))))
