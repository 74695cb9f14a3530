# runs on PyPy 2.7: a plugin of pytest's
"""Collect garbage before each test.

rvmprof asks all code objects that are alive for their names.  RPython's tests
of it leave some behind that have none, and rely on their being gone when the
next test begins: on CPython they are, on PyPy it depends on when the last
collection was.
"""
import gc


def pytest_runtest_setup(item):
    gc.collect()
