"""rotate() ends a profile and begins the next one, and loses nothing between them."""
from __future__ import annotations

import json
import pathlib
import re

import pytest

from conftest import PyPy
from made_profiles import OBJECTS
from record_rows import tables
from run_profiles import functions
from truth import SIGMAS, sigmas
from vmprof_convert import readers
from vmprof_convert.profile.model import ALIVE, FREED, PENDING, UNKNOWN, Profile

#: size of the nursery in bytes, as in conftest.py
NURSERY = 2**20
#: source for a program that rotates
WORK = """
    import json, os, sys
    import vmprof_allocation
    from vmprof_allocation import AllocationSamplingError
    def window(number):
        return "app.w%d.vmprof" % number if number > 1 else "app.vmprof"
    def work(count=50000):
        return [str(i) for i in range(count)]
    def refused(call, *arguments):
        try:
            call(*arguments)
        except AllocationSamplingError as e:
            return str(e)
    def counted(session):
        found = session.statistics()
        return {name: getattr(found, name) for name in found.__slots__}
"""


def windows(folder: pathlib.Path) -> list[Profile]:
    """Return the segments in their order, and check them.

    Each segment is complete, belongs to the run, and follows the previous segment.
    """
    paths = [folder / "app.vmprof", *sorted(
        folder.glob("app.w*.vmprof"), key=lambda path: int(path.stem[5:]))]
    found = [readers.read(path) for path in paths]
    for number, profile in enumerate(found, 1):
        assert profile.settings["run"] == found[0].settings["run"] != ""
        assert profile.settings["pid"] == found[0].settings["pid"]
        assert profile.settings.get("part", "1") == str(number)
        assert profile.end_time is not None
        assert profile.start_time <= profile.end_time
        assert (profile.misfits, profile.torn) == (0, 0)
        assert not profile.unknown
        assert profile.command == found[0].command
        assert all(0 <= time <= profile.end for time in profile.samples.time)
        for stack in set(profile.samples.stack):
            for frame in profile.stacks[stack] if stack >= 0 else ():
                assert profile.function(frame.address).name
    clocks = [int(profile.settings["clock"]) for profile in found]
    assert clocks == sorted(set(clocks))
    return found


def allocation_samples(profile: Profile) -> int:
    return sum(map(bool, profile.samples.size))


def keys(folder: pathlib.Path, found: list[Profile]) -> int:
    """Return the number of samples, each of which belongs to one segment.

    Several objects of one batched allocation are one sample.
    """
    count = 0
    for number, profile in enumerate(found, 1):
        name = "app.w%d.vmprof" % number if number > 1 else "app.vmprof"
        first = int(profile.settings.get("first", 1))
        count += len({row[0] for row in tables((folder / name).read_bytes())[OBJECTS]
                      if row[0] >= first})
    return count


def totals(found: list[Profile], name: str) -> int:
    return sum(getattr(profile.moments[-1], name) for profile in found)


def test_windows_together_are_the_run(pypy: PyPy) -> None:
    """Each byte whose number is a multiple of the interval is a sample of one segment.

    The counts of a segment contain only its own events.
    """
    run = pypy.run(WORK + """
    def small():
        for i in range(100000):
            str(i)
    def early():
        small()
    def late():
        small()
    session = vmprof_allocation.start(window(1), 4096, distribution="fixed")
    early()
    for number in range(2, 8):
        vmprof_allocation.rotate(window(number))
        assert session.output == window(number)
        late()
    engine = session._engine
    vmprof_allocation.stop()
    print(json.dumps(counted(engine)))
    """, jit="off")
    assert (run.code, run.err) == (0, "")
    counted = json.loads(run.out)
    found = windows(pypy.folder)
    assert len(found) == 7
    for name in "allocated", "collections", "lost", "pressures", "surprises":
        assert totals(found, name) == counted[name], name
    assert counted["pressures"] == counted["lost"] == 0
    assert keys(pypy.folder, found) == counted["samples"]
    # an object larger than the interval contains several sampled bytes
    assert 0 <= counted["allocated"] // 4096 - counted["samples"] < 40
    assert "early" in functions(found[0])
    for profile in found[1:]:
        assert "late" in functions(profile)
        assert "early" not in functions(profile)
        assert profile.lost_stacks == 0
        assert profile.has_types
        # rotate() and stop() also record the young objects, with their types
        assert sum(type_ < 0 for type_ in profile.samples.type) < 5


@pytest.mark.nurseries("4M", "240M")
def test_type_of_each_sample_is_known_in_its_own_segment(stock_pypy: PyPy) -> None:
    """rotate() ends a profile between two allocations: its last object has a type."""
    run = stock_pypy.run(WORK + """
    vmprof_allocation.start(window(1), 1)
    for number in range(2, 7):
        work(500)
        vmprof_allocation.rotate(window(number))
    work(500)
    vmprof_allocation.stop()
    """)
    assert (run.code, run.err) == (0, "")
    found = windows(stock_pypy.folder)
    assert len(found) == 6
    # stop() ends the last profile at any allocation
    assert [sum(type_ < 0 for type_ in profile.samples.type)
            for profile in found[:-1]] == [0] * 5


@pytest.mark.nurseries("4M", "240M")
def test_objects_continue_in_later_segments(pypy: PyPy) -> None:
    """All segments together have the outcome of each object.

    Kept objects are alive.  Objects that the program dropped during a later segment are
    freed in that segment.
    """
    run = pypy.run(WORK + """
    import gc
    class Kept: pass
    class Dropped: pass
    session = vmprof_allocation.start(window(1), "1k", seed=1)
    kept = [Kept() for i in range(20000)]
    dropped = [Dropped() for i in range(20000)]
    gc.collect()                # what is still young dies young
    session.rotate(window(2))
    work()
    del dropped
    gc.collect(); gc.collect()
    session.rotate(window(3))
    work()
    session.stop()
    print(len(kept))
    """)
    assert (run.out, run.err) == ("20000\n", "")
    found = windows(pypy.folder)
    files = [str(pypy.folder / name)
             for name in ("app.vmprof", "app.w2.vmprof", "app.w3.vmprof")]
    whole = readers.read(files)
    assert whole.misfits == 0
    assert len(whole.samples) == sum(len(profile.samples) for profile in found)
    assert whole.moments[-1].allocated == totals(found, "allocated")
    fates: dict[str, set[int]] = {}
    for type_, fate, ended in zip(whole.samples.type, whole.samples.fate,
                                  whole.samples.ended):
        name = whole.types[type_].python
        if name in ("__main__.Kept", "__main__.Dropped"):
            fates.setdefault(name, set()).add(fate)
            assert fate != FREED or ended > found[0].end
    assert fates == {"__main__.Kept": {ALIVE}, "__main__.Dropped": {FREED}}


@pytest.mark.nurseries("4M", "240M")
def test_live_objects_are_inherited(pypy: PyPy) -> None:
    """Each segment inherits the live objects of the previous one, with stack and type.

    Each inherited or sampled object is short-lived, freed, alive or unknown.
    """
    run = pypy.run(WORK + """
    import gc
    class Kept: pass
    class Dropped: pass
    def keep():
        return [Kept() for i in range(20000)]
    session = vmprof_allocation.start(window(1), "1k", seed=1)
    kept = keep()
    dropped = [Dropped() for i in range(20000)]
    gc.collect()                # what is still young would be carried over as such
    for number in range(2, 10):
        session.rotate(window(number))
        work(20000)
        if number == 5:
            del dropped
            gc.collect(); gc.collect()
    session.stop()
    """)
    assert (run.code, run.err) == (0, "")
    found = windows(pypy.folder)
    old = young = 0
    for number, profile in enumerate(found, 1):
        carried = profile.samples.carried
        # old objects had their first collection in an earlier segment
        assert sum(c.collected < 0 and c.fate != PENDING for c in carried) == old
        # several objects of a batched allocation are inherited as one
        assert 0 <= len(carried) - old <= young
        fates = [*profile.samples.fate, *(c.fate for c in carried)]
        old = fates.count(ALIVE)
        young = fates.count(PENDING) + fates.count(UNKNOWN)
        if number == 1:
            continue
        assert not any(c.stack < 0 for c in carried)
        alive = [c for c in carried if c.type >= 0
                 and profile.types[c.type].python == "__main__.Kept"]
        # at least 16 bytes each, and one sample per 1024 bytes
        assert len(alive) > 300
        for c in alive:
            assert c.fate == ALIVE
            assert "keep" in {profile.function(frame.address).name
                              for frame in profile.stacks[c.stack]}
        dropped = {c.fate for c in carried if c.type >= 0
                   and profile.types[c.type].python == "__main__.Dropped"}
        assert dropped == ({ALIVE} if number < 5 else
                           {FREED} if number == 5 else set())
        assert abs(sigmas(profile)) < SIGMAS


def test_stacks_outlive_a_full_table(pypy: PyPy) -> None:
    """A segment has more stacks than the table holds.

    In the next segments, the inherited live objects still have these stacks.
    """
    run = pypy.run(WORK + """
    class Kept: pass
    kept = []
    def make(depth, bits):
        if depth:
            return (left if bits & 1 else right)(depth - 1, bits >> 1)
        kept.append([Kept() for i in range(50)])
    def left(depth, bits):
        return make(depth, bits)
    def right(depth, bits):
        return make(depth, bits)
    session = vmprof_allocation.start(window(1), "1k", seed=1)
    for bits in range(2**14):
        make(14, bits)
    session.rotate(window(2))
    session.rotate(window(3))
    session.stop()
    """, jit="off")
    assert (run.code, run.err) == (0, "")
    first, *later = windows(pypy.folder)
    assert len(first.stacks) > 8192
    for profile in later:
        stacks = [carried.stack for carried in profile.samples.carried]
        assert len(set(stacks)) > 8192
        # except samples that waited in the nursery when the table became full
        assert sum(stack < 0 for stack in stacks) < 4 * NURSERY // 1024
        for stack in set(stacks) - {-1}:
            assert all(profile.function(frame.address).file
                       for frame in profile.stacks[stack])


def test_estimate_of_each_segment_matches_its_count(pypy: PyPy) -> None:
    run = pypy.run(WORK + """
    session = vmprof_allocation.start(window(1), "4k", seed=1)
    for number in range(2, 12):
        work()
        session.rotate(window(number))
    session.stop()
    """)
    assert (run.code, run.err) == (0, "")
    found = windows(pypy.folder)
    assert len(found) == 11
    for profile in found[:-1]:
        assert abs(sigmas(profile)) < SIGMAS
        assert profile.moments[-1].allocated > 10**6


def test_thousandth_segment_costs_no_more_than_the_first(pypy: PyPy) -> None:
    """The process needs no more descriptors, mappings or memory."""
    run = pypy.run(WORK + """
    def descriptors():
        return len(os.listdir("/proc/self/fd"))
    def mappings():
        with open("/proc/self/maps") as file:
            return sum("[heap]" not in line for line in file)
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096
    session = vmprof_allocation.start(window(1), "16k", seed=1)
    noted = []
    for number in range(2, 1002):
        work(1000)
        session.rotate(window(number))
        if number in (101, 1001):
            noted.append((descriptors(), mappings(), resident()))
    session.stop()
    (before, maps_before, memory_before), (after, maps_after, memory_after) = noted
    print(after - before, maps_after - maps_before < 30,
          memory_after - memory_before < 2**23)
    """)
    assert (run.out, run.err) == ("0 True True\n", "")
    found = windows(pypy.folder)
    assert len(found) == 1001
    for things in "functions", "stacks", "types":
        assert len(getattr(found[-2], things)) <= len(getattr(found[100], things)) + 10


def test_eight_threads_allocate(pypy: PyPy) -> None:
    run = pypy.run(WORK + """
    import threading
    is_over = False
    def allocate():
        while not is_over:
            work(1000)
    session = vmprof_allocation.start(window(1), 4096, distribution="fixed")
    threads = [threading.Thread(target=allocate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for number in range(2, 52):
        work(1000)
        session.rotate(window(number))
    is_over = True
    for thread in threads:
        thread.join()
    engine = session._engine
    session.stop()
    print(json.dumps(counted(engine)))
    """)
    assert (run.code, run.err) == (0, "")
    counted = json.loads(run.out)
    found = windows(pypy.folder)
    assert len(found) == 51
    for name in "allocated", "collections", "lost", "dropped", "pressures":
        assert totals(found, name) == counted[name], name
    assert keys(pypy.folder, found) == counted["samples"]


def test_cpu_samples_continue(pypy: PyPy) -> None:
    run = pypy.run(WORK + """
    import time
    session = vmprof_allocation.start(window(1), "64k", period=0.001)
    def turn():
        end = time.process_time() + 0.2
        while time.process_time() < end:
            work(1000)
    for number in range(2, 5):
        turn()
        session.rotate(window(number))
    turn()
    engine = session._engine
    session.stop()
    print(json.dumps(counted(engine)))
    """)
    assert (run.code, run.err) == (0, "")
    counted = json.loads(run.out)
    found = windows(pypy.folder)
    ticks = [len(profile.samples.size) - allocation_samples(profile)
             for profile in found]
    assert sum(ticks) == counted["time_samples"]
    assert min(ticks) > 0
    assert totals(found, "allocated") == counted["allocated"]


def test_handlers_that_raise_during_a_rotation(pypy: PyPy) -> None:
    """After the exception, `output` shows whether the rotation has happened."""
    run = pypy.run(WORK + """
    import random, signal
    class Interrupted(Exception):
        pass
    def raise_it(*ignored):
        raise Interrupted
    signal.signal(signal.SIGALRM, raise_it)
    generator = random.Random(1)
    session = vmprof_allocation.start(window(1), 4096, distribution="fixed")
    number = 1
    raised = 0
    while number < 100:
        try:
            signal.setitimer(signal.ITIMER_REAL, generator.uniform(1e-6, 0.003))
            try:
                session.rotate(window(number + 1))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except Interrupted:
            raised += 1
        if session.output == window(number + 1):
            number += 1
        else:
            assert session.output == window(number)
            assert not os.path.exists(window(number + 1))
        work(100)
    engine = session._engine
    session.stop()
    print(json.dumps({**counted(engine), "raised": raised}))
    """)
    assert (run.code, run.err) == (0, "")
    counted = json.loads(run.out)
    assert counted["raised"] > 10
    found = windows(pypy.folder)
    assert len(found) == 100
    assert totals(found, "allocated") == counted["allocated"]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "MemoryError"])
def test_exception_at_any_step(stock_pypy: PyPy, error: str) -> None:
    run = stock_pypy.run(WORK + """
    session = vmprof_allocation.start(window(1), 4096, distribution="fixed")
    engine = session._engine
    class FailAt:
        def __init__(self, lib, at, after):
            self.lib, self.at, self.after, self.calls = lib, at, after, 0
        def __getattr__(self, name):
            function = getattr(self.lib, name)
            def call(*arguments):
                self.calls += 1
                if self.calls != self.at:
                    return function(*arguments)
                if self.after:
                    function(*arguments)
                raise %s
            return call
    lib = engine._lib
    number = 1
    for after in False, True:
        for at in range(1, 100):
            engine._lib = failing = FailAt(lib, at, after)
            try:
                session.rotate(window(number + 1))
            except %s:
                pass
            finally:
                engine._lib = lib
            number += session.output == window(number + 1)
            assert session.output == window(number)
            assert not os.path.exists(window(number + 1))
            work(100)
            if failing.calls < at:
                break
    session.stop()
    print(json.dumps(counted(engine)))
    """ % (error, error))
    assert (run.code, run.err) == (0, "")
    found = windows(stock_pypy.folder)
    assert len(found) > 3
    assert totals(found, "allocated") == json.loads(run.out)["allocated"]


def test_next_profile_that_cannot_be_written(pypy: PyPy) -> None:
    """The present profile continues as before."""
    run = pypy.run(WORK + """
    session = vmprof_allocation.start(window(1), 4096, distribution="fixed")
    for path in ("/dev/full", "missing/x.vmprof", "/", window(1), "pipe", 7, "",
                 "a\\0b"):
        if path == "pipe":
            os.mkfifo(path)
        work(1000)
        print(refused(session.rotate, path))
        assert session.output == window(1)
    engine = session._engine
    session.stop()
    print(json.dumps(counted(engine)))
    print(refused(session.rotate, window(2)))
    print(refused(vmprof_allocation.rotate, window(2)))
    """)
    assert (run.code, run.err) == (0, "")
    *lines, last, after, after_2 = run.out.splitlines()
    for line, expected in zip(lines, (
            "cannot write the next profile: No space left on device; the present "
            "profile continues",
            "cannot write the profile to 'missing/x.vmprof': No such file",
            "cannot write the profile to '/': Is a directory",
            "'app.vmprof' is the profile that is being written. Choose another",
            "'pipe' is a pipe; rotate() needs a file",
            "invalid output 7: write the name of a file",
            "invalid output '': the name is empty", "contains a zero byte"),
            strict=True):
        assert expected in line
    assert after == after_2 == "allocation sampling is not on; call start() first"
    (profile,) = windows(pypy.folder)
    counted = json.loads(last)
    assert profile.moments[-1].allocated == counted["allocated"]


def test_profile_that_could_not_be_ended(pypy: PyPy) -> None:
    """The next profile begins nevertheless, and has the samples from then on."""
    run = pypy.run(WORK + """
    import resource, signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    session = vmprof_allocation.start(window(1), 64, distribution="fixed")
    resource.setrlimit(resource.RLIMIT_FSIZE, (50000, resource.RLIM_INFINITY))
    work(100000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, resource.RLIM_INFINITY))
    print(refused(session.rotate, window(2)))
    work(1000)
    session.stop()
    """)
    assert run.out == (
        "the profile 'app.vmprof' is not complete: it has reached the size limit for "
        "files of this process (ulimit -f); sampling continues in 'app.w2.vmprof'\n")
    profile = readers.read(pypy.folder / "app.w2.vmprof")
    assert profile.end_time is not None
    assert "work" in functions(profile)


def test_earlier_segment_is_not_overwritten(pypy: PyPy) -> None:
    run = pypy.run(WORK + """
    session = vmprof_allocation.start(window(1), 4096)
    session.rotate(window(2))
    print(refused(session.rotate, window(1)))
    print(refused(session.rotate, "./" + window(1)))
    os.unlink(window(1))
    session.rotate(window(1))
    for number in range(3, 200):        # what is gone is forgotten
        session.rotate(window(number))
        if number > 3:
            os.unlink(window(number - 1))
    session.stop()
    with vmprof_allocation.sample(window(1), 4096) as session:
        session.rotate(window(2))       # another run
    """)
    assert (run.code, run.err) == (0, "")
    assert run.out.count("is an earlier profile of this run. Remove it") == 2


def test_profiles_that_cannot_rotate(stock_pypy: PyPy) -> None:
    """A pipe cannot be rotated, nor can the samples that tracemalloc keeps."""
    run = stock_pypy.run(WORK + """
    import threading
    os.mkfifo("pipe")
    reader = threading.Thread(target=lambda: open("pipe", "rb").read())
    reader.start()
    session = vmprof_allocation.start("pipe", "64k")
    print(refused(session.rotate, window(2)))
    session.stop()
    reader.join()
    from vmprof_allocation import tracemalloc
    from vmprof_allocation.engines.hook.engine import engine
    from vmprof_allocation.settings.settings import Settings
    tracemalloc.start()
    print(refused(vmprof_allocation.rotate, window(2)))
    print(refused(engine().rotate, 0, Settings(1, 1, in_memory=True), None, 2))
    tracemalloc.stop()
    print(refused(engine().rotate, 0, Settings(1, 1), None, 2))
    """)
    assert run.err == ""
    pipe, not_started, in_memory, is_off = run.out.splitlines()
    assert not_started == "allocation sampling is not on; call start() first"
    assert in_memory == "cannot rotate the data of tracemalloc, which are in memory"
    assert is_off == "allocation sampling is not on"
    assert re.match("cannot rotate the profile, because 'pipe' is a pipe", pipe)


def test_without_following_children(pypy: PyPy) -> None:
    run = pypy.run(WORK + """
    session = vmprof_allocation.start(window(1), "4k", follow=False)
    work()
    if os.fork() == 0:
        work()
        os._exit(0)
    os.wait()
    session.rotate(window(2))
    work()
    session.stop()
    """)
    assert run.err == ""
    first, second = windows(pypy.folder)
    assert "work" in functions(second)
    assert first.settings["children"] == "1"


def test_next_profile_has_the_requested_interval(pypy: PyPy) -> None:
    """The next profile has no limit, because set_interval() has ended the limit."""
    run = pypy.command(str(pypy.script(WORK + """
    with vmprof_allocation.sample("app.vmprof", "auto") as session:
        session.set_interval("4k")
        session.rotate(window(2))
        kept = work()
        session.rotate(window(3))
    """)))
    assert (run.code, run.err) == (0, "")
    first, *others = windows(pypy.folder)
    assert first.settings["limit"]
    for profile in others:
        assert (profile.settings["interval"], profile.settings["limit"]) == ("4096", "")
        assert set(profile.samples.interval) <= {4096}
