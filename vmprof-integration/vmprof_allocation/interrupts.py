"""Sections of code that the program's signal handlers don't interrupt.

Python runs them between two bytecodes of its main thread, and they may raise.
"""
from __future__ import annotations

# nothing that is not needed: see carrier.py
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
