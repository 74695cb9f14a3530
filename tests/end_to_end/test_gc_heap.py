"""Test the sizes of the GC's heap in profiles, compared with gc.get_stats()."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import PyPy
from running import running
from vmprof_convert import readers
from vmprof_convert.analysis.heap_check import bounds, contradiction
from vmprof_convert.analysis.process_memory import peak, readings
from vmprof_convert.profile.model import (
    HEAP,
    HEAP_HAS,
    NURSERY,
    RESIDENT,
    Figure,
    Profile,
)

MIB = 2**20
#: the nursery's size in bytes, which conftest.py sets
NURSERY_SIZE = 2**20
#: A recorded size may differ from the GC's statistics by 1/PART of the size.
PART = 128
#: The end of a program that records the GC's statistics while nothing else runs.
ORACLE = """
    import gc, json, sys, time
    noted = []
    def stats():
        found = gc._get_stats()
        return [found.total_gc_memory, found.total_allocated_memory,
                found.nursery_size]
    def rest(seconds=0.4):
        gc.collect()            # while it sweeps, the GC does not know
        begin, found = time.monotonic(), stats()
        time.sleep(seconds)
        assert stats() == found
        noted.append([begin, time.monotonic(), found])
    def write(path="noted"):
        with open(path, "w") as file:
            json.dump(noted, file)
"""


def values(profile: Profile, kind: str) -> list[int]:
    return [figure.value for figure in readings(profile, kind)]


def last_before(figures: list[Figure], time: float) -> int:
    return [figure.value for figure in figures if figure.time <= time][-1]


def check(profile: Profile, noted: Path) -> int:
    """Compare the heap sizes that a profile recorded last before each pause of the
    program with the statistics that the program wrote in the pause.

    Returns:
        The number of checks.
    """
    clock = int(profile.settings["clock"])
    found = json.loads(noted.read_text())
    for begin, end, (used, has, nursery) in found:
        assert begin * 1e9 > clock
        at = end * 1e9 - clock
        for kind, said in (HEAP, used), (HEAP_HAS, has):
            told = last_before(readings(profile, kind), at)
            assert abs(told - said) <= max(told, said) / PART, (kind, told, said)
        assert set(values(profile, NURSERY)) == {nursery} == {NURSERY_SIZE}
    assert all(figure.value >= NURSERY_SIZE for figure in readings(profile, HEAP))
    return len(found)


def test_heap_sizes_equal_the_gcs_statistics(stock_pypy: PyPy) -> None:
    """The program makes small objects (in arenas) and large ones, and frees both."""
    run = stock_pypy.sample(ORACLE + """
    small = [[i] for i in range(500000)]
    rest()
    large = [bytes(10**6 + i) for i in range(100)]
    rest()
    del small
    rest()
    del large
    rest()
    write()
    """, "128k")
    profile = run.profile()
    assert check(profile, stock_pypy.folder / "noted") == 4
    heap = values(profile, HEAP)
    assert max(heap) > 120 * MIB
    assert heap[0] < 20 * MIB and heap[-1] < 20 * MIB
    times = [figure.time for figure in profile.figures]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= profile.end


def test_a_peak_between_two_readings(stock_pypy: PyPy) -> None:
    """A peak of 50 ms is recorded with its time, although it lies between two periodic
    readings.
    """
    run = stock_pypy.sample(ORACLE + """
    rest()
    begin = time.monotonic()
    large = [bytes(10**6) for i in range(50)]
    noted.append([begin, stats()[0]])
    gc.collect()
    del large
    gc.collect()
    noted[-1].append(time.monotonic())
    time.sleep(0.3)
    write()
    """, "128k")
    profile = run.profile()
    _, (begin, used, end) = json.loads((stock_pypy.folder / "noted").read_text())
    most = peak(readings(profile, HEAP))
    assert used > 50 * 10**6
    assert used <= most.value < used + 2 * MIB
    clock = int(profile.settings["clock"])
    assert begin * 1e9 <= most.time + clock <= end * 1e9


def test_readings_during_a_sweep(stock_pypy: PyPy) -> None:
    """During a sweep, older versions of PyPy count the heap's bytes from 0. So no size
    is recorded.
    """
    run = stock_pypy.sample(ORACLE + """
    small = [[i] for i in range(500000)]
    rest()
    while gc.collect_step().newstate != 2:
        pass
    gc.collect_step()
    gc.collect_step()
    noted.append([time.monotonic(), stats()[0]])
    small.extend([i] for i in range(50000))
    time.sleep(0.5)
    noted[-1].extend([stats()[0], time.monotonic()])
    gc.collect()
    del small
    write()
    """, "128k")
    profile = run.profile()
    (_, _, (used, _, _)), (begin, first, last, end) = json.loads(
        (stock_pypy.folder / "noted").read_text())
    clock = int(profile.settings["clock"])
    during = [figure.value for figure in readings(profile, HEAP)
              if begin * 1e9 <= figure.time + clock <= end * 1e9]
    if first < used / 2:
        assert not during
    else:
        assert abs(during[-1] - last) <= last / PART
    assert max(values(profile, HEAP)) >= used


def test_a_waiting_program_has_two_readings(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("import time; time.sleep(3)", "128k")
    assert 2 <= len(values(run.profile(), HEAP)) < 10


def test_each_of_two_profiles_has_its_own_peak(stock_pypy: PyPy) -> None:
    run = stock_pypy.command("-c", """if 1:
        import gc, vmprof_allocation
        for name, count in ("first", 100), ("second", 10):
            with vmprof_allocation.sample(name, "128k"):
                large = [bytes(10**6) for i in range(count)]
                gc.collect()
                del large
                gc.collect()
    """)
    assert run.code == 0, run.err
    first, second = (values(readers.read(stock_pypy.folder / name), HEAP)
                     for name in ("first", "second"))
    assert max(first) > 100 * 10**6
    assert 10**7 < max(second) < 5 * 10**7


def test_a_forked_child_has_its_own_readings(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(ORACLE + """
    import os
    kept = [bytes(10**6) for i in range(60)]
    child = os.fork()
    if child == 0:
        more = [[str(i)] for i in range(500000)]
        rest()
        write("childs")
        os._exit(0)
    os.waitpid(child, 0)
    del kept
    rest()
    write("parents")
    """, "128k")
    (childs,) = stock_pypy.folder.glob("out.*.vmprof")
    assert check(run.profile(), stock_pypy.folder / "parents") == 1
    assert check(readers.read(childs), stock_pypy.folder / "childs") == 1
    assert max(values(readers.read(childs), HEAP)) > max(values(run.profile(), HEAP))


def test_each_part_begins_and_ends_with_a_reading(stock_pypy: PyPy) -> None:
    run = stock_pypy.run(ORACLE + """
    import vmprof_allocation
    with vmprof_allocation.sample("app.vmprof", "128k") as session:
        large = [bytes(10**6) for i in range(100)]
        gc.collect()
        del large
        gc.collect()
        session.rotate("app.w2.vmprof")
        small = [[i] for i in range(300000)]
        rest()
        write()
    """)
    assert run.code == 0, run.err
    paths = [stock_pypy.folder / name for name in ("app.vmprof", "app.w2.vmprof")]
    first, second = map(readers.read, paths)
    for part in first, second:
        assert len(values(part, NURSERY)) >= 2
        # The last readings may be a little later than the end of the segment.
        assert all(0 <= figure.time <= part.end + 10**8 for figure in part.figures)
    assert max(values(first, HEAP)) > 10**8 > 5 * 10**7 > max(values(second, HEAP))
    assert check(second, stock_pypy.folder / "noted") == 1
    together = readers.read(paths)
    assert peak(readings(together, HEAP)) == peak(readings(first, HEAP))


def test_readings_of_an_attached_program(stock_pypy: PyPy) -> None:
    with running(stock_pypy, ORACLE + """
    large = [bytes(10**6) for i in range(50)]
    print("ready")
    sys.stdin.readline()
    print(stats()[0])
    """) as program:
        run = program.attach()
        assert run.code == 0, run.err
        used = int(program.end())
    heap = values(stock_pypy.profile(), HEAP)
    assert len(heap) >= 2
    # The heap includes the modules that attach loads.
    assert all(50 * 10**6 < value < used + 20 * MIB for value in heap)


def test_large_objects_that_are_young_are_not_old(stock_pypy: PyPy) -> None:
    """The GC counts young large objects as old until a minor collection visits them.
    A check of estimated live bytes against the GC's count must allow a difference.
    """
    run = stock_pypy.sample("""
    import gc
    small = [[i] for i in range(300000)]
    for i in range(300):
        gc.collect_step()
        large = [bytearray(3000000) for k in range(3)]
    """, "64k", PYPY_GC_NURSERY="4M")
    profile = run.profile()
    assert len(profile.swept) > 5
    assert not contradiction(profile)
    for swept in profile.swept:
        least, most = bounds(swept)
        assert least <= swept.alive <= most


@pytest.mark.parametrize(("nursery", "size"), [("512k", 2**19), ("4M", 2**22)])
def test_nurseries_of_other_sizes(stock_pypy: PyPy, nursery: str, size: int) -> None:
    run = stock_pypy.sample("import time; time.sleep(0.2)", "1k",
                            PYPY_GC_NURSERY=nursery)
    assert set(values(run.profile(), NURSERY)) == {size}
    assert min(values(run.profile(), HEAP)) > size


def test_the_heap_is_part_of_resident_memory(stock_pypy: PyPy) -> None:
    """The objects' pages are resident, because the program wrote the objects."""
    run = stock_pypy.sample(ORACLE + """
    small = [[i] for i in range(2000000)]
    rest()
    """, "128k")
    profile = run.profile()
    end = readings(profile, HEAP)[-1].time
    used, has, resident = (last_before(readings(profile, kind), end)
                           for kind in (HEAP, HEAP_HAS, RESIDENT))
    assert 50 * MIB < used < has < resident
