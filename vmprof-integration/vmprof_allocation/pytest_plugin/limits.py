"""Read the arguments of the markers; an invalid argument fails the test."""
from __future__ import annotations

from typing import NoReturn

import pytest

from vmprof_allocation.pytest_plugin.markers import LIMIT_LEAKS
from vmprof_convert.analysis import thresholds
from vmprof_convert.analysis.thresholds import Condition

#: The number of samples of a test that just reaches its limit, which determines the
#: mean interval: for limits of allocations or leaks, and for limit_memory.  With 2000
#: samples of small objects, the confidence interval is 8 % to each side.
_SAMPLES_AT_LIMIT, _SAMPLES_HELD = 400, 2000
#: The named arguments of each marker.
_ARGUMENTS = {LIMIT_LEAKS: {"warm_up", "repeat", "filter_fn", "current_thread_only"}}
#: Minimum and maximum of the mean interval, in bytes.
_SMALLEST, _LARGEST = 64, 2**17


def limit(item: pytest.Function, marker: pytest.Mark, measure: str) -> Condition:
    """Return the condition that a measure exceeds the limit of a marker.

    Args:
        item: The test.
        marker: The marker, whose only positional argument is the limit in bytes.
        measure: The name of the measure in vmprof_convert.analysis.thresholds.

    Raises:
        pytest.fail.Exception: The marker's arguments are invalid.
    """
    unknown = set(marker.kwargs) - _ARGUMENTS.get(marker.name, set())
    if len(marker.args) != 1 or unknown:
        complain(item, "%s%r: write one limit, such as %s(\"10 MB\")" % (
            marker.name, marker.args, marker.name))
    try:
        condition = thresholds.parse("%s > %s" % (measure, marker.args[0]))
    except ValueError:
        condition = None
    if condition is None or condition.is_share:
        complain(item, "invalid limit %s(%r): write a number of bytes, such as "
                 "\"10 MB\"" % (marker.name, marker.args[0]))
    return condition


def interval_for(limit_bytes: float, *, is_held: bool = False) -> int:
    """Return the mean interval, in bytes, for a test with this limit.

    Args:
        limit_bytes: The limit in bytes.
        is_held: Whether the limit is for the bytes that the test holds at once.
    """
    samples = _SAMPLES_HELD if is_held else _SAMPLES_AT_LIMIT
    return int(min(max(limit_bytes / samples, _SMALLEST), _LARGEST))


def complain(item: pytest.Function, text: str) -> NoReturn:
    """Fail a test because its marker has an invalid argument."""
    pytest.fail("%s: %s" % (item.nodeid, text), pytrace=False)
