"""Heap snapshots on request, and the reasons why a snapshot fails."""
from __future__ import annotations

import os
import signal

from vmprof_allocation.engines.hook.heap_snapshot import ANY_HEAP, NOT_ASKED
from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy

# no import of typing at run time: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.engines.hook.heap_snapshot import HeapSnapshot

#: The time limit in seconds for the process that walks the heap.
SECONDS = 25.0
#: The reasons for enum held_problem of native/held/question.h.
_PROBLEMS = {
    1: "there is not enough memory for the process that walks the heap",
    2: "the heap has an object of an unknown type",
    3: "the roots, or the fields of a type, were not found",
    4: "the heap has too many objects, or more than 32 GiB",
    5: "the process that walks the heap did not end within %d seconds" % SECONDS}
_OF_PROBLEM, _OF_SIGNAL, _OF_FILE, _ENDED = 1000, 2000, 3000, -2
_SIGNALS = {int(number): number.name for number in signal.Signals}
#: The reasons for enum hook_refusal of native/hook/hook.h.
_REFUSALS = {
    1: "the program filters its system calls (seccomp), and the filter may end it at "
       "a fork",
    2: "it needs up to %d MiB, but the limit of the program's address space "
       "(RLIMIT_AS) leaves %d MiB",
    3: "it needs up to %d MiB, but the system or the cgroup has %d MiB left; try again "
       "when more memory is free",
    4: "the heap is too large for a snapshot that nobody requested"}


def ask(snapshot: HeapSnapshot, holders: bool, most_heap: int = ANY_HEAP) -> None:
    """Fork the process that walks the heap; call take() afterwards.

    Args:
        snapshot: the snapshot of this process.
        holders: whether to find retainers in addition to the reachable objects.
        most_heap: the maximum size of the heap in bytes.

    Raises:
        AllocationSamplingError: no snapshot is possible.
        SamplingBusy: another thread takes a snapshot.
    """
    if snapshot.looks(0.0) != NOT_ASKED:
        raise SamplingBusy(
            "another thread takes a heap snapshot; try again when it is done")
    # with a limit on the heap, the user did not request the snapshot, and the program
    # does not wait for it
    is_urgent = not holders and most_heap == ANY_HEAP
    refusal = snapshot.refusal(most_heap=most_heap, is_urgent=is_urgent)
    if refusal:
        reason = _REFUSALS[refusal]
        if "%d" in reason:
            reason %= tuple(max(0, size) >> 20 for size in snapshot.memory)
        raise AllocationSamplingError("no heap snapshot is taken: " + reason)
    if not snapshot.begin(holders):
        take(snapshot)


def take(snapshot: HeapSnapshot) -> None:
    """Write the snapshot that ask() began into the profile.

    Raises:
        AllocationSamplingError: the snapshot failed, or cannot be written.
    """
    outcome = int(snapshot.finish())
    if outcome:
        raise AllocationSamplingError(
            "the heap snapshot failed: %s" % problem(outcome))


def problem(outcome: int) -> str:
    """Return why a snapshot failed.

    Args:
        outcome: the result of hook_held(), which is not 0.
    """
    if outcome == NOT_ASKED:
        return "the GC's slow path did not run; try again"
    if outcome == _ENDED:
        return "the profile or the process ended during the snapshot"
    if outcome >= _OF_FILE:
        return "cannot write the profile: %s" % os.strerror(outcome - _OF_FILE)
    if outcome >= _OF_SIGNAL:
        return "a signal (%s) ended the process that walks the heap" % (
            _SIGNALS.get(outcome - _OF_SIGNAL, "signal %d" % (outcome - _OF_SIGNAL)))
    if outcome >= _OF_PROBLEM:
        return _PROBLEMS.get(outcome - _OF_PROBLEM, "problem %d" % outcome)
    return "fork() failed: %s" % os.strerror(outcome)
