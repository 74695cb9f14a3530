"""Runs programs that start, stop, fork and interrupt the sampling often, at random."""
from __future__ import annotations

import dataclasses
import os
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from builds import ROOT, Build
from compare import execute
from peek import PEEK
from test_start_stop import FAIL_AT, INTERRUPTS

HERE = Path(__file__).parent
PYTHON2 = ROOT / ".build" / "py2" / "python2"
#: PyPy 2.7 with our package
SAMPLED2 = ROOT / ".venv-pypy27" / "bin" / "pypy"
#: time limit of a program in seconds
TIMEOUT = 3600.0


@dataclasses.dataclass(frozen=True)
class Done:
    """The result of a program."""

    name: str
    #: last line of the output, after the exit code if the program failed
    result: str
    is_good: bool


def run(build: Build, name: str, script: Path, *arguments: str) -> Done:
    """Run a program on a build of PyPy."""
    with tempfile.TemporaryDirectory(prefix="hard") as scratch:
        folder = Path(scratch)
        (folder / "tmp").mkdir()
        output = folder / "output"
        with open(output, "wb") as file:
            code = execute(build.command(script, *arguments), folder,
                           file.fileno(), folder, TIMEOUT)
        text = output.read_text(errors="replace")
    lines = text.splitlines() or ["nothing printed"]
    is_good = code == "exit code 0"
    if not is_good:
        print("%s: %s\n%s" % (name, code, "\n".join(lines[-30:])), flush=True)
    return Done(name, lines[-1] if is_good else "%s, %s" % (code, lines[-1]),
                is_good)


def soak27() -> Done:
    """Compare the output of a random program in PyPy 2.7 with and without sampling."""
    def say(*command: str | Path) -> str:
        return subprocess.run(command, text=True, timeout=TIMEOUT,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT).stdout

    program = (ROOT / "tests" / "rpython" / "python2" / "soak.py", "1", "1000")
    with tempfile.TemporaryDirectory(prefix="hard") as scratch:
        plain = say(PYTHON2, *program)
        # the intervals at which the output differs from the output without sampling
        differing = [interval for interval in ("64", "4096", "1048576")
                     if say(SAMPLED2, "-m", "vmprof", "--allocation-sampling",
                            interval, "-o", Path(scratch) / "out.vmprof",
                            *program) != plain]
    lines = len(plain.splitlines())
    good = lines == 1000 and not differing
    return Done("PyPy 2.7, %d random pieces of work" % lines,
                "the same output sampled at 64, 4096, 1048576 bytes" if good
                else "another output at %s" % ", ".join(differing), good)


def programs(build: Build) -> Iterator[Done]:
    """Run all random programs."""
    for seed in "1", "2", "3":
        yield run(build, "random sessions, seed " + seed, HERE / "soak.py",
                  seed, "300")
    yield run(build, "forks with four other threads, at 64 bytes",
              HERE / "forks.py", "300")
    with tempfile.TemporaryDirectory(prefix="hard") as scratch:
        script = Path(scratch) / "interrupts.py"
        script.write_text(textwrap.dedent(
            PEEK + FAIL_AT + INTERRUPTS % (os.getpid(), 10000, 0, 1000)))
        done = run(build, "start, set_interval, stop, 10,000 times, "
                   "interrupted at random", script)
        yield dataclasses.replace(
            done, result="the state was restored" if done.result == "True"
            else done.result, is_good=done.result == "True")
    if build.root is None:
        yield soak27()
