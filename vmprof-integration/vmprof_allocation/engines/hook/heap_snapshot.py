"""Requests for a heap snapshot, which hook/snapshots/held_by.c takes.

This module stays in the sampled process (session/resident.py), because the last
snapshot is taken when the engine's other modules have been removed.  At that time, its
functions import nothing.
"""
from __future__ import annotations

import gc as _gc
import sys
from time import monotonic

from vmprof_allocation.engines.hook.safepoint import reach_safepoint, sink

# no import of typing at run time: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: PyPy's module, which has more functions than CPython's
gc: Any = _gc

#: The requests of native/hook/hook.h.
HELD, COLLECT, REACHED, EXAMINED = 4, 5, 6, 7
#: The result of hook_held_looks() and hook_held() without a request.
NOT_ASKED = -1
#: The number of attempts of HeapSnapshot.begin().  An attempt fails if another thread
#: reaches a safepoint first.
_TIMES = 5
#: The time in seconds between two checks whether the process that walks the heap has
#: ended.
_LOOK = 0.25
#: The maximum size of a heap in bytes that permits a snapshot of any heap.
ANY_HEAP = 2**63 - 1
#: The niceness of the process that walks the heap while the program runs.
_NICE = 10

#: The type of modules, and the descriptor of a module's names.
_MODULE = type(sys)
_DICT: Any = vars(_MODULE)["__dict__"]

#: The native functions for a snapshot.
_FUNCTIONS = {
    "hook_ask": "void (*)(int, uint64_t)",
    "hook_collections": "int64_t (*)(void)",
    "hook_forget_question": "void (*)(void)",
    "hook_held": "int (*)(void)",
    "hook_held_looks": "int (*)(double)",
    "hook_ignore": "int (*)(int)",
    "hook_is_sampling": "int (*)(void)",
    "hook_snapshot_refused": "int (*)(int64_t, int, int64_t *)"}


def question(row: int) -> list[Any]:
    """Return the list for the native half: the GC's roots, and sys.modules.

    Args:
        row: the type through which the GC reaches the references of each thread
            (Layout.references).
    """
    # reading f_back turns the frames of this thread into objects, which the GC then
    # reaches from its roots
    frame = sys._getframe()
    while frame is not None:
        frame = frame.f_back  # type: ignore[assignment]
    roots = gc.get_rpy_roots()
    threads = [root for root in roots if gc.get_rpy_type_index(root) == row]
    for root in threads:
        roots.extend(gc.get_rpy_referents(root))
    return [roots, sys.modules]


def may_hide_references() -> bool:
    """Return whether C extension modules may hold objects that a heap walk misses.

    Objects that only C code holds (by cpyext's rawrefcount, or in fields of HPy's
    objects) look like garbage.  PyPy also loads cpyext for cffi's modules, which hold
    no objects.
    """
    if "_hpy_universal" in sys.modules:
        return True
    if "cpyext" not in sys.modules:
        return False
    return any(_is_c_extension(module) for module in [*sys.modules.values()])


def _is_c_extension(module: object) -> bool:
    # cffi's libraries are also in sys.modules, and isinstance() accepts them as modules
    if not issubclass(type(module), _MODULE):
        return False
    # a property of a subclass would run code of the program
    names = _DICT.__get__(module)
    file = names.get("__file__")
    return (isinstance(file, str) and file.endswith(".so")
            and type(names.get("lib")).__module__ != "_cffi_backend")


class HeapSnapshot:
    """The steps of a heap snapshot, which the native half takes."""

    __slots__ = ("_ask", "_collections", "_forget", "_ignore", "_memory",
                 "_refused", "_row", "finish", "is_sampling", "looks")

    def __init__(self, ffi: Any, lib: Any, row: int) -> None:
        """Store the functions of the native half.

        Args:
            ffi: cffi's FFI.
            lib: the native half.
            row: the argument of question().
        """
        # the library's own functions would keep all of cffi's description of the
        # library
        (self._ask, self._collections, self._forget, self.finish, self.looks,
         self._ignore, self.is_sampling, self._refused) = (
            ffi.cast(kind, ffi.addressof(lib, name))
            for name, kind in _FUNCTIONS.items())
        self._row = row
        self._memory = ffi.new("int64_t[2]")

    def refusal(self, most_heap: int = ANY_HEAP, is_urgent: bool = False) -> int:
        """Return 0 if a snapshot is possible, or a value of enum hook_refusal (hook.h).

        Args:
            most_heap: the maximum size of the heap in bytes.
            is_urgent: whether the program waits for the snapshot.
        """
        return int(self._refused(most_heap, 0 if is_urgent else _NICE, self._memory))

    @property
    def memory(self) -> tuple[int, int]:
        """The bytes that a snapshot needs, and the available bytes, from refusal()."""
        return int(self._memory[0]), int(self._memory[1])

    def begin(self, holders: bool) -> bool:
        """Fork the process that walks the heap.

        Args:
            holders: whether to find retainers in addition to the reachable objects.

        Returns:
            Whether the process was forked; then call wait() and finish().  False if
            other threads prevented the fork.
        """
        was_ignored = self._ignore(1)
        try:
            for _ in range(_TIMES):
                asked = question(self._row)
                try:
                    # young objects still move, and their outcome is unknown
                    self.collect_nursery()
                    self._reach(HELD if holders else REACHED, id(asked))
                except BaseException:
                    self.finish()       # the forked process may exist already
                    raise
                finally:
                    self._forget()      # the native half must not use the list any more
                    asked.clear()
                    sink[0] = None
                if self.looks(0.0) != NOT_ASKED:
                    return True
            return False
        finally:
            self._ignore(was_ignored)

    def wait(self, seconds: float) -> None:
        """Wait until the process that walks the heap has ended, at most for `seconds`.

        Meanwhile, the program's threads may fork and end the sampling, and signal
        handlers run.
        """
        until = monotonic() + seconds
        while self.looks(_LOOK) > 0 and monotonic() < until:
            pass

    def end_garbage(self) -> None:
        """Record the end of the unreachable sampled objects in the profile.

        Call it after finish() returned 0.  No end is recorded if C code may still hold
        objects that look unreachable.
        """
        was_ignored = self._ignore(1)
        try:
            self._reach(EXAMINED, not may_hide_references())
        finally:
            self._ignore(was_ignored)

    def collect_nursery(self) -> None:
        """Cause a minor collection, even if the nursery is not full."""
        before = self._collections()
        # A pinned object at the nursery's end delays the collection.
        while self._collections() == before and self.is_sampling():
            self._reach(COLLECT, 0)
            sink[0] = bytearray(64)
        sink[0] = None

    def _reach(self, what: int, about: int) -> None:
        self._ask(what, about)
        reach_safepoint()
