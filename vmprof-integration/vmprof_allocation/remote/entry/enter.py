"""Inject a thread into a process that is not prepared, and wait for the thread.

client.py makes an Entry, calls begin(), and then look() at short intervals until the
thread has connected to its socket.
"""
from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.entry.target import Target, refusal
from vmprof_allocation.remote.entry.tracer import Tracer

FOLDER = os.path.abspath(__file__).rsplit(os.sep, 3)[0]
_INSIDE = os.path.join(FOLDER, "remote", "entry", "inside.py")
#: milliseconds to wait for one thread before another one is tried
_MILLISECONDS = 100
#: maximum time in seconds for which a thread is stopped in a program without a GIL
_HELD_SECONDS = 1.0
#: seconds between two calls of look(): while a thread is stopped, and afterwards
_STEP, _LOOK = 0.001, 0.02
#: seconds of waiting after which the user gets a message with the reason
_PATIENCE = 1.0
#: seconds that an injected thread with the GIL may take, after the deadline, to load
#: modules from a disk
_LOAD_SECONDS = 10.0


def program(path: str) -> str:
    """Return the Python code that the injected thread runs.

    The code calls inside.begin(). It leaves no name in the program's __main__, and
    works even if the program has changed the meaning of a name.

    Args:
        path: path of the socket.
    """
    with open(_INSIDE, encoding="utf-8") as file:
        source = "%s\nbegin(%r, %r)\n" % (file.read(), FOLDER, path)
    builtins = "__import__('builtins')"
    # the readers of profiles recognize the sampler's code by <vmprof-allocation>
    return "%s.exec(%s.compile(%r, '<vmprof-allocation>', 'exec'), {})" % (
        builtins, builtins, source)


class StillTraced(AllocationSamplingError):
    """The error that a thread of the process has not stopped in time.

    The command has to end, because the kernel then detaches it from the thread.
    """


class Entry:
    """An attempt to inject a thread into a process.

    The caller ends each attempt by leave().
    """

    def __init__(self, target: Target, path: str, deadline: float,
                 note: Callable[[str], None], tracer: Tracer | None = None) -> None:
        """Check that the process sees this package and the socket at their paths.

        Args:
            target: the process.
            path: path of the socket that the injected thread connects to.
            deadline: time until which the thread must have the GIL (time.monotonic()).
            note: function that shows a message to the user.
            tracer: the tracer; None for a new one.

        Raises:
            AllocationSamplingError: the process sees other files at these paths.
        """
        for there in FOLDER, os.path.dirname(path):
            target.check_sees(there)
        self._target = target
        self._program = program(path)
        self._tracer = Tracer() if tracer is None else tracer
        self._deadline = deadline
        self._note = note
        #: time until which the thread may be stopped; 0.0 if no thread is stopped
        self._held_until = 0.0
        self._has_gil = False
        self._patience = 0.0
        #: the reason why the last attempt could not stop a thread
        self._reason = ""

    def begin(self) -> None:
        """Stop a thread of the process, and have it make the injected thread.

        Raises:
            AllocationSamplingError: No thread could be stopped.
        """
        patience = time.monotonic() + _PATIENCE
        is_code_allowed = False
        while not self._try_each(is_code_allowed):
            now = time.monotonic()
            if now > self._deadline:
                raise AllocationSamplingError(
                    "cannot attach to process %d: no thread could be stopped %s; %s. "
                    "The process is unchanged. Try again with a longer --timeout, or "
                    "start the program with "
                    "vmprof" % (self._target.pid, self._place, self._reason))
            # System calls come first, because the GIL is most likely free there.
            is_code_allowed = bool(self._target.ticker)
            if patience and now > patience:
                patience = 0.0
                self._note("waiting until a thread of process %d can be stopped %s"
                           % (self._target.pid, self._place))
        self._patience = time.monotonic() + _PATIENCE
        if self._target.has_lock or self._tracer.is_in_code:
            self._tracer.leave()
        else:
            # The stopped thread has most likely released the GIL. If it continued, it
            # would take the GIL again.
            self._held_until = time.monotonic() + _HELD_SECONDS

    @property
    def _place(self) -> str:
        return "at a system call" + " or in PyPy's code" * bool(self._target.ticker)

    def _try_each(self, is_code_allowed: bool) -> bool:
        for tid in self._target.threads():
            error = self._tracer.enter(self._target, tid, self._program, _MILLISECONDS,
                                       is_code_allowed)
            if error == 0:
                return True
            if error == errno.EPERM and (other := self._target.tracer(tid)):
                self._reason = "thread %d is traced by process %d" % (tid, other)
                continue
            if error == errno.EAGAIN:
                self._reason = "thread %d was last at %s" % (
                    tid, self._target.describe(self._tracer.pc))
                continue
            if error == errno.ETIMEDOUT:
                raise StillTraced(refusal(self._target.pid, error))
            if error != errno.ESRCH or tid == self._target.pid:
                raise AllocationSamplingError(refusal(self._target.pid, error))
        return False

    @property
    def pause(self) -> float:
        """Seconds until the next call of look()."""
        return _STEP if self._held_until else _LOOK

    def look(self) -> None:
        """Check whether the injected thread has the GIL, and help it to get the GIL.

        Raises:
            AllocationSamplingError: the deadline has passed.
        """
        now = time.monotonic()
        self._has_gil = self._has_gil or self._tracer.has_gil()
        if self._has_gil or now > self._held_until:
            self.leave()
        if not self._held_until and self._target.ticker:
            # Do this even if the new thread has the GIL, because the thread may lose
            # the GIL again. Compiled loops of other threads keep the GIL until Python
            # makes its first thread.
            self._tracer.ask_for_gil(self._target.ticker)
        if now > self._deadline + _LOAD_SECONDS * self._has_gil:
            self._target.check_descriptors()
            raise AllocationSamplingError(
                "process %d does not answer: it cannot load vmprof_allocation, or "
                "cannot make another thread" % self._target.pid if self._has_gil else
                "process %d did not release Python's lock (the GIL), because it "
                "executes one long operation; nothing was sampled. Try again with a "
                "longer --timeout"
                % self._target.pid)
        if now > self._patience and not self._has_gil:
            self._patience = float("inf")
            self._note("waiting until process %d releases Python's lock (the GIL); %s"
                       % (self._target.pid, "it releases the lock at the end of the "
                                            "operation that it "
                                            "executes" if self._target.ticker else
                          "if it uses no threads, it releases the lock only when it "
                          "waits"))

    def leave(self) -> None:
        """Let the stopped thread continue."""
        if self._held_until:
            self._held_until = 0.0
            self._tracer.leave()
