"""Delay forks while a thread runs the sampler's code.

A forked child has only the thread that forked. The work of the parent's other threads
is never finished in the child. If such a thread was importing a module, the module
stays incomplete, and its lock and all other locks stay locked. If the module is the
sampler's, the sampler's thread or the end of the child waits for the lock forever. So
the sampler's code in the program's process takes a lock, and a fork waits until this
lock is free::

    with Undivided():
        from vmprof_allocation.session import next_profile
        next_profile.rotate(...)

Code in such a block must not wait for the program's other threads, because one of them
may be about to fork. Two cases break this rule. Python runs finalizers and signal
handlers anywhere, and these may wait. Also, a signal handler that raises between two
bytecodes of the `with` statement itself may leave the lock locked. Therefore a thread
waits for PATIENCE seconds at most, and then continues with a new lock.

This module imports only modules that every Python has at its start. It stays in the
process when the modules that import it are removed (resident.py).
"""
from __future__ import annotations

import os
from _thread import RLock

#: maximum wait in seconds; a fork during the sampler's start waits for tenths of one
PATIENCE = 10.0

_lock = RLock()


class Undivided:
    """A context manager that delays forks by other threads until its block ends.

    The thread in the block may fork. Blocks can be nested.
    """

    __slots__ = ("_lock",)

    def __enter__(self) -> None:
        """Take the lock."""
        # store the lock, because a child that is forked in the block gets a new _lock
        self._lock = _taken()

    def __exit__(self, *exception: object) -> None:
        """Release the lock that was taken."""
        self._lock.release()


def _taken() -> RLock:
    global _lock
    lock = _lock
    if not lock.acquire(timeout=PATIENCE):
        # another waiting thread may have replaced the lock already
        if lock is _lock:
            _lock = RLock()
        lock = _taken()
    return lock


def _before() -> None:
    _taken()


def _in_parent() -> None:
    try:
        _lock.release()
    except RuntimeError:
        pass            # another thread has replaced the lock meanwhile


def _in_child() -> None:
    global _lock
    _lock = RLock()


os.register_at_fork(before=_before, after_in_parent=_in_parent,
                    after_in_child=_in_child)
