"""Run a test under the sampler, and compare it with its limits.

The steps of a measurement are a generator, which yields each time that the test is to
be called.  The plugin replaces the test's function.  The new function advances the
generator, and calls or awaits the test at each yield.  So the same generator measures
synchronous and asynchronous tests.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
import json
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from vmprof_allocation.pytest_plugin import failures, leaks
from vmprof_allocation.pytest_plugin.limits import interval_for, limit
from vmprof_allocation.pytest_plugin.markers import (
    INTERVAL,
    LIMIT_ALLOCATIONS,
    LIMIT_LEAKS,
    LIMIT_MEMORY,
    OPTION,
    setting,
)
from vmprof_allocation.pytest_plugin.peak import Peak
from vmprof_allocation.pytest_plugin.sampling import (
    NOT_MEASURED,
    PROFILE,
    Sampling,
    add_not_measured,
)
from vmprof_convert.analysis import thresholds
from vmprof_convert.analysis.summary import Choice, summarize
from vmprof_convert.analysis.thresholds import Condition
from vmprof_convert.meaning.lifetimes import is_alive_exact
from vmprof_convert.profile.model import Profile

#: Name of the entry in a test's user_properties with its result, a JSON text.
RESULT = "allocations"

#: Yields when the test is to be called; returns the reason why the test fails, or "".
Steps = Generator[None, None, str]


@contextlib.contextmanager
def measured(item: pytest.Function) -> Iterator[None]:
    """Measure the test of `item` when its function is called in this context."""
    # the item may have properties of an earlier run, for example with
    # pytest-rerunfailures
    item.user_properties[:] = [
        entry for entry in item.user_properties
        if entry[0] not in (RESULT, NOT_MEASURED, PROFILE)]
    original = item.obj
    was_called: list[bool] = []
    item.obj = _replacement(item, original, was_called)
    try:
        yield
    finally:
        item.obj = original
    if not was_called:
        add_not_measured(item, "pytest did not call the function of this test")


def _replacement(item: pytest.Function, function: Callable[..., Any],
                 was_called: list[bool]) -> Callable[..., Any]:
    """Return a function that measures `function`, and then appends to `was_called`.

    Args:
        item: the test.
        function: the test's own function.
        was_called: a list that gets an element when the measurement begins.
    """
    def begin() -> contextlib.closing[Generator[None, None, None]]:
        was_called.append(True)
        return contextlib.closing(_measure(item))

    replacement: Callable[..., Any]
    if inspect.iscoroutinefunction(function):
        @functools.wraps(function)
        async def replacement(*arguments: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            result = None
            with begin() as calls:
                for _ in calls:
                    result = await function(*arguments, **named)
            return result
    else:
        @functools.wraps(function)
        def replacement(*arguments: Any, **named: Any) -> Any:
            __tracebackhide__ = True
            result = None
            with begin() as calls:
                for _ in calls:
                    result = function(*arguments, **named)
            if inspect.isawaitable(result):
                add_not_measured(item, "the test returns an awaitable object, which "
                                 "runs later: write the test as `async def`")
            return result
    return replacement


def _measure(item: pytest.Function) -> Generator[None, None, None]:
    allocations = item.get_closest_marker(LIMIT_ALLOCATIONS)
    memory = item.get_closest_marker(LIMIT_MEMORY)
    leaking = item.get_closest_marker(LIMIT_LEAKS)
    failure = ""
    if leaking:
        failure = yield from leaks.compare(item, leaking)
    if failure:
        allocations = memory = None
    if allocations or memory or setting(item.config, OPTION):
        failure = (yield from _count(item, allocations, memory)) or failure
    if failure:
        pytest.fail(failure, pytrace=False)


def _count(item: pytest.Function, allocations: pytest.Mark | None,
           memory: pytest.Mark | None) -> Steps:
    """Call the test once, and compare its memory with its limits."""
    intervals = []
    condition: Condition | None = None
    peak: Peak | None = None
    if allocations:
        condition = limit(item, allocations, "allocated")
        intervals.append(interval_for(condition.limit))
    if memory:
        held = limit(item, memory, "alive")
        intervals.append(interval_for(held.limit, is_held=True))
        peak = Peak(item, held)
    interval = min(intervals) if intervals else setting(item.config, INTERVAL)
    profile = None
    with Sampling(item, interval, "", snapshots=memory is not None) as sampling:
        try:
            if peak is not None:
                peak.begin(sampling.session)
            sampling.count(True)
            yield
        finally:        # the allocations of a test that fails count, too
            sampling.count(False)
            if peak is not None:
                peak.end()
            profiles = sampling.finish()
            if profiles is not None:
                profile = profiles.heap
                _add_result(item, profile)
    if profile is None:
        return ""
    texts = [peak.compare(profile)] if peak is not None else []
    if condition is not None:
        verdict, = thresholds.judge([condition], [summarize(profile).figures])
        if verdict.failed:
            texts.append(failures.exceeded(
                verdict, "%s allocated" % item.name, profile, Choice(by=("line",))))
    return "\n".join(filter(None, texts))


def _add_result(item: pytest.Function, profile: Profile) -> None:
    if not setting(item.config, OPTION):
        return
    figures = summarize(profile).figures
    item.user_properties.append((RESULT, json.dumps({
        "test": item.nodeid, "allocated": figures.bytes(),
        "alive": figures.bytes("alive"), "alive_is_exact": is_alive_exact(profile),
        "objects": figures.objects()})))
