"""By how many bytes what is held grew: an estimate, and its 95 % interval.

What is estimated is what was held at the end, sampled or not, minus what was held at
the beginning.  That is the difference of two sums (estimator.py): of what *came*, which
is held at the end and was not at the beginning, and of what *went*.  No object is in
both, so that the two are independent, and the interval of the difference is made of
theirs (MOVER: Zou and Donner, "Construction of confidence limits about effect
measures: a general approach", Statistics in Medicine 2008).

A place that is named because it grew seems to grow faster than it does: of many that
grow slowly, those are named of which by chance many objects were sampled.  If named(x)
is the probability that a place with x sampled objects is named, then of the named ones
the number of sampled objects is distributed as

    exp(-l) * l**x / x! * named(x)

divided by its sum over x, where l is how many are expected.  (named(x) does not depend
on l: given x, chance only spreads them over types and windows.)  The interval holds
those l for which the number that was sampled is neither among the smallest 2.5 % of
this distribution nor among the largest; one half of the probability of that number
itself counts on either side.  See Fithian, Sun and Taylor, "Optimal inference after
model selection", 2014 (arXiv 1410.2597).  The estimate is moved by as much as the
middle of the interval is.  Where named(x) is 1 for all x that are probable, nothing
changes.  How often such intervals hold what was planted, is counted in
tests/profiles/test_leak_sizes.py.
"""
from __future__ import annotations

import math
from collections.abc import Callable

from vmprof_convert.meaning.estimator import Estimate, Z, interval_of

#: named() is 1 if it is as much at so many deviations below what came
_CERTAIN, _BELOW = 0.999, 4.0
#: numbers of samples at which the distribution is looked at, and steps of bisection
_POINTS, _STEPS = 300, 30

#: the probability that what has so many times as many samples would be named
Named = Callable[[float], float]


class Sampled:
    """A sum of sampled objects, in bytes."""

    __slots__ = ("observed", "value", "variance")

    def __init__(self) -> None:
        #: of the sampled objects themselves, and what they stand for
        self.observed = self.value = 0.0
        #: of the estimate (estimator.Sum)
        self.variance = 0.0

    def add(self, size: int, p: float) -> None:
        weight = size / p
        self.observed += size
        self.value += weight
        self.variance += (1.0 - p) * weight * weight

    def add_sampled(self, other: Sampled) -> None:
        self.observed += other.observed
        self.value += other.value
        self.variance += other.variance

    def estimate(self, interval: int) -> Estimate:
        return interval_of(self.observed, max(self.value - self.observed, 0.0),
                           self.variance, interval)


class Change:
    """What came, and what went."""

    __slots__ = ("came", "went")

    def __init__(self) -> None:
        self.came, self.went = Sampled(), Sampled()

    def add_change(self, other: Change) -> None:
        self.came.add_sampled(other.came)
        self.went.add_sampled(other.went)

    def growth(self, interval: int, named: Named | None = None) -> Estimate:
        """`interval`: the largest mean interval between samples that was in force."""
        came, went = self.came.estimate(interval), self.went.estimate(interval)
        if named is not None:
            came = _as_named(self.came, came, named)
        value = came.value - went.value
        return Estimate(
            value,
            value - math.hypot(came.value - came.low, went.high - went.value),
            value + math.hypot(came.high - came.value, went.value - went.low))


def _as_named(came: Sampled, estimate: Estimate, named: Named) -> Estimate:
    unseen = came.value - came.observed
    if came.variance <= 0.0 or unseen <= 0.0:
        return estimate     # all of it was seen
    # as many samples of equal weight would have the same variance
    unit = came.variance / unseen
    samples = unseen / unit
    spread = math.sqrt(samples)
    if named(max(1.0 - _BELOW / spread, 0.0)) > _CERTAIN:
        return estimate
    step = (samples + 2 * _BELOW * spread + 20.0) / _POINTS
    below = int(samples / step)
    numbers = [samples + step * i for i in range(-below, _POINTS - below)]
    logs = []
    for number in numbers:
        probability = named(number / samples)
        logs.append((math.log(max(number, step / 2)), (math.log(probability)
                     if probability > 0.0 else -math.inf) - math.lgamma(number + 1.0)))
    if logs[below][1] == -math.inf:
        # what was named can be: the approximations of named() don't have it
        logs[below] = logs[below][0], -math.lgamma(samples + 1.0) - 20.0

    def above(expected: float) -> float:
        """The probability of more samples than came."""
        log = math.log(expected)
        exponents = [log * number + rest for number, (_, rest) in zip(numbers, logs)]
        largest = max(exponents)
        weights = [math.exp(exponent - largest) for exponent in exponents]
        return (sum(weights[below + 1:]) + weights[below] / 2) / sum(weights)

    def expected(probability: float) -> float:
        low, high = step / 100, numbers[-1]
        for _ in range(_STEPS):
            middle = (low + high) / 2
            if above(middle) < probability:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    tail = math.erfc(Z / math.sqrt(2)) / 2
    low, high = (came.observed + unit * expected(p) for p in (tail, 1.0 - tail))
    value = estimate.value + (low + high - estimate.low - estimate.high) / 2
    return Estimate(min(max(value, low), high), low, high)
