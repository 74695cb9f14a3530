"""Test many attaches to one process, which take too long for `make test`."""
from __future__ import annotations

import random
import subprocess
import time

import pytest

from conftest import PYPY, PyPy
from running import running

pytestmark = pytest.mark.hard

#: a program with threads that compute, wait, start and end
SERVER = """
    import sys, threading, time
    def allocate():
        return [bytes(i) for i in range(100)]
    def serve():
        while not ending:
            allocate()
            time.sleep(0.0002)
    def accept():
        while not ending:
            thread = threading.Thread(target=allocate)
            thread.start()
            thread.join()
    ending = []
    threads = [threading.Thread(target=f) for f in (serve, serve, serve, accept)]
    for thread in threads:
        thread.start()
    print("ready")
    sys.stdin.readline()
    ending.append(1)
    for thread in threads:
        thread.join()
    print("ended")
"""


def test_1000_attaches_leave_nothing_behind(stock_pypy: PyPy) -> None:
    with running(stock_pypy, SERVER) as program:
        program.attach_often(50)
        descriptors, mappings = program.descriptors(), len(program.mappings())
        code, resident = program.code(), program.status("VmRSS")
        program.attach_often(1000)
        assert program.descriptors() == descriptors
        # the number of the program's threads varies, and each has a stack
        assert len(program.mappings()) <= mappings + 20
        assert program.status("VmRSS") < resident + 8192
        assert program.code() < code + 1000 * 40960
        assert program.end() == "ended\n"


def test_300_killed_commands_leave_no_descriptors(stock_pypy: PyPy) -> None:
    with running(stock_pypy, SERVER) as program:
        program.attach_often(1)
        descriptors = program.descriptors()
        chance = random.Random(2)
        for _ in range(300):
            command = subprocess.Popen(
                [PYPY, "-m", "vmprof_allocation", "attach", str(program.pid),
                 "-d", "600", "-o", "killed.vmprof"], cwd=stock_pypy.folder,
                env=stock_pypy.environment, stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0.2, 0.7))
            command.kill()
            command.wait()
        time.sleep(1)
        program.attach_often(1)
        assert program.descriptors() == descriptors
        assert program.end() == "ended\n"
