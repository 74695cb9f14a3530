"""A program forks while the sampler's code imports a module in another thread.

This thread is the sampler's own, or calls the sampler.  The children end as without the
sampler.
"""
from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from conftest import PYPY, PyPy
from controlled import control, prepared
from running import running

#: A program that forks while other threads import.  SIGALRM kills a child that does not
#: end.
FORKS = """
    import gc, os, signal, sys, threading, time
    main = threading.get_ident()
    want, forked = threading.Event(), threading.Event()
    names, children, kept = [], {}, []
    class Finder:
        def find_spec(self, name, path, target=None):
            if threading.get_ident() != main and name.startswith(PREFIXES):
                names.append(name)
                forked.clear()
                want.set()
                forked.wait(0.05)
            return None
    PREFIXES = ("vmprof_", "_vmprof", "fcntl", "tempfile", "json", "warnings")
    sys.meta_path.insert(0, Finder())
    def allocate():
        kept.append([str(i) for i in range(100)])
        del kept[:-100]
    def fork():
        name = names[-1]
        pid = os.fork()
        if pid:
            children[pid] = name
            return
        signal.alarm(30)
        end = time.monotonic() + 0.6
        while time.monotonic() < end:
            for i in range(20):
                allocate()
            time.sleep(0.01)
        gc.collect()
        in_child()
        sys.exit(0)
    def in_child():
        pass
    def go_on(until):
        while not until():
            allocate()
            if want.wait(0.01):
                want.clear()
                fork()
                forked.set()
    def tell():
        for pid, name in children.items():
            status = os.waitpid(pid, 0)[1]
            print("child that was forked while %s was imported: %d" % (name, status)
                  if status else "well")
"""


def check(out: str, least: int) -> None:
    lines = [line for line in out.splitlines() if line != "ready"]
    assert len(lines) >= least
    assert set(lines) == {"well"}, out


def program(source: str) -> str:
    return textwrap.dedent(FORKS) + textwrap.dedent(source)


FOR_A_WHILE = """
    end = time.monotonic() + 2.0
    go_on(lambda: time.monotonic() > end)
    tell()
"""


def test_forks_while_the_profile_rotates(pypy: PyPy) -> None:
    run = pypy.sample(program(FOR_A_WHILE), "16k", "--rotate", "0.3")
    check(run.out, 1)
    assert run.err == ""


@pytest.mark.parametrize("call", [
    # calls of the sampler in a thread of the program
    "vmprof_allocation.mark('here')",
    "with vmprof_allocation.labels(a=1): pass",
    "vmprof_allocation.start('a%d.vmprof' % os.getpid()); vmprof_allocation.stop()",
    "vmprof_allocation.start('a%d.vmprof' % os.getpid()); "
    "vmprof_allocation.rotate('b%d.vmprof' % os.getpid()); vmprof_allocation.stop()",
    "tracemalloc.start(); tracemalloc.take_snapshot(); tracemalloc.stop()",
])
def test_forks_while_a_thread_calls_the_sampler(pypy: PyPy, call: str) -> None:
    """The child can make the same call."""
    source = program("""
        import vmprof_allocation
        if "tracemalloc" in %(call)r:
            from vmprof_allocation import tracemalloc
        def call():
            %(call)s
        in_child = call
        thread = threading.Thread(target=call)
        thread.start()
        go_on(lambda: not thread.is_alive())
        tell()
    """ % {"call": call})
    run = pypy.run(source)
    assert (run.code, run.err) == (0, "")
    check(run.out, 1)


@pytest.mark.parametrize("commands", [
    [("start", "--allocation-sampling", "16k", "-o", "out.vmprof"), ("status",),
     ("rotate", "-o", "next.vmprof"), ("interval", "8k"), ("stop",)]])
def test_forks_while_the_program_answers_control(
        pypy: PyPy, commands: list[tuple[str, ...]]) -> None:
    source = program("""
        import select
        def in_child():
            import vmprof_allocation
            vmprof_allocation.mark("child")
        print("ready", flush=True)
        go_on(lambda: select.select([sys.stdin], [], [], 0)[0])
        tell()
    """)
    with prepared(pypy, source) as run:
        for command in commands:
            done = control(pypy, run, *command)
            assert (done.code, done.err) == (0, "")
        check(run.end(), 3)


def test_forks_while_attach_begins(pypy: PyPy, tmp_path: Path) -> None:
    source = program("""
        import select
        def in_child():
            import vmprof_allocation
            vmprof_allocation.mark("child")
        print("ready", flush=True)
        go_on(lambda: select.select([sys.stdin], [], [], 0)[0])
        tell()
    """)
    with running(pypy, source, interpreter=PYPY) as run:
        done = pypy.command("-m", "vmprof_allocation", "attach", str(run.pid),
                            "-d", "1", "-o", str(tmp_path / "attached.vmprof"))
        assert done.code == 0, done.err
        check(run.end(), 1)


def test_a_fork_does_not_wait_for_ever(pypy: PyPy) -> None:
    """Python may run a finalizer of the program within the sampler's code.

    Here, the finalizer waits for a lock of the thread that forks, and so the sampler's
    code does not end.  The fork still happens.
    """
    run = pypy.run("""
        import os, threading, time
        from vmprof_allocation.critical import forks
        forks.PATIENCE = 0.5
        lock, inside = threading.Lock(), threading.Event()
        def ours():
            with forks.Undivided():
                inside.set()
                with lock:
                    print("finalized", flush=True)
        lock.acquire()
        thread = threading.Thread(target=ours)
        thread.start()
        inside.wait()
        pid = os.fork()
        if pid == 0:
            with forks.Undivided():
                os._exit(7)
        lock.release()
        thread.join()
        print(os.waitpid(pid, 0)[1] >> 8)
        # and all is as before
        with forks.Undivided(), forks.Undivided():
            pass
        print(os.waitpid(os.fork() or os._exit(3), 0)[1] >> 8)
    """)
    assert (run.code, run.err) == (0, "")
    assert run.out == "finalized\n7\n3\n"


def test_lock_that_is_never_released(pypy: PyPy) -> None:
    """A handler that raises between two bytecodes of a `with` leaves its lock locked.

    A waiting thread continues after a timeout, and later threads do not wait again.
    """
    run = pypy.run("""
        import os, threading, time
        from vmprof_allocation.critical import forks
        forks.PATIENCE = 0.3
        inside, end = threading.Event(), threading.Event()
        def lose():
            forks.Undivided().__enter__()
            inside.set()
            end.wait()
        threading.Thread(target=lose).start()
        inside.wait()
        def ours():
            with forks.Undivided(), forks.Undivided():
                print("inside", flush=True)
        threads = [threading.Thread(target=ours) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        forks.PATIENCE = 1e6
        ours()
        print(os.waitpid(os.fork() or os._exit(3), 0)[1] >> 8)
        end.set()
    """)
    assert (run.code, run.err) == (0, "")
    assert run.out == "inside\n" * 4 + "3\n"


def test_fork_by_the_thread_that_has_the_lock(pypy: PyPy) -> None:
    """A signal handler may fork within the `with` block.

    Parent and child can both leave the block.
    """
    run = pypy.run("""
        import os
        from vmprof_allocation.critical import forks
        with forks.Undivided():
            pid = os.fork()
        with forks.Undivided():
            print(os.waitpid(pid, 0)[1] if pid else "child", flush=True)
    """)
    assert (run.code, run.err) == (0, "")
    assert run.out == "child\n0\n"
