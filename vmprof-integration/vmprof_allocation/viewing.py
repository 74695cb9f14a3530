"""--view: the program runs as a child of this process, which opens the profile when
it has ended.

Without --view the program has no parent of ours: whoever looks at it may see one.
"""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from vmprof_allocation.resting import say
from vmprof_allocation.temporary import remove

#: what somebody may want to end the program with; the terminal sends its own to both
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def run(start: Callable[[], NoReturn], output: str, *,
        is_temporary: bool) -> NoReturn:
    """Have a child `start` the program, and show the profile `output` when it has
    ended; end as it did."""
    # Ctrl-C is for the program
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGINT, interrupt)
            start()
        finally:
            os._exit(127)

    def forward(number: int, _: FrameType | None) -> None:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            pass

    _on_end(forward)
    _, status = os.waitpid(child, 0)
    # what is temporary goes with us, and who serves it
    _on_end(lambda number, _: sys.exit(128 + number))
    code = os.waitstatus_to_exitcode(status)
    try:
        if os.path.exists(output) and os.path.getsize(output):
            _show(output, salvage=code < 0)
        else:
            say("there is no profile to be shown: the program ended before it was "
                "begun")
    finally:
        if is_temporary:
            remove(output)
    sys.exit(128 - code if code < 0 else code)


def _on_end(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in _FORWARDED:
        # nohup's children outlive the terminal
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _show(output: str, salvage: bool) -> None:
    variables = {name: value for name, value in os.environ.items()
                 # the program's limits, and its log
                 if name not in ("PYPY_GC_NURSERY", "PYPY_GC_MAX", "PYPYLOG")}
    # not in the program's folder, where modules may have any name
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    subprocess.call(
        [sys.executable, "-m", "vmprof_convert", os.path.abspath(output), "--view",
         *["--salvage"] * salvage], cwd=folder, env=variables,
        # a child inherits what is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
