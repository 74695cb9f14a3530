"""From samples to bytes and objects, with 95 % intervals.

Every object of s bytes is sampled with a known probability p(s), whatever
the others do.  A sampled object therefore stands for 1/p(s) objects, and
s/p(s) bytes; the sum of these over any set of samples is an unbiased estimate
of what was allocated (Horvitz and Thompson, "A generalization of sampling
without replacement from a finite universe", 1952).  The weight is worked out
object by object, with the interval that was in force, and then summed.
"""
from __future__ import annotations

import math
from typing import NamedTuple

#: quantile of the normal distribution for 95 %, two-sided
Z = 1.959964


def probability(size: int, interval: int, gaps: str) -> float:
    """The probability that an object of `size` bytes is sampled at a mean
    `interval` of so many bytes; both positive.

    exponential: 1 - exp(-size/interval), see native/sampler.h.
    fixed: the phase of the stride counts as random: min(1, size/interval).
    """
    if gaps == "fixed":
        return min(1.0, size / interval)
    return -math.expm1(-size / interval)


def weight_objects(size: int, interval: int, gaps: str) -> float:
    """How many objects a sampled object of `size` bytes stands for."""
    return 1.0 / probability(size, interval, gaps)


def weight_bytes(size: int, interval: int, gaps: str) -> float:
    """How many bytes a sampled object of `size` bytes stands for."""
    return size / probability(size, interval, gaps)


class Estimate(NamedTuple):
    """An estimate, and the interval that holds the truth in 95 of 100 runs."""

    value: float
    low: float
    high: float


def interval_95(value: float, variance: float, largest: float) -> Estimate:
    """The 95 % interval of a sum of independent weighted counts.

    The gamma interval of Fay and Feuer, "Confidence intervals for directly
    standardized rates", 1997: a normal interval is too narrow, and may be
    negative, when few samples carry the sum.  `largest` is the largest weight
    among the samples.
    """
    if variance <= 0.0:
        return Estimate(value, value, value)        # all were certain
    low = (_gamma_quantile(value * value / variance, -Z)
           * variance / value)
    value_up, variance_up = value + largest, variance + largest * largest
    high = (_gamma_quantile(value_up * value_up / variance_up, Z)
            * variance_up / value_up)
    return Estimate(value, min(low, value), max(high, value))


def _gamma_quantile(shape: float, z: float) -> float:
    """Quantile of the gamma distribution of this shape and scale 1, at the
    normal quantile z (Wilson and Hilferty's cube, 1931)."""
    root = 1.0 - 1.0 / (9.0 * shape) + z / (3.0 * math.sqrt(shape))
    return float(shape * max(root, 0.0) ** 3)


class Sum:
    """Adds up samples: bytes and objects at once."""

    __slots__ = (
        "_bytes",
        "_bytes_largest",
        "_bytes_variance",
        "_objects",
        "_objects_largest",
        "_objects_variance",
        "samples",
    )

    def __init__(self) -> None:
        self.samples = 0
        self._bytes = self._objects = 0.0
        self._bytes_variance = self._objects_variance = 0.0
        self._bytes_largest = self._objects_largest = 0.0

    def add(self, size: int, p: float, count: int = 1) -> None:
        """`count` samples of `size` bytes, sampled with probability `p`."""
        objects = 1.0 / p
        weight = size * objects
        self.samples += count
        self._objects += count * objects
        self._bytes += count * weight
        # the variance of a Horvitz-Thompson sum, itself estimated from the
        # sample: sum of (1 - p) / p**2, times size**2
        self._objects_variance += count * (1.0 - p) * objects * objects
        self._bytes_variance += count * (1.0 - p) * weight * weight
        self._objects_largest = max(self._objects_largest, objects)
        self._bytes_largest = max(self._bytes_largest, weight)

    def bytes(self) -> Estimate:
        return interval_95(self._bytes, self._bytes_variance,
                           self._bytes_largest)

    def objects(self) -> Estimate:
        return interval_95(self._objects, self._objects_variance,
                           self._objects_largest)
