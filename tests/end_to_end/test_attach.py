"""attach: programs that run already, without us."""
from __future__ import annotations

import pytest

from conftest import PyPy
from run_profiles import functions
from running import Running, running
from truth import SIGMAS, sigmas

#: one thread computes and allocates, until another one has read a line
BUSY = """
    import sys, threading
    def allocate():
        return [bytes(i) for i in range(100)]
    def wait():
        sys.stdin.readline()
    thread = threading.Thread(target=wait)
    thread.start()
    print("ready")
    while thread.is_alive():
        allocate()
    print("ended")
"""


def check_estimate(pypy: PyPy) -> None:
    profile = pypy.profile()
    assert len(profile.samples) > 100
    assert abs(sigmas(profile)) < SIGMAS


def test_a_program_with_threads(stock_pypy: PyPy) -> None:
    with running(stock_pypy, BUSY) as program:
        run = program.attach()
        assert "allocate" in run.out
        assert program.end() == "ended\n"
    check_estimate(stock_pypy)
    assert "allocate" in functions(stock_pypy.profile())


def test_a_program_that_never_used_threads(stock_pypy: PyPy) -> None:
    """It has no lock, which is made for it; from then on, it gives it away."""
    with running(stock_pypy, """
        import os, select, sys
        print("ready")
        def allocate():
            return [bytes(i) for i in range(100)]
        while not select.select([sys.stdin], [], [], 0)[0]:
            for i in range(100):
                allocate()
        print("ended")
    """) as program:
        program.attach()
        assert program.end() == "ended\n"
    check_estimate(stock_pypy)


@pytest.mark.parametrize("wait", [
    "time.sleep(600)", "select.select([sys.stdin], [], [])", "sys.stdin.readline()",
    "threading.Event().wait()", "poll()", "signal.pause()"])
def test_a_program_that_waits(stock_pypy: PyPy, wait: str) -> None:
    """It goes on waiting, also if the system call is one that the kernel would end
    with EINTR."""
    with running(stock_pypy, """
        import select, signal, sys, threading, time
        class Ended(BaseException):
            pass
        def end(number, frame):
            raise Ended
        signal.signal(signal.SIGUSR1, end)
        def poll():
            poll = select.epoll()
            poll.register(0, select.EPOLLIN)
            poll.poll()
        print("ready")
        try:
            %s
            print("woken")
        except Ended:
            print("ended")
    """ % wait) as program:
        program.attach()
        program.process.send_signal(10)
        assert program.end() == "ended\n"
    assert stock_pypy.profile().moments[-1].allocated > 0


def things(program: Running) -> tuple[object, ...]:
    return program.descriptors(), program.threads(), program.signals()


def test_what_is_left_behind(stock_pypy: PyPy) -> None:
    """The library, our modules, and nothing else."""
    with running(stock_pypy, """
        import sys, threading
        def work():
            while True:
                [bytes(i) for i in range(100)]
                event.wait(0.001)
        event = threading.Event()
        threading.Thread(target=work, daemon=True).start()
        names, path = set(sys.modules), list(sys.path)
        print("ready")
        for line in sys.stdin:
            print(sorted(name for name in set(sys.modules) - names
                         if not name.startswith("vmprof_allocation")),
                  sys.path == path, sorted(globals())[-1], threading.active_count())
    """) as program:
        before = things(program)
        program.attach()
        assert things(program) == before
        answer = program.ask()
        program.attach()
        mappings = program.mappings()
        program.attach()
        assert things(program) == before
        assert answer == program.ask()
        assert len(program.mappings()) <= len(mappings) + 2
        program.end()
    loaded, _, rest = answer.partition("]")
    assert rest.split() == ["True", "work", "2"]
    # of Python's own
    assert "typing" not in loaded and "ctypes" not in loaded
