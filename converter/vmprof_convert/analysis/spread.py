"""Estimate how much equal runs of a program differ.

A comparison of several runs per side (diff.py) uses this spread to decide whether a
difference is significant.

Sampling is one reason why equal runs differ, and its variance is known (estimator.py).
The variance of other reasons is unknown. For example, the JIT allocates an object where
it can no longer avoid the allocation. That may be in another function than in the
previous run, or nowhere. So the variance between the runs of a side is measured.

Three runs per side are too few for an exact variance. Therefore it is moderated as in
Smyth, "Linear models and empirical Bayes methods for assessing differential expression
in microarray experiments", Statistical Applications in Genetics and Molecular Biology
2004. The variance of sampling is the prior, with the weight of PRIOR degrees of
freedom. Smyth estimates this weight from all rows of a comparison. Here it is a
constant, because a comparison often has only two or three rows.

Smyth's method was applied to the rows of nine programs with 24 runs each. The fitted
weight was 1.2 to 3.2 for allocated bytes, and the prior variance was 0.95 to 1.04 of
the sampling variance. PRIOR is below the smallest of these weights, because programs
differ, and a wrong verdict is worse than no verdict. The variance is never smaller than
the sampling variance. benchmarks/experiments/equal_runs.py measures how often verdicts
are wrong.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Sequence

#: the weight of the sampling variance, in degrees of freedom
PRIOR = 1


def degrees(before: int, after: int, prior: int = PRIOR) -> int:
    """Return the degrees of freedom of a difference between two sides.

    Args:
        before: the number of runs of the first side.
        after: the number of runs of the second side.
        prior: the weight of the sampling variance; 0 for metrics that are not sampled.
    """
    return before + after - 2 + prior


def variance(before: Sequence[float], after: Sequence[float],
             sampling: float, prior: int = PRIOR) -> float:
    """Return the variance of a metric between equal runs.

    Args:
        before: the metric in each run of the first side.
        after: the metric in each run of the second side; both sides together have at
            least three runs.
        sampling: the variance that sampling alone gives to the metric of one run.
        prior: the weight of `sampling`, in degrees of freedom.
    """
    squares = 0.0
    for side in before, after:
        if side:
            mean = sum(side) / len(side)
            squares += sum((value - mean) ** 2 for value in side)
    return max(sampling, (prior * sampling + squares) / degrees(
        len(before), len(after), prior))


def tail(t: float, degrees_: int) -> float:
    """Return the probability that Student's t is at least as far from 0 as `t`.

    Both directions count. The formulas are 26.7.3 and 26.7.4 in Abramowitz and Stegun,
    "Handbook of Mathematical Functions". The error is up to 1e-15.

    Args:
        t: the limit for Student's t, positive or negative.
        degrees_: the degrees of freedom, at least 1.
    """
    angle = math.atan(abs(t) / math.sqrt(degrees_))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees_ % 2
    term, sum_ = (cosine, 0.0) if odd else (1.0, 0.0)
    for number in range(2 if odd else 1, degrees_, 2):
        sum_ += term
        term *= cosine * cosine * number / (number + 1)
    inside = 2 / math.pi * (angle + sine * sum_) if odd else sine * sum_
    return min(max(1.0 - inside, 0.0), 1.0)


@functools.lru_cache
def quantile(z: float, degrees_: int) -> float:
    """Return the quantile of Student's t for the probability of a normal quantile.

    Args:
        z: the quantile of the normal distribution, from 0 to 7.
        degrees_: the degrees of freedom.
    """
    if not z:
        return 0.0
    probability = math.erfc(z / math.sqrt(2))
    low, high = 0.0, 1.0
    while tail(high, degrees_) > probability:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if tail(middle, degrees_) > probability:
            low = middle
        else:
            high = middle
    return high


def holm(probabilities: Sequence[float],
         weights: Sequence[float] | None = None) -> list[float]:
    """Correct p-values for their number by Holm's step-down method.

    Its source is Holm, "A simple sequentially rejective multiple test procedure",
    Scandinavian Journal of Statistics 1979.

    Args:
        probabilities: the p-values.
        weights: positive weights for Holm's weighted method, in which the probability
            of a wrong row is proportional to its weight; None for equal weights.
    """
    weights = weights or [1.0] * len(probabilities)
    order = sorted(range(len(probabilities)),
                   key=lambda number: probabilities[number] / weights[number])
    # The sums begin at the last row: repeated subtraction from the total would not end
    # at 0.
    left, lefts = 0.0, []
    for number in reversed(order):
        left += weights[number]
        lefts.append(left)
    result, largest = [0.0] * len(probabilities), 0.0
    for number in order:
        largest = max(largest, min(
            probabilities[number] * lefts.pop() / weights[number], 1.0))
        result[number] = largest
    return result
