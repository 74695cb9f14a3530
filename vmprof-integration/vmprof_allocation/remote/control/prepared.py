"""Prepare a process for requests: install a signal handler.

This module runs in the program's process. Python runs the handler in the main thread,
between two bytecodes. The handler starts another thread for the requests, so that the
program does not wait.
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

#: environment variable that prepares this process and its children
VARIABLE = "VMPROF_CONTROL"
#: The default signal. Processes without a handler ignore SIGURG, and hardly any program
#: has a handler. 0 on a system without SIGURG.
SIGNAL: int = getattr(_signal, "SIGURG", 0)
#: names of the signals that may be used, in addition to the real-time signals
_FREE = "SIGURG", "SIGUSR1", "SIGUSR2"
_DEFAULT_WORDS = ("", "1", "yes", "on", "true")


def number_of(word: str) -> int:
    """Return the number of the signal that a user names.

    Args:
        word: a name, such as ``RTMAX`` or ``SIGRTMAX``, or a number. Words such as
            ``1`` or ``yes`` mean the default.

    Raises:
        AllocationSamplingError: the signal is unknown or has another meaning.
    """
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
            "invalid signal %r: it is unknown, or has another purpose. Write for "
            "example RTMAX" % word)
    return number


def prepare(word: str = "") -> None:
    """Let ``pypy-alloc control`` and ``live`` reach this process.

    The commands can then also reach children that this process forks.

    Args:
        word: name of the signal; empty for SIGURG.

    Raises:
        AllocationSamplingError: the program uses this signal, or the caller is not the
            main thread, which alone can set handlers.
    """
    number = number_of(word)
    if not number:
        raise AllocationSamplingError("cannot control-enable this process: this system "
                                      "has no suitable signal")
    present = _signal.getsignal(number)
    if present is _called:
        return
    if present not in (_signal.SIG_DFL, _signal.SIG_IGN):
        raise AllocationSamplingError(
            "the program has a handler for signal %d. Choose another signal" % number)
    try:
        _signal.signal(number, _called)
    except ValueError:
        raise AllocationSamplingError(
            "only the main thread can control-enable this process") from None


def _called(number: int, frame: object) -> None:
    try:
        start_new_thread(_answer, ())
    except Exception:
        pass        # no thread is possible; the command reports that it got no answer


def _answer() -> None:
    try:
        with Undivided():
            from vmprof_allocation.remote.control.serve import answer
    except Exception:
        return      # the command reports that it got no answer
    answer()
