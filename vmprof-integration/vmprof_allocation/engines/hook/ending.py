"""The end of a run, when the engine's modules are gone: resident.py.

It imports nothing and opens no files from Python: threads of the program that compute
would take the GIL at each of hundreds of system calls.
"""
from __future__ import annotations

import errno
import os

from vmprof_allocation.engines import thread_names
from vmprof_allocation.engines.ending import INCOMPLETE, Ending
from vmprof_allocation.engines.hook.heap_snapshot import NOT_ASKED, may_hide_references
from vmprof_allocation.engines.hook.safepoint import reach_safepoint
from vmprof_allocation.errors import AllocationSamplingError

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from vmprof_allocation.engines.hook.heap_snapshot import HeapSnapshot

#: hook_is_sampled_child()
NO_CHILD, WITH_PROFILE = 0, 2
#: The largest heap of which the last snapshot is taken, in bytes.  Many children of a
#: process may end at the same time, each with the heap that it inherited.
_MOST_HEAP, _MOST_HEAP_OF_CHILD = 2**29, 2**26
#: seconds that the program waits for the last snapshot at most
_PATIENCE = 5.0
#: what of native/hook/hook.h is called here
_FUNCTIONS = {"hook_finish": "void (*)(void)", "hook_end": "void (*)(int)",
              "hook_end_error": "int (*)(void)", "hook_ignore": "int (*)(int)",
              "hook_ended": "const char *(*)(void)",
              "hook_is_sampled_child": "int (*)(void)",
              "hook_named": "void (*)(int64_t, const char *)"}


class HookEnding(Ending):
    """See :class:`vmprof_allocation.engines.ending.Ending`."""

    __slots__ = ("_end", "_end_log", "_ended", "_error", "_finish", "_ignore",
                 "_inherited", "_is_sampled", "_named", "_snapshot", "_string")

    def __init__(self, ffi: Any, lib: Any, snapshot: HeapSnapshot | None) -> None:
        self._snapshot = snapshot
        # the library's own functions would keep all of cffi's description of it
        (self._finish, self._end, self._error, self._ignore, self._ended,
         self._is_sampled, self._named) = (
            ffi.cast(kind, ffi.addressof(lib, name))
            for name, kind in _FUNCTIONS.items())
        self._string = ffi.string
        #: with lines: ends PyPy's log of what it compiles
        self._end_log = None
        if lib.hook_has_lines():
            import _jitlog
            self._end_log = _jitlog.disable
        #: the kernel's numbers of threads that are those of a parent
        self._inherited: set[int] = set()

    def ignore(self, ignored: bool) -> bool:
        return bool(self._ignore(ignored))

    def end(self) -> bool:
        if self._error() < 0:
            self._end_profile()
        error = self._error()       # still negative: the program has ended it
        check_complete(max(error, 0), self._string(self._ended()))
        return bool(error >= 0)

    def forked(self) -> None:
        if self._end_log is not None and not self._is_sampled():
            self._end_log()     # it would take time, for nothing
        self._inherited = {thread for thread, _ in thread_names.of_threads()}

    def end_child(self) -> None:
        self._end_profile()
        self._finish()

    def _end_profile(self) -> None:
        if self._snapshot is not None:
            wait = begin_last(self._snapshot, self._is_sampled())
            if wait is not None:
                wait()
                finish_last(self._snapshot)
        self._end(0)
        reach_safepoint()
        self._name_threads()    # not sampled, and the profile still takes names
        self._end(1)
        reach_safepoint()       # in a safepoint the types of young objects are found

    def _name_threads(self) -> None:
        for thread, name in thread_names.of_threads():
            if thread not in self._inherited:
                self._named(thread, thread_names.for_native(name))


def begin_last(snapshot: HeapSnapshot, child: int) -> Callable[[], None] | None:
    """Begin the heap snapshot that finds the live objects at the end of a profile.

    Args:
        snapshot: the requests.
        child: what hook_is_sampled_child() returns.

    Returns:
        A function that waits for the snapshot, before finish_last().  None if it is
        impossible or the heap is too large.
    """
    try:
        most = _MOST_HEAP if child == NO_CHILD else _MOST_HEAP_OF_CHILD
        if (snapshot.is_sampling() and child in (NO_CHILD, WITH_PROFILE)
                and not may_hide_references() and snapshot.looks(0.0) == NOT_ASKED
                and not snapshot.refusal(most, is_urgent=True)
                and snapshot.begin(False)):
            return lambda: snapshot.wait(_PATIENCE)
    except Exception:
        pass            # the profile is to end in any case
    return None


def finish_last(snapshot: HeapSnapshot) -> None:
    """Write the last heap snapshot into the profile, if it was successful."""
    try:
        if snapshot.finish() == 0:
            snapshot.end_garbage()
    except Exception:
        pass            # likewise


def check_complete(error: int, ended: bytes) -> None:
    """Raise AllocationSamplingError if a profile ended with this errno, or, as
    hook_ended() has it, before the program."""
    if error:
        raise AllocationSamplingError("the profile is not complete: " + (
            "a thread is in vmprof and does not come back, so that vmprof stays enabled"
            if error == errno.EBUSY else INCOMPLETE.get(error) or os.strerror(error)))
    if ended:
        raise AllocationSamplingError(
            "the profile ends before the program does: " + ended.decode("ascii"))
