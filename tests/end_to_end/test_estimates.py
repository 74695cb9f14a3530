"""Test the estimates of real programs against the GC's count and known allocations."""
from __future__ import annotations

import math
import re

import pytest

import time_shares
from conftest import PyPy, has_builtin
from truth import (
    SIGMAS,
    allowed,
    bytes_by_function,
    innermost,
    objects_of,
    string_size,
    total_bytes,
    total_sigma,
)
from vmprof_convert.profile.probability import probability

#: A program whose rounds each make one low-level string of known size, and smaller
#: objects.  The JIT cannot omit the objects, because they are stored in `kept`.
KNOWN = """
    filler = b"x" * 200000
    kept = [None]

    def small(n):
        for i in range(n):
            kept[0] = filler[i & 7:1000 + (i & 7)]

    def large(n):
        for i in range(n):
            kept[0] = filler[i & 7:100000 + (i & 7)]

    def both():
        small(40000)
        large(1600)

    both()
"""


@pytest.mark.parametrize("jit", ["off", ""])
@pytest.mark.parametrize("interval", ["4k", "128k"])
def test_bytes_per_function_are_those_of_the_program(
        pypy: PyPy, interval: str, jit: str) -> None:
    profile = pypy.sample(KNOWN, interval, jit=jit).profile()
    bytes_between = int(profile.settings["interval"])
    for name, count, length in ("small", 40000, 1000), ("large", 1600, 100000):
        size = string_size(length)
        assert abs(objects_of(profile, name, size) - count) <= allowed(
            count, size, bytes_between)
    found = bytes_by_function(profile)
    # The other 5 % are the program's start, and the end of the sampling.
    assert found["small"] + found["large"] > 0.95 * total_bytes(profile)


#: A loop that allocates five objects in turn.  With fixed gaps that are a multiple of
#: the loop's bytes, every sample would meet the same object.
PERIODIC = """
    filler = b"x" * 5000
    def f16(): return filler[:16]
    def f64(): return filler[:64]
    def f256(): return filler[:256]
    def f1024(): return filler[:1024]
    def f4096(): return filler[:4096]
    def loop():
        for i in range(20000):
            f16(); f64(); f256(); f1024(); f4096()
    loop()
"""


@pytest.mark.parametrize("interval", [4096, 65536])
def test_sites_of_a_periodic_loop_get_their_share(
        pypy: PyPy, interval: int) -> None:
    profile = pypy.sample(PERIODIC, str(interval), jit="off").profile()
    for length in 16, 64, 256, 1024, 4096:
        size = string_size(length)
        assert abs(objects_of(profile, "f%d" % length, size) - 20000) <= (
            allowed(20000, size, interval, sigmas=4)), length


CHURN = """
    import gc
    class Node:
        def __init__(self, left, right):
            self.left = left
            self.right = right

    def tree(depth):
        if depth == 0:
            return Node(None, None)
        return Node(tree(depth - 1), tree(depth - 1))

    def main():
        for i in range(12):
            tree(14)
            [str(n) for n in range(20000)]
    main()
"""


@pytest.mark.parametrize("interval, jit", [
    ("64", ""), ("1k", "off"), ("128k", ""),
    ("1M", "off"),      # the size of the nursery
    ("3584k", ""),      # 3.5 nurseries
])
def test_total_equals_the_gcs_count(pypy: PyPy, interval: str, jit: str) -> None:
    source = CHURN.replace("range(12)", "range(1)") if interval == "64" else CHURN
    profile = pypy.sample(source, interval, jit=jit).profile()
    last = profile.moments[-1]
    assert last.surprises == last.pressures == 0
    assert last.allocated > 5 * 2**20
    deviation = max(total_sigma(profile),
                    (last.allocated * int(profile.settings["interval"])) ** .5)
    assert (abs(total_bytes(profile) - last.allocated) <= SIGMAS * deviation)


def test_interval_of_4_gib_takes_next_to_no_samples(pypy: PyPy) -> None:
    profile = pypy.sample(CHURN, "4G").profile()
    # The expected number of samples is 0.02, and surely below 0.5.  At 0.5, the
    # probability of 8 samples or more is below 1e-8.
    assert len(profile.samples) < 8
    assert profile.moments[-1].allocated > 50 * 2**20


def test_gc_counter_agrees_with_collections_times_nursery(pypy: PyPy) -> None:
    """The sampler counts the bytes from nursery_free. The test counts the minor
    collections with PyPy's gc.hooks.
    """
    run = pypy.sample(CHURN + """
    counted = [0]
    def on_minor(stats):
        counted[0] += stats.count
    gc.hooks.on_gc_minor = on_minor
    main(); main()
    gc.hooks.reset()
    print(counted[0])
""", "128k", jit="off")
    moments = run.profile().moments
    # The hook is set after the first third of the run.
    nurseries = int(run.out) * 2**20
    assert nurseries == pytest.approx(moments[-1].allocated * 2 / 3, rel=0.05)
    assert moments[-1].collections == pytest.approx(int(run.out) * 1.5, rel=0.05)


@pytest.mark.parametrize("nursery", ["32k", "256k", "16M"])
def test_nursery_of_any_size(pypy: PyPy, nursery: str) -> None:
    profile = pypy.sample(CHURN, "64k", PYPY_GC_NURSERY=nursery).profile()
    last = profile.moments[-1]
    assert last.surprises == 0
    assert (abs(total_bytes(profile) - last.allocated)
            <= SIGMAS * total_sigma(profile))


def test_large_objects_are_sampled_with_their_size(pypy: PyPy) -> None:
    profile = pypy.sample("""
        filler = b"x" * 3000000
        def strings():
            for i in range(50):
                filler[:1000000 + i]
        def lists():
            for i in range(50):
                [None] * (100000 + i)
        strings()
        lists()
    """, "4k", jit="off").profile()
    # With an interval of 4 KiB, each of these objects is sampled (p > 1 - e**-195).
    sizes = sorted(s for s in profile.samples.size if s > 500000)
    strings = [string_size(1000000 + i) for i in range(50)]
    # A low-level array has a header, a length, and a pointer per item.
    lists = [16 + 8 * (100000 + i) for i in range(50)]
    assert sorted(strings + lists) == [
        s for s in sizes if s != string_size(3000000)]


def test_an_object_across_many_sample_points_is_one_sample(pypy: PyPy) -> None:
    profile = pypy.sample("""
        def big(n):
            for i in range(n):
                filler[:120000]
        filler = b"x" * 130000
        big(300)
    """, "64", jit="off").profile()
    # The string is allocated in the nursery, because it is no large object for the GC.
    size = string_size(120000)
    assert list(profile.samples.size).count(size) == 300


def test_fixed_gaps_take_every_nth_byte(pypy: PyPy) -> None:
    profile = pypy.sample(CHURN, "1M", "--allocation-distribution", "fixed",
                          jit="off").profile()
    # No object is larger than the interval, so each interval has one sample.
    assert max(profile.samples.size) < 2**20
    assert len(profile.samples) == profile.moments[-1].allocated // 2**20
    assert profile.gaps == "fixed"


def test_seed_makes_a_run_repeatable(pypy: PyPy) -> None:
    """Both runs are in one process, so that only the seed can cause a difference."""
    script = pypy.script("""
        import gc
        import vmprof_allocation
        from vmprof_convert import readers
        filler = b"x" * 5000
        def work():
            for i in range(20000):
                filler[:i % 100]
        def sizes(seed):
            with vmprof_allocation.sample("out.vmprof", "16k", seed=seed):
                work()
            return list(readers.read("out.vmprof").samples.size)
        for warm_up in range(3):
            sizes(1)
        # each import has left a weak reference, with a callback; and what the
        # collection leaves, the next run finds
        gc.collect()
        sizes(1)
        first, again, other = sizes(7), sizes(7), sizes(8)
        print(len(first) > 100, first == again, first == other)
    """)
    run = pypy.command("--jit", "off", str(script))
    assert run.out.split() == ["True", "True", "False"], run.err


def test_small_programs_count_from_the_first_allocation(pypy: PyPy) -> None:
    """A program that allocates far less than a nursery has no collections, except the
    sampler's, at the start (begin.py) and at the end.
    """
    profile = pypy.sample("""
        def f():
            return [filler[:10000] for i in range(100)]
        filler = b"x" * 20000
        kept = f()
    """, "1k", jit="off", PYPY_GC_NURSERY="64M").profile()
    times = [time for time, size in zip(profile.samples.time, profile.samples.size)
             if size == string_size(10000)]
    later = [c for c in profile.collections if c.time > min(times)]
    assert len(later) <= (2 if has_builtin() else 1)
    assert len(times) >= 99


def test_gc_collect_does_not_interrupt_the_sampling(pypy: PyPy) -> None:
    """The sampler has to set nursery_top again after each collection.

    Otherwise, it would miss all allocations until the nursery is full, which here means
    all further allocations.
    """
    profile = pypy.sample("""
        import gc
        filler = b"x" * 20000
        def f():
            return [filler[:10000] for i in range(50)]
        for i in range(40):
            f()
            gc.collect()
    """, "10k", jit="off", PYPY_GC_NURSERY="64M").profile()
    size = string_size(10000)
    count = list(profile.samples.size).count(size)
    p = 1 - 2.718281828 ** (-size / 10240)
    deviation = (2000 * p * (1 - p)) ** 0.5
    assert abs(count - 2000 * p) <= SIGMAS * deviation
    assert profile.moments[-1].surprises == 0


def test_memory_pressure_is_survived_and_counted(pypy: PyPy) -> None:
    """raw_malloc_memory_pressure() sets nursery_free to nursery_top, which the sampler
    must not count as an allocation.
    """
    source = """
        import gc, sys, __pypy__
        filler = b"x" * 1000
        collections = [0]
        def on_minor(stats):
            collections[0] += stats.count
        gc.hooks.on_gc_minor = on_minor
        def f():
            for i in range(2000):
                __pypy__.add_memory_pressure(1 << 20)
                filler[:900]
        f()
        gc.hooks.reset()
        print(collections[0])
    """
    without = int(pypy.run(source, jit="off", PYPY_GC_NURSERY="16M").out)
    run = pypy.sample(source, "16k", jit="off", PYPY_GC_NURSERY="16M")
    assert without > 20
    assert int(run.out) == pytest.approx(without, rel=0.1)
    profile = run.profile()
    # The builtin engine misses no bytes, and therefore reports no pressure.
    assert (profile.moments[-1].pressures > 0) != has_builtin()
    size = string_size(900)
    assert abs(objects_of(profile, "f", size) - 2000) <= allowed(
            2000, size, 16384)


def test_pinned_objects_and_nursery_barriers(pypy: PyPy) -> None:
    """A thread blocks in write() while its buffer is pinned in the nursery, and another
    thread allocates. The GC must skip the buffer.
    """
    run = pypy.sample("""
        import gc, os, threading
        pinned = [0]
        def on_minor(stats):
            pinned[0] = max(pinned[0], stats.pinned_objects_max
                            if hasattr(stats, "pinned_objects_max")
                            else stats.pinned_objects)
        gc.hooks.on_gc_minor = on_minor
        read, write = os.pipe()
        patterns = [bytes([65 + i]) * 100000 for i in range(3)]
        def writer(i):
            os.write(write, patterns[i][:90000])
        threads = [threading.Thread(target=writer, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        filler = b"x" * 5000
        def f():
            for i in range(20000):
                filler[:4000]
        f()
        gc.hooks.reset()
        data = b""
        while len(data) < 270000:
            data += os.read(read, 65536)
        for t in threads:
            t.join()
        print(pinned[0] > 0, sorted(data) == sorted(b"".join(
            p[:90000] for p in patterns)))
    """, "4k", jit="off")
    assert run.out.split() == ["True", "True"]
    profile = run.profile()
    assert profile.moments[-1].surprises == 0
    size = string_size(4000)
    assert abs(objects_of(profile, "f", size) - 20000) <= allowed(
            20000, size, 4096)


def test_interval_can_be_changed_while_running(pypy: PyPy) -> None:
    script = pypy.script("""
        import vmprof_allocation
        filler = b"x" * 2000
        def slow():
            for i in range(20000): filler[:1000]
        def fast():
            for i in range(20000): filler[:1000]
        with vmprof_allocation.sample("out.vmprof", "64k", seed=3) as session:
            slow()
            session.set_interval("4k")
            fast()
    """)
    run = pypy.command("--jit", "off", str(script))
    assert run.code == 0, run.err
    profile = run.profile()
    assert set(profile.samples.interval) == {65536, 4096}
    size = string_size(1000)
    for name, interval in ("slow", 65536), ("fast", 4096):
        assert abs(objects_of(profile, name, size) - 20000) <= allowed(
            20000, size, interval)


#: A program that alternates between allocating fast and a hundred times slower.
WAVES = """
    import time
    filler = b"x" * 100000
    kept = [None]

    def slow(n):
        for i in range(n):
            kept[0] = filler[i & 7:900 + (i & 7)]
            for j in range(400):
                pass

    def fast(n):
        for i in range(n):
            kept[0] = filler[i & 7:90000 + (i & 7)]

    start = time.perf_counter()
    for i in range(8):
        slow(10000)
        fast(4000)
    print(time.perf_counter() - start)
"""


@pytest.mark.parametrize("jit", ["off", ""])
def test_a_limit_is_kept_and_the_estimates_stay_right(
        pypy: PyPy, jit: str) -> None:
    run = pypy.sample(WAVES, "auto:2000/s", jit=jit)
    profile = run.profile()
    assert profile.settings["limit"] == "2000/s"
    seconds = profile.moments[-1].time / 1e9
    samples = profile.samples
    assert len(set(samples.interval)) > 1
    # At each of 16 changes of speed, up to 16 samples may exceed the limit.
    assert len(samples) <= 2000 * seconds + 16 * 16 + 50
    counted = profile.moments[-1].allocated
    assert abs(total_bytes(profile) - counted) <= SIGMAS * total_sigma(profile)
    # With the JIT, "slow" allocates fast, too.  It has too few samples for this check.
    for name, count, length in [("slow", 80000, 900), ("fast", 32000, 90000),
                                ][jit != "off":]:
        size = string_size(length)
        variance = sum(
            (1 - p) / p**2 for p in (
                probability(found, interval, "exponential")
                for stack, found, interval in zip(
                    samples.stack, samples.size, samples.interval)
                if found in (size, size + 16)
                and innermost(profile, stack) == name))
        # The variance is estimated from the samples, and there may be none while the
        # interval is large.  Therefore, the test adds the variance of four samples at
        # the largest interval.  On a busy machine, all of "slow" may have that
        # interval.
        rarest = probability(size, max(samples.interval), "exponential")
        variance += 4 * (1 - rarest) / rarest**2
        assert abs(objects_of(profile, name, size) - count) <= (
            SIGMAS * math.sqrt(variance)), name


def test_a_share_of_the_time_is_a_limit(pypy: PyPy) -> None:
    few = pypy.sample(WAVES, "auto:0.01%").profile()
    many = pypy.sample(WAVES, "auto:5%").profile()
    assert few.settings["limit"] == "100ppm"
    assert len(few.samples) < len(many.samples) / 10
    for profile in few, many:
        counted = profile.moments[-1].allocated
        assert abs(total_bytes(profile) - counted) <= (
            SIGMAS * total_sigma(profile))


def test_time_and_allocation_samples_in_one_run(pypy: PyPy) -> None:
    profile = pypy.sample("""
        import time
        def spin():
            # as time samples count it, whatever else the machine does
            end = time.process_time() + 0.5
            while time.process_time() < end:
                sum(range(1000))
        def allocate():
            filler = b"x" * 5000
            for i in range(20000): filler[:4000]
        allocate()
        spin()
    """, "64k", "--period", "0.002", jit="off").profile()
    samples = profile.samples
    times = [i for i, size in enumerate(samples.size) if size == 0]
    assert len(times) > 50
    assert profile.period == pytest.approx(0.002)
    spinning = sum(
        any(profile.function(frame.address).name == "spin"
            for frame in profile.stacks[samples.stack[i]]) for i in times)
    assert spinning > len(times) / 2
    size = string_size(4000)
    assert abs(objects_of(profile, "allocate", size) - 20000) <= allowed(
            20000, size, 65536)
    # Each sample has a time.  The CPU samples (without an object) are in order of time.
    assert min(samples.time) >= 0
    assert [samples.time[i] for i in times] == sorted(
        samples.time[i] for i in times)


def test_time_in_compiled_code_goes_to_the_function_that_takes_it(
        stock_pypy: PyPy) -> None:
    """vmprof itself attributes time in compiled code to the last called function."""
    time_shares.check(stock_pypy.sample(
        time_shares.program(1.5), "1M", "--period", "0.002").profile())


def test_allocation_sampling_alone_takes_no_time_samples(pypy: PyPy) -> None:
    """vmprof restarts its timer at a fork, which must not start CPU samples."""
    profile = pypy.sample("""
        import os, time
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        end = time.process_time() + 3.0
        while time.process_time() < end:
            sum(range(1000))
    """, "64k", jit="off").profile()
    assert 0 not in profile.samples.size


def test_the_report_contains_the_estimate_and_the_gcs_count(pypy: PyPy) -> None:
    script = pypy.script(CHURN)
    run = pypy.command("-m", "vmprof", "--allocation-sampling", "128k",
                       str(script))
    assert run.code == 0
    assert re.search(r"estimated total: \d+.* MiB .*; the GC itself counted: "
                     r"\d+.* MiB\n", run.err)
    assert "tree" in run.err and "95 %" in run.err
    assert run.out == ""
