"""Test programs that continue to run while a forked process searches for retainers.

The forked process must not restrict the program, and must leave no trace.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

import pytest

from conftest import PyPy
from vmprof_convert import readers
from vmprof_convert.profile.model import PRIVATE

_PR_SET_CHILD_SUBREAPER = 36
#: __WALL, a flag of waitpid(): wait also for children that send no signal at their end.
_ALL = 0x40000000

#: Functions for the programs below.  ask() requests snapshots until one fails, and
#: appends the reason to `said`.  looking() stops the forked process during its search,
#: and returns its pid.
LOOKS = """
    import os, signal, sys, threading
    from vmprof_allocation import AllocationSamplingError
    from vmprof_allocation.session.session import current
    kept = [[str(i)] for i in range(500000)]
    said, answered = [], []
    def ask():
        while not said:
            try:
                current().retainers()
                answered.append(1)
            except AllocationSamplingError as e:
                said.append(str(e))
    def read(path):
        try:
            with open(path) as file:
                return file.read()
        except OSError:
            return ""
    def state(pid):
        return read("/proc/%d/stat" % pid).rpartition(") ")[2][:1]
    def looking():
        while True:
            if said:
                print(said)         # there is nothing to wait for
                os._exit(1)
            for task in os.listdir("/proc/self/task"):
                for pid in map(int, read("/proc/self/task/%s/children" % task).split()):
                    if read("/proc/%d/comm" % pid) == "who-holds\\n":
                        os.kill(pid, signal.SIGSTOP)
                        while state(pid) not in ("T", "Z", ""):
                            pass
                        if state(pid) == "T":
                            return pid
    def children():
        try:
            return os.waitpid(-1, os.WNOHANG | 0x40000000)
        except ChildProcessError:
            return None
"""
#: Requests a snapshot in a thread, and stops the forked process during its search.
ASKED = """
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    pid = looking()
"""
IN_A_THREAD = LOOKS + ASKED
#: Continues the forked process, and waits for the end of the requesting thread.
GO_ON = """
    os.kill(pid, signal.SIGCONT)
    said.append("")
    thread.join()
"""
TOO_LATE = ("the heap snapshot failed: the profile or the process ended during the "
            "snapshot")


@contextlib.contextmanager
def heir() -> Iterator[None]:
    """Make this process the parent of orphaned processes."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def check_gone(pid: int) -> None:
    """Check that the process has ended, and is no zombie."""
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG | _ALL)
    assert not os.path.exists("/proc/%d" % pid)


@pytest.mark.parametrize("end", [
    "", "sys.exit()", "os._exit(0)", "os.execv('/bin/true', ['true'])"])
def test_the_process_ends(stock_pypy: PyPy, end: str) -> None:
    with heir():
        run = stock_pypy.sample(
            IN_A_THREAD + "    print(pid, flush=True)\n    " + end, "64k")
        check_gone(int(run.out))
    profile = run.profile()
    assert len(profile.samples.stack) > 300
    assert (profile.end_time is not None) == (end in ("", "sys.exit()"))


def test_exec_finds_no_child(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(IN_A_THREAD + """
    then = '''if True:
        import os
        try:
            print(os.waitpid(-1, os.WNOHANG | 0x40000000))
        except ChildProcessError:
            print("none")
    '''
    os.execv(sys.executable, [sys.executable, "-c", then])
    """, "64k")
    assert run.out == "none\n"


def test_an_exec_that_fails(stock_pypy: PyPy) -> None:
    """After an exec() that fails during a snapshot, the program continues, and can take
    a snapshot again.
    """
    run = stock_pypy.sample(IN_A_THREAD + """
    try:
        os.execv("./there is no such program", ["nothing"])
    except FileNotFoundError:
        pass
    thread.join()
    print(said, children())
    current().retainers()
    """, "64k")
    assert run.out == "%r None\n" % [TOO_LATE]
    assert readers.read_events(run.path).held[-1].problem == 0


def test_sampling_ends(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(IN_A_THREAD + """
    current().stop()
    print(children())
    thread.join()
    print(said)
    """, "64k")
    assert run.out == "None\n%r\n" % [TOO_LATE]
    assert run.profile().end_time is not None


def test_a_fork_does_not_wait(stock_pypy: PyPy) -> None:
    """A fork of the program does not wait for the snapshot. The snapshot's process
    continues to work for the parent, and does not affect the child.
    """
    run = stock_pypy.sample(IN_A_THREAD + """
    from vmprof_allocation.critical import forks
    forks.PATIENCE = 1e6
    child = os.fork()
    if not child:
        is_there = children()
        try:
            current().retainers()
        except AllocationSamplingError as e:
            print(e, flush=True)
        made = [str(i) for i in range(10000)]
        current().retainers()                # its own
        os._exit(7 if is_there is None and children() is None else 8)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), state(pid))
    before = len(answered)
    os.kill(pid, signal.SIGCONT)
    while len(answered) == before:
        pass
    said.append("")
    thread.join()
    """, "64k")
    assert run.out == (
        "no heap snapshot is taken: this forked process has no profile until its "
        "first sample; try again later\n7 T\n")
    (of_child,) = run.path.parent.glob("out.*.vmprof")
    assert [held.problem for held in readers.read_events(of_child).held] == [0]
    assert {held.problem for held in readers.read_events(run.path).held} == {0}


def test_a_fork_during_a_request(stock_pypy: PyPy) -> None:
    """A signal handler forks in the thread that waits for a snapshot. In the child, the
    request fails with the reason.
    """
    run = stock_pypy.sample(LOOKS + """
    children_made = []
    def fork(*_):
        children_made.append(os.fork())
    signal.signal(signal.SIGUSR1, fork)
    def interrupt():
        pid = looking()
        os.kill(os.getpid(), signal.SIGUSR1)
        while not children_made:
            pass
        os.kill(pid, signal.SIGCONT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    while not children_made:
        try:
            current().retainers()
        except AllocationSamplingError as e:
            print(e, flush=True)
            os._exit(7 if children_made == [0] else 8)
    print(os.waitstatus_to_exitcode(os.waitpid(children_made[0], 0)[1]))
    thread.join()
    """, "64k")
    assert run.out == TOO_LATE + "\n7\n"
    assert {held.problem for held in readers.read_events(run.path).held} == {0}


def test_only_one_at_a_time(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(IN_A_THREAD + """
    try:
        current().retainers()
    except AllocationSamplingError as e:
        print(e, state(pid))
    before = len(answered)
    os.kill(pid, signal.SIGCONT)
    while len(answered) == before:
        pass
    said.append("")
    thread.join()
    """, "64k")
    assert run.out == ("another thread takes a heap snapshot; try again when it is "
                       "done T\n")
    assert {held.problem for held in readers.read_events(run.path).held} == {0}


def test_a_profile_that_ends_has_no_answer(stock_pypy: PyPy) -> None:
    """If the profile ends during a snapshot, the request fails. A request in the next
    profile takes a new snapshot.
    """
    run = stock_pypy.sample(IN_A_THREAD + """
    current().rotate("next.vmprof")
    thread.join()
    print(said, children())
    current().retainers()
    """, "64k")
    assert run.out == "%r None\n" % [TOO_LATE]
    (held,) = readers.read_events(stock_pypy.folder / "next.vmprof").held
    assert "__main__.kept" in [holder.path for holder in held.holders]


def test_a_request_can_be_interrupted(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(LOOKS + """
    def interrupt():
        looking()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    try:
        while True:
            current().retainers()
    except KeyboardInterrupt:
        print(children())
    current().retainers()
    """, "64k")
    assert run.out == "None\n"
    *_, ended, last = readers.read_events(run.path).held
    assert (ended.problem, last.problem) == (1005, 0)


def test_a_request_has_a_time_limit(stock_pypy: PyPy) -> None:
    """After the time limit, the forked process is killed, and the request fails."""
    run = stock_pypy.sample(IN_A_THREAD + """
    # a day passes with each look at the clock, also if none was made yet
    import itertools
    sys.modules["vmprof_allocation.engines.hook.heap_snapshot"].monotonic = (
        itertools.count(10**9, 86400).__next__)
    thread.join()
    print(said, children())
    """, "64k")
    assert run.out == "%r None\n" % [
        "the heap snapshot failed: the process that walks the heap did not end within "
        "25 seconds"]
    assert readers.read_events(run.path).held[-1].problem == 1005


def test_signals_as_the_process_ends(stock_pypy: PyPy) -> None:
    """A signal during the wait for the forked process does not leave a zombie."""
    run = stock_pypy.sample(LOOKS + """
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
    for number in range(30):
        thread = threading.Thread(target=ask)
        thread.start()
        looking()
        current().rotate("part%d.vmprof" % number)
        thread.join()
        del said[:]
    print(children())
    """, "64k")
    assert run.out == "None\n"


def test_private_memory_is_not_read_during_a_search(stock_pypy: PyPy) -> None:
    """The private memory is not read during a search, because the process shares almost
    all pages with the forked process.
    """
    run = stock_pypy.sample(IN_A_THREAD.replace("500000", "50000") + """
    import time
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        more = [str(i) for i in range(1000)]
        time.sleep(0.02)
    """ + GO_ON + """
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        more = [str(i) for i in range(1000)]
        time.sleep(0.02)
    """, "64k")
    told = [one for one in run.profile().figures if one.kind == PRIVATE]
    assert len(told) > 1
    values = sorted(one.value for one in told)
    assert values[0] > 20_000_000, values
