"""Whether what is held grows by more than chance: the tests of `report --leaks`.
search.py says why these."""
from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from vmprof_convert.analysis.growth import Named

#: no leak is reported in so many of the runs that have none
CONFIDENCE = 0.95
ALPHA = 1.0 - CONFIDENCE
#: so many major collections are needed to see whether what is held goes up and down
MIN_TREND = 5
#: standard normal distribution: the middles of nine parts of equal probability
_NINE = (-1.5932, -0.9674, -0.5895, -0.2822, 0.0, 0.2822, 0.5895, 0.9674, 1.5932)
#: half of its values are no farther from 0 than this
_QUARTILE = 0.6745
#: from so many objects on, the normal distribution stands for the binomial one: where a
#: p is told, and where none is
_MANY, _SOME = 1000, 100


class Counts(NamedTuple):
    """How many sampled objects came, and how many went, in each of two windows."""

    came: tuple[int, int]
    went: tuple[int, int]

    @property
    def p(self) -> float:
        """The probability of as many or more that came, in both windows, if nothing
        grows."""
        return max(map(sign_test, self.came, self.went))

    @property
    def least_p(self) -> float:
        """The smallest p that so many objects can have."""
        return max(0.5 ** (came + went) for came, went in zip(self.came, self.went))


class Significant(NamedTuple):
    """Which of many tests are significant at `ALPHA` for all of them together."""

    #: of each test, as corrected for their number; 1.0: it is not significant
    ps: list[float]
    #: how many tests the correction is for
    tests: int
    #: a test is significant with an uncorrected p up to this one
    limit: float


def find_significant(all_counts: Sequence[Counts]) -> Significant:
    """Corrected by Tarone (1990), who leaves out what can't be significant, and then by
    Holm (1979)."""
    leasts = sorted(counts.least_p for counts in all_counts)
    # the smallest number of tests of which no more can get below their share of alpha
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
    """How many sampled objects have to come in each window, if none goes."""
    return math.ceil(math.log2(tests / ALPHA))


def sign_test(came: int, went: int, many: int = _MANY) -> float:
    """The probability that of so many coins as many or more show heads.  Of more than
    `many` coins, about."""
    n = came + went
    if n > many:
        # with the correction for continuity
        z = (came - 0.5 - n / 2) / math.sqrt(n / 4)
        return 0.5 * math.erfc(z / math.sqrt(2))
    ways: int = sum(math.comb(n, k) for k in range(came, n + 1))
    return ways / (1 << n)


def rises(changes: list[float]) -> bool:
    """Whether the sums of these rise more than by chance: Kendall's tau."""
    levels = []
    level = 0.0
    for change in changes:
        level += change
        levels.append(level)
    n = len(levels)
    # pairs that rise; equal ones count half
    rising = sum((levels[j] > levels[i]) + 0.5 * (levels[j] == levels[i])
                 for i in range(n) for j in range(i + 1, n))
    # number of permutations with so many pairs in order (Mahonian numbers)
    counts = [1.0]
    for size in range(1, n + 1):
        longer = [0.0] * (len(counts) + size - 1)
        for i, count in enumerate(counts):
            for j in range(size):
                longer[i + j] += count / size
        counts = longer
    return sum(counts[int(rising):]) <= ALPHA


class _Spread(NamedTuple):
    """How the objects that came at a place are spread over types and windows."""

    #: the share of one type, or of the types that are tested together
    share: float
    #: of these objects, the share that came in the first window
    first: float
    #: how many have to come in each window to be significant
    needed: int
    needed_later: int

    def probability(self, objects: float) -> float:
        """That of so many objects enough come in both windows."""
        if objects <= self.needed + self.needed_later - 1:
            return 0.0
        # a binomial distribution, as a normal one with the correction for continuity
        mean = objects * self.first
        scale = math.sqrt(2 * mean * (1.0 - self.first))
        return (math.erf((objects - self.needed_later + 0.5 - mean) / scale)
                - math.erf((self.needed - 0.5 - mean) / scale)) / 2


def scatter(changes: Sequence[float], variances: Sequence[float]) -> float:
    """The standard deviation of what is held at one moment about its course, without
    what sampling adds, in bytes; 0.0 if there are fewer than `MIN_TREND` moments.

    `changes` of what is held, one a moment, and the variance of each as an estimate.
    How much a change differs from the one before it has six times the variance of a
    moment, and a steady course is not in it (von Neumann, Annals of Mathematical
    Statistics 1941).  The median of these tells, so that one list that was enlarged
    does not count."""
    if len(changes) < MIN_TREND:
        return 0.0
    bends = [after - before for before, after in zip(changes[1:], changes[2:])]
    expected = sum(before + after for before, after in zip(
        variances[1:], variances[2:])) / len(bends)
    found: float = (statistics.median(map(abs, bends)) / _QUARTILE) ** 2
    return math.sqrt(max(found - expected, 0.0) / 6)


def named(sites: Sequence[Counts], together: Counts | None, limit: float) -> Named:
    """The probability that a place would be named, if x times as many objects had come
    there and as many had gone: that one of its `sites` is significant, with a p up to
    `limit`, or all that are tested `together`.

    Of which type each object is, and in which window it came, is left to chance, with
    the shares that were seen.  Types count as independent of each other."""
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
    """How many have to come to be significant, if so many go."""
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
