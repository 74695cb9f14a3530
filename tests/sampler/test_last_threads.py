"""Programs whose first thread ends before other threads.

The process ends with its last thread, whatever threads the sampler has.  The exit code
is the same as without the sampler.
"""
from __future__ import annotations

import pytest

from conftest import PyPy, Run
from vmprof_convert import readers

PROGRAM = """
    import ctypes, os, threading, time
    libc = ctypes.CDLL(None)
    def allocate(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            [str(i) for i in range(1000)]
            time.sleep(0.001)
    def other(seconds):
        allocate(seconds)
        print("other ends", flush=True)
"""
PTHREAD_EXIT = "libc.pthread_exit(None)"
SYS_EXIT = "libc.syscall(60, 7)"
AFTER = "threading.Thread(target=other, args=(0.7,)).start()\n    "
BEFORE = "threading.Thread(target=other, args=(0.1,)).start()\n    allocate(0.5)\n    "
ENDS = [PTHREAD_EXIT, AFTER + PTHREAD_EXIT, SYS_EXIT, AFTER + SYS_EXIT,
        BEFORE + SYS_EXIT]
NAMES = ["pthread_exit", "pthread_exit, then another", "SYS_exit",
         "SYS_exit, then another", "another, then SYS_exit"]


def sampled(pypy: PyPy, source: str, *flags: str) -> Run:
    return pypy.command("-m", "vmprof", "--allocation-sampling", "16k", *flags,
                        str(pypy.script(source)), timeout=30)


@pytest.mark.parametrize("ends", ENDS, ids=NAMES)
def test_process_ends_as_without_the_sampler(stock_pypy: PyPy, ends: str) -> None:
    plain = stock_pypy.run(PROGRAM + "    " + ends)
    for flags in (), ("--rotate", "0.2"), ("--rotate", "1h"):
        run = sampled(stock_pypy, PROGRAM + "    " + ends, "-o", "out.vmprof", *flags)
        assert (run.code, run.out, run.err) == (plain.code, plain.out, plain.err), flags
        assert run.profile() is not None


def test_last_segment_is_complete(stock_pypy: PyPy) -> None:
    """libc calls exit() when the last thread ends, which also ends the last segment."""
    sampled(stock_pypy, PROGRAM + "    " + AFTER + PTHREAD_EXIT, "-o", "out.vmprof",
            "--rotate", "0.2")
    found = [readers.read(path) for path in stock_pypy.folder.glob("out*.vmprof")]
    assert len(found) > 1
    assert all(profile.end_time is not None for profile in found)


def test_thread_that_our_thread_started_belongs_to_the_program(
        stock_pypy: PyPy) -> None:
    """A finalizer may run in the sampler's thread for rotation, and start a thread.

    The new thread inherits the name of the sampler's thread.
    """
    run = sampled(stock_pypy, PROGRAM + """
    def inherits():
        time.sleep(0.3)         # until that has said so
        for number in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/comm" % number) as comm:
                name = comm.read()
            if name == "vmprof %s\\n" % number:
                with open("/proc/thread-self/comm", "w") as own:
                    own.write(name.strip())
                other(0.7)
    threading.Thread(target=inherits).start()
    """ + PTHREAD_EXIT, "-o", "out.vmprof", "--rotate", "1h")
    assert (run.code, run.out, run.err) == (0, "other ends\n", "")
