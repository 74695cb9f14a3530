"""Test whether the live bytes of an allocation site grow by more than chance.

These are the statistical tests of `vmprof-convert leaks`. They use the numbers of
sampled objects that appeared and disappeared in two time windows, and the changes of
the live bytes between heap snapshots. A *place* is a function and a line, and a *site*
is a place and a type. The module docstring of search.py explains the choice of the
tests.
"""
from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from vmprof_convert.analysis.growth import Named

#: the share of the runs without a leak in which no leak is reported
CONFIDENCE = 0.95
ALPHA = 1.0 - CONFIDENCE
#: the fewest heap snapshots or major collections for which the trend of the live bytes
#: is tested
MIN_TREND = 5
#: the medians of nine intervals that divide the standard normal distribution into parts
#: of equal probability
_NINE = (-1.5932, -0.9674, -0.5895, -0.2822, 0.0, 0.2822, 0.5895, 0.9674, 1.5932)
#: the median distance of a standard normal variable from 0
_QUARTILE = 0.6745
#: the numbers of objects from which the normal distribution replaces the binomial one:
#: for reported p-values, and for other probabilities
_MANY, _SOME = 1000, 100


class Counts(NamedTuple):
    """The sampled objects that appeared and disappeared in each of two windows."""

    came: tuple[int, int]
    went: tuple[int, int]

    @property
    def p(self) -> float:
        """Return the p-value of growth in both windows.

        It is the larger one of the two windows' p-values (sign_test()).
        """
        return max(map(sign_test, self.came, self.went))

    @property
    def least_p(self) -> float:
        """Return the smallest p-value that these numbers of objects allow."""
        return max(0.5 ** (came + went) for came, went in zip(self.came, self.went))


class Significant(NamedTuple):
    """The tests that are significant at `ALPHA` for all tests together."""

    #: the p-value of each test, corrected for the number of tests; 1.0 if the test is
    #: not significant
    ps: list[float]
    #: the number of tests that the correction considers
    tests: int
    #: the largest uncorrected p-value that is significant
    limit: float


def find_significant(all_counts: Sequence[Counts]) -> Significant:
    """Correct the p-values of all tests for the number of tests.

    Tarone (1990) omits the tests that cannot be significant. Holm (1979) corrects the
    others.
    """
    leasts = sorted(counts.least_p for counts in all_counts)
    # The smallest K such that at most K tests can have a p-value up to ALPHA / K.
    tests = 1
    while bisect.bisect_right(leasts, ALPHA / tests) > tests:
        tests += 1
    ps = [1.0] * len(all_counts)
    largest, rank = 0.0, 0
    for p, number in sorted(
            (counts.p, number) for number, counts in enumerate(all_counts)
            if counts.least_p <= ALPHA / tests):
        largest = max(largest, min(p * (tests - rank), 1.0))
        if largest > ALPHA:
            break
        ps[number] = largest
        rank += 1
    return Significant(ps, tests, ALPHA / max(tests - rank, 1))


def samples_needed(tests: int) -> int:
    """Return how many objects have to appear in each window for significant growth.

    The result assumes that no object disappears.

    Args:
        tests: the number of tests that the correction considers.
    """
    return math.ceil(math.log2(tests / ALPHA))


def sign_test(came: int, went: int, many: int = _MANY) -> float:
    """Return the probability of at least `came` heads in `came + went` coin tosses.

    Args:
        came: the number of objects that appeared.
        went: the number of objects that disappeared.
        many: the number of tosses above which the result is a normal approximation.
    """
    n = came + went
    if n > many:
        # continuity correction
        z = (came - 0.5 - n / 2) / math.sqrt(n / 4)
        return 0.5 * math.erfc(z / math.sqrt(2))
    ways: int = sum(math.comb(n, k) for k in range(came, n + 1))
    return ways / (1 << n)


def rises(changes: list[float]) -> bool:
    """Return whether the cumulative sums of the changes rise by more than chance.

    The test is Kendall's tau, one-sided, at the level `ALPHA`.
    """
    levels = []
    level = 0.0
    for change in changes:
        level += change
        levels.append(level)
    n = len(levels)
    # the number of rising pairs; pairs of equal levels count half
    rising = sum((levels[j] > levels[i]) + 0.5 * (levels[j] == levels[i])
                 for i in range(n) for j in range(i + 1, n))
    # the share of the permutations of n with each number of ordered pairs (Mahonian
    # numbers)
    counts = [1.0]
    for size in range(1, n + 1):
        longer = [0.0] * (len(counts) + size - 1)
        for i, count in enumerate(counts):
            for j in range(size):
                longer[i + j] += count / size
        counts = longer
    return sum(counts[int(rising):]) <= ALPHA


class _Spread(NamedTuple):
    """The distribution of a place's new objects, which determines one test's result."""

    #: the share of the new objects that belong to the tested type, or to the types that
    #: are tested together
    share: float
    #: the share of these objects that appeared in the first window
    first: float
    #: the numbers of objects that have to appear in the first and in the second window
    #: for a significant result
    needed: int
    needed_later: int

    def probability(self, objects: float) -> float:
        """Return the probability that the test of `objects` objects is significant."""
        if objects <= self.needed + self.needed_later - 1:
            return 0.0
        # the normal approximation of a binomial distribution, with the continuity
        # correction
        mean = objects * self.first
        scale = math.sqrt(2 * mean * (1.0 - self.first))
        return (math.erf((objects - self.needed_later + 0.5 - mean) / scale)
                - math.erf((self.needed - 0.5 - mean) / scale)) / 2


def scatter(changes: Sequence[float], variances: Sequence[float]) -> float:
    """Return the standard deviation of the live bytes at one moment from their trend.

    The variance that sampling causes is subtracted. The difference of two successive
    changes has six times the variance of a moment, and does not contain a steady trend
    (von Neumann, Annals of Mathematical Statistics 1941). The median of these
    differences gives the estimate, so that the enlargement of a single list has no
    effect.

    Args:
        changes: the change of the live bytes at each moment.
        variances: the sampling variance of each change.

    Returns:
        Bytes; 0.0 if there are fewer than `MIN_TREND` moments.
    """
    if len(changes) < MIN_TREND:
        return 0.0
    bends = [after - before for before, after in zip(changes[1:], changes[2:])]
    expected = sum(before + after for before, after in zip(
        variances[1:], variances[2:])) / len(bends)
    found: float = (statistics.median(map(abs, bends)) / _QUARTILE) ** 2
    return math.sqrt(max(found - expected, 0.0) / 6)


def named(sites: Sequence[Counts], together: Counts | None, limit: float) -> Named:
    """Return a function that returns the probability that a place is reported.

    The argument x of the returned function scales the number of objects that appeared.
    The number of objects that disappeared stays constant. A place is reported if one of
    its sites is significant, or all sites that are tested together. The type of each
    object, and the window in which the object appears, are random with the observed
    shares. Types count as independent of each other. See growth.py for the use of this
    function.

    Args:
        sites: the counts of each type at the place.
        together: the counts of the types that are tested together; None if there is no
            such test.
        limit: the largest p-value that is significant.
    """
    total = sum(sum(site.came) for site in sites)
    alone, joint = ([_Spread(sum(site.came) / total, site.came[0] / sum(site.came), *(
        _needed(went, limit) for went in site.went)) for site in of if min(site.came)]
        for of in (sites, [together] if together else []))

    def probability(times: float) -> float:
        result = 0.0
        for spreads in alone, joint:
            none = 1.0
            for spread in spreads:
                mean = total * times * spread.share
                deviation = math.sqrt(mean * max(1.0 - spread.share, 0.0))
                none *= 1.0 - sum(spread.probability(mean + z * deviation)
                                  for z in _NINE) / len(_NINE)
            result = max(result, 1.0 - none)
        return result

    return probability


def _needed(went: int, limit: float) -> int:
    """Return how many objects have to appear for significance if `went` disappear."""
    high = 1
    while sign_test(high, went, _SOME) > limit:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if sign_test(middle, went, _SOME) > limit:
            low = middle
        else:
            high = middle
    return high
