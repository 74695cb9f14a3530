"""Test the messages of attach about idle programs, and about programs that it cannot
sample.
"""
from __future__ import annotations

import re

from conftest import PyPy
from controlled import WAITS, control, prepared
from running import running
from vmprof_convert import readers
from vmprof_convert.meaning.visible_stacks import LOST, START, Program


def test_an_idle_program_allocates_nothing(stock_pypy: PyPy) -> None:
    """The allocations of the sampler in an idle program are not attributed to functions
    of the program.
    """
    with running(stock_pypy, WAITS) as program:
        program.attach(interval="256")
        assert program.end() == "ended\n"
    profile = readers.read(stock_pypy.folder / "out.vmprof")
    seen = Program(profile)
    functions = {function for stack in profile.samples.stack
                 for function in seen.functions(stack)}
    assert START in functions
    # Functions of PyPy itself ("<builtin>/") may occur, because the interpreter calls
    # them.
    assert {function.name for function in functions
            if not function.file.startswith("<builtin>/")} <= {START.name, LOST.name}


def test_an_idle_master_is_reported_with_its_workers(stock_pypy: PyPy) -> None:
    """If a user attaches to an idle master, as gunicorn's, the message names its
    workers, whose process IDs are harder to find.
    """
    with running(stock_pypy, """
        import os, sys
        child = os.fork()
        if child == 0:
            sys.stdin.readline()
            os._exit(0)
        print("ready")
        os.wait()
        print(child)
    """) as program:
        run = program.attach()
        child, = program.end().split()
    said, = re.findall(r"the children of the process \(([\d, ]+)\) may .*; "
                       r"--children",
                       run.err)
    assert said == child


def test_a_program_that_has_no_descriptors_left(pypy: PyPy) -> None:
    """Attach and control fail, and give the reason."""
    with prepared(pypy, """
        import os, resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        kept = []
        try:
            while True:
                kept.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        print("ready")
        sys.stdin.readline()
        print("ended")
    """) as program:
        for run in program.command("--timeout", "1"), control(
                pypy, program, "--timeout", "1", "status"):
            assert (run.code, run.out) == (2, "")
            assert run.err.count("\n") == 1
            assert "reached its limit of open descriptors" in run.err
        assert program.end() == "ended\n"
