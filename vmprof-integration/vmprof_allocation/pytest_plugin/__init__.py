"""A pytest plugin that measures tests and fails those that exceed a limit.

    pytest --allocations
    @pytest.mark.limit_allocations("10 MB")
    @pytest.mark.limit_leaks("1 MB")

A test fails only if its estimate exceeds the limit with the confidence of
vmprof_convert.analysis.thresholds.  pytest loads this module at each start, so that the
module imports only `markers`.  The other modules are imported when the first test is
measured:

    measurement     runs a test under the sampler
    sampling        the sampling session around a test
    limits          reads the arguments of markers
    leaks           measures how much memory repeated calls of a test leak
    failures        the text of a failure
    summary         the lines at the end of pytest's output
"""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from vmprof_allocation.pytest_plugin.markers import (
    DEFAULT_INTERVAL,
    INTERVAL,
    LIMIT_ALLOCATIONS,
    LIMIT_LEAKS,
    OPTION,
    REPEAT,
    WARM_UP,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("allocations", "allocations (PyPy)")
    group.addoption(OPTION, action="store_true",
                    help="show what each test allocates, and how much of it survives")
    group.addoption(INTERVAL, metavar="BYTES", default=DEFAULT_INTERVAL,
                    help="mean number of bytes between two samples of %s (default: %s)"
                         % (OPTION, DEFAULT_INTERVAL))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "%s(limit): fail if the test allocates more than the limit, such as "
        "\"10 MB\"" % LIMIT_ALLOCATIONS)
    config.addinivalue_line(
        "markers", "%s(limit, *, warm_up=%d, repeat=%d): call the test several times, "
        "and fail if a call leaks more than the limit, such as \"1 MB\""
        % (LIMIT_LEAKS, WARM_UP, REPEAT))
    if config.getoption(OPTION):
        from vmprof_allocation.errors import AllocationSamplingError
        from vmprof_allocation.settings.parsing import make_settings
        try:
            make_settings(config.getoption(INTERVAL))
        except AllocationSamplingError as error:
            raise pytest.UsageError("%s: %s" % (INTERVAL, error)) from None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in LIMIT_ALLOCATIONS, LIMIT_LEAKS:
        if item.get_closest_marker(name) and not isinstance(item, pytest.Function):
            pytest.fail("%s is for functions and methods: %s" % (name, item.name),
                        pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Replace the test's function by a function that runs it under the sampler.

    pytest, unittest, or the plugin for asynchronous tests then calls that function, in
    its event loop, instead of the test's own.
    """
    if not isinstance(item, pytest.Function) or not (
            item.config.getoption(OPTION) or item.get_closest_marker(LIMIT_LEAKS)
            or item.get_closest_marker(LIMIT_ALLOCATIONS)):
        yield
        return
    from vmprof_allocation.pytest_plugin import measurement
    with measurement.measured(item):
        yield


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from vmprof_allocation.pytest_plugin import summary
    summary.write(terminalreporter, terminalreporter.config.getoption(OPTION))
