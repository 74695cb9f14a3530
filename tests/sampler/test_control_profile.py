"""The path of a profile that control reports, and lost or damaged profiles."""
from __future__ import annotations

import os
import resource
import textwrap

import pytest

from conftest import PyPy
from controlled import BUSY, check_estimate, done, prepared, profile, refused, status


def test_path_does_not_depend_on_the_programs_folder(pypy: PyPy) -> None:
    """control reports the full path, because the user may not know the folder."""
    path = str(pypy.folder / "out.vmprof")
    with prepared(pypy, textwrap.dedent("""
        import os
        import vmprof_allocation
        vmprof_allocation.start("out.vmprof", "16k")
        os.chdir("/")
    """) + textwrap.dedent(BUSY)) as program:
        assert status(pypy, program)["path"] == path
        assert path in done(pypy, program, "stop")


def test_sampling_can_be_stopped_after_the_folder_was_removed(pypy: PyPy) -> None:
    """The profile was in this folder.  `control stop` reports its loss, but stops."""
    with prepared(pypy, """
        import os, shutil, vmprof_allocation
        os.mkdir("inner")
        os.chdir("inner")
        vmprof_allocation.start("own.vmprof", "16k")
        shutil.rmtree(os.path.join("..", "inner"))
        print("ready")
        while input() != "end":
            [bytes(i) for i in range(1000)]
            print("done")
    """) as program:
        assert status(pypy, program)["is_on"] is True
        assert "the profile is lost" in refused(pypy, program, "stop")
        assert status(pypy, program)["is_on"] is False


def test_profile_in_a_pipe_is_not_reported_as_lost(pypy: PyPy) -> None:
    """The profile was written, though the sampler cannot find the pipe's reader."""
    with prepared(pypy, """
        import subprocess, vmprof_allocation
        with open("copy.vmprof", "wb") as copy:
            writer = subprocess.Popen(["cat"], stdin=-1, stdout=copy).stdin
        vmprof_allocation.start("/dev/fd/%d" % writer.fileno(), "16k")
        writer.close()
        print("ready")
        while input() != "end":
            [bytes(i) for i in range(3000)]
            print("done")
    """) as program:
        assert str(status(pypy, program)["path"]).startswith("/dev/fd/")
        program.ask()
        assert "/dev/fd/" in done(pypy, program, "stop")
        program.process.communicate("end\n")
    check_estimate(profile(pypy, "copy.vmprof"))


@pytest.mark.parametrize("harm, says", [
    ("path.unlink()", "the profile is lost: this program or another one removed %r"),
    ("path.unlink(); path.write_text('another')",
     "the profile is lost: this program or another one removed %r"),
    ("os.replace(path.parent / 'app.py', path)",
     "the profile is lost: this program or another one removed %r"),
    ("path.write_text('')",
     "the profile is damaged: this program or another one changed %r"),
])
def test_status_and_stop_say_that_the_profile_is_lost(
        pypy: PyPy, harm: str, says: str) -> None:
    path = pypy.folder / "out.vmprof"
    said = says % str(path)
    pypy.script("")
    with prepared(pypy, BUSY) as program:
        done(pypy, program, "start", "--allocation-sampling", "16k", "-o", "out.vmprof")
        assert status(pypy, program)["problem"] is None
        exec(harm, {"os": os, "path": path})
        assert status(pypy, program)["problem"] == said
        assert done(pypy, program, "status").splitlines()[2] == said
        assert said in refused(pypy, program, "stop")
        assert status(pypy, program)["is_on"] is False
        done(pypy, program, "start", "-o", "next.vmprof")
        done(pypy, program, "stop")
        assert program.end() == "ended\n"
    assert profile(pypy, "next.vmprof").end_time is not None


def test_status_and_stop_of_a_child_whose_profile_is_lost(stock_pypy: PyPy) -> None:
    """Only the native code knows the path of a child's profile."""
    pypy = stock_pypy
    with prepared(pypy, """
        import os, sys, time
        print("ready", flush=True)
        sys.stdin.readline()
        if child := os.fork():
            print(child, flush=True)
            sys.stdin.readline()
            os.kill(child, 9)
        else:
            while True:
                [str(i) for i in range(10000)]
                time.sleep(0.01)
    """) as program:
        done(pypy, program, "start", "--allocation-sampling", "16k", "-o", "out.vmprof")
        child = int(program.ask())
        while not status(pypy, child)["samples"]:
            pass
        path = pypy.folder / ("out.%d.vmprof" % child)
        path.unlink()
        said = "the profile is lost: this program or another one removed %r" % str(path)
        assert status(pypy, child)["problem"] == said
        assert said in refused(pypy, child, "stop")
        assert status(pypy, child)["is_on"] is False
        program.end()


def check_cut_off(pypy: PyPy, pid: int, reason: str) -> None:
    """Check that status and stop report why a profile ended early.

    A new start must give a complete profile.
    """
    assert reason in str(status(pypy, pid)["problem"])
    text = done(pypy, pid, "status")
    assert reason in text and "`pypy-alloc control %d start -o FILE`" % pid in text
    assert reason in refused(pypy, pid, "stop")
    done(pypy, pid, "start", "--allocation-sampling", "16k", "-o", "again.vmprof")
    assert status(pypy, pid)["problem"] is None
    done(pypy, pid, "stop")
    assert profile(pypy, "again.vmprof").end_time is not None


def test_status_of_a_child_that_closed_its_profile(pypy: PyPy) -> None:
    """In a forked child, the engine opened the file of the profile, not the session."""
    with prepared(pypy, """
        import os, sys, vmprof_allocation
        vmprof_allocation.start("own.vmprof", "4k")
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            sys.exit()
        kept = [bytes(i) for i in range(3000)]
        os.closerange(3, 4096)
        print("ready")
        print(os.getpid())
        sys.stdin.readline()
    """) as program:
        check_cut_off(pypy, int(program.read()), "the program closed its file")


def test_status_of_a_profile_that_may_not_grow(pypy: PyPy) -> None:
    """The status reports a failed write, although the descriptor is still open."""
    with prepared(pypy, """
        import sys, vmprof_allocation
        vmprof_allocation.start("own.vmprof", "1k")
        print("ready")
        sys.stdin.readline()
    """) as program:
        before = resource.prlimit(program.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (1, before[1]))
        reason = "it has reached the size limit for files of this process"
        assert reason in str(status(pypy, program)["problem"])
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, before)
        check_cut_off(pypy, program.pid, reason)
