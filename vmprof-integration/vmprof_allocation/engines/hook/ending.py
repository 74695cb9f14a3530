"""The end of a run, when the engine's modules have been removed (session/resident.py).

This module imports nothing and opens no files in Python: threads of the program that
compute would take the GIL at each of hundreds of system calls.
"""
from __future__ import annotations

import errno
import os

from vmprof_allocation.engines import thread_names
from vmprof_allocation.engines.ending import INCOMPLETE, Ending
from vmprof_allocation.engines.hook.heap_snapshot import NOT_ASKED, may_hide_references
from vmprof_allocation.engines.hook.safepoint import reach_safepoint
from vmprof_allocation.errors import AllocationSamplingError

# no import of typing at run time: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from vmprof_allocation.engines.hook.heap_snapshot import HeapSnapshot

#: Results of hook_is_sampled_child(): this process is not a sampled forked child, or it
#: is one and has begun its profile.
NO_CHILD, WITH_PROFILE = 0, 2
#: The maximum size in bytes of a heap for a snapshot that the user did not request, in
#: the first process and in a child.  Many children of a process may end at the same
#: time, each with the heap that it inherited.
_MOST_HEAP, _MOST_HEAP_OF_CHILD = 2**29, 2**26
#: The time in seconds for which the program waits for the last snapshot.
_PATIENCE = 5.0
#: The functions of native/hook/hook.h that are called here.
_FUNCTIONS = {"hook_finish": "void (*)(void)", "hook_end": "void (*)(int)",
              "hook_end_error": "int (*)(void)", "hook_ignore": "int (*)(int)",
              "hook_ended": "const char *(*)(void)",
              "hook_is_sampled_child": "int (*)(void)",
              "hook_named": "void (*)(int64_t, const char *)"}


class HookEnding(Ending):
    """The end of a run of the hook engine: see Ending."""

    __slots__ = ("_end", "_end_log", "_ended", "_error", "_finish", "_ignore",
                 "_inherited", "_is_sampled", "_named", "_snapshot", "_string")

    def __init__(self, ffi: Any, lib: Any, snapshot: HeapSnapshot | None) -> None:
        """Store the functions of the native half.

        Args:
            ffi: cffi's FFI.
            lib: the native half.
            snapshot: takes the last heap snapshot; None for no snapshot.
        """
        self._snapshot = snapshot
        # the library's own functions would keep all of cffi's description of the
        # library
        (self._finish, self._end, self._error, self._ignore, self._ended,
         self._is_sampled, self._named) = (
            ffi.cast(kind, ffi.addressof(lib, name))
            for name, kind in _FUNCTIONS.items())
        self._string = ffi.string
        #: Ends PyPy's log of compiled code; None if lines are not recorded.
        self._end_log = None
        if lib.hook_has_lines():
            import _jitlog
            self._end_log = _jitlog.disable
        #: The kernel's IDs of the parent's threads, if this is a forked child.
        self._inherited: set[int] = set()

    def ignore(self, ignored: bool) -> bool:
        """Ignore the allocations of this thread: see Engine.ignore()."""
        return bool(self._ignore(ignored))

    def end(self) -> bool:
        """End the profile: see Ending.end()."""
        if self._error() < 0:
            self._end_profile()
        # still negative if hook_end() did not end the profile, because the program has
        # ended it before
        error = self._error()
        check_complete(max(error, 0), self._string(self._ended()))
        return bool(error >= 0)

    def forked(self) -> None:
        """Prepare a forked child: see Ending.forked()."""
        if self._end_log is not None and not self._is_sampled():
            self._end_log()     # the log is not needed, and takes time
        self._inherited = {thread for thread, _ in thread_names.of_threads()}

    def end_child(self) -> None:
        """End the profile of a sampled child: see Ending.end_child()."""
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
        # allocations are not sampled any more, but names can still be written into the
        # profile
        self._name_threads()
        self._end(1)
        reach_safepoint()       # a safepoint finds the types of young objects

    def _name_threads(self) -> None:
        for thread, name in thread_names.of_threads():
            if thread not in self._inherited:
                self._named(thread, thread_names.for_native(name))


def most_heap(child: int) -> int:
    """Return the maximum size of a heap for a snapshot that the user did not request.

    Args:
        child: the result of hook_is_sampled_child().

    Returns:
        The size in bytes.
    """
    return _MOST_HEAP if child == NO_CHILD else _MOST_HEAP_OF_CHILD


def begin_last(snapshot: HeapSnapshot, child: int) -> Callable[[], None] | None:
    """Begin the heap snapshot that finds the live objects at the end of a profile.

    Args:
        snapshot: the snapshot of this process.
        child: the result of hook_is_sampled_child().

    Returns:
        A function that waits for the snapshot; call it before finish_last().  None if a
        snapshot is impossible or the heap is too large.
    """
    try:
        if (snapshot.is_sampling() and child in (NO_CHILD, WITH_PROFILE)
                and not may_hide_references() and snapshot.looks(0.0) == NOT_ASKED
                and not snapshot.refusal(most_heap(child), is_urgent=True)
                and snapshot.begin(False)):
            return lambda: snapshot.wait(_PATIENCE)
    except Exception:
        pass            # the profile must end after any error
    return None


def finish_last(snapshot: HeapSnapshot) -> None:
    """Write the last heap snapshot into the profile, if it was successful."""
    try:
        if snapshot.finish() == 0:
            snapshot.end_garbage()
    except Exception:
        pass            # the profile must end after any error


def check_complete(error: int, ended: bytes) -> None:
    """Check that a profile is complete.

    Args:
        error: the errno of the profile, or 0.
        ended: the result of hook_ended(): why the profile ended before the program, or
            b"".

    Raises:
        AllocationSamplingError: the profile is incomplete.
    """
    if error:
        raise AllocationSamplingError("the profile is not complete: " + (
            "a thread does not return from vmprof, so vmprof stays enabled"
            if error == errno.EBUSY else INCOMPLETE.get(error) or os.strerror(error)))
    if ended:
        raise AllocationSamplingError(
            "the profile ends before the program does: " + ended.decode("ascii"))
