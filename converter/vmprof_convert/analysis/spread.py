"""How much equal runs of a program differ, and how sure a difference is where each side
has several runs.

Sampling is one reason why equal runs differ, and its variance is known (estimator.py).
The other reasons are not: in compiled code, an object is born where the JIT no longer
gets around making it, which may be in another function than in the run before, or
nowhere.  So the variance between the runs of a side is measured.  Three runs a side
measure it badly; it is moderated as in Smyth, "Linear models and empirical Bayes
methods for assessing differential expression in microarray experiments", Statistical
Applications in Genetics and Molecular Biology 2004: the variance of sampling is the
prior, and counts for PRIOR degrees of freedom.  Smyth estimates the prior's weight from
all rows of one comparison; here it is a constant, as a comparison often has two or
three rows.  Fitted by his method to the rows of nine programs with 24 runs each, it was
1.2 to 3.2 for what is allocated, with a prior variance of 0.95 to 1.04 of that of
sampling; it is less than the least of these, as programs differ, and a wrong verdict is
worse than none.  The variance is never taken to be less than that of sampling.
benchmarks/experiments/equal_runs.py measures how often verdicts are wrong.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Sequence

#: for so many degrees of freedom the variance of sampling counts
PRIOR = 1


def degrees(before: int, after: int, prior: int = PRIOR) -> int:
    """Degrees of freedom of a difference of so many runs a side; `prior`: 0 for figures
    that are not sampled."""
    return before + after - 2 + prior


def variance(before: Sequence[float], after: Sequence[float],
             sampling: float, prior: int = PRIOR) -> float:
    """Of one run's figure, between equal runs: `before` and `after` are the figures of
    the runs of each side, at least three in all, and `sampling` is the variance that
    sampling alone gives to one of them, which counts for `prior` degrees of freedom."""
    squares = 0.0
    for side in before, after:
        if side:
            mean = sum(side) / len(side)
            squares += sum((value - mean) ** 2 for value in side)
    return max(sampling, (prior * sampling + squares) / degrees(
        len(before), len(after), prior))


def tail(t: float, degrees_: int) -> float:
    """The probability that Student's t of so many degrees of freedom, 1 or more, is as
    far from 0 as `t`, in either direction (Abramowitz and Stegun, "Handbook of
    Mathematical Functions", 26.7.3 and 26.7.4); an error of 1e-15 is possible."""
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
    """What is to Student's t as `z`, 0 to 7, is to the normal distribution."""
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
    """Each as corrected for how many there are, by Holm's step-down method
    (Scandinavian Journal of Statistics 1979); `weights`, all positive: his weighted
    one, in which a row may be wrong in proportion to its weight."""
    weights = weights or [1.0] * len(probabilities)
    order = sorted(range(len(probabilities)),
                   key=lambda number: probabilities[number] / weights[number])
    # from the last on: a difference of large sums would not end at 0
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
