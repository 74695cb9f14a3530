"""Test attach --retainers, which shows the retainers of a running program."""
from __future__ import annotations

import os
import signal
import socket

import pytest

from conftest import PyPy
from running import running
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.control.client import Connection
from workers import workers

pytestmark = pytest.mark.nurseries("4M", "240M")

KEEPS = """
    import gc, select, sys
    before = [str(i) for i in range(100000)]
    kept = []
    def keep():
        kept.append([str(len(kept))])
    print("ready")
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        for _ in range(100):
            keep()
        if len(kept) % 2000 == 0:
            gc.collect()
    print("ended")
"""


@pytest.mark.parametrize("flags, first", [
    ((), "estimated total"), (("--leaks",), "held by __main__.kept")])
def test_retainers_follow_the_report(stock_pypy: PyPy, flags: tuple[str, ...],
                                     first: str) -> None:
    """Retainers of objects from before the sampling are reported, too."""
    with running(stock_pypy, KEEPS) as program:
        run = program.command("-d", "2", "--retainers", "-o", "out.vmprof",
                              "--allocation-sampling", "1k", *flags)
        assert run.code == 0, run.err
        assert program.end() == "ended\n"
    held = stock_pypy.profile().held[-1]
    sizes = {holder.path: holder.objects for holder in held.holders}
    assert sizes["__main__.before"] >= 100000 and sizes["__main__.kept"] > 0
    before, found, after = run.out.partition("live objects at ")
    assert found and first in before, run.out
    assert "__main__.before (list)" in after


def test_ctrl_c_still_finds_the_retainers(stock_pypy: PyPy) -> None:
    """Ctrl-C shortens the sampling, but the heap snapshot still follows."""
    with running(stock_pypy, KEEPS) as program:
        process = program.begin("-d", "100", "--retainers", "-o", "out.vmprof")
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        assert "__main__.before (list)" in out
        assert program.end() == "ended\n"


def test_each_child_has_its_retainers(stock_pypy: PyPy) -> None:
    with workers(stock_pypy, "of_each = [str(i) for i in range(50000)]") as (
            program, children):
        run = program.command("-d", "1", "--retainers", "--children", "-o",
                              "out.vmprof")
        assert run.code == 0, run.err
        assert run.out.count("live objects in process ") == 1 + len(children)
        assert run.out.count("__main__.of_each (list)") == 1 + len(children)


def test_a_late_answer_does_not_answer_the_next_request() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(0.01)
    connection = Connection(1, ours)
    with theirs:
        with pytest.raises(AllocationSamplingError, match="in time"):
            connection.ask("held")
        with pytest.raises(AllocationSamplingError, match="has ended"):
            connection.ask("stop")
        assert theirs.recv(100) == b"held"
        assert theirs.recv(100) == b""
