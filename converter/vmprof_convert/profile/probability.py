"""The probability that the sampler samples an object."""
from __future__ import annotations

import math


def probability(size: int, interval: int, gaps: str) -> float:
    """Return the probability that an object is sampled.

    With exponential gaps, the probability is 1 - exp(-size/interval); see
    native/sampler/sampler.h. With fixed gaps, the phase of the sample points counts as
    random, so the probability is min(1, size/interval).

    Args:
        size: Size of the object in bytes, positive.
        interval: Mean gap in bytes, positive.
        gaps: "exponential" or "fixed".
    """
    if gaps == "fixed":
        return min(1.0, size / interval)
    return -math.expm1(-size / interval)
