"""Test the sizes of the GC's heap that the builtin engine records.

As in test_rpython_rvmprof.py, the program is python2/targetscenarios.py, translated.
"""
from __future__ import annotations

from pathlib import Path

import pytest
from test_rpython_rvmprof import Run

from vmprof_convert.analysis.process_memory import of_process, peak, readings
from vmprof_convert.profile.model import HEAP, HEAP_HAS, NURSERY

pytestmark = pytest.mark.translated

#: the nursery of test_rpython_rvmprof.py's Run
NURSERY_SIZE = 2**20
#: The bytes that heap_of_the_gc() of scenario_lives.py keeps in arenas, and the bytes
#: of its large objects.
KEPT, LARGE = 16000000, 30000000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_the_heap_contains_the_kept_objects(run: Run) -> None:
    run("heap_of_the_gc")
    assert (run.code, run.out, run.err) == (0, [], "")
    profile = run.profile()
    heap = readings(profile, HEAP)
    began, kept, more, dropped = (
        [figure.value for figure in heap if figure.time <= mark.time][-1]
        for mark in profile.marks)
    assert {figure.value for figure in readings(profile, NURSERY)} == {NURSERY_SIZE}
    assert NURSERY_SIZE < began < 2 * NURSERY_SIZE
    # The size may be wrong by 1/128, because smaller changes are not recorded.
    assert abs(kept - began - KEPT) < kept / 100
    assert abs(more - kept - LARGE) < more / 100
    assert abs(dropped - began) < began / 2
    most = peak(heap)
    assert more <= most.value < 2 * more
    assert profile.marks[0].time < most.time < profile.marks[3].time
    # RPython 0.2.1 does not count the memory that it gets from the system.
    assert not readings(profile, HEAP_HAS)
    assert "GC heap: " in of_process(profile)[-1]


def test_each_segment_has_its_heap_sizes(run: Run) -> None:
    """Segment 1 makes objects that count as heap until segment 3 drops them."""
    run("rotates", files=3)
    first, second, third = (
        [figure.value for figure in readings(run.profile(number), HEAP)]
        for number in range(3))
    nodes = 1600000
    assert max(first) > NURSERY_SIZE + nodes
    assert min(second) > NURSERY_SIZE + nodes
    assert min(third) < NURSERY_SIZE + nodes < max(third)


def test_each_of_two_profiles_has_its_heap_sizes(run: Run) -> None:
    run("again", files=2)
    for number in range(2):
        assert len(readings(run.profile(number), HEAP)) >= 1
