"""From samples to bytes and objects, with 95 % intervals.

Every object of s bytes is sampled with a known probability p(s), whatever
the others do.  A sampled object therefore stands for 1/p(s) objects, and
s/p(s) bytes; the sum of these over any set of samples is an unbiased estimate
of what was allocated (Horvitz and Thompson, "A generalization of sampling
without replacement from a finite universe", 1952).  The weight is worked out
object by object, with the interval that was in force, and then summed.
How often the intervals hold the truth: benchmarks/experiments/coverage.py.
"""
from __future__ import annotations

import math
from typing import NamedTuple

from vmprof_convert.profile.probability import probability

#: quantile of the normal distribution for 95 %, two-sided
Z = 1.959964
#: bytes, with the GC's header
SMALLEST_OBJECT = 16


def weight_objects(size: int, interval: int, gaps: str) -> float:
    """How many objects a sampled object of `size` bytes stands for."""
    return 1.0 / probability(size, interval, gaps)


def weight_bytes(size: int, interval: int, gaps: str) -> float:
    """How many allocated bytes a sampled object of `size` bytes stands for."""
    return size / probability(size, interval, gaps)


def weight_live_bytes(size: int, live_size: int, interval: int, gaps: str) -> float:
    """How many bytes that are alive a sampled object stands for: `size` bytes were
    allocated for it, which gives its probability, and of these it takes `live_size`;
    0: all."""
    return (live_size or size) / probability(size, interval, gaps)


class Estimate(NamedTuple):
    """An estimate, and the interval that holds the truth in 95 of 100 runs."""

    value: float
    low: float
    high: float

    def widened(self, deviation: float) -> Estimate:
        """By an error that is independent of the estimate's own, with this standard
        deviation."""
        value, low, high = self
        return Estimate(value, value - math.hypot(value - low, Z * deviation),
                        value + math.hypot(high - value, Z * deviation))


def interval_of(observed: float, unseen: float, variance: float,
                extra: float, z: float = Z) -> Estimate:
    """The 95 % interval of a sum of independent weighted counts; or that of another
    quantile `z`.

    What was sampled is there: `observed`, bytes or objects, is certain.  What
    is estimated is the rest, `unseen`, with this `variance`.  (If k of n
    objects were sampled, each with probability p, then about k * (1 - p) / p
    were not; given k, that number has a negative binomial distribution, which
    is a gamma distribution where p is small.)

    The gamma interval of Fay and Feuer, "Confidence intervals for directly
    standardized rates", Statistics in Medicine 1997: a normal interval is too
    narrow, and may be negative, when few samples carry the sum.  Its upper
    end allows for one sample more than there are, of the largest weight that
    a sample could have had.  This is `extra`, and it is a matter of the whole
    run: a function that was sampled while the interval was small may have
    allocated while it was large, and was not met.  Of that one sample we
    take one half, as in Fay and Kim's mid-p gamma intervals (Biometrical
    Journal 2017): the whole one covers more than 95 %.
    """
    value = observed + unseen
    if variance > 0.0 and unseen > 0.0:
        low = observed + _gamma_quantile(unseen, variance, -z)
    else:
        low = observed
    high = observed + _gamma_quantile(unseen + extra / 2,
                                      variance + extra * extra / 2, z)
    return Estimate(value, min(low, value), max(high, value))


def _gamma_quantile(mean: float, variance: float, z: float) -> float:
    """Quantile of the gamma distribution of this mean and variance, at the
    normal quantile z (Wilson and Hilferty's cube, 1931)."""
    if variance <= 0.0:
        return mean
    shape = mean * mean / variance
    root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))
    return float(mean * max(root, 0.0) ** 3)


class Sampled(NamedTuple):
    """An estimate without its interval, for who adds a variance of their own."""

    value: float
    #: that of sampling
    variance: float
    #: the largest weight that one sample more could have had
    extra: float


class Sum:
    """Adds up samples: bytes and objects at once."""

    __slots__ = (
        "_bytes",
        "_bytes_variance",
        "_live",
        "_objects",
        "_objects_variance",
        "_observed",
        "samples",
        "smallest",
    )

    def __init__(self) -> None:
        self.samples = 0
        #: bytes of the smallest sample; 0: there is none
        self.smallest = 0
        #: what the samples stand for, themselves included
        self._bytes = self._objects = 0.0
        self._bytes_variance = self._objects_variance = 0.0
        #: bytes of the samples themselves
        self._observed = 0.0
        #: the same objects with the bytes that they take while they are alive; None:
        #: none of them was shrunk
        self._live: Sum | None = None

    def add(self, size: int, p: float, count: int = 1, live_size: int = 0) -> None:
        """`count` samples of `size` bytes, sampled with probability `p`; `live_size`:
        see model.Samples."""
        if live_size and self._live is None:
            self._live = self._copy()
        if self._live is not None:
            self._live.add(live_size or size, p, count)
        objects = 1.0 / p
        weight = size / p
        self.samples += count
        self.smallest = min(self.smallest or size, size)
        self._observed += count * size
        self._objects += count * objects
        self._bytes += count * weight
        # the variance of a Horvitz-Thompson sum, itself estimated from the
        # sample: sum of (1 - p) / p**2, times size**2
        self._objects_variance += count * (1.0 - p) * objects * objects
        self._bytes_variance += count * (1.0 - p) * weight * weight

    def _copy(self) -> Sum:
        result = Sum()
        result.add_sum(self)
        return result

    @property
    def live(self) -> Sum:
        """The sum of the same objects, with the bytes that they take while they are
        alive: itself, or a smaller one if some of them were shrunk."""
        return self if self._live is None else self._live

    def add_sum(self, other: Sum) -> None:
        """All samples of `other`."""
        if other._live is not None and self._live is None:
            self._live = self._copy()
        if self._live is not None:
            self._live.add_sum(other.live)
        self.samples += other.samples
        if other.smallest and not 0 < self.smallest <= other.smallest:
            self.smallest = other.smallest
        self._observed += other._observed
        self._objects += other._objects
        self._bytes += other._bytes
        self._objects_variance += other._objects_variance
        self._bytes_variance += other._bytes_variance

    @property
    def value_bytes(self) -> float:
        """The estimate alone."""
        return self._bytes

    @property
    def value_objects(self) -> float:
        return self._objects

    def sampled(self, interval: int, is_objects: bool, smallest: int = 0) -> Sampled:
        """Of objects or bytes; `interval`, `smallest`: see bytes() and objects(); 0: an
        object can have been as small as there are any."""
        if is_objects:
            return Sampled(self._objects, self._objects_variance,
                           interval / (smallest or SMALLEST_OBJECT))
        return Sampled(self._bytes, self._bytes_variance, interval)

    # A sample more stands, beside itself, for size / p - size bytes, which is
    # nearly the interval for a small object, and less for larger ones.  How
    # many objects that are, nobody knows: where most bytes are in large
    # objects, the many small ones may not have been met at all.

    def bytes(self, interval: int, z: float = Z) -> Estimate:
        """The sum of the bytes.  `interval` is the largest one that was in force in the
        run."""
        return interval_of(
            self._observed, max(self._bytes - self._observed, 0.0),
            self._bytes_variance, interval, z)

    def objects(self, interval: int,
                smallest: int = SMALLEST_OBJECT, z: float = Z) -> Estimate:
        """The number of objects; none was smaller than `smallest` bytes.  `interval` is
        the largest one that was in force in the run."""
        return interval_of(
            self.samples, max(self._objects - self.samples, 0.0),
            self._objects_variance, interval / smallest, z)
