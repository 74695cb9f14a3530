"""Sections of code that the program's signal handlers don't interrupt.

Python runs them between two bytecodes of its main thread, and they may raise.
"""
from __future__ import annotations

import os
from _thread import RLock

from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.errors import SamplingBusy

# import only what is needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    import _signal

    import __pypy__
    _thread: Any = __pypy__.thread
except ImportError:
    _thread = None


class Uninterrupted:
    """A context manager.  Signals that come inside have their handlers called
    at its end, which may so raise what they raise."""

    __slots__ = ("_is_ours",)

    def __init__(self) -> None:
        self._is_ours = False

    def __enter__(self) -> None:
        if _thread is not None:
            try:
                _thread._signals_exit()
                self._is_ours = True
            except Exception:
                pass        # no handler runs in this thread, or already so

    def __exit__(self, *exception: Any) -> None:
        if self._is_ours:
            self._is_ours = False
            _thread._signals_enter()
            # PyPy may put off what waits until the next signal
            _signal.pthread_sigmask(_signal.SIG_BLOCK, ())


class Lock:
    """For Section; a forked child gets one of its own."""

    __slots__ = ("is_busy", "lock", "pid")

    def __init__(self) -> None:
        self._renew()

    def _renew(self) -> None:
        self.lock = RLock()
        self.is_busy = False
        self.pid = os.getpid()

    def was_forked(self) -> bool:
        """True once in each child: the lock may have been held, by nobody who
        is still there."""
        if self.pid == os.getpid():
            return False
        self._renew()
        return True


class Section(Uninterrupted):
    """What one thread at a time does, and none forks meanwhile.  A finalizer or a
    tracing function that wants to, in the middle of it, can't wait for itself:
    SamplingBusy."""

    __slots__ = ("_lock", "_no_fork")

    def __init__(self, lock: Lock) -> None:
        super().__init__()
        self._no_fork = Undivided()
        lock.was_forked()
        self._lock = lock

    def __enter__(self) -> None:
        super().__enter__()
        self._no_fork.__enter__()
        self._lock.lock.acquire()
        if self._lock.is_busy:
            self._lock.lock.release()
            self._no_fork.__exit__()
            super().__exit__()
            raise SamplingBusy(
                "allocation sampling is just being started or stopped, by the "
                "code that this was called from")
        self._lock.is_busy = True

    def __exit__(self, *exception: object) -> None:
        self._lock.is_busy = False
        self._lock.lock.release()
        self._no_fork.__exit__()
        super().__exit__()
