"""Without -o, and with --view: the program is a child of this process, which waits for
its end, shows the profile, and then ends as the program did.

With -o and no --view there is no such process: the command becomes the program.
"""
from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from vmprof_allocation.errors import AllocationSamplingError, say
from vmprof_allocation.launch.temporary import remove

#: what the terminal sends to both of us, and is for the program
_OF_TERMINAL = signal.SIGINT, signal.SIGQUIT
#: what somebody may send to the command, and means for the program
_FORWARDED = signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2
#: of these, what ends this process while it shows the profile
_ENDING = signal.SIGTERM, signal.SIGHUP
#: the program's settings of PyPy, which are not for what shows its profile
_PROGRAMS = "PYPY_GC_NURSERY", "PYPY_GC_MAX", "PYPYLOG"


def run(start: Callable[[], NoReturn], output: str,
        show: Callable[[str], bool], *, is_temporary: bool) -> NoReturn:
    """Have a child `start` the program.  When it has ended, `show` the profile
    `output`, if there is one: report() or view().  Unless that fails, a temporary one
    is removed then.  Raises AllocationSamplingError if there can be no child."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _OF_TERMINAL}
    # of a process that ignores it nobody learns how its children ended
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        child = os.fork()
    except OSError as e:
        raise AllocationSamplingError(
            "can't start a process for the program: %s" % e.strerror) from None
    if child == 0:
        try:
            for number, handler in before.items():
                signal.signal(number, handler)
            start()
        finally:
            os._exit(127)

    def forward(number: int, _: FrameType | None) -> None:
        try:
            os.kill(child, number)
        except ProcessLookupError:
            pass

    _handle(_FORWARDED, forward)
    status = _wait(child)
    _handle(_ENDING, lambda number, _: sys.exit(128 + number))
    is_shown = True
    try:
        if os.path.exists(output) and os.path.getsize(output):
            is_shown = show(os.path.abspath(output))
    finally:
        if is_temporary and is_shown:
            remove(output)
    _end_with(status)


def _handle(signals: tuple[signal.Signals, ...],
            handler: Callable[[int, FrameType | None], None]) -> None:
    for number in signals:
        # nohup's children outlive the terminal
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def _wait(child: int) -> int:
    """Returns its status.  Process 1 of a container also gets orphans."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return status


def _end_with(status: int) -> NoReturn:
    """As the program did."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # the program's core is the one to look at
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.WEXITSTATUS(status))


# ____________________________________________________________
# what shows the profile

def report(profile: str) -> bool:
    """On stderr.  Returns False, and says so, if it could not be made."""
    if _call(["vmprof_allocation", "report", "--salvage", profile],
             stdin=subprocess.DEVNULL, stdout=_stderr()) == 0:
        return True
    say("the report could not be made; the profile is in %r" % profile)
    return False


def view(profile: str) -> bool:
    """In the Firefox Profiler, until the user has enough of it."""
    _call(["vmprof_convert", profile, "--view", "--salvage"], stdin=None, stdout=None)
    return True


def _call(module: list[str], stdin: int | None, stdout: int | None) -> int:
    """Run a module of ours, with the flags of this interpreter.  It is in a folder
    without modules of the program's, which may have any name."""
    flags = [flag for flag, is_set in (
        ("-I", sys.flags.isolated), ("-E", sys.flags.ignore_environment),
        ("-s", sys.flags.no_user_site)) if is_set]
    try:
        return subprocess.call(
            [sys.executable, *flags, "-m", *module], stdin=stdin, stdout=stdout,
            cwd=os.path.abspath(__file__).rsplit(os.sep, 3)[0],
            env={name: value for name, value in os.environ.items()
                 if name not in _PROGRAMS},
            # a child inherits what is ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    except OSError as e:
        say("can't start %s: %s" % (sys.executable, e.strerror))
        return 1


def _stderr() -> int:
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL       # it is closed
    return 2
