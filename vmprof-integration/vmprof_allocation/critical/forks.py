"""No fork happens while a thread is in the middle of our code.

A forked child has one thread, the one that forked.  What the parent's other threads
were about to do, nobody finishes there: a module that one of them was importing stays
half a module whose lock nobody releases, and so does every other lock.  If that is a
module of ours, our own thread in the child, or the end of the child, waits for it for
ever.  So our code that runs in a program's process takes a lock, and who forks waits
until nobody has it:

    with Undivided():
        from vmprof_allocation.session import next_profile
        next_profile.rotate(...)

Code in there must not wait for the program's other threads: one of them may be the
one that wants to fork.  That of a finalizer or of a signal's handler, which Python runs
anywhere, may do so; and a handler that raises between two bytecodes of the `with`
itself may leave the lock taken.  Therefore who waits does so for PATIENCE seconds at
most, and goes on; there is a new lock then, so that nobody waits for that one again.

This module imports nothing that is not there at the start of any Python.  It stays in
the process when what imported it goes (resident.py).
"""
from __future__ import annotations

import os
from _thread import RLock

#: seconds; a fork that comes in the middle of a start waits for tenths of one
PATIENCE = 10.0

_lock = RLock()


class Undivided:
    """A context manager: no thread forks while this one is inside, but this one may.
    It can be entered again inside."""

    __slots__ = ("_lock",)

    def __enter__(self) -> None:
        # in a child that was forked inside, the module's is another one
        self._lock = _taken()

    def __exit__(self, *exception: object) -> None:
        self._lock.release()


def _taken() -> RLock:
    global _lock
    lock = _lock
    if not lock.acquire(timeout=PATIENCE):
        # others may have waited, too
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
        pass            # somebody has made a new one meanwhile


def _in_child() -> None:
    global _lock
    _lock = RLock()


os.register_at_fork(before=_before, after_in_parent=_in_parent,
                    after_in_child=_in_child)
