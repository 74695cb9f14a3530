"""A short form of the hard run (tests/hard), which takes a minute.

Programs start, stop and fork at random.  Test suites have the same results as without
the sampler.
"""
from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import compare
import hard
from builds import Build
from conftest import PYPY, ROOT, PyPy
from suites import Suite, suites

HARD = ROOT / "tests" / "hard"


@pytest.mark.parametrize("seed", [1, 2])
def test_random_sessions(pypy: PyPy, seed: int) -> None:
    run = pypy.command(str(HARD / "soak.py"), str(seed), "20")
    assert (run.code, run.out) == (0, "20 sessions, 0 problems\n"), run.err


def test_forks_while_threads_allocate(pypy: PyPy) -> None:
    run = pypy.command(str(HARD / "forks.py"), "30")
    assert (run.code, run.out) == (0, "30 forks, 0 problems\n"), run.err


@pytest.fixture
def build(pypy: PyPy) -> Build:
    return Build(pypy.folder, Path(PYPY))


@pytest.mark.parametrize("name", ["weakset", "yield_from", "asyncio.test_locks"])
def test_suite_of_cpython_has_no_differences(build: Build, name: str) -> None:
    suite, = suites([name])
    found = compare.compare(build, suite)
    assert found.plain["(process)"] == "exit code 0"
    assert len(compare.tests(found.plain)) > 30
    assert list(found.differences) == ["4k", "64"]
    assert found.notes("differs") == []
    assert found.samples["4k"] > 1000


OWN = """
    import os, unittest, _vmprof

    class Tests(unittest.TestCase):
        def test_equal(self):
            pass

        def test_that_notices(self):
            self.assertFalse(_vmprof.is_enabled())

        def test_flaky(self):
            "Every other time"
            if os.path.exists("was here"):
                os.unlink("was here")
                self.fail()
            open("was here", "w").close()

        def test_flaky_once(self):
            with open("count", "a+") as file:
                file.write("x")
                file.seek(0)
                self.assertNotEqual(len(file.read()), 2)

        def test_subtests(self):
            for i in range(3):
                with self.subTest(i=i):
                    self.assertNotEqual(i, 1)
    %s
"""


def own(build: Build, more: str = "") -> compare.Comparison:
    suite = Suite("own", ("test_own",), "own")
    build.source(suite.name).mkdir(parents=True)
    (build.source(suite.name) / "test_own.py").write_text(
        textwrap.dedent(OWN) % more)
    return compare.compare(build, suite)


def test_differences_and_flaky_tests_are_distinguished(build: Build) -> None:
    found = own(build)
    differences = {difference.test.rpartition(".")[2]: difference
                   for difference in found.differences["4k"]}
    assert [difference.test for _, difference in found.notes("differs")] == [
        "test_own.Tests.test_that_notices"]
    assert differences["test_that_notices"].plain == ["ok"] * 3
    assert differences["test_that_notices"].sampled == ["failed"] * 3
    assert differences["test_flaky_once"].is_flaky
    assert found.plain["test_own.Tests.test_subtests (i=1)"] == "failed"
    text = hard.report("1.2.3", [found], [], True)
    assert "own      5" in text
    assert "* own, differs (4k): ``test_own.Tests.test_that_notices``: ok" in text
    assert "* own, flaky (4k): ``test_own.Tests.test_flaky_once" in text


def test_process_that_crashes_is_a_difference(build: Build) -> None:
    found = own(build, "if _vmprof.is_enabled(): os.abort()")
    differences = {difference.test: difference
                   for difference in found.differences["4k"]}
    assert differences["(process)"].sampled == ["signal 6"] * 3
    assert differences["(profile)"].sampled[0] != "whole"
    assert differences["test_own.Tests.test_equal"].sampled == ["none"] * 3
