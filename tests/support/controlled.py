"""Programs for tests of control and live, started with control enabled or without it.

A *prepared* program is control-enabled, and a *plain* one is not.
"""
from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import pytest

from conftest import PYPY, PyPy, Run
from running import Running, running
from truth import SIGMAS, sigmas
from vmprof_allocation.remote.control import meeting
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile

BUSY = """
    import select, sys
    print("ready")
    def allocate():
        return [bytes(i) for i in range(100)]
    while not select.select([sys.stdin], [], [], 0)[0]:
        for i in range(100):
            allocate()
    print("ended")
"""
WAITS = """
    import sys
    print("ready")
    sys.stdin.readline()
    print("ended")
"""


@contextmanager
def prepared(pypy: PyPy, source: str, word: str = "1") -> Iterator[Running]:
    """Start a control-enabled program; `word` is the value of VMPROF_CONTROL."""
    pypy.environment["VMPROF_CONTROL"] = word
    with running(pypy, source, interpreter=PYPY) as program:
        del pypy.environment["VMPROF_CONTROL"]
        yield program


class Way(Protocol):
    """One of the functions `prepared` and `running`, which start a program."""

    def __call__(self, pypy: PyPy, source: str) -> AbstractContextManager[Running]:
        ...


#: runs a test twice: with a control-enabled program, and with an interpreter that
#: cannot import our package
WAYS = pytest.mark.parametrize("begun", [prepared, running], ids=["prepared", "plain"])
#: a program with two threads, whose main thread may wait for ever
THREADS = """
    import sys, threading
    def allocate():
        return [bytes(i) for i in range(100)]
    def wait():
        sys.stdin.readline()
    thread = threading.Thread(target=wait)
    thread.start()
    print("ready")
    while thread.is_alive():
        allocate()
    print("ended")
"""


def control(pypy: PyPy, program: Running | int, *arguments: str) -> Run:
    """Run control, or the command memory, for a program or a pid.

    Returns:
        The finished run.
    """
    pid = program if isinstance(program, int) else program.pid
    if "memory" in arguments:
        options = [argument for argument in arguments if argument != "memory"]
        return pypy.command("-m", "vmprof_allocation", "memory", str(pid), *options)
    return pypy.command("-m", "vmprof_allocation", "control", str(pid), *arguments)


def done(pypy: PyPy, program: Running | int, *arguments: str) -> str:
    """Run control, which must succeed, and return its output."""
    run = control(pypy, program, *arguments)
    assert run.code == 0, run.err
    return run.out


def refused(pypy: PyPy, program: Running | int, *arguments: str) -> str:
    """Run control, which must fail with one line on stderr, and return the line."""
    run = control(pypy, program, *arguments)
    assert (run.code, run.out) == (2, "")
    assert run.err.count("\n") == 1, run.err
    return run.err


def status(pypy: PyPy, program: Running | int) -> dict[str, object]:
    """Return the status that control reports."""
    found: dict[str, object] = json.loads(done(pypy, program, "status", "--json"))
    return found


def profile(pypy: PyPy, name: str) -> Profile:
    return readers.read(pypy.folder / name)


def check_estimate(found: Profile) -> None:
    """Check that the estimated bytes agree with the GC's count."""
    assert len(found.samples) > 100
    assert abs(sigmas(found)) < SIGMAS


def socket_of(program: Running) -> str:
    """Create the folder of the sockets, and return the path of the program's socket."""
    meeting.make_folder(os.geteuid())
    return meeting.socket_of(program.pid, os.geteuid())
