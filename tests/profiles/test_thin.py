"""Tests of downsampling, after which estimates have to remain unbiased."""
from __future__ import annotations

import array
import math
import random
from collections.abc import Iterator
from statistics import fmean, stdev

import pytest

from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.estimator import Sum
from vmprof_convert.profile import thin
from vmprof_convert.profile.model import Carried, Columns, Row, Samples
from vmprof_convert.profile.probability import probability
from vmprof_convert.profile.thin import Limit

#: the number of objects of a program, by their size in bytes
OBJECTS = {24: 40_000, 100: 20_000, 1000: 3000, 2**14: 300, 2**17: 60, 2**20: 20,
           10**7: 5}
INTERVAL = 2**13
FACTORS = (2, 4, 8, 16, 32, 64)


def sampled(draw: random.Random, size: int, interval: int, gaps: str) -> int:
    """Draw the number of sampled objects of this size."""
    p = probability(size, interval, gaps)
    if p == 1.0:
        return OBJECTS[size]
    # each step is from one sampled object to the next
    number, at = -1, 0
    while at <= OBJECTS[size]:
        number += 1
        at += 1 + int(math.log(1.0 - draw.random()) / math.log1p(-p))
    return number


def columns(rows: list[Row]) -> Columns:
    return Columns(*map(array.array, "qqiqqqibqqq", zip(*rows)))


def runs(number: int, gaps: str) -> Iterator[tuple[int, Samples]]:
    """Yield the samples of several runs of the program, downsampled by each factor."""
    draw = random.Random(1)
    for seed in range(number):
        rows = [Row(number, 1, 0, size, INTERVAL, 0) for size in OBJECTS
                for number in range(sampled(draw, size, INTERVAL, gaps))]
        draw.shuffle(rows)
        limit = Limit(10**9)
        table = thin._Table(limit, seed)
        limit._tables.append(table)
        table.begin({"gaps": gaps})
        first, rest = rows[:len(rows) // 2], rows[len(rows) // 2:]
        table.extend(columns(first))
        for factor in FACTORS:
            limit.factor = factor
            table.thin()
            if rest:
                # some samples arrive after others were dropped
                table.extend(columns(rest))
                rest = []
            yield factor, table


def added_up(table: Samples, gaps: str, of_size: int | None = None) -> Sum:
    sum_ = Sum()
    for size, interval in zip(table.size, table.interval):
        if of_size in (None, size):
            sum_.add(size, probability(size, interval, gaps))
    return sum_


@pytest.mark.parametrize("gaps", ["exponential", "fixed"])
def test_estimates_are_unbiased(gaps: str) -> None:
    """For each factor, the mean estimates are within four standard errors of the truth.

    This holds for each size, and for the sum of all sizes. The estimates have the same
    spread as samples that were taken at the larger interval.
    """
    number = 150
    found: dict[tuple[int, int], list[float]] = {}
    whole: dict[int, list[float]] = {}
    for factor, table in runs(number, gaps):
        assert set(table.interval) <= {factor * INTERVAL}
        for size in OBJECTS:
            found.setdefault((factor, size), []).append(
                added_up(table, gaps, size).value_objects)
        whole.setdefault(factor, []).append(added_up(table, gaps).value_bytes)
    assert {factor for factor, _ in found} == set(whole) == set(FACTORS)
    for factor in FACTORS:
        all_bytes = all_variance = 0.0
        for size, objects in OBJECTS.items():
            p = probability(size, factor * INTERVAL, gaps)
            variance = objects * (1.0 - p) / p
            error = math.sqrt(variance / number)
            numbers = found[factor, size]
            assert abs(fmean(numbers) - objects) <= 4 * error + 1e-9, (factor, size)
            if variance > 1.0:
                assert stdev(numbers) == pytest.approx(math.sqrt(variance), rel=0.3)
            all_bytes += size * objects
            all_variance += size * size * variance
        assert abs(fmean(whole[factor]) - all_bytes) <= 4 * math.sqrt(
            all_variance / number), factor


def test_93_to_97_percent_of_intervals_contain_the_truth() -> None:
    truth = sum(size * number for size, number in OBJECTS.items())
    held = dict.fromkeys(FACTORS, 0)
    number = 1200
    for factor, table in runs(number, "exponential"):
        estimate = added_up(table, "exponential").bytes(factor * INTERVAL)
        held[factor] += estimate.low <= truth <= estimate.high
    for factor, count in held.items():
        assert 0.93 <= count / number <= 0.97, (factor, count / number)


def filled(limit: Limit, samples: int, together: int = 1000, seed: int = 1) -> Samples:
    """Return a table of samples with distinct times.

    Args:
        limit: the limit of the table.
        samples: the number of samples before the downsampling.
        together: the number of samples that are added together.
        seed: the seed of the sizes.
    """
    draw = random.Random(seed)
    table = limit.table()
    table.begin({})
    for start in range(0, samples, together):
        table.extend(columns([
            Row(time, 1, 0, draw.choice((16, 500, 2000)), 1000, 0)
            for time in range(start, min(start + together, samples))]))
    return table


def test_larger_factors_keep_a_subset_of_the_samples() -> None:
    before = None
    for most in 4000, 2000, 1000, 500:
        limit = Limit(most)
        table = filled(limit, 10_000)
        assert table == filled(Limit(most), 10_000)
        # the choice does not depend on the number of samples that are added together
        together = filled(Limit(most), 10_000, 10_000)
        assert set(together.time) == set(table.time)
        assert most / 2.2 < len(table) <= most
        thinned = limit.thinned()
        assert thinned is not None and thinned == (len(table), 10_000)
        assert before is None or set(table.time) < before
        before = set(table.time)


def test_the_remaining_samples_are_not_periodic() -> None:
    """A periodic choice would be wrong for a program that repeats its work."""
    table = filled(Limit(6000), 10_000)
    gaps = {after - before for before, after in zip(table.time, table.time[1:])}
    assert {1, 2, 3, 4, 5, 6} <= gaps


@pytest.mark.parametrize("most", [0, 3000, 10**6])
def test_no_sample_is_dropped_within_the_limit(most: int) -> None:
    limit = Limit(most)
    table = filled(limit, 3000)
    assert table == filled(Limit(0), 3000) and limit.thinned() is None
    assert limit.factor == 1


def test_the_limit_is_for_all_tables_together() -> None:
    limit = Limit(3000)
    tables = [filled(limit, 2000, seed=seed) for seed in range(4)]
    assert limit.factor > 2 and 1000 < sum(map(len, tables)) <= 3000
    assert limit.thinned() == (sum(map(len, tables)), 8000)
    for table in tables:
        assert set(table.interval) == {1000 * limit.factor}
    # each table has different random numbers
    assert len({tuple(table.time) for table in tables}) == 4


def test_time_samples_all_remain_and_do_not_count() -> None:
    limit = Limit(100)
    table = limit.table()
    for start in range(0, 5000, 500):
        table.extend(columns([
            Row(time, 1, 0, 24 * (time % 2), 1000 * (time % 2), 0)
            for time in range(start, start + 500)]))
    assert table.ticks == 2500 and 40 < len(table) - table.ticks <= 100
    assert limit.thinned() == (len(table) - table.ticks, 2500)
    assert [interval for size, interval in zip(table.size, table.interval)
            if not size] == [0] * 2500


def test_inherited_objects_all_remain() -> None:
    """All formats add up the inherited objects of a stack instead of writing rows."""
    table = Limit(1).table()
    object_ = Carried(0, 24, 1000, -1, 3, -1, -1)
    for _ in range(1000):
        table.carry(object_)
    table.extend(columns([Row(1, 1, 0, 24, 1000, 0)] * 50))
    assert table.carried == [object_] * 1000 and len(table) <= 1


def test_samples_that_no_interval_reduces() -> None:
    """Only a damaged profile has such samples."""
    table = Limit(1).table()
    with pytest.raises(ProfileError, match="the objects are too large"):
        table.extend(columns([Row(1, 1, 0, 2**62, 1, 0)] * 50))


def test_the_cache_of_ratios_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    def stay() -> list[int]:
        table = Limit(500).table()
        for start in range(16, 3000, 100):
            table.extend(columns([Row(size, 1, 0, size, 10**6, 0)
                                  for size in range(start, start + 100)]))
        return list(table.time)
    all_ = stay()
    monkeypatch.setattr(thin, "_MOST", 3)
    assert stay() == all_
