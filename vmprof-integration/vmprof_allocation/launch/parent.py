"""Without -o, and with --view: the program is a child of this process, which waits for
its end, shows the profile, and then ends as the program did.

With -o and no --view there is no such process: the command becomes the program.

A signal that is sent to the command alone is for the program, which gets it from here.
One that is sent to all of us, the program has got already: a witness tells the two
apart.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from vmprof_allocation.errors import AllocationSamplingError, say
from vmprof_allocation.launch.temporary import remove

#: what somebody may send to the command, and means for the program
_OF_TERMINAL = signal.SIGINT, signal.SIGQUIT
_RELAYED = (*_OF_TERMINAL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1,
            signal.SIGUSR2)
#: seconds within which a signal for all of us reaches all of us
_TOGETHER = 0.1
#: what the witness writes: a signal's number, and when it came
_SEEN = struct.Struct("@id")
#: <sys/prctl.h>
_PR_SET_PDEATHSIG = 1
#: the program's settings of PyPy, which are not for what shows its profile
_PROGRAMS = ("PYPY_GC_NURSERY", "PYPY_GC_MAX", "PYPYLOG", "PYTHONTRACEMALLOC",
             "VMPROF_TRACEMALLOC")


def run(start: Callable[[], NoReturn], output: str,
        show: Callable[[str], bool], *, is_temporary: bool) -> NoReturn:
    """Have a child `start` the program.  When it has ended, `show` the profile
    `output`, if there is one: report() or view().  Unless that fails, a temporary one
    is removed then.  Raises AllocationSamplingError if there can be no child."""
    # of a process that ignores it nobody learns how its children ended
    of_children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # nohup's children outlive the terminal
    relayed = [number for number in _RELAYED
               if signal.getsignal(number) != signal.SIG_IGN]
    dies_with_parent = _dies_with_parent()
    try:
        witness = _Witness(relayed, dies_with_parent)
        child = os.fork()
    except OSError as e:
        raise AllocationSamplingError(
            "can't start a process for the program: %s" % e.strerror) from None
    if child == 0:
        try:
            dies_with_parent()
            os.close(witness.fd)
            signal.signal(signal.SIGCHLD, of_children)
            start()
        finally:
            os._exit(127)

    def relay(number: int, _: FrameType | None) -> None:
        if not witness.has_seen(number):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)

    for number in relayed:
        signal.signal(number, relay)
    status = _wait(child, witness)
    for number in relayed:
        # Ctrl-C is for what shows the profile
        signal.signal(number, signal.SIG_IGN if number in _OF_TERMINAL
                      else lambda number, _: sys.exit(128 + number))
    witness.end()
    is_shown = True
    try:
        if os.path.exists(output) and os.path.getsize(output):
            is_shown = show(os.path.abspath(output))
    finally:
        if is_temporary and is_shown:
            remove(output)
    _end_with(status)


class _Witness:
    """A process that gets what is sent to all of our process group, or by name, or to
    all of a container or a service, and nothing that is sent to the command alone.
    What it gets, the program got, too."""

    def __init__(self, relayed: list[signal.Signals],
                 dies_with_parent: Callable[[], None]) -> None:
        self.fd, write_end = os.pipe()

        def tell(number: int) -> None:
            os.write(write_end, _SEEN.pack(number, time.monotonic()))

        os.set_blocking(self.fd, False)
        #: 0: it is gone
        self.pid = os.fork()
        if self.pid == 0:
            try:
                dies_with_parent()
                for number in relayed:
                    signal.signal(number, lambda number, _: tell(number))
                for fd in range(3):
                    with contextlib.suppress(OSError):
                        os.close(fd)    # who reads until their end waits for us, too
                while True:
                    signal.pause()
            finally:
                os._exit(1)
        os.close(write_end)

    def has_seen(self, number: int) -> bool:
        """Just now."""
        now = time.monotonic()
        while time.monotonic() < now + _TOGETHER:
            select.select([self.fd], [], [], _TOGETHER)
            try:
                seen = os.read(self.fd, _SEEN.size)
            except BlockingIOError:
                continue
            if not seen:
                return False            # it was killed
            which, when = _SEEN.unpack(seen)
            if which == number and when > now - _TOGETHER:
                return True
        return False

    def end(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def _dies_with_parent() -> Callable[[], None]:
    """What a child calls to be killed when this process is."""
    prctl = ctypes.CDLL(None).prctl
    pid = os.getpid()

    def dies_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != pid:
            os._exit(1)                 # it was, already

    return dies_with_parent


def _wait(child: int, witness: _Witness) -> int:
    """Returns the child's status.  Process 1 of a container also gets orphans."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return status
        if pid == witness.pid:
            witness.pid = 0         # somebody killed it: the number may be another's


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

def report(profile: str, more: Sequence[str] = ()) -> bool:
    """On stderr; and `more` of them, by their options.  Returns False, and says so, if
    it could not be made."""
    if not _report(profile):
        say("the report could not be made; the profile is in %r" % profile)
        return False
    return False not in [_report(profile, option) for option in more]


def _report(profile: str, *options: str) -> bool:
    return _call(["vmprof_allocation", "report", "--salvage", *options, profile],
                 stdin=subprocess.DEVNULL, stdout=_stderr()) == 0


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
