"""The lines at the end of pytest's output: the bytes that each test allocated."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

#: Maximum numbers of tests in the table, and of lines about tests without a result.
_TESTS, _REASONS = 100, 20


def write(reporter: pytest.TerminalReporter, has_table: bool) -> None:
    """Write which tests were not measured, and the results of the other tests.

    Args:
        reporter: receives the lines.
        has_table: whether to write the table of the results.
    """
    entries = _entries(reporter)
    if not entries and not has_table:
        return
    from vmprof_allocation.pytest_plugin.measurement import RESULT
    from vmprof_allocation.pytest_plugin.sampling import NOT_MEASURED, PROFILE
    reasons = [value for name, value in entries if name == NOT_MEASURED]
    for reason in reasons[:_REASONS]:
        reporter.write_line("not measured: %s" % reason)
    if len(reasons) > _REASONS:
        reporter.write_line("not measured: %d more tests" % (len(reasons) - _REASONS))
    paths = {value for name, value in entries if name == PROFILE}
    if paths:
        reporter.write_line("%d %s in %s" % (
            len(paths), "profile is" if len(paths) == 1 else "profiles are",
            ", ".join(sorted({os.path.dirname(path) for path in paths}))))
    if has_table:
        _write_table(reporter, [value for name, value in entries if name == RESULT])


def _entries(reporter: pytest.TerminalReporter) -> list[tuple[str, Any]]:
    """Return the properties that the plugin added to the reports of all tests.

    If a test was run several times, only its last run counts.
    """
    return [(name, value) for reports in reporter.stats.values() for report in reports
            if getattr(report, "when", None) == "call"
            # pytest-rerunfailures gives this outcome to all attempts except the last
            and report.outcome != "rerun"
            for name, value in report.user_properties if name.startswith("allocations")]


def _write_table(reporter: pytest.TerminalReporter, results: list[str]) -> None:
    import json

    from vmprof_convert.meaning.estimator import Estimate
    from vmprof_convert.meaning.lifetimes import alive_word
    from vmprof_convert.text.escape import shortened
    from vmprof_convert.text.units import format_bytes, format_estimate, format_number
    rows = [json.loads(result) for result in results]
    rows.sort(key=lambda row: -row["allocated"][0])
    reporter.section("allocations of %s" % format_number(len(rows), "test"))
    reporter.write_line("%20s %12s %12s  test" % (
        "allocated", alive_word(all(row["alive_is_exact"] for row in rows)), "objects"))
    for row in rows[:_TESTS]:
        value, low, high = Estimate(*row["allocated"])
        objects, few, many = Estimate(*row["objects"])
        reporter.write_line("%20s %12s %12s  %s" % (
            format_estimate(low, value, high), format_bytes(row["alive"][0]),
            format_estimate(few, objects, many, False), shortened(row["test"])))
    if len(rows) > _TESTS:
        reporter.write_line("... and %s more" % format_number(
            len(rows) - _TESTS, "test"))
