"""Test attach on programs that compute without any system calls."""
from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from conftest import PYPY, PyPy, Run
from native_build import HERE
from running import Running, running, wait_until
from vmprof_convert import readers

#: The beginning of a program that computes.  A signal ends the program's loops.
BEGIN = """
    import ctypes, signal, sys, threading
    ended = []
    signal.signal(signal.SIGUSR1, lambda number, frame: ended.append(number))
"""
#: A program whose loops the JIT compiles.  At the end, the program checks their
#: results.
NUMBERS = BEGIN + """
    print("ready")
    i = total = 0
    while not ended:
        total = (total + i) & 0xffffffff
        i += 1
    print(total == i * (i - 1) // 2 & 0xffffffff)
"""
OBJECTS = BEGIN + """
    class Node:
        def __init__(self, before):
            self.number = before.number + 1 if before else 0
    def allocate():
        node, count = None, -1
        while not ended:
            node = Node(node)
            count += 1
        return node.number == count
    print("ready")
    print(allocate())
"""
#: A program whose threads take the GIL from each other.
THREADS = BEGIN + """
    def compute():
        i = total = 0
        while not ended:
            total = (total + len(str(i))) & 0xffffffff
            i += 1
        results.append(i > 0)
    results = []
    threads = [threading.Thread(target=compute) for _ in range(3)]
    for thread in threads:
        thread.start()
    print("ready")
    compute()
    for thread in threads:
        thread.join()
    print(all(results) and len(results) == 4)
"""


def end(program: Running) -> str:
    program.process.send_signal(signal.SIGUSR1)
    return program.end()


@pytest.mark.parametrize("nursery", ["", "240M"], ids=["PyPy's nursery", "240M"])
@pytest.mark.parametrize("source", [
    pytest.param(NUMBERS, id="numbers"), pytest.param(OBJECTS, id="objects"),
    pytest.param(THREADS, id="threads")])
def test_program_that_computes_is_sampled_twice(
        stock_pypy: PyPy, source: str, nursery: str) -> None:
    if nursery:
        stock_pypy.environment["PYPY_GC_NURSERY"] = nursery
    with running(stock_pypy, source) as program:
        stock_pypy.environment.pop("PYPY_GC_NURSERY", None)
        for _ in range(2):
            program.attach()
            assert stock_pypy.profile().moments[-1].allocated > 0
        assert end(program) == "True\n"


@pytest.mark.parametrize("source", [
    pytest.param(NUMBERS, id="numbers"), pytest.param(OBJECTS, id="objects")])
def test_program_that_computes_survives_many_attaches(
        stock_pypy: PyPy, source: str) -> None:
    with running(stock_pypy, source) as program:
        program.attach_often(15)
        wait_until(lambda: program.threads() == 1)
        assert end(program) == "True\n"


def test_control_and_live_reach_a_program_that_computes(stock_pypy: PyPy) -> None:
    with running(stock_pypy, OBJECTS) as program:
        assert "not sampled" in program.command("status", what="control").out
        assert "nursery" in program.command(what="memory").out
        assert program.command("start", "-o", "own.vmprof", what="control").code == 0
        assert "own.vmprof" in program.command("status", what="control").out
        assert program.command("stop", what="control").code == 0
        assert "allocate" in program.command("--updates", "1", what="live").out
        assert end(program) == "True\n"
    assert readers.read(stock_pypy.folder / "own.vmprof").samples


def test_sampled_program_that_computes_is_reached_too(stock_pypy: PyPy) -> None:
    """The commands enter the program without changing its code, so they do not conflict
    with the sampler's entry patches.
    """
    with running(stock_pypy, OBJECTS.replace("import ctypes", """\
import vmprof_allocation
    vmprof_allocation.start("own.vmprof")
    import ctypes"""), interpreter=PYPY) as program:
        for _ in range(3):
            assert "own.vmprof" in program.command("status", what="control").out
        run = program.command("-o", "second.vmprof")
        assert run.code == 2
        assert "already on" in run.err
        assert program.command("stop", what="control").code == 0
        program.attach()
        assert end(program) == "True\n"
    assert readers.read(stock_pypy.folder / "own.vmprof").samples


def test_attach_does_not_stop_in_other_libraries(stock_pypy: PyPy,
                                                 tmp_path: Path) -> None:
    """A thread in another library may hold a lock of malloc or of the loader."""
    subprocess.run(["gcc", "-O1", "-fPIC", "-shared", "-o", tmp_path / "spin.so",
                    HERE / "native" / "spin.c"], check=True)
    with running(stock_pypy, BEGIN + """
    print("ready")
    print(ctypes.CDLL("./spin.so").spin_until_zero(ctypes.c_int(1)))
    """) as program:
        run = program.command("--timeout", "2")
        check_refused(run, "waiting until a thread of process %d can be stopped at a "
                      "system call or in PyPy's code" % program.pid)
        assert ("cannot attach to process %d: no thread could be stopped at a system "
                "call or in PyPy's code; thread %d was last at %s+0x" % (
                    program.pid, program.pid, tmp_path / "spin.so")) in run.err
        assert program.threads() == 1


def test_long_operation_keeps_the_lock(stock_pypy: PyPy) -> None:
    """PyPy releases the GIL between two bytecodes, never within one."""
    with running(stock_pypy, BEGIN + """
    print("ready")
    7 ** 100000000
    """) as program:
        check_refused(program.command("--timeout", "1"),
                      "process %d did not release Python's lock (the GIL), because it "
                      "executes one long operation" % program.pid)
        assert program.process.poll() is None


def check_refused(run: Run, words: str) -> None:
    assert run.code == 2
    assert words in run.err
