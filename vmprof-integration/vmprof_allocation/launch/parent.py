"""Run the program as a child, show its profile at its end, and end like the program.

The command uses this module without -o, and with --view. With -o and without --view, it
replaces its own process by the program.

A signal that was sent to the command alone is relayed to the program. A signal to the
whole process group has reached the program already. A third process, the witness, tells
the two cases apart.
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

#: signals that a user's terminal sends, and all signals that the command relays
_OF_TERMINAL = signal.SIGINT, signal.SIGQUIT
_RELAYED = (*_OF_TERMINAL, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1,
            signal.SIGUSR2)
#: seconds within which a signal reaches all processes of a group
_TOGETHER = 0.1
#: format of the witness's messages: number of the signal, and its time in seconds
_SEEN = struct.Struct("@id")
#: the operation of prctl() that sets the signal at the parent's death (<sys/prctl.h>)
_PR_SET_PDEATHSIG = 1
#: environment variables of PyPy for the program, which are removed for the report
_PROGRAMS = ("PYPY_GC_NURSERY", "PYPY_GC_MAX", "PYPYLOG", "PYTHONTRACEMALLOC",
             "VMPROF_TRACEMALLOC")


def run(start: Callable[[], NoReturn], output: str,
        show: Callable[[str], bool], *, is_temporary: bool) -> NoReturn:
    """Run the program as a child, and show the profile.

    Args:
        start: replaces the child's process by the program.
        output: path of the profile.
        show: report() or view(); gets the path, and returns whether it succeeded.
        is_temporary: remove the profile when it has been shown.

    Raises:
        AllocationSamplingError: the child cannot be created.
    """
    # if SIGCHLD were ignored, the exit status of the child would be lost
    of_children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # the child of nohup ignores SIGHUP, so do not relay it
    relayed = [number for number in _RELAYED
               if signal.getsignal(number) != signal.SIG_IGN]
    dies_with_parent = _dies_with_parent()
    try:
        witness = _Witness(relayed, dies_with_parent)
        child = os.fork()
    except OSError as e:
        raise AllocationSamplingError(
            "cannot start a process for the program: %s" % e.strerror) from None
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
        # Ctrl-C ends the process that shows the profile, and not this process
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
    """A process that shows whether the program has also received a signal.

    The witness gets each signal to the process group, and to all processes with a
    certain name or of a container or service. The program gets the same signals. A
    signal to the command alone does not reach the witness.
    """

    def __init__(self, relayed: list[signal.Signals],
                 dies_with_parent: Callable[[], None]) -> None:
        """Start the process.

        Args:
            relayed: the signals that the command relays.
            dies_with_parent: see _dies_with_parent().
        """
        self.fd, write_end = os.pipe()

        def tell(number: int) -> None:
            os.write(write_end, _SEEN.pack(number, time.monotonic()))

        os.set_blocking(self.fd, False)
        #: pid of the witness; 0 if the witness has ended
        self.pid = os.fork()
        if self.pid == 0:
            try:
                dies_with_parent()
                for number in relayed:
                    signal.signal(number, lambda number, _: tell(number))
                # readers of the output wait until all processes have closed it
                for fd in range(3):
                    with contextlib.suppress(OSError):
                        os.close(fd)
                while True:
                    signal.pause()
            finally:
                os._exit(1)
        os.close(write_end)

    def has_seen(self, number: int) -> bool:
        """Return whether the witness has received a signal within the last _TOGETHER.

        Args:
            number: the number of the signal.
        """
        now = time.monotonic()
        while time.monotonic() < now + _TOGETHER:
            select.select([self.fd], [], [], _TOGETHER)
            try:
                seen = os.read(self.fd, _SEEN.size)
            except BlockingIOError:
                continue
            if not seen:
                return False            # the witness was killed
            which, when = _SEEN.unpack(seen)
            if which == number and when > now - _TOGETHER:
                return True
        return False

    def end(self) -> None:
        """End the witness."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def _dies_with_parent() -> Callable[[], None]:
    """Return a function that has the calling child killed when this process ends."""
    prctl = ctypes.CDLL(None).prctl
    pid = os.getpid()

    def dies_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != pid:
            os._exit(1)                 # the parent has ended already

    return dies_with_parent


def _wait(child: int, witness: _Witness) -> int:
    """Wait for the child, and return its status.

    As process 1 of a container, this process also waits for orphans.
    """
    while True:
        pid, status = os.wait()
        if pid == child:
            return status
        if pid == witness.pid:
            witness.pid = 0         # the witness was killed; its pid may be used again


def _end_with(status: int) -> NoReturn:
    """End this process in the same way as the program, with its exit code or signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # do not write a core file in addition to the program's
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.WEXITSTATUS(status))


# ____________________________________________________________
# showing the profile

def report(profile: str, more: Sequence[str] = ()) -> bool:
    """Write the report about a profile to stderr.

    Args:
        profile: path of the profile.
        more: commands of vmprof-convert that make further reports.

    Returns:
        Whether all reports could be made. If not, a message names the profile.
    """
    if not _report(profile):
        say("the report failed; the profile is in %r" % profile)
        return False
    return False not in [_report(profile, command) for command in more]


def _report(profile: str, command: str = "report") -> bool:
    return _call(["vmprof_allocation", command, "--salvage", profile],
                 stdin=subprocess.DEVNULL, stdout=_stderr()) == 0


def view(profile: str) -> bool:
    """Open a profile in the Firefox Profiler, and wait until the user ends this."""
    _call(["vmprof_convert", "view", profile, "--salvage"], stdin=None, stdout=None)
    return True


def _call(module: list[str], stdin: int | None, stdout: int | None) -> int:
    """Run a module of this project with the flags of this interpreter.

    The module starts in the folder of this package. In the user's folder, a module of
    the program might have the same name as a module that is imported.
    """
    flags = [flag for flag, is_set in (
        ("-I", sys.flags.isolated), ("-E", sys.flags.ignore_environment),
        ("-s", sys.flags.no_user_site)) if is_set]
    try:
        return subprocess.call(
            [sys.executable, *flags, "-m", *module], stdin=stdin, stdout=stdout,
            cwd=os.path.abspath(__file__).rsplit(os.sep, 3)[0],
            env={name: value for name, value in os.environ.items()
                 if name not in _PROGRAMS},
            # the child would inherit that SIGINT is ignored
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    except OSError as e:
        say("cannot start %s: %s" % (sys.executable, e.strerror))
        return 1


def _stderr() -> int:
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL       # stderr is closed
    return 2
