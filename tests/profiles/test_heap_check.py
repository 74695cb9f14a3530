"""Tests that compare the estimated live bytes with the GC's count of old objects.

The GC counts its old objects after each major collection. The report has a note if the
estimate contradicts this count.
"""
from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

import report_runs
from made_profiles import SWEPT, Log
from vmprof_convert import readers
from vmprof_convert.analysis import heap_check
from vmprof_convert.analysis.summary import summarize
from vmprof_convert.profile.model import Swept
from vmprof_convert.profile.probability import probability
from vmprof_convert.readers.records import SNAPSHOTS

MIB = 2**20
INTERVAL = 16384


def log(*swept: tuple[int, int, int, int]) -> Log:
    """Return a log with the numbers of some major collections, in bytes.

    Args:
        swept: for each collection, the GC's count, its count at the start of the
            sampling, the estimated live bytes, and the bytes with an unknown outcome.
    """
    made = Log()
    made.settings(facts="types,lifetimes")
    made.allocation([made.function("main")], size=100, time=10, interval=INTERVAL)
    for time, (heap, begin, *estimated) in enumerate(swept, 1):
        made.row(SWEPT, time * 10**9, heap, begin, *estimated, INTERVAL)
    return made


def said(folder: Path, *swept: tuple[int, int, int, int]) -> list[str]:
    path = folder / "app.vmprof"
    path.write_bytes(log(*swept).data())
    done = report_runs.report(path, "--json")
    assert done.returncode == 0, done.stderr
    return [line for line in json.loads(done.stdout)["remarks"]
            if line.startswith("wrong")]


def test_reader_returns_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "app.vmprof"
    path.write_bytes(log((100, 20, 90, 1), (200, -1, 180, 2)).data())
    assert readers.read(path).swept == [
        Swept(10**9, 100, 20, 90, 1, INTERVAL),
        Swept(2 * 10**9, 200, -1, 180, 2, INTERVAL)]


@pytest.mark.parametrize("heap, begin, alive, not_known", [
    # some of the objects from before the sampling were freed
    (100, 20, 80, 0), (100, 20, 100, 0), (100, 20, 90, 0),
    # within the confidence interval of 99.9 %
    (100, 20, 77, 0), (100, 20, 104, 0),
    # after an attach, most objects are from before the sampling
    (100, 95, 4, 0), (100, -1, 0, 0),
    # the outcome of some objects is unknown
    (100, 20, 50, 30),
    # about a dozen samples are expected, and no sample exists, or only a few
    (0.25, 0.1, 0, 0), (0.25, 0.05, 0.05, 0),
])
def test_no_note_if_the_numbers_agree(tmp_path: Path, heap: float, begin: float,
                                      alive: float, not_known: int) -> None:
    assert said(tmp_path, (int(heap * MIB), int(begin * MIB) if begin >= 0 else -1,
                           int(alive * MIB), not_known * MIB)) == []


def test_notes_an_estimate_that_is_too_large(tmp_path: Path) -> None:
    line, = said(tmp_path, (13 * MIB, 3 * MIB, 3758 * MIB, 0))
    assert line == (
        "wrong: 3.67 GiB are estimated to be alive, but the GC itself counts 13 MiB of "
        "old objects at 1.00 s: do not rely on the figures of live objects, and "
        "please report this")


def test_notes_an_estimate_that_is_too_small(tmp_path: Path) -> None:
    line, = said(tmp_path, (100 * MIB, 20 * MIB, 50 * MIB, 0))
    assert line.startswith(
        "wrong: only 50 MiB are estimated to be alive, but the GC itself counts 100 MiB"
        " of old objects at 1.00 s, and at most 20 MiB of them are from before the "
        "sampling")


def test_the_last_collection_counts(tmp_path: Path) -> None:
    assert not said(tmp_path, (13 * MIB, 3 * MIB, 3758 * MIB, 0),
                    (13 * MIB, 3 * MIB, 12 * MIB, 0))


#: arguments of log(): numbers that contradict each other, and numbers that agree
WRONG, RIGHT = ((100 * MIB, 20 * MIB, alive * MIB, 0) for alive in (50, 90))


@pytest.mark.parametrize("snapshot, is_said", [
    # while the fourth collection marked or swept, or (3.2 and 2.8) before it, because
    # objects that wait for a finalizer stay until the next collection
    (3.7, False), (3.95, False), (3.2, False), (2.8, False),
    # before the third collection, after the sweep of the fourth, or no snapshot
    (2.5, True), (4.1, True), (None, True)])
def test_snapshot_changes_what_is_compared(tmp_path: Path, snapshot: float | None,
                                           is_said: bool) -> None:
    """A snapshot may explain a difference between the estimate and the GC's count.

    The fourth collection marked from 3.4 s to 3.9 s, the third from 2.7 s to 2.9 s.
    """
    made = log(RIGHT, RIGHT, RIGHT, WRONG)
    for number, (ended, duration) in enumerate([(1.9, 0.2), (2.9, 0.2), (3.9, 0.5)]):
        made.event(3, int(ended * 10**9), int(duration * 10**9), number)
    if snapshot is not None:
        made.row(SNAPSHOTS, int(snapshot * 10**9), 5, MIB, 1000, 1000, 1000, 5, 10**6)
    path = tmp_path / "app.vmprof"
    path.write_bytes(made.data())
    assert bool(heap_check.contradiction(readers.read(path))) is is_said


def test_numbers_before_a_snapshot_count(tmp_path: Path) -> None:
    for numbers in (WRONG, RIGHT), (RIGHT, WRONG):
        made = log(*numbers)
        made.row(SNAPSHOTS, 15 * 10**8, 5, MIB, 1000, 1000, 1000, 5, 10**6)
        path = tmp_path / "app.vmprof"
        path.write_bytes(made.data())
        assert bool(heap_check.contradiction(readers.read(path))) is (
            numbers[0] is WRONG)


def test_no_note_before_the_first_sample(tmp_path: Path) -> None:
    """The sampling interval is 1 GiB at first, and is reduced later."""
    made = Log()
    made.settings(facts="types,lifetimes", interval=2**30)
    main = made.function("main")
    made.row(SWEPT, 10**9, 35 * MIB, 6 * MIB, 0, 0, 0)
    path = tmp_path / "app.vmprof"
    path.write_bytes(made.data())
    assert not heap_check.contradiction(readers.read(path))
    for _ in range(20):
        made.allocation([main], size=100, time=2 * 10**9, interval=INTERVAL)
    path.write_bytes(made.data())
    profile = readers.read(path)
    assert not heap_check.contradiction(profile)
    # more than two large intervals may have passed without a sample
    assert 2 * 2**30 < summarize(profile).bytes[2] < 3 * 2**30


def test_no_note_without_the_numbers_of_the_gc(tmp_path: Path) -> None:
    assert not said(tmp_path)


def test_a_bound_is_never_negative() -> None:
    least, most = heap_check.bounds(Swept(1, 5 * MIB, 50 * MIB, 4 * MIB, 0, INTERVAL))
    assert least == 0.0 < most


@pytest.mark.parametrize("objects", [3, 40, 200, 1000, 20_000])
def test_chance_seldom_contradicts(objects: int) -> None:
    """Test 20,000 heaps of equal objects, each with its own choice of samples.

    The bounds are for 99.9 %, so that about 20 estimates are outside.
    """
    size = 800
    p = probability(size, INTERVAL, "exponential")
    least, most = heap_check.bounds(Swept(1, objects * size, 0, 0, 0, INTERVAL))
    chance = random.Random(objects)
    estimates = (sum(1 for _ in range(objects) if chance.random() < p) * size / p
                 for _ in range(20_000)) if objects <= 1000 else (
        chance.gauss(objects * p, math.sqrt(objects * p * (1 - p))) * size / p
        for _ in range(20_000))
    outside = sum(not least <= estimate <= most for estimate in estimates)
    assert outside <= 20 + 4 * math.sqrt(20)
