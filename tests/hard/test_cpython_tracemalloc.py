"""Run CPython's tests of tracemalloc, as Debian ships them for PyPy, with our module.

`FAILS` lists the expected failures and their reasons.
"""
from __future__ import annotations

import re

import pytest

from conftest import PyPy

pytestmark = pytest.mark.hard

RUN = """
    import sys
    # PyPy's needs a file that Debian leaves out; and PyPy has no getsizeof()
    sys.modules["_testcapi"] = None
    sys.getsizeof = lambda *arguments: 33
    from vmprof_allocation import tracemalloc
    tracemalloc.install(1)
    import unittest
    from test import test_tracemalloc
    unittest.main(module=test_tracemalloc, argv=["test", "-v"])
"""

PRIVATE = "uses undocumented names of CPython's module"
DISABLED = "without tracing, PyPy has no module tracemalloc"
INVALID = "the message about an invalid number of frames differs"
FAILS = {
    **dict.fromkeys((
        "test_filter_match", "test_filter_match_filename",
        "test_filter_match_filename_joker", "test_filter_match_trace",
        "test_create_snapshot", "test_format_traceback", "test_get_traces",
        "test_get_traces_intern_traceback", "test_set_traceback_limit"), PRIVATE),
    **dict.fromkeys((
        "test_env_var_disabled", "test_env_var_ignored_with_E",
        "test_env_var_disabled_by_default"), DISABLED),
    **dict.fromkeys(("test_env_var_invalid", "test_sys_xoptions_invalid"), INVALID),
    "test_snapshot": "the message of RuntimeError differs",
    "test_fork": "a child is not traced until it asks for it",
    "test_get_traced_memory": "PyPy itself allocates 2 KiB in addition to the object",
    "test_get_tracemalloc_memory": "stacks are kept until stop()",
    "test_reset_peak": "a dead object counts until it is collected",
}


def test_cpython_tests_fail_only_as_listed(stock_pypy: PyPy) -> None:
    run = stock_pypy.command(str(stock_pypy.script(RUN)))
    failed = set(re.findall(r"^(?:FAIL|ERROR): (test_\w+) \(", run.err,
                            re.MULTILINE))
    assert failed == set(FAILS), run.err
    # counting the results instead would omit tests with failed subtests, which have
    # none
    ran, = re.findall(r"^Ran (\d+) tests", run.err, re.MULTILINE)
    # the document tracemalloc.rst gives these numbers
    assert (int(ran), run.err.count("skipped"), len(failed)) == (
        47, 7 + 1, 19), run.err
