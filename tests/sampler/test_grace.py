"""grace_period.c: what other threads were in the middle of, they have left."""
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
def test_thread_has_left(harness: pathlib.Path, what: str, inside: int) -> None:
    """Milliseconds: less than a thread may compute in a short function."""
    assert run(harness, what, inside).startswith("passed 0 ")


def test_thread_that_naps_inside(harness: pathlib.Path) -> None:
    assert run(harness, "naps", 30) == "passed 0 0"


@pytest.mark.parametrize("what", ["sleeps", "writes"])
def test_thread_that_stays_in_such_a_call(
        harness: pathlib.Path, what: str) -> None:
    """It is not in a short function, or it would have come back."""
    assert run(harness, what, 0) == "passed 0 0"


def test_many_threads_that_compute(harness: pathlib.Path) -> None:
    """All are waited for at once, not one after the other."""
    assert run(harness, "crowd", 0) == "passed 0 0"


def test_first_thread_has_ended(harness: pathlib.Path) -> None:
    """The kernel keeps it in its list for as long as the process lives."""
    assert run(harness, "leader", 0) == "passed 0 0"
