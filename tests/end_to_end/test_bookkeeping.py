"""What following objects takes in the program's process: bounded, and given back."""
from __future__ import annotations

import json

import pytest

from conftest import PyPy
from vmprof_convert.model import ALIVE

MIB = 2**20


def test_memory_for_a_heap_of_1_gib(stock_pypy: PyPy) -> None:
    """At 128k, as many samples are alive in it as here, at 8k, of 64 MiB."""
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
    alive = [*run.profile().samples.fate].count(ALIVE)
    assert 7500 < alive < 9500
    # an address, and what else there is of each
    assert alive * 16 <= int(run.out) < 16 * MIB


@pytest.mark.hard
def test_10000_starts_and_stops_without_growth(stock_pypy: PyPy) -> None:
    """Each with objects that are followed, and collections that judge them."""
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
    # a KiB in each of them would be 9000
    assert last[2] < first[2] + 4096
