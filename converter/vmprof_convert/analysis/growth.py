"""Estimate by how many bytes the live memory grew, with a 95 % interval.

The search for leaks uses this module. The growth is the number of live bytes at the
end, sampled or not, minus the number at the beginning. It is the difference of two sums
(estimator.py). The first sum contains the objects that are live at the end only
(`came`). The second one contains the objects that are live at the beginning only
(`went`). No object is in both sums, so that they are independent. The interval of the
difference is calculated from their intervals (MOVER: Zou and Donner, "Construction of
confidence limits about effect measures: a general approach", Statistics in Medicine
2008).

The search reports a place (a function and a line) as a leak because the place grew. The
reported places, here called *named*, seem to grow faster than they do. Among many
places with slow growth, those with many sampled objects by chance are named. Let
named(x) be the probability that a place with x sampled objects is named. Then the
number of sampled objects of a named place has the distribution

    exp(-l) * l**x / x! * named(x)

divided by its sum over x, where l is the expected number of sampled objects. (named(x)
does not depend on l: for a given x, only the types and windows of the objects are
random.) The interval contains the values l for which the observed number is in the
central 95 % of this distribution. The probability of the observed number itself counts
half on either side. See Fithian, Sun and Taylor, "Optimal inference after model
selection", 2014 (arXiv 1410.2597). The estimate moves by as much as the middle of the
interval. If named(x) is 1 for all probable x, nothing changes.
tests/profiles/test_leak_sizes.py measures how often such intervals contain the true
growth.
"""
from __future__ import annotations

import math
from collections.abc import Callable

from vmprof_convert.meaning.estimator import Estimate, Z, interval_of

#: named() counts as 1 if it exceeds `_CERTAIN` at `_BELOW` standard deviations below
#: the observed number
_CERTAIN, _BELOW = 0.999, 4.0
#: the number of points at which the distribution is evaluated, and the number of steps
#: of the bisection
_POINTS, _STEPS = 300, 30

#: A function of x. It returns the probability that a place would be named if it had x
#: times as many sampled objects.
Named = Callable[[float], float]


class Sampled:
    """A sum of sampled objects, in bytes."""

    __slots__ = ("observed", "value", "variance")

    def __init__(self) -> None:
        """Start with no objects."""
        #: the bytes of the sampled objects, and the estimated bytes of all objects
        self.observed = self.value = 0.0
        #: the variance of the estimate (see estimator.Sum)
        self.variance = 0.0

    def add(self, size: int, p: float) -> None:
        """Add an object of `size` bytes that was sampled with probability `p`."""
        weight = size / p
        self.observed += size
        self.value += weight
        self.variance += (1.0 - p) * weight * weight

    def add_sampled(self, other: Sampled) -> None:
        """Add the objects of another sum."""
        self.observed += other.observed
        self.value += other.value
        self.variance += other.variance

    def estimate(self, interval: int) -> Estimate:
        """Return the estimate; the largest sampling interval was `interval` bytes."""
        return interval_of(self.observed, max(self.value - self.observed, 0.0),
                           self.variance, interval)


class Change:
    """The objects that appeared and the objects that disappeared in a time window."""

    __slots__ = ("came", "went")

    def __init__(self) -> None:
        """Start with no objects."""
        self.came, self.went = Sampled(), Sampled()

    def add_change(self, other: Change) -> None:
        """Add the objects of another change."""
        self.came.add_sampled(other.came)
        self.went.add_sampled(other.went)

    def growth(self, interval: int, named: Named | None = None) -> Estimate:
        """Estimate the bytes that appeared minus the bytes that disappeared.

        Args:
            interval: the largest sampling interval that was in force, in bytes.
            named: for a named place, the probability that it is named (see Named). None
                to return an estimate without the correction for this selection.
        """
        came, went = self.came.estimate(interval), self.went.estimate(interval)
        if named is not None:
            came = _as_named(self.came, came, named)
        value = came.value - went.value
        return Estimate(
            value,
            value - math.hypot(came.value - came.low, went.high - went.value),
            value + math.hypot(came.high - came.value, went.value - went.low))


def _as_named(came: Sampled, estimate: Estimate, named: Named) -> Estimate:
    """Correct the estimate of the appeared bytes of a place that was named."""
    unseen = came.value - came.observed
    if came.variance <= 0.0 or unseen <= 0.0:
        return estimate     # all objects were sampled
    # the weight that each sample would have if samples of equal weight had the same sum
    # and the same variance
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
        # The place was named, so that named() is not 0 here, although its approximation
        # is.
        logs[below] = logs[below][0], -math.lgamma(samples + 1.0) - 20.0

    def above(expected: float) -> float:
        """Return the probability of more samples than the observed number.

        `expected` is the mean, and the place was named. The observed number itself
        counts half.
        """
        log = math.log(expected)
        exponents = [log * number + rest for number, (_, rest) in zip(numbers, logs)]
        largest = max(exponents)
        weights = [math.exp(exponent - largest) for exponent in exponents]
        return (sum(weights[below + 1:]) + weights[below] / 2) / sum(weights)

    def expected(probability: float) -> float:
        """Return the expected number of samples at which above() is `probability`."""
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
