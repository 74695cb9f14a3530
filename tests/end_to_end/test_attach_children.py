"""Test attach --children, which samples a running process and its descendants."""
from __future__ import annotations

import os
import re
import signal
import subprocess

from conftest import PYPY, PyPy
from controlled import check_estimate, profile
from running import running
from workers import workers


def test_workers_are_sampled_with_their_master(stock_pypy: PyPy) -> None:
    with workers(stock_pypy, are_prepared=False) as (master, pids):
        run = master.attach("--children", duration=1)
    assert run.err.startswith(
        "pypy-alloc: sampling processes %d, %d, %d for 1 second; Ctrl-C ends it "
        "earlier\n" % (master.pid, *pids))
    assert "by 3 processes" in run.out
    for pid in pids:
        assert re.search(r"  %d " % pid, run.out)
        one = profile(stock_pypy, "out.%d.vmprof" % pid)
        check_estimate(one)
        assert one.parent == master.pid
    first = profile(stock_pypy, "out.vmprof")
    assert first.pid == master.pid
    # The profiles belong to one run, so the report of the first profile contains all
    # processes.
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "out.vmprof")
    assert "by 3 processes" in report.out


def test_without_a_file_the_report_has_all_of_them(stock_pypy: PyPy) -> None:
    with workers(stock_pypy, are_prepared=False) as (master, _):
        run = master.command("--children", "-d", "0.5", "--allocation-sampling", "16k")
    assert run.code == 0 and "by 3 processes" in run.out
    assert list(stock_pypy.folder.glob("*.vmprof")) == []


def test_a_worker_that_can_not_be_sampled_is_named(stock_pypy: PyPy) -> None:
    with workers(stock_pypy, are_prepared=False) as (master, pids):
        os.kill(pids[0], signal.SIGSTOP)
        try:
            run = master.command("--children", "-d", "0.5", "--allocation-sampling",
                                 "16k", "-o", "out.vmprof")
        finally:
            os.kill(pids[0], signal.SIGCONT)
    # The report contains the processes that were sampled, but the exit code shows that
    # one process failed.
    assert run.code == 1 and "by 2 processes" in run.out
    assert "process %d is stopped" % pids[0] in run.err
    assert "sampling processes %d, %d for" % (master.pid, pids[1]) in run.err
    check_estimate(profile(stock_pypy, "out.%d.vmprof" % pids[1]))
    assert not (stock_pypy.folder / ("out.%d.vmprof" % pids[0])).exists()


def test_ctrl_c_ends_all_of_them_early(stock_pypy: PyPy) -> None:
    with workers(stock_pypy, are_prepared=False) as (master, pids):
        command = subprocess.Popen(
            [PYPY, "-m", "vmprof_allocation", "attach", str(master.pid), "--children",
             "-d", "600", "-o", "out.vmprof", "--allocation-sampling", "4k"],
            cwd=stock_pypy.folder, env=stock_pypy.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert command.stderr is not None
        assert "sampling processes" in command.stderr.readline()
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=120)
        assert (command.returncode, err) == (0, "")
        assert "estimated total" in out
        for pid in pids:
            assert profile(stock_pypy, "out.%d.vmprof" % pid).end_time is not None


def test_ctrl_c_ends_the_search_for_children(stock_pypy: PyPy) -> None:
    with workers(stock_pypy, are_prepared=False) as (master, _):
        # After the command's first line, it searches for children, which takes long
        # enough for the signal to arrive during the search.
        command = master.begin("-d", "600")
        command.send_signal(signal.SIGINT)
        out, _ = command.communicate(timeout=120)
        assert command.returncode == 0
        assert "estimated total" in out


def test_no_process_can_be_sampled(stock_pypy: PyPy) -> None:
    with running(stock_pypy, """
        print("ready")
        input()
    """) as program:
        os.kill(program.pid, signal.SIGSTOP)
        try:
            run = program.command("--children", "-o", "out.vmprof")
        finally:
            os.kill(program.pid, signal.SIGCONT)
        assert run.code == 2
        assert run.err.splitlines()[1:] == [
            "pypy-alloc: cannot sample process %d, nor any of its children"
            % program.pid]
        program.process.communicate("\n")


def test_the_build_profile_is_sent_to_a_process_without_the_cache(
        stock_pypy: PyPy) -> None:
    """A worker of another user cannot read the cache, which belongs to the command's
    user. The worker's own search would take seconds, and start another process.
    """
    cache = stock_pypy.folder / "cache"
    cache.mkdir()
    before = stock_pypy.environment.get("XDG_CACHE_HOME")
    stock_pypy.environment["XDG_CACHE_HOME"] = str(cache)
    with workers(stock_pypy, are_prepared=False) as (master, pids):
        if before is None:
            del stock_pypy.environment["XDG_CACHE_HOME"]
        else:
            stock_pypy.environment["XDG_CACHE_HOME"] = before
        master.attach("--children")
    assert list(cache.iterdir()) == []
    found = profile(stock_pypy, "out.%d.vmprof" % pids[0])
    # The message contained the names of types.
    assert any(type_.python for type_ in found.types)
