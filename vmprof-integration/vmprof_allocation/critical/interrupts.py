"""Protect sections of code against the program's signal handlers.

Python runs signal handlers between two bytecodes of its main thread, and they may raise
exceptions.
"""
from __future__ import annotations

import os
from _thread import RLock

from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.errors import SamplingBusy

# keep imports to a minimum: see engines/base.py
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
    """A context manager that delays signal handlers until its block ends.

    The handlers run at the end of the block, which raises their exceptions.
    """

    __slots__ = ("_is_ours",)

    def __init__(self) -> None:
        """Prepare the context manager."""
        self._is_ours = False

    def __enter__(self) -> None:
        """Delay signal handlers."""
        if _thread is not None:
            try:
                _thread._signals_exit()
                self._is_ours = True
            except Exception:
                pass        # this thread runs no handlers, or they are already delayed

    def __exit__(self, *exception: Any) -> None:
        """Run the signal handlers that were delayed."""
        if self._is_ours:
            self._is_ours = False
            _thread._signals_enter()
            # without this call, PyPy may delay the handler until the next signal
            _signal.pthread_sigmask(_signal.SIG_BLOCK, ())


class Lock:
    """A lock for Section.  A forked child gets a new lock."""

    __slots__ = ("is_busy", "lock", "pid")

    def __init__(self) -> None:
        """Create a free lock."""
        self._renew()

    def _renew(self) -> None:
        self.lock = RLock()
        self.is_busy = False
        self.pid = os.getpid()

    def was_forked(self) -> bool:
        """Renew the lock in a forked child, and return whether it was renewed.

        The thread that held the lock may not exist in the child. Returns True once in
        each child.
        """
        if self.pid == os.getpid():
            return False
        self._renew()
        return True


class Section(Uninterrupted):
    """A context manager for code that one thread at a time runs, while no thread forks.

    A finalizer or a tracing function may run in the middle of the section, in the same
    thread. If it enters the section again, SamplingBusy is raised, because waiting
    would never end.
    """

    __slots__ = ("_lock", "_no_fork")

    def __init__(self, lock: Lock) -> None:
        """Create a section that excludes all other sections with the same lock."""
        super().__init__()
        self._no_fork = Undivided()
        lock.was_forked()
        self._lock = lock

    def __enter__(self) -> None:
        """Enter the section.

        Raises:
            SamplingBusy: this thread is in the section already.
        """
        super().__enter__()
        self._no_fork.__enter__()
        self._lock.lock.acquire()
        if self._lock.is_busy:
            self._lock.lock.release()
            self._no_fork.__exit__()
            super().__exit__()
            raise SamplingBusy(
                "allocation sampling is just being started or stopped by the "
                "interrupted code of this thread")
        self._lock.is_busy = True

    def __exit__(self, *exception: object) -> None:
        """Leave the section."""
        self._lock.is_busy = False
        self._lock.lock.release()
        self._no_fork.__exit__()
        super().__exit__()
