"""Who holds what: the question, before native/hook/held_by.c has it answered."""
from __future__ import annotations

import gc as _gc
import os
import signal
import sys
from time import monotonic

from vmprof_allocation.engines.hook.safepoint import sink
from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy
from vmprof_allocation.memory import cgroup

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from vmprof_allocation.engines.hook.discovery.process_layout import ProcessLayout

#: PyPy's, which has more than others
gc: Any = _gc

#: seconds for the process that looks; between two looks at whether it has ended
SECONDS = 25.0
_LOOK = 0.25
#: it takes such a share of the heap, and so many bytes beside; what the program writes
#: to meanwhile is copied, and not in it
_SHARE, _BESIDE = 0.6, 2**25
#: native/held/question.h
_PROBLEMS = {
    1: "there is not enough memory for the process that looks",
    2: "it met an object of a type that is not known",
    3: "it did not find the roots, or the fields of a type",
    4: "there are too many objects, or more than 32 GiB of them",
    5: "the process that looks did not come to an end within %d seconds, or was ended"
       % SECONDS}
_OF_PROBLEM, _OF_SIGNAL, _OF_FILE, NOT_ASKED, _ENDED = 1000, 2000, 3000, -1, -2
_TIMES = 5
_SIGNALS = {int(number): number.name for number in signal.Signals}


def question(row: int) -> list[Any]:
    """What hook_ask() is told the id() of, when it is old: all that the GC begins
    with, and sys.modules.  `row`: of the type through which it has what each thread has
    of its own (Layout.references)."""
    # what the JIT keeps of the frames of this thread is made frames
    frame = sys._getframe()
    while frame is not None:
        frame = frame.f_back  # type: ignore[assignment]
    roots = gc.get_rpy_roots()
    threads = [root for root in roots if gc.get_rpy_type_index(root) == row]
    for root in threads:
        roots.extend(gc.get_rpy_referents(root))
    return [roots, sys.modules]


def ask(lib: Any, place: ProcessLayout, reach: Callable[[list[Any]], None]) -> None:
    """`reach` has the native half asked for a question; take() is to follow.  Raises
    AllocationSamplingError; SamplingBusy, if somebody else has asked."""
    if lib.hook_held_looks(0.0) != NOT_ASKED:
        raise SamplingBusy(
            "who holds what is being looked at already, for somebody else; ask again "
            "when that is done")
    refuse_if_filtered()
    refuse_if_short(_heap(place))
    for _ in range(_TIMES):
        asked = question(place.layout.references)
        try:
            reach(asked)
        except BaseException:
            lib.hook_held()             # it may look already: end it
            raise
        finally:
            lib.hook_forget_question()  # the list is empty from now on
            asked.clear()
            sink[0] = None
        if lib.hook_held_looks(0.0) != NOT_ASKED:
            return                      # else another thread may be about to ask
    take(lib)


def are_references_hidden() -> bool:
    """Return True if C extensions may hold objects, which the walk does not see.

    Objects that only they hold (by cpyext's rawrefcount) look like garbage.
    """
    return "cpyext" in sys.modules


def wait(lib: Any) -> None:
    """Until there is an answer, or it is too late.  The program's threads may fork
    meanwhile, and end the sampling, and signals' handlers run."""
    until = monotonic() + SECONDS
    while lib.hook_held_looks(_LOOK) > 0 and monotonic() < until:
        pass


def take(lib: Any) -> None:
    """The answer goes into the profile.  Raises AllocationSamplingError."""
    outcome = int(lib.hook_held())
    if outcome:
        raise AllocationSamplingError(
            "who holds what is not known: %s" % problem(outcome))


def problem(outcome: int) -> str:
    """What hook_held() says, if that is not 0."""
    if outcome == NOT_ASKED:
        return "the garbage collector did not come by; ask again"
    if outcome == _ENDED:
        return "the profile, or the process, ended while it was looked at"
    if outcome >= _OF_FILE:
        return "the profile can't be written: %s" % os.strerror(outcome - _OF_FILE)
    if outcome >= _OF_SIGNAL:
        return "the process that looks was ended by %s" % (
            _SIGNALS.get(outcome - _OF_SIGNAL, "signal %d" % (outcome - _OF_SIGNAL)))
    if outcome >= _OF_PROBLEM:
        return _PROBLEMS.get(outcome - _OF_PROBLEM, "problem %d" % outcome)
    return "no process can be made that looks: %s" % os.strerror(outcome)


def _heap(place: ProcessLayout) -> int:
    """Bytes of objects that the GC has."""
    layout = place.layout
    if layout.heap_blocks and layout.heap_large:
        return (int(place.word(layout.heap_blocks)[0])
                + int(place.word(layout.heap_large)[0]))
    return 0


def refuse_if_short(heap: int) -> None:
    """Raise AllocationSamplingError if the process that looks may not get the memory
    that it needs, and others would have to go for it."""
    need = int(heap * _SHARE) + _BESIDE
    for where, free in (("the system", _of_system()), ("its cgroup", _of_cgroup())):
        if free is not None and free < need:
            raise AllocationSamplingError(
                "who holds what is not looked at: that takes up to %d MiB, and %s has "
                "%d MiB left: ask when there is more" % (need >> 20, where, free >> 20))


def refuse_if_filtered() -> None:
    """Raise AllocationSamplingError if this process has filters of system calls that
    its parent has not: such a filter may end it when another process is made."""
    own, of_parent = (_filters(pid) for pid in (os.getpid(), os.getppid()))
    if own is not None and of_parent is not None and own > of_parent:
        raise AllocationSamplingError(
            "who holds what is not looked at: the program has its system calls "
            "filtered (seccomp), and to make a process that looks might end it")


def _filters(pid: int) -> int | None:
    """None: it is not known, as with Linux before 5.9, or of another container."""
    for line in cgroup.read("/proc/%d/status" % pid).splitlines():
        if line.startswith("Seccomp_filters:"):
            return int(line.split()[1])
    return None


def _of_system() -> int | None:
    for line in cgroup.read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _of_cgroup() -> int | None:
    limit = cgroup.tightest()
    return None if limit is None else limit.left()
