"""A pytest plugin that measures tests and fails those that exceed a limit.

    pytest --allocations
    @pytest.mark.limit_allocations("10 MB")
    @pytest.mark.limit_memory("10 MB")
    @pytest.mark.limit_leaks("1 MB")

A test fails only if its estimate exceeds the limit with the confidence of
vmprof_convert.analysis.thresholds.  This module imports only `markers`, because pytest
loads it at each start.  The other modules are imported when the first test is measured:

    measurement     runs a test under the sampler
    sampling        the sampling session around a test
    limits          reads the arguments of markers
    peak            finds the most memory that a test holds at once
    leaks           measures how much memory repeated calls of a test leak
    stacks          chooses the samples that count as leaked
    failures        the text of a failure
    summary         the lines at the end of pytest's output
"""
from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from vmprof_allocation.pytest_plugin.markers import (
    DEFAULT_INTERVAL,
    FOLDER,
    INTERVAL,
    LIMIT_ALLOCATIONS,
    LIMIT_LEAKS,
    LIMIT_MEMORY,
    LIMITS,
    OPTION,
    REPEAT,
    WARM_UP,
    profiles_folder,
    setting,
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("allocations", "allocations (PyPy)")
    shows = "show what each test allocates, and how much of it survives"
    group.addoption(OPTION, action="store_true", help=shows)
    parser.addini("allocations", shows, type="bool", default=False)
    samples = ("mean number of bytes between two samples of %s (default: %s)"
               % (OPTION, DEFAULT_INTERVAL))
    group.addoption(INTERVAL, metavar="BYTES", help=samples)
    parser.addini("allocations_interval", samples, default=DEFAULT_INTERVAL)
    keeps = "keep the profile of each measured test in this folder"
    group.addoption(FOLDER, metavar="DIR", help=keeps)
    parser.addini("allocations_dir", keeps, default="")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "%s(limit): fail if the test allocates more than the limit, such as "
        "\"10 MB\"" % LIMIT_ALLOCATIONS)
    config.addinivalue_line(
        "markers", "%s(limit): fail if the test holds more than the limit at once, "
        "such as \"10 MB\"" % LIMIT_MEMORY)
    config.addinivalue_line(
        "markers", "%s(limit, *, warm_up=%d, repeat=%d, filter_fn=None, "
        "current_thread_only=False): call the test several times, and fail if a call "
        "leaks more than the limit, such as \"1 MB\""
        % (LIMIT_LEAKS, WARM_UP, REPEAT))
    if setting(config, OPTION):
        from vmprof_allocation.errors import AllocationSamplingError
        from vmprof_allocation.settings.parsing import make_settings
        try:
            make_settings(setting(config, INTERVAL))
        except AllocationSamplingError as error:
            raise pytest.UsageError("%s: %s" % (INTERVAL, error)) from None
    folder = profiles_folder(config)
    if folder:
        # pytest-xdist passes the values of the options to its workers
        config.option.allocations_dir = folder
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise pytest.UsageError("%s: cannot make the folder %r: %s" % (
                FOLDER, folder, error.strerror)) from None


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in LIMITS:
        if item.get_closest_marker(name) and not isinstance(item, pytest.Function):
            pytest.fail("%s is for functions and methods: %s" % (name, item.name),
                        pytrace=False)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Replace the test's function by a function that runs it under the sampler.

    pytest, unittest, or the plugin for asynchronous tests then calls the new function
    in its event loop.
    """
    if not isinstance(item, pytest.Function) or not (
            setting(item.config, OPTION)
            or any(item.get_closest_marker(name) for name in LIMITS)):
        yield
        return
    from vmprof_allocation.pytest_plugin import measurement
    with measurement.measured(item):
        yield


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from vmprof_allocation.pytest_plugin import summary
    summary.write(terminalreporter, setting(terminalreporter.config, OPTION))
