"""Test the memory readings of the whole process during a run."""
from __future__ import annotations

from conftest import PyPy
from vmprof_convert import readers
from vmprof_convert.analysis.process_memory import readings
from vmprof_convert.profile.model import (
    MAJOR_FAULTS,
    MINOR_FAULTS,
    PRIVATE,
    PROCESSOR,
    RESIDENT,
    Profile,
)

MIB = 2**20


def values(profile: Profile, kind: str) -> list[int]:
    return [figure.value for figure in readings(profile, kind)]


def test_resident_memory_follows_the_program(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
        import mmap, time
        time.sleep(0.5)
        map = mmap.mmap(-1, 200 << 20)
        for at in range(0, len(map), 4096):
            map[at] = 1
        time.sleep(0.5)
        map.close()
        time.sleep(0.5)
    """, "128k")
    memory = values(run.profile(), RESIDENT)
    assert max(memory) - memory[0] > 195 * MIB
    assert max(memory) - memory[-1] > 195 * MIB
    for kind in PROCESSOR, MINOR_FAULTS, MAJOR_FAULTS:
        counted = values(run.profile(), kind)
        assert counted == sorted(counted)
    faults = values(run.profile(), MINOR_FAULTS)
    assert faults[-1] - faults[0] > 0
    times = [figure.time for figure in run.profile().figures]
    assert times == sorted(times)
    assert times[-1] <= run.profile().end


def test_memory_that_is_shared_is_not_private(stock_pypy: PyPy) -> None:
    """Pages of a shared mapping that a child has read do not count as private. Pages
    that the process has written after the fork count as private.
    """
    run = stock_pypy.sample("""
        import mmap, os, time
        def filled(flags):
            found = mmap.mmap(-1, 100 << 20, flags=flags)
            for at in range(0, len(found), 4096):
                found[at] = 1
            return found
        shared = filled(mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        own = filled(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # a child that has the first one's pages, and none of the others: these are
        # written to
        ready, told = os.pipe()
        ended, lives = os.pipe()
        if os.fork() == 0:
            for at in range(0, len(shared), 4096):
                shared[at]
            os.close(lives)
            os.write(told, b"x")
            # until the last reading of the other
            os.read(ended, 1)
            os._exit(0)
        os.read(ready, 1)
        for at in range(0, len(own), 4096):
            own[at] = 2
        time.sleep(1.5)
    """, "128k")
    alone = values(run.profile(), PRIVATE)
    most = max(values(run.profile(), RESIDENT))
    assert alone
    assert 100 * MIB <= alone[-1] < most - 95 * MIB


def test_private_memory_of_the_end_is_read(stock_pypy: PyPy) -> None:
    """The last reading includes the private memory, even if the run ends before the
    first periodic reading.
    """
    run = stock_pypy.sample("""
        import time
        kept = bytearray(60 << 20)
        for at in range(0, len(kept), 4096):
            kept[at] = 1
        time.sleep(0.5)         # less than until the first one by the clock
    """, "128k")
    profile = run.profile()
    *_, last = (figure for figure in profile.figures if figure.kind == PRIVATE)
    assert last.value > 60 * MIB
    assert (profile.end_time is not None
            and last.time == max(figure.time for figure in profile.figures))


def test_a_child_that_does_little_does_not_wait_for_its_private_memory(
        stock_pypy: PyPy) -> None:
    """The private memory of a large child takes milliseconds to read."""
    run = stock_pypy.sample("""
        import os
        kept = bytearray(300 << 20)
        for at in range(0, len(kept), 4096):
            kept[at] = 1
        if os.fork() == 0:
            many = [bytes(1000) for i in range(1000)]
        else:
            os.wait()
    """, "4k")
    assert run.code == 0, run.err
    child, = map(readers.read, stock_pypy.folder.glob("out.*.vmprof"))
    assert max(values(child, RESIDENT)) > 300 * MIB
    assert values(child, PRIVATE) == []


def test_process_that_waits_writes_nothing(stock_pypy: PyPy) -> None:
    """While a process waits, its memory is constant, and no readings are written. The
    profile only has the readings of the start and the end.
    """
    run = stock_pypy.sample("import time; time.sleep(4)", "128k")
    assert 2 <= len(values(run.profile(), RESIDENT)) < 20


def test_program_that_closes_all_files(stock_pypy: PyPy) -> None:
    """If a program has closed the sampler's descriptors, and opens its own files under
    the same numbers, the sampler does not read them.
    """
    run = stock_pypy.sample("""
        import os, time
        time.sleep(0.3)
        os.closerange(512, 2048)
        with open("numbers", "w") as file:
            file.write("1 " + "9" * 15 + " 3")
        files = [os.dup2(os.open("numbers", os.O_RDONLY), 512 + i)
                 for i in range(16)]
        junk = [str(i) for i in range(1000000)]
        time.sleep(0.5)
        for file in files:
            os.read(file, 1)
        print("ok")
    """, "128k")
    assert "ok" in run.out


def test_no_file_is_left_open(stock_pypy: PyPy) -> None:
    run = stock_pypy.command("-c", """if 1:
        import os, vmprof_allocation
        def files():
            return sorted(os.listdir("/proc/self/fd"))
        before = files()
        # a child that takes a sample has a profile, and files of its own
        with vmprof_allocation.sample("out.vmprof", "1G"):
            if os.fork() == 0:
                statm = [link for link in map(
                    lambda fd: os.readlink("/proc/self/fd/" + fd)
                    if os.path.lexists("/proc/self/fd/" + fd) else "",
                    files()) if link.endswith("statm")]
                print(statm, flush=True)
                os._exit(0)
            os.wait()
        print(files() == before)
    """)
    assert run.out == "[]\nTrue\n", run.err
