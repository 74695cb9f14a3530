"""The option --children of control, for a process and all its descendants."""
from __future__ import annotations

import glob
import os
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import PyPy
from controlled import check_estimate, control, done, profile, refused, status
from run_profiles import functions
from running import running
from vmprof_allocation.remote import process_info
from vmprof_allocation.remote.process_info import children
from vmprof_convert.cli import run_files
from workers import workers


def names(pypy: PyPy) -> list[str]:
    return sorted(path.name for path in pypy.folder.glob("*.vmprof"))


def wait_for_samples(pypy: PyPy, pid: int) -> None:
    while int(str(status(pypy, pid)["samples"])) < 200:
        pass


START = "start", "--allocation-sampling", "16k", "-o", "shop.vmprof"


#: Parameter of a test: whether the workers are control-enabled.
ARE_PREPARED = pytest.mark.parametrize("are_prepared", [True, False],
                                       ids=["prepared", "plain"])


@ARE_PREPARED
def test_the_workers_are_sampled_with_their_master(
        pypy: PyPy, are_prepared: bool) -> None:
    with workers(pypy, are_prepared=are_prepared) as (master, pids):
        out = done(pypy, master, "--children", *START)
        assert [int(line.split()[1]) for line in out.splitlines()] == [
            master.pid, *pids]
        for pid in pids:
            wait_for_samples(pypy, pid)
        out = done(pypy, master, "--children", "stop")
        assert out.splitlines() == [
            "the profile of process %d is %s" % (pid, pypy.folder / name)
            for pid, name in [(master.pid, "shop.vmprof"),
                              *((pid, "shop.%d.vmprof" % pid) for pid in pids)]]
        for pid in (master.pid, *pids):
            assert status(pypy, pid)["is_on"] is False
    found = run_files.find([str(pypy.folder / "shop.vmprof")])
    assert sorted(profile(pypy, file.path).pid or 0 for file in found.files) == sorted(
        [master.pid, *pids])
    assert found.left_out == []
    for pid in pids:
        one = profile(pypy, "shop.%d.vmprof" % pid)
        assert one.parent == master.pid and one.end_time is not None
        check_estimate(one)


def test_a_pool_of_multiprocessing(stock_pypy: PyPy) -> None:
    """The master of the pool has threads, and the workers wait for work."""
    pypy = stock_pypy
    with running(pypy, """
        import multiprocessing, os, sys
        def allocate(number):
            return len([bytes(i) for i in range(number)])
        with multiprocessing.Pool(2) as pool:
            print("ready")
            for line in sys.stdin:
                pool.map(allocate, [1000] * 400)
                print("done")
    """) as program:
        done(pypy, program, "--children", *START)
        assert program.ask() == "done"
        done(pypy, program, "--children", "stop")
        pids = children(program.pid)
        assert len(pids) == 2
        program.end()
    for pid in pids:
        check_estimate(profile(pypy, "shop.%d.vmprof" % pid))
        assert "allocate" in functions(profile(pypy, "shop.%d.vmprof" % pid))


def test_status_and_rate_of_the_workers(pypy: PyPy) -> None:
    with workers(pypy) as (master, pids):
        done(pypy, master, "--children", *START)
        out = done(pypy, master, "--children", "interval", "64k")
        assert out.splitlines() == [
            "process %d is sampled, one per 65536 bytes on average" % pid
            for pid in (master.pid, *pids)]
        out = done(pypy, master, "--children", "status")
        assert [out.count("process %d is sampled, one per 65536 bytes" % pid)
                for pid in (master.pid, *pids)] == [1, 1, 1]
        done(pypy, master, "--children", "stop")


@ARE_PREPARED
def test_a_worker_that_comes_later_is_followed(
        stock_pypy: PyPy, are_prepared: bool) -> None:
    pypy = stock_pypy
    with workers(pypy, told="os.fork() or (os.close(mouth), worker(ear))",
                 are_prepared=are_prepared) as (master, pids):
        done(pypy, master, "--children", *START)
        new = int(master.ask())
        wait_for_samples(pypy, new)
        # a second start is refused, and does not start the new worker again
        assert ("is already on, and writes "
                "to") in refused(pypy, master, "--children", *START)
        out = done(pypy, master, "--children", "stop")
        assert out.count("\n") == 4
    assert names(pypy) == sorted(["shop.vmprof", *("shop.%d.vmprof" % pid
                                                   for pid in (*pids, new))])
    check_estimate(profile(pypy, "shop.%d.vmprof" % new))


def test_worker_that_is_sampled_already_continues(pypy: PyPy) -> None:
    with workers(pypy) as (master, pids):
        done(pypy, pids[0], "start", "-o", "own.vmprof")
        out = done(pypy, master, "--children", *START)
        assert "process %d is already being sampled into %s\n" % (
            pids[0], pypy.folder / "own.vmprof") in out
        assert [int(line.split()[1]) for line in out.splitlines()] == [
            master.pid, *pids]
        path = status(pypy, pids[0])["path"]
        assert path == str(pypy.folder / "own.vmprof")


def test_a_worker_that_does_not_answer_is_named_and_the_others_are_sampled(
        pypy: PyPy) -> None:
    with workers(pypy) as (master, (stopped, other)):
        os.kill(stopped, signal.SIGSTOP)
        run = control(pypy, master, "--timeout", "0.5", "--children", *START)
        os.kill(stopped, signal.SIGCONT)
        assert run.code == 1
        assert run.err.count("\n") == 1 and (
            "process %d does not answer; it is stopped" % stopped) in run.err
        assert [int(line.split()[1]) for line in run.out.splitlines()] == [
            master.pid, other]
        done(pypy, other, "stop")


def test_a_child_that_is_another_program_is_left_alone(pypy: PyPy) -> None:
    with workers(pypy, before="other = subprocess.Popen(['sleep', '600'])",
                 told="other.kill()") as (master, _):
        out = done(pypy, master, "--children", "status")
        assert out.count("\n") == 3
        master.process.stdin.write("\n")    # type: ignore[union-attr]


def test_a_worker_without_a_sample_leaves_no_file(pypy: PyPy) -> None:
    with workers(pypy) as (master, pids):
        done(pypy, master, "--children", "start", "--allocation-sampling", "1000000G",
             "-o", "shop.vmprof")
        assert done(pypy, master, "--children", "stop").splitlines()[1:] == [
            "process %d has no samples, and therefore no profile" % pid for pid in pids]
    assert names(pypy) == ["shop.vmprof"]


@pytest.mark.parametrize("command", [("rotate", "-o", "next.vmprof")])
def test_commands_for_a_single_process_are_refused(
        pypy: PyPy, command: tuple[str, ...]) -> None:
    with workers(pypy) as (master, _):
        assert "works on one process. Omit --children" in refused(
            pypy, master, "--children", *command)


def test_children_are_found_while_threads_of_their_parent_end(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            there = glob.glob("/proc/%d/task/*/children" % os.getpid())
            gone = tmp_path / "children"
            monkeypatch.setattr(glob, "glob", lambda _: [str(gone), *there])
            monkeypatch.setattr(process_info, "executable", lambda _: "the same")
            assert child.pid in process_info.children(os.getpid())
        finally:
            child.kill()
