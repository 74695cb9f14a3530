"""Test ended threads and repeated profiles of rvmprof with the patches.

The objects of ended threads have the right outcomes, and profiles leave nothing in the
process. As in test_rpython_rvmprof.py, the program is python2/targetscenarios.py,
translated.
"""
from __future__ import annotations

import collections
import re
from pathlib import Path

import pytest
from test_rpython_rvmprof import INTERVAL, SIZE, Run, near

from truth import innermost
from vmprof_convert.meaning.estimator import weight_objects
from vmprof_convert.profile.model import ALIVE, FREED, Profile

pytestmark = pytest.mark.translated

#: The number of nodes that each thread of scenario_lives.py makes.
COUNT = 30000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def fates(profile: Profile) -> dict[tuple[str, int], float]:
    """Return the estimated number of nodes by function and outcome."""
    result: dict[tuple[str, int], float] = collections.defaultdict(float)
    samples = profile.samples
    for stack, size, interval, fate in zip(samples.stack, samples.size,
                                           samples.interval, samples.fate):
        if size == SIZE and stack >= 0:
            result[innermost(profile, stack), fate] += weight_objects(
                size, interval, profile.gaps)
    return dict(result)


def test_objects_of_ended_threads_have_outcomes(run: Run) -> None:
    run("threads_end")
    assert (run.code, run.out, run.err) == (0, [], "")
    profile = run.profile()
    (mark,) = profile.marks
    found = fates(profile)
    assert set(found) == {("thread0", ALIVE), ("thread1", FREED), ("thread2", ALIVE)}
    for count in found.values():
        assert near(count, COUNT, INTERVAL)
    # The nodes died after the mark, and not because their thread had ended.  Other
    # sampled objects may have died before.
    samples = profile.samples
    ends = {ended for ended, fate, size in zip(
                samples.ended, samples.fate, samples.size)
            if fate == FREED and size == SIZE}
    assert ends and all(ended > mark.time for ended in ends)
    assert len({*profile.samples.thread}) == 3
    assert profile.bookkeeping > 0


@pytest.mark.hard
def test_10000_starts_and_stops_without_growth(run: Run) -> None:
    run("starts_and_stops")
    assert (run.code, run.err) == (0, "")
    size = re.compile(r"(?:first|last): (\d+) files, (\d+) threads, (\d+) pages")
    first, last = map(size.fullmatch, run.out)
    assert first is not None and last is not None
    assert last.group(1, 2) == first.group(1, 2)
    # A leak of one KiB per profile would add more than 2000 pages.
    assert int(last[3]) <= int(first[3]) + 500
