# A plugin of pytest that runs on PyPy 2.7.
"""Collect garbage before each test.

rvmprof asks all live code objects for their names.  RPython's tests of rvmprof
make code objects without a name, and expect that these objects are freed before
the next test.  CPython frees them at once, but PyPy only in the next collection.
"""
import gc


def pytest_runtest_setup(item):
    gc.collect()
