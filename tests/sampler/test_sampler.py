"""The gaps between sample points, and estimates from samples (sampler.c)."""
from __future__ import annotations

import collections
import math
import pathlib
import subprocess
from typing import NamedTuple

import pytest

import oracle
from native_build import build
from nursery_traces import build_harness, check


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build_harness()


@pytest.fixture(scope="session")
def sampler() -> pathlib.Path:
    return build("sampler_harness", "sampler/sampler.c")


# ____________________________________________________________
# Statistics.  Chance exceeds each bound with a probability of at most 1e-8, and the
# seeds are fixed.

IMPROBABLE = 1e-8


def drawn_gaps(sampler: pathlib.Path, interval: int, seed: int, fixed: bool,
               count: int) -> list[int]:
    done = subprocess.run(
        [sampler, "gaps", str(interval), str(seed), "%d" % fixed, str(count)],
        check=True, capture_output=True)
    return list(map(int, done.stdout.split()))


def sampled_objects(sampler: pathlib.Path, interval: int, seed: int,
                    fixed: bool, rounds: int,
                    *size_and_count: tuple[int, int]) -> list[int]:
    """Return the number of sampled objects of each size.

    The sizes are allocated by turns, and the whole sequence `rounds` times.
    """
    done = subprocess.run(
        [sampler, "objects", str(interval), str(seed), "%d" % fixed, str(rounds)],
        input="".join("%d %d\n" % pair for pair in size_and_count).encode(),
        check=True, capture_output=True)
    return list(map(int, done.stdout.split()))[:-1]


def is_binomial(successes: int, trials: int, p: float) -> bool:
    """Check a number of successes with Chernoff's bound.

    On each side of the mean, P(this distance or more) <= exp(-trials * divergence).
    """
    q = successes / trials
    divergence = sum(x * math.log(x / y) if y else math.inf
                     for x, y in ((q, p), (1 - q, 1 - p)) if x)
    return trials * divergence <= math.log(2 / IMPROBABLE)


def test_bound_accepts_and_rejects() -> None:
    assert is_binomial(50, 100, 0.5) and is_binomial(0, 100, 0.0)
    assert is_binomial(5000, 10000, 0.5)
    assert not is_binomial(5320, 10000, 0.5)        # 6.4 sigma
    assert not is_binomial(1, 100, 0.0) and not is_binomial(99, 100, 1.0)


@pytest.mark.parametrize("interval", [1, 64, 4096, 14336, 524288, 2**40, 2**62])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
@pytest.mark.parametrize("fixed", [False, True])
def test_gaps_match_the_oracle(
        sampler: pathlib.Path, interval: int, seed: int, fixed: bool) -> None:
    random = oracle.splitmix64(seed)
    assert drawn_gaps(sampler, interval, seed, fixed, 2000) == [
        oracle.gap(interval, fixed, random) for _ in range(2000)]


def test_splitmix64_is_splitmix64() -> None:
    # the first numbers of the published generator for the seed 1234567
    random = oracle.splitmix64(1234567)
    assert [next(random) for _ in range(5)] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423,
        4593380528125082431, 16408922859458223821]


def test_gaps_fit_in_the_largest_interval(sampler: pathlib.Path) -> None:
    gaps = drawn_gaps(sampler, 2**62, 0, False, 10000)
    assert max(gaps) == 2**62 and min(gaps) >= 0
    assert is_binomial(gaps.count(2**62), 10000, math.exp(-1))


@pytest.mark.parametrize("interval", [2, 10, 64, 1000, 524288, 2**40])
def test_gaps_are_distributed_exponentially(sampler: pathlib.Path,
                                            interval: int) -> None:
    """Check Kolmogorov and Smirnov's distance D with Massart's bound.

    For any distribution and any n, P(D > d) <= 2 exp(-2 n d**2).
    """
    count = 100000
    below, distance = 0, 0.0
    gaps = collections.Counter(drawn_gaps(sampler, interval, 42, False, count))
    for gap, times in sorted(gaps.items()):
        distance = max(distance,
                       abs(below / count + math.expm1(-gap / interval)))
        below += times
        distance = max(distance,
                       abs(below / count + math.expm1(-(gap + 1) / interval)))
    assert distance < math.sqrt(math.log(2 / IMPROBABLE) / (2 * count))


def test_tails_of_the_gaps(sampler: pathlib.Path) -> None:
    """Check Anderson and Darling's statistic, which weighs the tails.

    Its limit is a sum of Y / (j (j + 1)) over j >= 1, where each Y is the square of a
    normal variable.  The mean of exp(0.9 * sum) is 5.16.  By Markov's inequality,
    P(sum > 22.3) <= 5.16 exp(-0.9 * 22.3) < 1e-8.
    """
    count = 100000
    for seed in range(3):
        gaps = sorted(drawn_gaps(sampler, 2**40, seed, False, count))
        z = [(gap + 0.5) / 2**40 for gap in gaps]
        total = sum((2 * i + 1) * (math.log(-math.expm1(-z[i])) - z[count - 1 - i])
                    for i in range(count))
        assert -count - total / count < 22.3


def test_mean_of_the_gaps(sampler: pathlib.Path) -> None:
    """Check the sum of n exponential variables of mean 1.

    It is (1 + d) n or more with a probability of at most exp(-n (d - log(1 + d))).  For
    d < 0, the same holds for (1 + d) n or less.
    """
    count = 200000
    for seed in range(3):
        gaps = drawn_gaps(sampler, 2**40, seed, False, count)
        d = sum(gaps) / 2**40 / count - 1
        assert count * (d - math.log1p(d)) < math.log(2 / IMPROBABLE)


def test_gaps_are_independent(sampler: pathlib.Path) -> None:
    """The next gap is below the median in half of all cases, for any present gap."""
    count = 200000
    median = 2**40 * math.log(2)
    low = [gap < median for gap in drawn_gaps(sampler, 2**40, 7, False, count)]
    for distance in (1, 2, 3, 10):
        same = sum(map(bool.__eq__, low, low[distance:]))
        assert is_binomial(same, count - distance, 0.5)


@pytest.mark.slow
def test_seeds_differ(sampler: pathlib.Path) -> None:
    first = {tuple(drawn_gaps(sampler, 2**40, seed, False, 3))
             for seed in range(200)}
    assert len(first) == 200


SIZES = [8, 64, 512, 4096, 32768, 131072, 524288, 1048576, 4194304, 67108864,
         2**30]


@pytest.mark.parametrize("size", SIZES)
def test_probability_of_being_sampled(sampler: pathlib.Path, size: int) -> None:
    interval = 524288
    count = 20000000 if size < 512 else 1000000
    (sampled,) = sampled_objects(sampler, interval, size, False, 1, (size, count))
    assert is_binomial(sampled, count, -math.expm1(-size / interval))


class Kind(NamedTuple):
    """Objects of one size, allocated at one interval."""

    size: int
    interval: int
    allocated: int
    sampled: int


def are_totals_unbiased(kinds: list[Kind]) -> bool:
    """Compare Horvitz and Thompson's estimates of bytes and objects with the truth.

    Each sampled object represents 1 / p objects of its kind.  The bound is Bernstein's
    inequality for independent variables of mean 0 that are at most m.  If their
    variances sum up to v, their sum is t or more with a probability of at most
    exp(-t**2 / 2 / (v + m t / 3)).
    """
    for power in (0, 1):                                # objects, bytes
        t = v = m = 0.0
        for size, interval, count, sampled in kinds:
            p = -math.expm1(-size / interval)
            t += size**power * (sampled / p - count)
            v += size**(2 * power) * count * (1 - p) / p
            m = max(m, size**power / p)
        if t**2 / 2 > math.log(2 / IMPROBABLE) * (v + m * abs(t) / 3):
            return False
    return True


def test_horvitz_thompson_is_unbiased(sampler: pathlib.Path) -> None:
    interval, rounds = 16384, 20000
    pairs = [(16, 20), (24, 3), (160, 2), (1024, 1), (16384, 1), (40000, 1)]
    sampled = sampled_objects(sampler, interval, 11, False, rounds, *pairs)
    kinds = [Kind(size, interval, count * rounds, k)
             for (size, count), k in zip(pairs, sampled)]
    assert are_totals_unbiased(kinds)
    # a weight that is wrong by a tenth of the interval is noticed
    assert not are_totals_unbiased(
        [kind._replace(interval=interval * 11 // 10) for kind in kinds])


def test_horvitz_thompson_through_the_nursery(harness: pathlib.Path) -> None:
    """The estimates stay unbiased after all events that draw a new gap.

    These are memory pressure, changes of the rate, collections, and pinned and large
    objects.
    """
    once = """\
small 16 50
pressure
small 160 7
large 5000 0
rate 300
small 24 20
pin 0
collect
small 1024 3
pressure
large 2000 1
rate 2000
small 40 90
unpin 0
"""
    result = check(harness, "nursery 8192\npins 2\nstart 2000 12345 0\n"
                   + 400 * once + "stop\nsmall 16 1\n")
    assert result.totals.pressures == 800
    count: collections.Counter[tuple[int, int]] = collections.Counter()
    interval = 2000
    for event in result.events:
        if isinstance(event, oracle.Rate):
            interval = event.interval
        elif isinstance(event, oracle.Allocation):
            count[event.size, interval] += 1
    count[16, 2000] -= 1                                # allocated after the stop
    sampled = collections.Counter(
        (sample.size, sample.interval) for sample in result.samples)
    assert set(sampled) <= set(count)
    assert are_totals_unbiased([
        Kind(size, interval, n, sampled[size, interval])
        for (size, interval), n in count.items()])


@pytest.mark.parametrize("interval", [1, 7, 64, 4096, 14336, 2**40])
def test_fixed_gaps_sample_exactly(sampler: pathlib.Path, interval: int) -> None:
    """There is one sample per `interval` bytes for objects below the interval."""
    for kinds in ([(8, 1000)], [(24, 333), (40, 21)], [(4000, 5), (16, 1), (56, 7)]):
        small = [(size, count) for size, count in kinds if size <= interval]
        total = 50 * sum(size * count for size, count in small)
        if total:
            assert sum(sampled_objects(sampler, interval, 0, True, 50, *small)
                       ) == total // interval
    # all objects above the interval are sampled
    assert sampled_objects(sampler, interval, 0, True, 1, (8 * interval, 100)
                           ) == [100]


def test_fixed_gaps_alias_with_a_loop(harness: pathlib.Path) -> None:
    """A loop allocates 24 and 40 bytes at two sites, and the interval is 16 KiB.

    The allocations before the loop decide which site gets all samples.
    """
    shares = []
    for before in range(16, 80, 8):
        result = check(harness, f"nursery 65536\nstart 16384 0 1\nsmall {before} 1\n"
                       + "small 24 1\nsmall 40 1\n" * (16384 // 64 * 10)
                       + "stop\nsmall 16 1\n")
        assert len(result.samples) == 10
        shares.append(sum(sample.size == 24 for sample in result.samples) / 10)
    assert set(shares) == {0.0, 1.0}
    assert shares.count(1.0) / len(shares) == 0.375


def test_exponential_gaps_do_not_alias(sampler: pathlib.Path) -> None:
    rounds = 16384 // 64 * 10000
    first, second = sampled_objects(sampler, 16384, 1, False, rounds,
                                    (24, 1), (40, 1))
    total = first + second
    assert abs(total - 10000) < 4 * math.sqrt(10000)
    assert abs(first / total - 0.375) < 4 * math.sqrt(0.375 * 0.625 / total)
