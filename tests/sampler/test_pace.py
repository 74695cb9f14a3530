"""The interval follows the program's allocation rate: the limit is kept, and the
estimates stay unbiased (pace.c).

The program is a function that returns the allocation rate at each time.  The samples
form a Poisson process, and the clock also runs during samples.
"""
from __future__ import annotations

import ctypes
import math
import random
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from native_build import load

FIRST_INTERVAL = 65536
UNSEEN_COST = 300
SECOND = 10**9
MB = 2**20

#: allocated bytes per nanosecond, at a time in nanoseconds
Rate = Callable[[float], float]


class Pace(ctypes.Structure):
    _fields_ = [("per_second", ctypes.c_int64), ("share", ctypes.c_int64),
                ("since", ctypes.c_int64), ("owed", ctypes.c_int64),
                ("cost", ctypes.c_int64), ("samples", ctypes.c_int)]


@pytest.fixture(scope="session")
def pace() -> ctypes.CDLL:
    loaded = load("pace")
    loaded.pace_sample.restype = ctypes.c_int64
    return loaded


class Sample(NamedTuple):
    time: int
    #: mean interval for which the sample's gap was drawn
    interval: int


def run(pace: ctypes.CDLL, rate: Rate, seconds: float, *, per_second: int = 0,
        share: int = 0, cost: Callable[[float], float] = lambda time: 400,
        seed: int = 1, interval: int = FIRST_INTERVAL,
        ) -> Iterator[Sample]:
    rng = random.Random(seed)
    state = Pace()
    pace.pace_start(ctypes.byref(state), ctypes.c_int64(0),
                    ctypes.c_int64(per_second), ctypes.c_int64(share))
    time, end = 0.0, seconds * SECOND
    while True:
        gap = rng.expovariate(1 / interval)
        # allocate the gap in steps of a millisecond, because the rate may change
        while gap > 0 and time < end:
            step = min(gap, rate(time) * 1e6)
            time += step / rate(time)
            gap -= step
        if time >= end:
            return
        yield Sample(int(time), interval)
        taken = cost(time)
        interval = pace.pace_sample(
            ctypes.byref(state), ctypes.c_int64(int(time)),
            ctypes.c_int64(int(taken)), ctypes.c_int64(interval))
        time += taken + UNSEEN_COST


def bursts(slow: float, fast: float, period: float) -> Rate:
    """Return a rate that alternates between `slow` and `fast` bytes per nanosecond.

    Each phase takes `period` nanoseconds.
    """
    return lambda time: fast if int(time / period) % 2 else slow


RATES: dict[str, Rate] = {
    "1 MB/s": lambda time: 0.001,
    "1 GB/s": lambda time: 1.0,
    "40 GB/s": lambda time: 40.0,
    "a hundred times faster for a second": bursts(0.1, 10.0, SECOND),
    "for 100 ms": bursts(0.1, 10.0, SECOND / 10),
    "for 10 ms": bursts(0.1, 10.0, SECOND / 100),
    "for 1 ms": bursts(0.1, 10.0, SECOND / 1000),
    "a million times faster": bursts(1e-5, 10.0, SECOND / 5),
    "faster and faster": lambda time: 0.001 * math.exp(time / SECOND * 2),
}


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("per_second", [100, 1000, 20000])
def test_number_of_samples_is_bounded(pace: ctypes.CDLL, name: str,
                                      per_second: int) -> None:
    seconds = 4
    samples = list(run(pace, RATES[name], seconds, per_second=per_second))
    # each change of the rate causes a burst of 16 samples, and 16 more samples until
    # the interval is right
    assert len(samples) <= 1.05 * seconds * per_second + 50


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("cost", [200, 1000, 20000])
def test_share_of_the_time_is_bounded(pace: ctypes.CDLL, name: str,
                                      cost: int) -> None:
    seconds = 4
    samples = list(run(pace, RATES[name], seconds, share=5000,
                       cost=lambda time: cost))
    spent = len(samples) * (cost + UNSEEN_COST) / SECOND
    assert spent <= 0.00525 * seconds + 50 * (cost + UNSEEN_COST) / SECOND


def test_stacks_that_become_deep_are_noticed(pace: ctypes.CDLL) -> None:
    def cost(time: float) -> float:
        return 30000 if time > SECOND else 300

    samples = list(run(pace, RATES["1 GB/s"], 4, share=5000, cost=cost))
    spent = sum(cost(sample.time) + UNSEEN_COST for sample in samples)
    assert spent / SECOND <= 0.0055 * 4


@pytest.mark.parametrize("name", ["1 MB/s", "1 GB/s", "40 GB/s"])
def test_a_steady_program_gets_most_of_its_samples(pace: ctypes.CDLL,
                                                   name: str) -> None:
    samples = list(run(pace, RATES[name], 4, per_second=1000))
    assert len(samples) >= 0.7 * 4000


def test_interval_follows_within_some_windows(pace: ctypes.CDLL) -> None:
    """The interval grows and shrinks within 64 samples."""
    samples = list(run(pace, bursts(0.1, 10.0, SECOND), 2, per_second=1000))
    before = [s for s in samples if s.time < SECOND]
    after = [s for s in samples if s.time >= SECOND]
    right = statistics.median(s.interval for s in before[-50:])
    assert 0.5 * 10**5 <= right <= 3 * 10**5
    assert 0.5 * 10**7 <= after[64].interval <= 4 * 10**7


@pytest.mark.slow
@pytest.mark.parametrize("name", RATES)
def test_estimates_are_not_biased(pace: ctypes.CDLL, name: str) -> None:
    """Over many runs, the samples' intervals sum up to the allocated bytes.

    The tolerance is 5.73 standard errors (1e-8).
    """
    errors = []
    for seed in range(300):
        seconds = 0.4
        truth = sum(RATES[name](i * 1e6 + 0.5) * 1e6
                    for i in range(int(seconds * 1000)))
        time_lost = 0.0
        estimate = 0.0
        for sample in run(pace, RATES[name], seconds, per_second=2000,
                          cost=lambda time: 0, seed=seed):
            estimate += sample.interval
            # the program allocates nothing during a sample
            time_lost += UNSEEN_COST * RATES[name](sample.time)
        errors.append((estimate - (truth - time_lost)) / truth)
    error = statistics.fmean(errors)
    deviation = statistics.stdev(errors) / math.sqrt(len(errors))
    assert abs(error) <= 5.73 * deviation


def test_there_are_few_different_intervals(pace: ctypes.CDLL) -> None:
    samples = list(run(pace, RATES["faster and faster"], 4, per_second=2000))
    intervals = {sample.interval for sample in samples}
    assert len(intervals) < 100
    assert all(bin(interval).rstrip("0").count("") - 2 <= 5
               for interval in intervals)


@pytest.mark.parametrize("interval", [1, 64, 2**40, 2**62])
def test_interval_stays_in_its_range(pace: ctypes.CDLL, interval: int) -> None:
    rate = 1e-9 if interval <= 64 else 1e6
    samples = list(run(pace, lambda time: rate, 0.01, per_second=1000,
                       interval=interval))
    assert all(s.interval == interval or 64 <= s.interval <= 2**40
               for s in samples)


def test_without_a_limit_nothing_changes(pace: ctypes.CDLL) -> None:
    samples = list(run(pace, RATES["1 GB/s"], 0.01, interval=1234))
    assert {sample.interval for sample in samples} == {1234}
