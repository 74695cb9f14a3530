"""Tests of profiles without an end, whose process still runs or was killed."""
from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import PYPY, PyPy
from made_profiles import Log
from report_runs import text
from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Profile, Samples
from vmprof_convert.report import caveats

GOES_ON, IS_OVER = "the process still runs; ", "the run did not end normally, "


def profile_of(pid: int) -> bytes:
    log = Log()
    log.settings(pid=pid)
    log.allocation([log.function("f")], size=24)
    log.flush()
    return bytes(log.bytes)


def said(path: Path) -> str:
    """Return the report, and check that read() and read_into() agree."""
    whole = text(readers.read(path))
    assert readers.read(path).is_written == readers.read_into(
        path, Samples()).is_written == (GOES_ON in whole) == (IS_OVER not in whole)
    return whole


@pytest.mark.parametrize("mode, is_written", [
    ("ab", True), ("rb+", True), ("rb", False)])
def test_a_process_that_has_the_file_open_for_writing_still_runs(
        tmp_path: Path, mode: str, is_written: bool) -> None:
    path = tmp_path / "app.vmprof"
    path.write_bytes(profile_of(os.getpid()))
    with open(path, mode):
        assert (GOES_ON in said(path)) == is_written
        # no process writes to the copy
        copy = tmp_path / "copy.vmprof"
        copy.write_bytes(path.read_bytes())
        assert IS_OVER in said(copy)
    assert IS_OVER in said(path)


def test_report_of_pypy_is_the_same(stock_pypy: PyPy) -> None:
    path = stock_pypy.folder / "app.vmprof"
    path.write_bytes(profile_of(os.getpid()))
    for mode, said_there in (("ab", GOES_ON), ("rb", IS_OVER)):
        with open(path, mode):
            run = stock_pypy.command("-m", "vmprof_allocation", "report", str(path))
        assert run.code == 0 and said_there in " ".join(run.out.split()), run.err


def test_another_process_that_writes_the_file_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "app.vmprof"
    process = subprocess.Popen([sys.executable, "-c", "input()"],
                               stdin=subprocess.PIPE)
    try:
        # this process writes, and the profile names another process
        path.write_bytes(profile_of(process.pid))
        with open(path, "ab"):
            assert IS_OVER in said(path)
    finally:
        process.communicate(b"\n")


@pytest.mark.parametrize("pid", ["", "0", "-1", "99999999", "x"])
def test_invalid_numbers_of_processes(tmp_path: Path, pid: str) -> None:
    log = Log()
    log.settings(pid=pid)
    log.allocation([log.function("f")], size=24)
    log.flush()
    path = tmp_path / "app.vmprof"
    path.write_bytes(bytes(log.bytes))
    with open(path, "ab"):
        assert IS_OVER in said(path)


def test_a_profile_with_an_end_has_no_note(tmp_path: Path) -> None:
    log = Log()
    log.settings(pid=os.getpid())
    log.allocation([log.function("f")], size=24)
    path = tmp_path / "app.vmprof"
    path.write_bytes(log.data())
    with open(path, "ab"):
        whole = text(readers.read(path))
    assert GOES_ON not in whole and IS_OVER not in whole


def test_segments_of_a_running_program(pypy: PyPy) -> None:
    """A running program has only its last segment open, and a killed one has none."""
    script = pypy.script("""
        import time
        while True:
            kept = [[i] for i in range(1000)]
            time.sleep(0.001)
    """)
    process = subprocess.Popen(
        [PYPY, "-m", "vmprof", "--allocation-sampling", "16k", "--rotate", "1",
         "-o", "app.vmprof", str(script)], cwd=pypy.folder, env=pypy.environment)
    first, second = (pypy.folder / name for name in ("app.vmprof", "app.w2.vmprof"))
    try:
        deadline = time.monotonic() + 60
        while GOES_ON not in report_of(first):
            assert process.poll() is None and time.monotonic() < deadline
        # the second segment is open before the first segment ends
        while not second.exists() or any(
                said in report_of(first) for said in (GOES_ON, IS_OVER)):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    last = max(pypy.folder.glob("app.w*.vmprof"), key=lambda path: path.stat().st_mtime)
    assert IS_OVER in report_of(last)


def report_of(path: Path) -> str:
    """Return the report of this file, or "" if the file cannot be read yet."""
    try:
        return text(readers.read(path))
    except (OSError, ProfileError):
        time.sleep(0.05)
        return ""


@pytest.mark.parametrize("told, by", [
    ("101 15", "100 ended this process (SIGTERM)"),
    ("7 15,101 9,102 15", "100 ended this process (SIGKILL)"),
    ("101 3", "100 ended this process (3)"),
    ("102 15", ""), ("", ""), ("101", ""), (",,", "")])
def test_report_explains_processes_that_another_process_ended(told: str,
                                                              by: str) -> None:
    """A pool of multiprocessing ends all its workers with a signal."""
    def named(pid: int, run: str = "a", **more: object) -> tuple[str, Profile]:
        log = Log()
        log.settings(pid=pid, run=run, **more)
        log.allocation([log.function("f")], size=24)
        log.flush()
        return str(pid), readers.read_bytes(bytes(log.bytes))
    first, *others = found = caveats.of_runs([
        named(100, told=told), named(101, parent=100), named(101, "another")])
    assert ("process %s," % by in " ".join(found)) == bool(by)
    assert first.startswith("processes 100, 101" + ", 101" * (not by) + ": " + IS_OVER)
    assert len(others) == bool(by)


def test_workers_of_a_pool(stock_pypy: PyPy) -> None:
    script = stock_pypy.script("""
        import multiprocessing, time
        def work(count):
            return len([str(i) for i in range(count)])
        if __name__ == "__main__":
            with multiprocessing.Pool(3) as pool:
                pool.map(work, [100000] * 9)
                # who waits for work may have ended by itself
                for _ in range(3):
                    pool.apply_async(time.sleep, (100,))
                time.sleep(1)
    """)
    run = stock_pypy.command("-m", "vmprof", "--allocation-sampling", "64k",
                             str(script))
    assert run.code == 0
    said = " ".join(run.err.split())
    assert "(SIGTERM), as multiprocessing's pools end their workers; " in said
    assert IS_OVER not in said


def test_records_written_during_the_reading_are_ignored(tmp_path: Path) -> None:
    """The reader reads the objects after it has read all stacks."""
    path = tmp_path / "app.vmprof"
    log = Log()
    log.allocation([log.function("f")], size=24)
    log.flush()
    path.write_bytes(log.bytes)
    before = readers.read(path, salvage=True)
    log.allocation([log.function("g"), log.function("h")], size=48)
    log.flush()

    def write(done: int, size: int) -> None:
        path.write_bytes(log.bytes)

    assert readers.read(path, salvage=True, progress=write) == before
    assert len(readers.read(path, salvage=True).samples) == 2
