"""Tests of the estimates of bytes and objects from samples.

The tests compare the weights with their formulas, and the confidence intervals with
simulated runs whose true sums are known.
"""
from __future__ import annotations

import math
import random

import pytest

from vmprof_convert.meaning.estimator import (
    Sum,
    interval_of,
    weight_bytes,
    weight_objects,
)
from vmprof_convert.profile.probability import probability


@pytest.mark.parametrize("size", [1, 64, 4096, 131072, 10**6, 2**40])
def test_weight_is_size_over_probability(size: int) -> None:
    p = probability(size, 131072, "exponential")
    assert p == pytest.approx(1 - math.exp(-size / 131072), rel=1e-12)
    assert weight_bytes(size, 131072, "exponential") == pytest.approx(size / p)
    assert weight_objects(size, 131072, "exponential") == pytest.approx(1 / p)


def test_weight_of_a_small_object_is_the_interval() -> None:
    """The weight keeps the digits that 1 - exp(-x) would lose for a small x."""
    assert weight_bytes(16, 2**50, "exponential") == pytest.approx(
        2**50, rel=1e-9)


def test_weight_of_a_large_object_is_its_size() -> None:
    assert weight_bytes(2**30, 4096, "exponential") == 2**30


def test_weight_of_an_object_as_large_as_the_interval() -> None:
    """A weight of max(size, interval) would be 37 % too small here."""
    n = 131072
    assert weight_bytes(n, n, "exponential") == pytest.approx(
        n / (1 - math.exp(-1)))


def test_weight_with_fixed_gaps_is_at_least_the_interval() -> None:
    assert weight_bytes(64, 4096, "fixed") == 4096
    assert weight_bytes(10000, 4096, "fixed") == 10000
    assert weight_objects(64, 4096, "fixed") == 64


def test_weights_are_per_object_then_summed() -> None:
    """The weight of the summed sizes would be a different number."""
    total = Sum()
    for size in 24, 100000:
        total.add(size, probability(size, 131072, "exponential"))
    assert total.bytes(131072).value == pytest.approx(
        weight_bytes(24, 131072, "exponential")
        + weight_bytes(100000, 131072, "exponential"))
    assert total.samples == 2


def test_counted_samples_are_the_same_as_single_ones() -> None:
    one, many = Sum(), Sum()
    p = probability(500, 4096, "exponential")
    for _ in range(7):
        one.add(500, p)
    many.add(500, p, 7)
    assert one.bytes(4096) == pytest.approx(many.bytes(4096))
    assert one.objects(4096) == pytest.approx(many.objects(4096))


def test_sums_can_be_added() -> None:
    parts = Sum(), Sum(), Sum()
    whole = Sum()
    for i, size in enumerate((16, 24, 500, 4096, 100000, 2**24)):
        for sum_ in parts[i % 2], whole:
            sum_.add(size, probability(size, 4096, "exponential"), i + 1)
    parts[2].add_sum(parts[0])
    parts[2].add_sum(parts[1])
    assert parts[2].samples == whole.samples == 21
    assert parts[2].bytes(4096) == pytest.approx(whole.bytes(4096))
    assert parts[2].objects(4096) == pytest.approx(whole.objects(4096))


def test_observed_large_objects_are_certain() -> None:
    """The sampler misses no large objects, but it may have missed small ones."""
    assert interval_of(1000.0, 0.0, 0.0, 0.0) == (1000.0, 1000.0, 1000.0)
    total = Sum()
    total.add(2**30, probability(2**30, 4096, "exponential"), 3)
    low, high = total.bytes(4096)[1:]
    assert low == 3 * 2**30 < high < low + 3 * 4096


def test_interval_without_samples_has_an_upper_end() -> None:
    """The confidence interval ends below 3.7 sampling intervals.

    With a probability of 2.5 %, no byte of 3.7 sampling intervals is sampled.
    """
    low, high = Sum().bytes(4096)[1:]
    assert low == 0 and 2 * 4096 < high < 3.7 * 4096


def test_interval_contains_the_estimate_and_is_positive() -> None:
    for samples in 1, 2, 5, 100:
        total = Sum()
        total.add(64, probability(64, 131072, "exponential"), samples)
        estimate = total.bytes(131072)
        assert 0 < estimate.low < estimate.value < estimate.high


# ____________________________________________________________
# simulations with fixed seeds
#
# Each share of confidence intervals that contain the truth is measured in 1000 runs,
# so that its standard deviation is 0.7 %.

RUNS = 1000
EXPONENTIAL = "exponential"
#: number of objects, their size, sampling interval
Stratum = tuple[int, int, int]


def coverage(strata: list[Stratum]) -> tuple[float, float]:
    """Return the percentages of runs whose confidence intervals contain the true sum.

    Runs without a sample are not counted.

    Returns:
        The percentage for the bytes, and the percentage for the objects.
    """
    rng = random.Random(1)
    bytes_ = sum(count * size for count, size, _ in strata)
    objects = sum(count for count, _, _ in strata)
    largest = max(interval for _, _, interval in strata)
    runs = held_bytes = held_objects = 0
    for _ in range(RUNS):
        total = Sum()
        for count, size, interval in strata:
            p = probability(size, interval, EXPONENTIAL)
            total.add(size, p, _binomial(rng, count, p))
        if total.samples:
            runs += 1
            _, low, high = total.bytes(largest)
            held_bytes += low <= bytes_ <= high
            _, low, high = total.objects(largest)
            held_objects += low <= objects <= high
    return 100 * held_bytes / runs, 100 * held_objects / runs


@pytest.mark.parametrize("strata", [
    [(20000, 64, 131072)],          # ten samples
    [(2000, 1000, 4096)],           # hundreds of samples
    [(300, 100000, 131072)],        # about every second object
    [(100000, 64, 2**16), (10**6, 64, 2**21)],      # two sampling intervals
    [(50000, 32, 65536), (1000, 4096, 65536), (20, 2**20, 65536)],
])
def test_95_percent_of_intervals_of_bytes_contain_the_truth(
        strata: list[Stratum]) -> None:
    assert 93 <= coverage(strata)[0] <= 97


@pytest.mark.parametrize("mean", [1, 2, 3, 4, 5, 7, 10])
def test_intervals_of_few_samples(mean: int) -> None:
    """These confidence intervals have too few possible values for exactly 95 %."""
    bytes_, objects = coverage([(mean * 8192, 16, 131072)])
    assert 93 <= bytes_ <= 99
    assert 93 <= objects <= 99


@pytest.mark.parametrize("slow,fast", [(5, 1), (5, 2), (20, 2), (40, 1)])
def test_function_without_samples_while_the_interval_was_large(
        slow: int, fast: int) -> None:
    """With a limit, the sampler may have used a larger interval for a time.

    A function may have some samples of 64 KiB each, and no sample of the megabytes that
    it allocated at the larger interval. Confidence intervals from the largest weight of
    these samples contained the truth in 63 to 86 % of the runs only.
    """
    bytes_, objects = coverage([(slow * 1024, 64, 2**16),
                                (fast * 2**16, 64, 2**22)])
    assert 93 <= bytes_ <= 99
    assert 93 <= objects <= 100


@pytest.mark.parametrize("interval", [2**17, 2**20, 2**22])
def test_small_objects_without_samples_next_to_large_objects(interval: int) -> None:
    """A list is a small object, and the storage of its items is a large one.

    Often, none of the small objects is sampled. Confidence intervals from the largest
    weight of the sampled objects contained the true count in 3 to 63 % of the runs.
    """
    bytes_, objects = coverage([(300, 24000, interval), (900, 24, interval)])
    assert 93 <= bytes_ <= 99
    assert 93 <= objects <= 100


def _binomial(rng: random.Random, n: int, p: float) -> int:
    """Draw a binomial number from the gaps between successes.

    This takes few steps for a small p.
    """
    result, position = 0, 0
    while True:
        position += 1 + int(math.log(1 - rng.random()) / math.log1p(-p))
        if position > n:
            return result
        result += 1
