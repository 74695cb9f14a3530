"""Tests that the Firefox writer's work grows linearly with the size of a profile."""
from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

import made_profiles
from firefox_profiles import allocated, converted
from made_profiles import PID, Log
from vmprof_convert import readers
from vmprof_convert.meaning.visible_stacks import CUT
from vmprof_convert.writers import firefox
from vmprof_convert.writers.firefox import convert


def calls(function: Callable[[], object]) -> int:
    """Return the number of Python and C functions that `function` calls."""
    number = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize("dimension", ["samples", "depth", "distinct"])
def test_the_work_grows_linearly_with_the_size(dimension: str) -> None:
    def work(factor: int) -> int:
        size = {"samples": 4000, "depth": 40, "distinct": 400}
        size[dimension] *= factor
        profile = readers.read_bytes(made_profiles.large(*size.values()))
        return calls(lambda: firefox.encode(convert(profile)))
    small, large = work(1), work(4)
    assert large < 4.2 * small


def test_work_per_thread_does_not_depend_on_the_samples() -> None:
    def work(threads: int) -> int:
        log = Log()
        f = log.function("f")
        log.settings()
        for number in range(4000):
            log.allocation([f], size=24, thread=PID + number % threads)
        profile = readers.read_bytes(log.data())
        return calls(lambda: convert(profile))
    # a thread costs about 120 calls; a pass over all samples would cost 4000
    assert work(400) - work(1) < 400 * 200


@pytest.mark.slow
def test_half_a_million_samples_of_depth_30() -> None:
    profile = readers.read_bytes(made_profiles.large(500_000, 30, 5000))
    result = convert(profile)
    assert result["threads"][0]["nativeAllocations"]["length"] == 500_000
    shared = result["shared"]["stackTable"]
    assert shared["length"] < 5000 * 30
    assert len(firefox.encode(result)) < 30 * 2**20


def test_depth_5000() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings(gaps="fixed")
    log.allocation([f] * 5000, size=1000)
    log.allocation([f] * 4999 + [g], size=2000)
    profile = converted(log)
    assert profile["shared"]["stackTable"]["length"] == 5003
    assert allocated(profile) == {
        (CUT, *("f",) * 5000): 1000, (CUT, *("f",) * 4999, "g"): 2000}


def test_progress_is_reported_up_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    convert(readers.read_bytes(made_profiles.large(100, 4, 50)),
            lambda done, total: told.append((done, total)))
    assert told[0] == (0, 50) and told[-1] == (50, 50)
    assert told == sorted(told)
