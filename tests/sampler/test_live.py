"""The live command, which shows the present allocations of programs."""
from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from conftest import PYPY, PyPy, Run
from controlled import (
    BUSY,
    THREADS,
    WAITS,
    WAYS,
    Way,
    done,
    prepared,
    profile,
    refused,
    status,
)
from running import Running, running, wait_until
from vmprof_allocation.remote.asking import wanted
from vmprof_allocation.remote.control import client, meeting
from vmprof_allocation.settings.parsing import make_settings


def live(pypy: PyPy, program: Running, *arguments: str) -> Run:
    return pypy.command("-m", "vmprof_allocation", "live", str(program.pid), *arguments)


@WAYS
def test_live_shows_the_functions_that_allocate(stock_pypy: PyPy, begun: Way) -> None:
    with begun(stock_pypy, BUSY) as program:
        run = live(stock_pypy, program, "-d", "0.5", "--updates", "3",
                  "--allocation-sampling", "16k", "--by", "function")
        assert run.code == 0, run.err
        assert run.out.count("process %d, the last 0.5 seconds" % program.pid) == 3
        assert run.out.count(" allocate ") == 3, run.out
        assert status(stock_pypy, program)["is_on"] is False
        # the thread that answers ends some milliseconds after its answer
        wait_until(lambda: program.threads() == 1)
        assert program.end() == "ended\n"


@WAYS
def test_sampling_ends_with_live_that_is_killed(stock_pypy: PyPy, begun: Way) -> None:
    with begun(stock_pypy, BUSY) as program:
        process = subprocess.Popen(
            [PYPY, "-m", "vmprof_allocation", "live", str(program.pid), "-d", "0.2"],
            cwd=stock_pypy.folder, env=stock_pypy.environment, text=True,
            stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("process %d" % program.pid)
        assert status(stock_pypy, program)["is_on"] is True
        process.kill()
        process.communicate()
        while status(stock_pypy, program)["is_on"]:
            time.sleep(0.01)
        assert program.end() == "ended\n"


def test_live_of_a_program_after_attach(stock_pypy: PyPy) -> None:
    """Each command attaches again, and leaves the same threads and descriptors."""
    with running(stock_pypy, THREADS) as program:
        threads = program.threads()
        program.attach()
        # the thread that answers ends some milliseconds after its answer
        wait_until(lambda: program.threads() == threads)
        before = threads, set(program.descriptors())
        for _ in range(2):
            run = live(stock_pypy, program, "-d", "0.2", "--updates", "1",
                      "--allocation-sampling", "16k")
            assert (run.code, run.err) == (0, "")
        wait_until(lambda: (program.threads(), set(program.descriptors())) == before)
        assert program.end() == "ended\n"


@contextmanager
def watched(pypy: PyPy, program: Running,
           *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run live on a program during the block."""
    process = subprocess.Popen(
        [PYPY, "-m", "vmprof_allocation", "live", str(program.pid), "-d", "0.2",
         *arguments], cwd=pypy.folder, env=pypy.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("process %d" % program.pid)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("arguments", [
    ("rotate", "-o", "mine.vmprof"), ("stop",), ("interval", "1k")])
def test_other_commands_cannot_change_the_sampling_of_live(
        stock_pypy: PyPy, arguments: tuple[str, ...]) -> None:
    with prepared(stock_pypy, BUSY) as program:
        with watched(stock_pypy, program):
            assert "another command (attach or live) samples the process" in refused(
                stock_pypy, program, *arguments)
            assert status(stock_pypy, program)["is_on"] is True
        assert program.end() == "ended\n"


def test_live_does_not_end_the_sampling_of_the_program(stock_pypy: PyPy) -> None:
    """The program has stopped live's sampling, and has started its own."""
    with prepared(stock_pypy, """
        import select, sys, vmprof_allocation
        print("ready")
        while not select.select([sys.stdin], [], [], 0)[0]:
            [bytes(i) for i in range(100)]
        sys.stdin.readline()
        from vmprof_allocation.session import session
        session.current().stop()
        vmprof_allocation.start("own.vmprof", "16k")
        print("begun")
        sys.stdin.readline()
        vmprof_allocation.stop()
        print("ended")
    """) as program:
        with watched(stock_pypy, program) as process:
            assert program.ask() == "begun"
            assert process.wait(60) == 2
            assert process.stderr is not None
            assert "another command has ended" in process.stderr.read()
        assert str(status(stock_pypy, program)["path"]) == str(
            stock_pypy.folder / "own.vmprof")
        assert program.end() == "ended\n"
    assert profile(stock_pypy, "own.vmprof").end_time is not None


@WAYS
def test_a_child_that_is_forked_while_live_shows_its_parent(
        stock_pypy: PyPy, begun: Way) -> None:
    with begun(stock_pypy, """
        import os, sys
        print("ready")
        sys.stdin.readline()
        child = os.fork()
        if child == 0:
            print(*sorted(os.readlink("/proc/self/fd/" + fd).partition(":")[0]
                          for fd in os.listdir("/proc/self/fd")
                          if os.path.exists("/proc/self/fd/" + fd)
                          or os.path.lexists("/proc/self/fd/" + fd)
                          and int(fd) > 500))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        sys.stdin.readline()
        print("ended")
    """) as program:
        with watched(stock_pypy, program):
            assert "socket" in " ".join(program.descriptors().values())
            assert "socket" not in program.ask()
        assert program.end() == "ended\n"


def test_sampling_ends_if_live_is_silent(stock_pypy: PyPy) -> None:
    """The request of live contains a timeout, four seconds, and no request follows."""
    with prepared(stock_pypy, BUSY) as program:
        target = client.Process(program.pid, 10)
        with target.connected() as connection:
            connection.ask(meeting.HOLD, "4", *wanted(
                target, make_settings("64k", follow=False),
                str(stock_pypy.folder / "held.vmprof")))
            assert status(stock_pypy, program)["is_on"] is True
            while status(stock_pypy, program)["is_on"]:
                time.sleep(0.05)
        assert program.end() == "ended\n"
    assert profile(stock_pypy, "held.vmprof").end_time is not None


@WAYS
def test_live_of_a_program_that_ends(stock_pypy: PyPy, begun: Way) -> None:
    with begun(stock_pypy, BUSY) as program:
        process = subprocess.Popen(
            [PYPY, "-m", "vmprof_allocation", "live", str(program.pid), "-d", "0.2"],
            cwd=stock_pypy.folder, env=stock_pypy.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("process %d" % program.pid)
        assert program.end() == "ended\n"
        _, err = process.communicate()
        assert process.returncode == 2
        assert "process %d has ended" % program.pid in err


@WAYS
def test_live_of_a_sampled_program_is_refused(stock_pypy: PyPy, begun: Way) -> None:
    with begun(stock_pypy, WAITS) as program:
        done(stock_pypy, program, "start", "-o", "a.vmprof")
        run = live(stock_pypy, program)
        assert (run.code, run.out) == (2, "")
        assert "already on" in run.err
        assert status(stock_pypy, program)["is_on"] is True
        program.end()


class Screen:
    """The command live in a terminal."""

    def __init__(self, pypy: PyPy, pid: int) -> None:
        self._master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        self._slave = slave
        self._text = ""
        self.process = subprocess.Popen(
            [PYPY, "-m", "vmprof_allocation", "live", str(pid), "-d", "0.3",
             "--allocation-sampling", "16k"], cwd=pypy.folder,
            env={**pypy.environment, "TERM": "xterm", "NO_COLOR": "1"},
            stdin=slave, stdout=slave, stderr=subprocess.PIPE, preexec_fn=self._lead)

    def _lead(self) -> None:
        """Make the command the foreground process of the terminal."""
        os.setsid()
        fcntl.ioctl(self._slave, termios.TIOCSCTTY, 0)

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def see(self, text: str) -> None:
        """Wait until the terminal shows a text."""
        deadline = time.monotonic() + 60
        while text not in self._text:
            assert time.monotonic() < deadline, self._text[-5000:]
            if select.select([self._master], [], [], 0.1)[0]:
                self._text += os.read(self._master, 65536).decode()
        self._text = self._text.rpartition(text)[2]

    def end(self) -> int:
        """Wait for the end of the command, and return its exit code."""
        code = self.process.wait(60)
        assert self.process.stderr is not None
        assert self.process.stderr.read() == b""
        self.process.stderr.close()
        assert termios.tcgetattr(self._slave) == self.before
        os.close(self._master)
        os.close(self._slave)
        return code


def test_keys_change_the_table_and_end_the_command(stock_pypy: PyPy) -> None:
    with prepared(stock_pypy, BUSY) as program:
        screen = Screen(stock_pypy, program.pid)
        screen.see("the last 0.3 seconds   q quit")
        for key, chosen in (("b", "by type"), ("b", "by line"), ("s", "sort alive"),
                            ("s", "sort objects"), ("t", "by thread"),
                            ("t", "by function"), ("p", "paused")):
            screen.press(key)
            screen.see(chosen)
        assert status(stock_pypy, program)["is_on"] is True
        screen.press("p")
        screen.see("sort objects   q quit")
        screen.press("q")
        assert screen.end() == 0
        assert status(stock_pypy, program)["is_on"] is False
        assert program.end() == "ended\n"


def test_ctrl_c_restores_the_terminal(stock_pypy: PyPy) -> None:
    with prepared(stock_pypy, BUSY) as program:
        screen = Screen(stock_pypy, program.pid)
        screen.see("q quit")
        screen.press("\x03")
        assert screen.end() == 130
        assert program.end() == "ended\n"
