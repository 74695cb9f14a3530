"""The grace period, after which all other threads have left short functions
(grace_period.c)."""
from __future__ import annotations

import pathlib
import subprocess

import pytest

from native_build import build


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build("grace_harness", "hook/vmprof/grace_period.c")


def run(harness: pathlib.Path, what: str, inside: int) -> str:
    done = subprocess.run([harness, what, str(inside)], text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("inside", [0, 1, 5])
@pytest.mark.parametrize("what", ["waits", "computes", "ends"])
def test_grace_period_ends_after_the_thread_has_left(
        harness: pathlib.Path, what: str, inside: int) -> None:
    """A thread that has computed for some milliseconds has left any short function."""
    assert run(harness, what, inside).startswith("passed 0 ")


def test_thread_that_naps_inside(harness: pathlib.Path) -> None:
    assert run(harness, "naps", 30) == "passed 0 0"


@pytest.mark.parametrize("what", ["sleeps", "writes"])
def test_thread_that_stays_in_such_a_call(
        harness: pathlib.Path, what: str) -> None:
    """A thread in one of these system calls is not in a short function."""
    assert run(harness, what, 0) == "passed 0 0"


def test_many_threads_that_compute(harness: pathlib.Path) -> None:
    """The threads are waited for together, not one after the other."""
    assert run(harness, "crowd", 0) == "passed 0 0"


def test_first_thread_has_ended(harness: pathlib.Path) -> None:
    """The kernel lists the first thread until the process ends."""
    assert run(harness, "leader", 0) == "passed 0 0"
