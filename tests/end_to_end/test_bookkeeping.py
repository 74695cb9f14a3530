"""Test that the sampler's memory for tracked objects is bounded, and freed at the end.
"""
from __future__ import annotations

import json
import re

import pytest

from conftest import PyPy
from vmprof_convert import readers
from vmprof_convert.profile.model import ALIVE

MIB = 2**20


def test_memory_for_a_heap_of_1_gib(stock_pypy: PyPy) -> None:
    """The program keeps 64 MiB with an interval of 8 KiB. This gives as many live
    samples as 1 GiB with an interval of 128 KiB.
    """
    script = stock_pypy.script("""
        import gc, vmprof_allocation
        kept = []
        with vmprof_allocation.sample("out.vmprof", "8k") as session:
            for i in range(122000):
                kept.append([None] * 64)
            gc.collect()
            memory = session._engine.statistics().memory
        print(memory)
    """)
    run = stock_pypy.command(str(script))
    assert (run.code, run.err) == (0, "")
    profile = run.profile()
    alive = [*profile.samples.fate].count(ALIVE)
    assert 7500 < alive < 9500
    # The sampler stores an address and at least 8 other bytes for each live sample.
    assert alive * 16 <= int(run.out) < 16 * MIB
    # The profile contains the number that statistics() returned.
    assert profile.bookkeeping == int(run.out)
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "--notes",
                                "out.vmprof").out
    assert re.search(r"bookkeeping: the sampler's data on objects took at most \d+ KiB "
                     r"of the process's memory\n", report)


@pytest.mark.parametrize("end", ["", "os._exit(0)", "sampled.rotate('next.vmprof')",
                                 "os.execv('/bin/true', ['true'])"])
def test_the_profile_contains_the_memory_at_any_end(stock_pypy: PyPy, end: str) -> None:
    script = stock_pypy.script("""
        import gc, os, vmprof_allocation
        sampled = vmprof_allocation.start("out.vmprof", "512")
        kept = [str(i) for i in range(10000)]
        gc.collect()
        %s
    """ % end)
    run = stock_pypy.command(str(script))
    assert (run.code, run.err) == (0, "")
    first = run.profile()
    alive = [*first.samples.fate].count(ALIVE)
    assert alive > 100
    assert first.bookkeeping > 16 * alive
    if "rotate" in end:
        parts = run.path.with_name("next.vmprof")
        assert readers.read(parts).bookkeeping >= first.bookkeeping


def test_without_lifetimes_little_memory_is_needed(stock_pypy: PyPy) -> None:
    """Without outcomes, the sampler only stores samples until their types are known."""
    script = stock_pypy.script("""
        import vmprof_allocation
        with vmprof_allocation.sample("out.vmprof", "512", lifetimes=False):
            kept = [str(i) for i in range(10000)]
    """)
    run = stock_pypy.command(str(script))
    assert (run.code, run.err) == (0, "")
    # memory for the samples of one nursery (1 MiB), which wait for a minor collection
    assert 0 < run.profile().bookkeeping < 2**20


@pytest.mark.hard
def test_10000_starts_and_stops_without_growth(stock_pypy: PyPy) -> None:
    """Each cycle tracks objects and then forgets them, which must leak no memory."""
    script = stock_pypy.script("""
        import gc, json, os, vmprof_allocation
        def look():
            gc.collect()
            with open("/proc/self/status") as file:
                data = [int(line.split()[1]) for line in file if "VmData" in line]
            return [len(os.listdir("/proc/self/fd")),
                    len(os.listdir("/proc/self/task")), *data]
        def cycles(count):
            for i in range(count):
                with vmprof_allocation.sample("out.vmprof", "256"):
                    kept = [str(j) for j in range(100)]
                    if i % 10 == 0:
                        gc.collect()
        cycles(1000)
        first = look()
        cycles(9000)
        print(json.dumps([first, look()]))
    """)
    run = stock_pypy.command(str(script))
    assert (run.code, run.err) == (0, "")
    first, last = json.loads(run.out)
    assert last[:2] == first[:2]
    # A leak of 1 KiB per start would add 9000 KiB.
    assert last[2] < first[2] + 4096


def test_a_snapshot_runs_no_major_collection(stock_pypy: PyPy) -> None:
    """tracemalloc.take_snapshot() has a forked process walk the heap instead.

    The number of minor collections is not checked, because it depends on the JIT, too.
    """
    script = stock_pypy.script("""
        import gc, json, sys
        from vmprof_allocation import tracemalloc
        counts = {"step": 0, "major": 0}
        def count(what):
            def hook(stats):
                counts[what] += getattr(stats, "count", 1)
            return hook
        gc.hooks.on_gc_collect_step = count("step")
        gc.hooks.on_gc_collect = count("major")

        heap = [[i] for i in range(int(sys.argv[1]))]
        gc.collect()
        tracemalloc.start(sample_interval=1000)
        kept = [[i] for i in range(10000)]
        # of themselves, major collections come no more
        gc.disable()
        tracemalloc.take_snapshot()
        before = dict(counts)
        snapshot = tracemalloc.take_snapshot()
        during = {what: counts[what] - before[what] for what in counts}
        gc.collect()
        # that the hooks hear of one
        after = counts["major"] - before["major"]
        print(json.dumps([len(snapshot.traces), during, after]))
        """)
    found = []
    for objects in 20_000, 400_000:
        run = stock_pypy.command(str(script), str(objects))
        assert (run.code, run.err) == (0, "")
        traces, during, after = json.loads(run.out)
        assert during["step"] == during["major"] == 0 < after
        # The sampled live objects include 10,000 lists of one number, with about 64
        # bytes each.
        assert 300 < traces < 2000
        found.append(traces)
    few, many = found
    assert abs(many - few) < few / 2
