"""Test rvmprof.alive_allocations(), the list of live objects of a running program.

As in test_rpython_rvmprof.py, the program is python2/targetscenarios.py, translated.
"""
from __future__ import annotations

import re
from pathlib import Path

import pytest
from test_rpython_rvmprof import INTERVAL, Run

from vmprof_convert import readers

pytestmark = pytest.mark.translated

#: The number of sampled nodes with fixed gaps.  The program makes 100,000 nodes of 16
#: bytes.
NODES = 100000 * 16 // INTERVAL


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path)
    run("says_what_is_alive")
    assert (run.code, run.err) == (0, "")
    return run


def numbers(run: Run, what: str) -> list[int]:
    """Return the counts that the program prints under the name `what`.

    They are the live nodes in the list, the nodes with the right address among them,
    the estimated bytes of all live objects, and the maximum of this estimate.
    """
    line, = (line for line in run.out if line.startswith(what + ": "))
    return [int(number) for number in re.findall(r"\d+", line)]


def test_addresses_are_those_of_the_objects(run: Run) -> None:
    assert numbers(run, "begun")[:2] == [0, 0]
    nodes, right, _, _ = numbers(run, "kept")
    assert nodes == pytest.approx(NODES, abs=2)
    assert right == nodes


def test_bytes_are_those_of_all_that_is_alive(run: Run) -> None:
    _, _, before, _ = numbers(run, "begun")
    nodes, _, bytes_, most = numbers(run, "kept")
    assert bytes_ - before >= nodes * INTERVAL
    assert most >= bytes_
    _, _, dropped, most = numbers(run, "dropped")
    assert most >= bytes_ > dropped
    _, _, now, most = numbers(run, "peak reset")
    assert now <= most < bytes_


def test_ignored_objects_do_not_count(run: Run) -> None:
    assert [line for line in run.out if line.startswith("ignored: ")] \
        == ["ignored: 0", "ignored: 1"]
    assert numbers(run, "more, ignored")[:2] == numbers(run, "kept")[:2]
    assert numbers(run, "dropped")[:2] == [0, 0]


def test_forgotten_objects_do_not_count(run: Run) -> None:
    line, = (line for line in run.out if line.endswith(" words"))
    assert int(line.split()[0]) >= 7 * (NODES - 2)
    assert numbers(run, "forgotten")[:2] == [0, 0]
    nodes, right, _, _ = numbers(run, "new")
    assert nodes == pytest.approx(NODES, abs=2)
    assert right == nodes
    # At this point, only the forgotten objects are still alive.
    assert numbers(run, "old ones")[:2] == [0, 0]
    assert numbers(run, "off") == [0, 0, 0, 0]


def test_profile_contains_stacks_and_no_samples(run: Run) -> None:
    profile, stacks = readers.read_stacks(run.path(0).read_bytes(), range(1000))
    assert not profile.samples
    names = {profile.function(frame.address).name
             for number in stacks.values() for frame in profile.stacks[number]}
    assert {"kept", "again", "new"} <= names
    assert "ignored" not in names
    assert profile.types
