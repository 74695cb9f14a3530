"""In the program's process, from its start on: a handler, and no more.

A signal's handler runs in the main thread, between two bytecodes: what is asked for is
done by another thread, so that the program waits for nothing.
"""
from __future__ import annotations

import _signal
from _thread import start_new_thread

from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.errors import AllocationSamplingError

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: of the environment: prepare this process, and all that get it from there
VARIABLE = "VMPROF_CONTROL"
#: by default: nothing happens to a process that does not know it, and hardly any does
SIGNAL: int = getattr(_signal, "SIGURG", 0)      # 0: another system has none
#: what a handler of ours takes nothing away from, and the real-time signals
_FREE = "SIGURG", "SIGUSR1", "SIGUSR2"
_DEFAULT_WORDS = ("", "1", "yes", "on", "true")


def number_of(word: str) -> int:
    """The signal that a user names: ``RTMAX``, ``SIGRTMAX`` or a number.  Raises
    AllocationSamplingError."""
    name = word.strip().upper()
    if name.lower() in _DEFAULT_WORDS:
        return SIGNAL
    if name.isdigit() and name.isascii():
        number: Any = int(name)
    else:
        number = getattr(_signal, name if name.startswith("SIG") else "SIG" + name,
                         None)
    free = [getattr(_signal, name, None) for name in _FREE]
    lowest = getattr(_signal, "SIGRTMIN", _signal.NSIG)
    if not isinstance(number, int) or not (
            number in free or lowest <= number < _signal.NSIG):
        raise AllocationSamplingError(
            "the signal %r is not known, or has another meaning; write for example "
            "RTMAX" % word)
    return number


def prepare(word: str = "") -> None:
    """Let ``python -m vmprof_allocation ctl`` and ``top`` reach this process, and the
    children that it forks: by SIGURG, or by the signal that `word` names.

    Raises AllocationSamplingError if the program uses that signal, and outside of the
    main thread, which alone may have handlers.
    """
    number = number_of(word)
    if not number:
        raise AllocationSamplingError("this system has no signal that could be used")
    present = _signal.getsignal(number)
    if present is _called:
        return
    if present not in (_signal.SIG_DFL, _signal.SIG_IGN):
        raise AllocationSamplingError(
            "the program has a handler for signal %d; name another one" % number)
    try:
        _signal.signal(number, _called)
    except ValueError:
        raise AllocationSamplingError(
            "only the main thread can prepare this process") from None


def _called(number: int, frame: object) -> None:
    try:
        start_new_thread(_answer, ())
    except Exception:
        pass        # there is no room for a thread: who waits, gives up


def _answer() -> None:
    try:
        with Undivided():
            from vmprof_allocation.remote.control.serve import answer
    except Exception:
        return      # who waits hears nothing, and says so
    answer()
