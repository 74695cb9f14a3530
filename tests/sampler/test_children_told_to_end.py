"""Children that SIGTERM ends, as it ends the workers of a pool.

Their profiles contain all allocations until the signal, and the children end as
without the sampler.
"""
from __future__ import annotations

import pytest

from conftest import PyPy, Run
from run_profiles import children
from vmprof_convert.meaning.estimator import weight_bytes
from vmprof_convert.profile.model import Profile

#: Program code.  work() allocates objects of 120 kB for some seconds, and returns the
#: PID and the number of objects.  At an interval of 8 kB, each such object is a sample.
WORK = """
    import multiprocessing, os, signal, sys, time
    SIZE = 120_000
    kept = []
    def work(seconds, shared=None):
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for i in range(10):
                kept.append(b"x" * (SIZE + count % 7))
                count += 1
                if shared is not None:
                    shared[:8] = count.to_bytes(8, "little")
            kept.clear()
        return os.getpid(), count
"""


def made(run: Run) -> dict[int, int]:
    """Return the number of large objects that each process printed, by PID."""
    result: dict[int, int] = {}
    for line in run.out.splitlines():
        pid, count = map(int, line.split())
        result[pid] = result.get(pid, 0) + count
    return result


def found(profile: Profile) -> float:
    """Return the estimated number of large objects in the profile."""
    samples = profile.samples
    return sum(weight_bytes(size, interval, profile.gaps) / 120_000
               for size, interval in zip(samples.size, samples.interval)
               if 120_000 <= size < 130_000)


def check(run: Run) -> None:
    """Compare the counts that the processes printed with their profiles.

    An object is sampled with probability 1 - exp(-120/8).
    """
    expected = made(run)
    assert len(expected) >= 2
    profiles = {profile.pid: profile for profile in children(run.path)}
    for pid, count in expected.items():
        assert count > 0
        assert abs(found(profiles[pid]) - count) <= 1 + 1e-3 * count


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_pool(stock_pypy: PyPy, method: str) -> None:
    check(stock_pypy.sample(WORK + """
    if __name__ == "__main__":
        with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
            for pid, count in pool.map(work, [0.01, 0.03, 0.05, 0.1] * 2, chunksize=1):
                print(pid, count)
    """, "8k", arguments=(method,)))


def test_children_that_another_process_ends(stock_pypy: PyPy) -> None:
    """A process that is not sampled sends the signal.  The exit status is unchanged."""
    check(stock_pypy.sample(WORK + """
    import subprocess
    for i in range(3):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(writer, b"%d" % work(0.05)[1])
            time.sleep(60)
        count = int(os.read(reader, 100))
        subprocess.run(["sh", "-c", "kill %d" % pid], check=True)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
        print(pid, count)
    """, "8k"))


def test_children_that_end_while_they_compute(stock_pypy: PyPy) -> None:
    """The signal may arrive during a sample or during a write."""
    run = stock_pypy.sample(WORK + """
    import mmap
    shared = mmap.mmap(-1, 8)
    for i in range(100):
        shared[:8] = bytes(8)
        pid = os.fork()
        if pid == 0:
            work(60, shared)
        while shared[:8] == bytes(8):
            pass
        time.sleep(i * 0.0003)
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
        print(pid, int.from_bytes(shared[:8], "little"))
    """, "8k")
    expected = made(run)
    profiles = {profile.pid: profile for profile in children(run.path)}
    assert expected.keys() == profiles.keys()
    for pid, count in expected.items():
        # the next object may have been allocated, but not counted
        assert count - 1e-3 * count - 1 <= found(profiles[pid]) <= 1.001 * count + 2


@pytest.mark.parametrize("handler, status", [
    ("lambda *_: os._exit(7)", 7), ("signal.SIG_DFL", -15), ("signal.SIG_IGN", -9)])
def test_children_that_set_their_own_handler(
        stock_pypy: PyPy, handler: str, status: int) -> None:
    """The program's own handler runs, and signal() returns the previous handler."""
    stock_pypy.sample(WORK + """
    pid = os.fork()
    if pid == 0:
        work(0.02)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.signal(signal.SIGTERM, %s) is signal.SIG_DFL
        work(0.5)
        os.kill(os.getpid(), signal.SIGTERM)
        work(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == %d
    """ % (handler, status), "8k")


def test_programs_of_a_child_do_not_inherit_the_handler(stock_pypy: PyPy) -> None:
    """A child has our handler for SIGTERM only while it is sampled.

    A program that the child runs does not have the handler.
    """
    stock_pypy.sample(WORK + """
    import subprocess
    from vmprof_allocation.session.session import current
    if os.fork() == 0:
        work(0.02)
        with open("/proc/self/status") as file:
            caught = [line for line in file if line.startswith("SigCgt")][0].split()[1]
        assert int(caught, 16) & 1 << signal.SIGTERM - 1
        caught = subprocess.run(["grep", "SigCgt", "/proc/self/status"], check=True,
                                capture_output=True, text=True).stdout.split()[1]
        assert not int(caught, 16) & 1 << signal.SIGTERM - 1
        current().stop()
        with open("/proc/self/status") as file:
            caught = [line for line in file if line.startswith("SigCgt")][0].split()[1]
        assert not int(caught, 16) & 1 << signal.SIGTERM - 1
        os._exit(0)
    assert os.wait()[1] == 0
    """, "8k")
