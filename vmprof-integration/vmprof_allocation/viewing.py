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

from vmprof_allocation.begin import say

#: what somebody may want to end the program with; the terminal sends its own to both
_FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def run(start: Callable[[], NoReturn], output: str, *,
        is_temporary: bool) -> NoReturn:
    """Have a child `start` the program, and show the profile `output` when it has
    ended; end as it did."""
    child = os.fork()
    if child == 0:
        try:
            start()
        finally:
            os._exit(127)
    # Ctrl-C is for the program
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def forward(number: int, _: FrameType | None) -> None:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            pass

    for number in _FORWARDED:
        signal.signal(number, forward)
    _, status = os.waitpid(child, 0)
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_DFL)
    code = os.waitstatus_to_exitcode(status)
    try:
        if os.path.exists(output) and os.path.getsize(output):
            _show(output, salvage=code < 0)
        else:
            say("there is no profile to be shown: the program ended before it was "
                "begun")
    finally:
        if is_temporary:
            os.unlink(output)
    sys.exit(128 - code if code < 0 else code)


def _show(output: str, salvage: bool) -> None:
    variables = {name: value for name, value in os.environ.items()
                 if name not in ("PYPY_GC_NURSERY", "PYPY_GC_MAX")}
    # not in the program's folder, where modules may have any name
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    subprocess.call(
        [sys.executable, "-m", "vmprof_convert", os.path.abspath(output), "--view",
         *["--salvage"] * salvage], cwd=folder, env=variables,
        # a child inherits what is ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
