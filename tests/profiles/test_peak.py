"""Tests of `--at peak`, the moment with the largest number of live bytes."""
from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from made_heap import Heap
from made_profiles import Log
from report_runs import as_json, refused, report
from vmprof_convert import readers
from vmprof_convert.analysis.peak import Changes, time_of_peak


def found(heap: Heap, folder: Path) -> int | None:
    path = folder / "heap.vmprof"
    path.write_bytes(heap.data())
    changes = Changes()
    readers.read_into(path, changes)
    return time_of_peak([(changes.of_times, 0)])


def truth(heap: Heap) -> int:
    """Return the time of the largest number of live bytes.

    An object counts from the minor collection that it survives to the major collection
    that frees it.
    """
    changes: dict[int, int] = {}
    for one in heap.objects:
        if one.died_young:
            continue
        changes[one.collected] = changes.get(one.collected, 0) + one.size
        freed = next((major for major in heap.majors
                      if major >= one.death and major > one.collected), None)
        if freed is not None:
            changes[freed] = changes.get(freed, 0) - one.size
    alive, best, at = 0, 0, -1
    for time in sorted(changes):
        alive += changes[time]
        if alive > best:
            best, at = alive, time
    return at


@pytest.mark.parametrize("seed", range(10))
def test_peak_is_at_the_true_time(seed: int, tmp_path: Path) -> None:
    """The interval of one byte samples every object."""
    heap = Heap(interval=1, seed=seed)
    rng = random.Random(seed)
    for _ in range(3000):
        heap.allocate("main", ("a", rng.randrange(16, 400), rng.choice(
            (5, 5, 5, 100_000, 300_000, 10**6))))
    heap.collect()
    assert found(heap, tmp_path) == truth(heap)


def test_report_at_the_peak_has_the_live_objects_of_that_time(tmp_path: Path) -> None:
    heap = Heap(interval=1, nursery=1000, minors=2)
    for _ in range(100):
        heap.allocate("load", ("big", 100, 12_000))
    heap.collect()
    peak = heap.now
    for _ in range(300):
        heap.allocate("serve", ("small", 50, 0))
    heap.allocate("serve", ("kept", 70, math.inf))
    heap.collect()
    path = tmp_path / "load.vmprof"
    path.write_bytes(heap.data())
    at_end = as_json(path, "--by", "type")
    at_peak = as_json(path, "--by", "type", "--at", "peak")
    assert at_end["at"] is None and at_peak["at"] * 1e9 == pytest.approx(peak, abs=1)
    assert alive(at_end) == {"kept": 70} and alive(at_peak) == {"big": 10_000}
    # the time of the peak gives the same report
    assert alive(as_json(path, "--by", "type", "--at", "%.9f" % (peak / 1e9))) == (
        alive(at_peak))


def alive(content: dict[str, object]) -> dict[str, int]:
    rows = content["rows"]
    assert isinstance(rows, list)
    return {row["type"]["name"]: round(row["self"]["alive"]["bytes"]["value"])
            for row in rows if row["self"]["alive"]["bytes"]["value"]}


def test_peak_of_several_processes_on_one_clock() -> None:
    """The first process has its peak at 3 ns.

    The second process, which starts later, has its peak 1 ns after its start.
    """
    first, second = {1: 10.0, 3: 5.0, 5: -12.0}, {1: 9.0, 2: -9.0}
    assert time_of_peak([(first, 0)]) == 3
    assert time_of_peak([(second, 4)]) == 5
    assert time_of_peak([(first, 0), (second, 2)]) == 3
    assert time_of_peak([(first, 0), (second, 4)]) == 3
    assert time_of_peak([]) is None
    assert time_of_peak([({2: -1.0}, 0)]) is None


def test_refuses_profiles_without_a_peak(tmp_path: Path) -> None:
    log = Log()
    log.settings(facts="types,lifetimes")
    log.allocation([log.function("f")], size=16)
    path = tmp_path / "young.vmprof"
    path.write_bytes(log.data())
    assert refused(path, "--at", "peak").endswith(
        "there is no --at peak: no sampled object survived a minor collection")
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=16)
    path.write_bytes(log.data())
    assert "which --at peak needs: it was taken without lifetimes" in refused(
        path, "--at", "peak")
    assert "invalid number of seconds 'top': write 0 or more, such as 2.5, or peak" in (
        refused(path, "--at", "top"))
    done = report(Path("-"), "--at", "peak", program="convert")
    assert done.returncode == 2
    assert "standard input can be read only once" in done.stderr
