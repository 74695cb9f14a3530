"""Getting into a process that is not prepared: what is waited for, and how long."""
from __future__ import annotations

import errno
import time
from types import SimpleNamespace
from typing import Any

import pytest

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry import enter
from vmprof_allocation.remote.entry.enter import Entry

LATER = 1e9


class StandIn:
    """Of a tracer, whose thread has the GIL when it is told to."""

    def __init__(self, *errors: int):
        self.entered: list[int] = []
        self.left = 0
        self.its = False
        self._errors = list(errors)

    def enter(self, target: object, tid: int, *arguments: object) -> int:
        self.entered.append(tid)
        return self._errors.pop(0) if self._errors else 0

    def has_gil(self) -> bool:
        return self.its

    def leave(self) -> int:
        self.left += 1
        return 0


def entry(tracer: StandIn, said: list[str], *, has_lock: bool = True,
          seconds: float = LATER, threads: tuple[int, ...] = (7,)) -> Entry:
    target: Any = SimpleNamespace(
        pid=7, has_lock=has_lock, threads=lambda: list(threads),
        check_sees=lambda path: None, check_descriptors=lambda: None)
    stand_in: Any = tracer
    return Entry(target, "/nowhere/7", time.monotonic() + seconds, said.append,
                 stand_in)


def test_a_thread_of_a_program_with_threads_goes_on_at_once() -> None:
    tracer = StandIn()
    said: list[str] = []
    one = entry(tracer, said)
    one.begin()
    assert tracer.left == 1
    one.look()
    one.leave()
    assert (tracer.left, said) == (1, [])


def test_the_only_thread_stands_still_until_ours_has_the_gil() -> None:
    tracer = StandIn()
    said: list[str] = []
    one = entry(tracer, said, has_lock=False)
    one.begin()
    one.look()
    assert tracer.left == 0
    tracer.its = True
    one.look()
    one.look()
    one.leave()
    assert (tracer.left, said) == (1, [])


@pytest.mark.parametrize("is_left", [False, True], ids=["in time", "by an error"])
def test_a_thread_does_not_stand_still_for_nothing(
        monkeypatch: pytest.MonkeyPatch, is_left: bool) -> None:
    monkeypatch.setattr(enter, "_HELD_SECONDS", LATER if is_left else 0.0)
    tracer = StandIn()
    said: list[str] = []
    one = entry(tracer, said, has_lock=False)
    one.begin()
    assert tracer.left == 0
    if is_left:
        one.leave()
    else:
        one.look()
    assert tracer.left == 1


def test_what_is_waited_for_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enter, "_PATIENCE", -1.0)
    tracer = StandIn(errno.EAGAIN, errno.EAGAIN)
    said: list[str] = []
    one = entry(tracer, said, has_lock=False)
    one.begin()
    one.look()
    one.look()
    assert said == [
        "waiting until process 7 makes a system call",
        "waiting until process 7 gives Python's lock (the GIL) away; it uses no "
        "threads, and only does so when it waits for something"]


def test_another_thread_is_tried() -> None:
    """One that is gone, or computes; an error is one of the process."""
    tracer = StandIn(errno.ESRCH, errno.EAGAIN)
    entry(tracer, [], threads=(9, 8, 7)).begin()
    assert tracer.entered == [9, 8, 7]
    with pytest.raises(AllocationSamplingError, match="process 7 has ended"):
        entry(StandIn(errno.ESRCH), []).begin()


def test_a_program_that_only_computes() -> None:
    with pytest.raises(AllocationSamplingError, match="was not touched: no thread"):
        entry(StandIn(*[errno.EAGAIN] * 9), [], seconds=-1).begin()


@pytest.mark.parametrize("has_gil, says", [
    (False, "did not give Python's lock"), (True, "does not answer: it can't load")])
def test_a_thread_that_does_not_call(
        monkeypatch: pytest.MonkeyPatch, has_gil: bool, says: str) -> None:
    monkeypatch.setattr(enter, "_LOAD_SECONDS", 0.0)
    tracer = StandIn()
    one = entry(tracer, [], seconds=-1)
    one.begin()
    tracer.its = has_gil
    with pytest.raises(AllocationSamplingError, match=says):
        one.look()


def test_what_is_run_is_short_enough() -> None:
    """FRAME_MAX_PROGRAM of native/attach/frame.h, wherever we are installed."""
    assert len(enter.program("x" * 100)) + 1000 < 8192
