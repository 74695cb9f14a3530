"""Conditions and timeouts of attaching to a process that is not control-enabled."""
from __future__ import annotations

import errno
import time
from types import SimpleNamespace
from typing import Any

import pytest

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry import enter
from vmprof_allocation.remote.entry.enter import Entry, StillTraced

LATER = 1e9


class StandIn:
    """A stand-in for a tracer.  The new thread has the GIL once `its` is true."""

    def __init__(self, *errors: int):
        self.entered: list[int] = []
        self.left = 0
        self.its = False
        self.pc = 0x1234
        self.is_in_code = False
        #: whether each attempt was allowed to stop the thread in PyPy's code
        self.allowed: list[object] = []
        self.asked: list[int] = []
        self._errors = list(errors)

    def enter(self, target: object, tid: int, *arguments: object) -> int:
        self.entered.append(tid)
        self.allowed.append(arguments[-1])
        return self._errors.pop(0) if self._errors else 0

    def ask_for_gil(self, ticker: int) -> int:
        self.asked.append(ticker)
        return 0

    def has_gil(self) -> bool:
        return self.its

    def leave(self) -> int:
        self.left += 1
        return 0


def entry(tracer: StandIn, said: list[str], *, has_lock: bool = True,
          seconds: float = LATER, threads: tuple[int, ...] = (7,),
          ticker: int = 0, other: int = 0) -> Entry:
    """Return an attempt on process 7.

    Args:
        other: PID of a process that traces process 7, or 0.
    """
    target: Any = SimpleNamespace(
        pid=7, has_lock=has_lock, threads=lambda: list(threads),
        check_sees=lambda path: None, check_descriptors=lambda: None, ticker=ticker,
        tracer=lambda tid: other, describe=lambda address: "lib.so+0x%x" % address)
    stand_in: Any = tracer
    return Entry(target, "/nowhere/7", time.monotonic() + seconds, said.append,
                 stand_in)


def test_thread_of_a_program_with_threads_continues_at_once() -> None:
    tracer = StandIn()
    said: list[str] = []
    one = entry(tracer, said)
    one.begin()
    assert tracer.left == 1
    one.look()
    one.leave()
    assert (tracer.left, said) == (1, [])


def test_only_thread_is_stopped_until_ours_has_the_gil() -> None:
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
def test_stopped_thread_continues_after_a_timeout_or_an_error(
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


def test_reason_to_wait_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enter, "_PATIENCE", -1.0)
    tracer = StandIn(errno.EAGAIN, errno.EAGAIN)
    said: list[str] = []
    one = entry(tracer, said, has_lock=False)
    one.begin()
    one.look()
    one.look()
    assert said == [
        "waiting until a thread of process 7 can be stopped at a system call",
        "waiting until process 7 releases Python's lock (the GIL); if it uses no "
        "threads, it releases the lock only when it waits"]


def test_another_thread_is_tried() -> None:
    """A thread may be gone, or may compute.  Other errors concern the whole process."""
    tracer = StandIn(errno.ESRCH, errno.EAGAIN)
    entry(tracer, [], threads=(9, 8, 7)).begin()
    assert tracer.entered == [9, 8, 7]
    with pytest.raises(AllocationSamplingError, match="process 7 has ended"):
        entry(StandIn(errno.ESRCH), []).begin()


@pytest.mark.parametrize("ticker, place", [
    (0, "at a system call; thread"),
    (8, "at a system call or in PyPy's code; thread")])
def test_message_names_the_place_where_no_thread_could_be_stopped(
        ticker: int, place: str) -> None:
    with pytest.raises(AllocationSamplingError) as raised:
        entry(StandIn(*[errno.EAGAIN] * 9), [], seconds=-1, ticker=ticker).begin()
    message = str(raised.value)
    assert "cannot attach to process 7: no thread could be stopped " + place in message
    assert "thread 7 was last at lib.so+0x1234. The process is unchanged" in message


@pytest.mark.parametrize("ticker", [0, 8])
def test_code_is_the_second_place_to_stop_a_thread(ticker: int) -> None:
    """Every thread is first tried at its system calls.

    If the ticker's address is unknown, no thread is stopped in PyPy's code, because
    the sampler could not make the program release the GIL.
    """
    tracer = StandIn(*[errno.EAGAIN] * 3)
    entry(tracer, [], threads=(8, 7), ticker=ticker).begin()
    assert tracer.allowed == [False, False, bool(ticker), bool(ticker)]


def test_thread_in_code_continues_at_once_without_a_lock() -> None:
    """The stopped thread has the GIL, for which the new thread waits."""
    tracer = StandIn()
    tracer.is_in_code = True
    entry(tracer, [], has_lock=False, ticker=8).begin()
    assert tracer.left == 1


def test_gil_is_requested_until_the_program_connects() -> None:
    """The new thread may lose the GIL again until PyPy starts to switch threads."""
    tracer = StandIn()
    one = entry(tracer, [], ticker=8)
    one.begin()
    one.look()
    tracer.its = True
    one.look()
    assert tracer.asked == [8, 8]


def test_gil_is_not_requested_while_the_only_thread_is_stopped() -> None:
    tracer = StandIn()
    one = entry(tracer, [], has_lock=False, ticker=8)
    one.begin()
    one.look()
    assert tracer.asked == []


def test_thread_that_another_process_traces_is_tried_again() -> None:
    tracer = StandIn(errno.EPERM)
    entry(tracer, [], other=5).begin()
    assert tracer.entered == [7, 7]
    with pytest.raises(AllocationSamplingError,
                       match="; thread 7 is traced by process 5"):
        entry(StandIn(errno.EPERM), [], seconds=-1, other=5).begin()
    with pytest.raises(AllocationSamplingError, match="no permission to trace"):
        entry(StandIn(errno.EPERM), []).begin()


def test_command_ends_if_a_thread_does_not_stop() -> None:
    """The end of the command makes the kernel detach from the thread."""
    with pytest.raises(StillTraced, match="did not stop in time"):
        entry(StandIn(errno.ETIMEDOUT), []).begin()


@pytest.mark.parametrize("has_gil, says", [
    (False, "did not release Python's lock"),
    (True, "does not answer: it cannot load")])
def test_thread_that_does_not_connect_is_reported(
        monkeypatch: pytest.MonkeyPatch, has_gil: bool, says: str) -> None:
    monkeypatch.setattr(enter, "_LOAD_SECONDS", 0.0)
    tracer = StandIn()
    one = entry(tracer, [], seconds=-1)
    one.begin()
    tracer.its = has_gil
    with pytest.raises(AllocationSamplingError, match=says):
        one.look()


def test_injected_program_is_short_enough() -> None:
    """The limit is FRAME_MAX_PROGRAM of native/attach/frame.h.

    1000 bytes must be left for a longer path of the socket.
    """
    assert len(enter.program("x" * 100)) + 1000 < 8192
