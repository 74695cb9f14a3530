"""How probable it was that an object was sampled."""
from __future__ import annotations

import math


def probability(size: int, interval: int, gaps: str) -> float:
    """The probability that an object of `size` bytes is sampled at a mean
    `interval` of so many bytes; both positive.

    exponential: 1 - exp(-size/interval), see native/sampler/sampler.h.
    fixed: the phase of the stride counts as random: min(1, size/interval).
    """
    if gaps == "fixed":
        return min(1.0, size / interval)
    return -math.expm1(-size / interval)
