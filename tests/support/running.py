"""Programs that run without the profiler, as targets of attach, control and live."""
from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from conftest import PYPY, PyPy, Run

#: an interpreter that cannot import our package, because it is in no environment
STOCK = os.path.realpath(PYPY)
_PR_SET_PTRACER = 0x59616d61


def allow_tracing() -> None:
    """Allow any process to trace this one, if Yama restricts tracing to parents."""
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)


#: a program that enters a process many times, without the other work of `attach`
_OFTEN = """
import os, sys, tempfile, time
from vmprof_allocation.remote import asking, process_info
from vmprof_allocation.remote.control import client, meeting
from vmprof_allocation.settings.parsing import make_settings
client.note = lambda message: None
for i in range(int(sys.argv[2])):
    process = client.Process(int(sys.argv[1]), 60)
    with tempfile.TemporaryDirectory() as folder:
        request = asking.wanted(process, make_settings("64k", follow=False),
                                os.path.abspath("out.vmprof"), folder)
        with process.connected() as connection:
            connection.ask(meeting.HOLD, "60", *request)
            time.sleep(0.005)
            connection.ask(meeting.STOP)
"""


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail after 60 s."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Running:
    """A program that prints "ready", and ends at the end of its stdin."""

    def __init__(self, process: subprocess.Popen[str], pypy: PyPy):
        self.process = process
        self.pid = process.pid
        self._pypy = pypy

    def command(self, *arguments: str, what: str = "attach",
                timeout: float = 600) -> Run:
        """Run the command `what` (attach by default) for the program's pid."""
        return self._pypy.command("-m", "vmprof_allocation", what, str(self.pid),
                                  *arguments, timeout=timeout)

    def attach(self, *arguments: str, duration: float = 0.5,
               interval: str = "16k") -> Run:
        """Attach for `duration` seconds; the command must succeed."""
        run = self.command("-d", str(duration), "--allocation-sampling", interval,
                           "-o", "out.vmprof", *arguments)
        assert run.code == 0, run.err
        return run

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start attach, and wait until the program is sampled."""
        process = subprocess.Popen(
            [PYPY, "-m", "vmprof_allocation", "attach", str(self.pid), *arguments],
            cwd=self._pypy.folder, env=self._pypy.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith(
            "pypy-alloc: sampling process %d" % self.pid), line
        return process

    def attach_often(self, times: int) -> None:
        """Attach to the program `times` times."""
        run = self._pypy.command("-c", _OFTEN, str(self.pid), str(times), timeout=3600)
        assert run.code == 0, run.err

    def ask(self, question: str = "") -> str:
        """Write a line to the program, and return the next line that it prints."""
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        return self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> str:
        """End the program, which must succeed, and return the rest of its output."""
        out, err = self.process.communicate(timeout=60)
        assert (self.process.returncode, err) == (0, "")
        return out

    def status(self, name: str) -> int:
        """Return the number with this name from /proc/PID/status."""
        text = Path("/proc/%d/status" % self.pid).read_text()
        found = re.search(r"^%s:\s*(\d+)" % name, text, re.MULTILINE)
        assert found is not None
        return int(found[1])

    def descriptors(self) -> dict[str, str]:
        """Return the targets of the program's open descriptors, by descriptor."""
        folder = "/proc/%d/fd" % self.pid
        found = {}
        for fd in os.listdir(folder):
            # the program may close a descriptor meanwhile
            with contextlib.suppress(FileNotFoundError):
                found[fd] = os.readlink(os.path.join(folder, fd))
        return found

    def threads(self) -> int:
        """Return the number of the program's threads."""
        return len(os.listdir("/proc/%d/task" % self.pid))

    def mappings(self) -> list[str]:
        """Return the program's memory mappings, the lines of /proc/PID/maps."""
        return Path("/proc/%d/maps" % self.pid).read_text().splitlines()

    def code(self) -> int:
        """Return the bytes of writable and executable memory.

        The JIT has such memory. Each attach maps more than 80 KiB of it until the
        sampler's library is loaded.
        """
        sizes = [line.split()[0].split("-") for line in self.mappings()
                 if line.split()[1] == "rwxp"]
        return sum(int(end, 16) - int(start, 16) for start, end in sizes)

    def signals(self) -> list[str]:
        """Return the sets of blocked, ignored and caught signals, in hexadecimal."""
        text = Path("/proc/%d/status" % self.pid).read_text()
        return re.findall(r"^Sig(?:Blk|Ign|Cgt):.*", text, re.MULTILINE)


@contextmanager
def running(pypy: PyPy, source: str, *flags: str,
            interpreter: str = STOCK) -> Iterator[Running]:
    """Start a program, wait until it is ready, and end it after the `with` block.

    Also removes all temporary files.
    """
    with tempfile.TemporaryDirectory() as folder:
        # a short path, because the path of a socket has at most 107 bytes
        pypy.environment["TMPDIR"] = folder
        with _running(pypy, source, flags, interpreter) as program:
            yield program


@contextmanager
def _running(pypy: PyPy, source: str, flags: tuple[str, ...],
             interpreter: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [interpreter, *flags, "-u", "-c", textwrap.dedent(source)], cwd=pypy.folder,
        env=pypy.environment, text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=allow_tracing)
    # kill a program that hangs after ten minutes
    watchdog = threading.Timer(600, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "ready\n", process.communicate()
        yield Running(process, pypy)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        for stream in process.stdin, process.stdout, process.stderr:
            if stream is not None:
                stream.close()
