"""Estimate bytes and objects from samples, with 95 % intervals.

All reports, and the writers of formats with estimates, use this module.

An object of s bytes is sampled with a known probability p(s) (profile/probability.py),
independently of other objects. So a sampled object represents 1/p(s) objects and s/p(s)
bytes. The sum of these weights over any set of samples is an unbiased estimate of the
allocated objects or bytes (Horvitz and Thompson, "A generalization of sampling without
replacement from a finite universe", 1952). The weight of each object is calculated with
the sampling interval that was in force. benchmarks/experiments/coverage.py measures how
often the intervals contain the true value.
"""
from __future__ import annotations

import math
from typing import NamedTuple

from vmprof_convert.profile.probability import probability

#: the quantile of the normal distribution for 95 %, two-sided
Z = 1.959964
#: the bytes of the smallest object, with the GC's header
SMALLEST_OBJECT = 16


def weight_objects(size: int, interval: int, gaps: str) -> float:
    """Return the number of objects that a sampled object of `size` bytes represents."""
    return 1.0 / probability(size, interval, gaps)


def weight_bytes(size: int, interval: int, gaps: str) -> float:
    """Return the allocated bytes that a sampled object of `size` bytes represents."""
    return size / probability(size, interval, gaps)


def weight_live_bytes(size: int, live_size: int, interval: int, gaps: str) -> float:
    """Return the live bytes that a sampled object represents.

    Args:
        size: the allocated bytes, which determine the probability of the sample.
        live_size: the bytes that the object takes while it is alive; 0 if it takes all.
        interval: the mean sampling interval in bytes.
        gaps: the kind of sampling distribution (see probability()).
    """
    return (live_size or size) / probability(size, interval, gaps)


class Estimate(NamedTuple):
    """An estimate, and the interval that contains the true value in 95 of 100 runs."""

    value: float
    low: float
    high: float

    def widened(self, deviation: float) -> Estimate:
        """Return the estimate with the interval for an additional, independent error.

        Args:
            deviation: the standard deviation of the additional error.
        """
        value, low, high = self
        return Estimate(value, value - math.hypot(value - low, Z * deviation),
                        value + math.hypot(high - value, Z * deviation))


def interval_of(observed: float, unseen: float, variance: float,
                extra: float, z: float = Z) -> Estimate:
    """Return the interval of a sum of independent weighted counts.

    The sampled bytes or objects are certain. The rest is estimated. (If k of n objects
    were sampled, each with probability p, then about k * (1 - p) / p were not. Given k,
    this number has a negative binomial distribution, which is a gamma distribution if p
    is small.)

    The result is the gamma interval of Fay and Feuer, "Confidence intervals for
    directly standardized rates", Statistics in Medicine 1997. A normal interval would
    be too narrow, and might contain negative values, if few samples contribute most of
    the sum. The upper end of the gamma interval allows for one additional sample with
    the largest possible weight, `extra`. This weight is the same for all sums of a
    run: a function that was sampled at a short sampling interval may also have
    allocated, without a sample, at a long one. Half of the additional sample is added,
    as in the mid-p gamma intervals of Fay and Kim (Biometrical Journal 2017). With a
    whole sample, more than 95 % of the intervals would contain the true value.

    Args:
        observed: the sampled bytes or objects.
        unseen: the estimated bytes or objects that were not sampled.
        variance: the variance of `unseen`.
        extra: the largest possible weight of an additional sample.
        z: the normal quantile; the default gives 95 % intervals.
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
    """Return the quantile of a gamma distribution with a mean and a variance.

    The formula is the cube approximation of Wilson and Hilferty, 1931.

    Args:
        mean: the mean of the distribution.
        variance: the variance of the distribution.
        z: the quantile of the normal distribution for the same probability.
    """
    if variance <= 0.0:
        return mean
    shape = mean * mean / variance
    root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))
    return float(mean * max(root, 0.0) ** 3)


class Sampled(NamedTuple):
    """An estimate without its interval, to which the caller adds another variance."""

    value: float
    #: the variance that sampling causes
    variance: float
    #: the largest possible weight of an additional sample
    extra: float


class Sum:
    """The estimated bytes and objects that some samples represent."""

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
        """Start with no samples."""
        self.samples = 0
        #: the bytes of the smallest sample; 0 without samples
        self.smallest = 0
        #: the bytes and objects that the samples represent, including the samples
        self._bytes = self._objects = 0.0
        self._bytes_variance = self._objects_variance = 0.0
        #: the bytes of the samples
        self._observed = 0.0
        #: the sum of the same objects with the bytes that they take while they are
        #: alive; None if the program shrank no object
        self._live: Sum | None = None

    def add(self, size: int, p: float, count: int = 1, live_size: int = 0) -> None:
        """Add samples.

        Args:
            size: the bytes of each sample.
            p: the probability with which each object was sampled.
            count: the number of samples.
            live_size: the bytes that each object takes while it is alive; 0 if it takes
                all.
        """
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
        # The variance of a Horvitz-Thompson sum is itself estimated from the sample:
        # the sum of (1 - p) / p**2, times size**2.
        self._objects_variance += count * (1.0 - p) * objects * objects
        self._bytes_variance += count * (1.0 - p) * weight * weight

    def _copy(self) -> Sum:
        result = Sum()
        result.add_sum(self)
        return result

    @property
    def live(self) -> Sum:
        """Return the sum of the same objects with the bytes that they take while alive.

        The result is the sum itself unless the program shrank some of the objects.
        """
        return self if self._live is None else self._live

    def add_sum(self, other: Sum) -> None:
        """Add all samples of another sum."""
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
        """Return the estimated bytes, without an interval."""
        return self._bytes

    @property
    def value_objects(self) -> float:
        """Return the estimated number of objects, without an interval."""
        return self._objects

    def sampled(self, interval: int, is_objects: bool, smallest: int = 0) -> Sampled:
        """Return the estimate of bytes or objects with its variance.

        Args:
            interval: the largest sampling interval that was in force, in bytes.
            is_objects: whether the number of objects is estimated.
            smallest: the bytes of the smallest possible object; 0 for SMALLEST_OBJECT.
        """
        if is_objects:
            return Sampled(self._objects, self._objects_variance,
                           interval / (smallest or SMALLEST_OBJECT))
        return Sampled(self._bytes, self._bytes_variance, interval)

    # The intervals of the following methods allow for one additional sample (see
    # interval_of()). The sample represents, in addition to itself, size / p - size
    # bytes. For a small object, this is nearly the sampling interval; for larger
    # objects, it is less. The number of objects that the sample represents is unknown:
    # if most bytes belong to large objects, the many small objects may have no samples.

    def bytes(self, interval: int, z: float = Z) -> Estimate:
        """Estimate the bytes.

        Args:
            interval: the largest sampling interval that was in force in the run, in
                bytes.
            z: the normal quantile of the interval.
        """
        return interval_of(
            self._observed, max(self._bytes - self._observed, 0.0),
            self._bytes_variance, interval, z)

    def objects(self, interval: int,
                smallest: int = SMALLEST_OBJECT, z: float = Z) -> Estimate:
        """Estimate the number of objects.

        Args:
            interval: the largest sampling interval that was in force in the run, in
                bytes.
            smallest: the bytes of the smallest possible object.
            z: the normal quantile of the interval.
        """
        return interval_of(
            self.samples, max(self._objects - self.samples, 0.0),
            self._objects_variance, interval / smallest, z)
