"""Test rotation in rvmprof with the patches: segments together lose no sample.

As in test_rpython_rvmprof.py, the program is python2/targetscenarios.py, translated.
With fixed gaps, each byte whose number is a multiple of the sampling interval is
sampled.
"""
from __future__ import annotations

import collections
from pathlib import Path

import pytest
from test_rpython_guest import Guest
from test_rpython_rvmprof import INTERVAL, Run

from rpython_tree import built, parameters
from truth import SIGMAS, innermost, sigma, sigmas
from vmprof_convert import readers
from vmprof_convert.meaning.estimator import weight_objects
from vmprof_convert.profile.model import ALIVE, FREED, Profile

pytestmark = pytest.mark.translated

#: Indexes of the counts in the result of vmprof_allocation_statistics().
ALLOCATED, COLLECTIONS, SAMPLES, LOST, TIME_SAMPLES, DROPPED = range(6)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def parts(run: Run, count: int) -> list[Profile]:
    """Return the segments of a run, after checks.

    Each segment is complete, has the same run ID, and begins at the end of the previous
    segment.
    """
    found = [run.profile(number) for number in range(count)]
    for number, profile in enumerate(found, 1):
        assert profile.settings["run"] == "abc"
        assert profile.settings["engine"] == "builtin"
        assert profile.settings.get("part", "1") == str(number)
        assert profile.settings["pid"] == found[0].settings["pid"]
        assert profile.end_time is not None
        assert (profile.misfits, profile.torn) == (0, 0)
        assert not profile.unknown
        assert all(0 <= time <= profile.end for time in profile.samples.time)
        for stack in set(profile.samples.stack) - {-1}:
            assert innermost(profile, stack)
    clocks = [int(profile.settings["clock"]) for profile in found]
    assert clocks == sorted(set(clocks))
    return found


def totals(found: list[Profile], name: str) -> int:
    return sum(getattr(profile.moments[-1], name) for profile in found)


def allocation_samples(found: list[Profile]) -> int:
    return sum(sum(map(bool, profile.samples.size)) for profile in found)


def fates(profile: Profile, type_: str = "Node") -> collections.Counter[int]:
    """Return the number of inherited objects of this type by outcome."""
    return collections.Counter(
        carried.fate for carried in profile.samples.carried
        if profile.types[carried.type].python == type_)


def test_the_segments_together_are_the_run(run: Run) -> None:
    run("rotates", 6)
    assert (run.code, run.err) == (0, "")
    counted = [int(word) for word in run.out[-1].split()]
    found = parts(run, 6)
    assert totals(found, "allocated") == counted[ALLOCATED]
    assert totals(found, "collections") == counted[COLLECTIONS]
    assert totals(found, "lost") == counted[LOST]
    assert allocation_samples(found) == counted[SAMPLES]
    assert counted[ALLOCATED] // INTERVAL == counted[SAMPLES]
    for number, profile in enumerate(found, 1):
        functions = {innermost(profile, stack)
                     for stack in profile.samples.stack if stack >= 0}
        assert functions == {"kept" if number == 1 else "part%d" % number}


def test_live_objects_are_inherited(run: Run) -> None:
    """A segment inherits live objects with their stacks, types, sizes and intervals.

    No later segment inherits an object that a collection has found dead.
    """
    run("rotates", 6)
    found = parts(run, 6)
    kept = 100000 * 16 // INTERVAL
    assert not found[0].samples.carried
    for number, profile in enumerate(found[1:], 2):
        alive = kept if number <= 3 else 0
        of_nodes = fates(profile)
        assert sum(of_nodes.values()) == pytest.approx(alive, abs=2)
        assert set(of_nodes) <= {FREED if number == 3 else ALIVE}
        for carried in profile.samples.carried:
            if profile.types[carried.type].python != "Node":
                continue
            assert (carried.size, carried.interval) == (16, INTERVAL)
            assert innermost(profile, carried.stack) in (
                "kept", "part%d" % (number - 1))


def test_lives_go_on_in_later_parts(run: Run) -> None:
    run("rotates", 6)
    whole = readers.read([str(run.path(number)) for number in range(6)])
    assert whole.misfits == 0
    assert not whole.samples.carried
    of_kept = collections.Counter(
        fate for stack, fate, ended in zip(
            whole.samples.stack, whole.samples.fate, whole.samples.ended)
        if innermost(whole, stack) == "kept")
    assert set(of_kept) == {FREED}
    assert of_kept[FREED] == pytest.approx(100000 * 16 // INTERVAL, abs=2)


def test_without_lifetimes_nothing_is_carried_over(run: Run) -> None:
    run("rotates_without_lifetimes", 2)
    assert (run.code, run.out, run.err) == (0, [], "")
    for number, name in enumerate(("kept", "part2")):
        profile = run.profile(number)
        assert profile.end_time is not None and profile.misfits == 0
        assert not profile.samples.carried
        assert {innermost(profile, stack)
                for stack in profile.samples.stack} == {name}


def test_rotation_with_threads_and_time_samples(run: Run) -> None:
    run("rotates_often", 40)
    assert run.code == 0
    counted = [int(word) for word in run.out[-1].split()]
    found = parts(run, 40)
    for name, count in (("allocated", ALLOCATED), ("collections", COLLECTIONS),
                        ("lost", LOST)):
        assert totals(found, name) == counted[count], name
    # A CPU sample that is dropped while the last record is written is not in the
    # profile.
    assert totals(found, "dropped") <= counted[DROPPED]
    assert allocation_samples(found) == counted[SAMPLES]
    assert sum(len(profile.samples) for profile in found) \
        == counted[SAMPLES] + counted[TIME_SAMPLES]
    assert counted[TIME_SAMPLES] > 0


def test_a_failed_rotation_changes_nothing(run: Run) -> None:
    run("rotates_into_nothing", 2)
    assert (run.code, run.err) == (0, "")
    assert run.out == [
        # The program rotates without a profile, and in a profile of CPU samples.
        "part 2: allocations are not being sampled",
        "part 2: allocations are not being sampled",
        # The settings of the next segment are too long.
        "File name too long",
        "Bad file descriptor", "part 2: No space left on device",
        # The program has closed the file of the present segment.
        "part 2: the one before is not complete: Bad file descriptor"]
    profile = run.profile(1)
    assert {innermost(profile, stack) for stack in profile.samples.stack} == {"third"}
    assert len(profile.samples) == pytest.approx(100000 * 16 // INTERVAL, abs=2)
    assert profile.settings["part"] == "2"


@pytest.mark.parametrize("name", parameters("guest", "guest-jit"))
def test_rotation_in_an_interpreter(tmp_path: Path, name: str) -> None:
    """Functions, classes and sums are right if a guest program's loop rotates."""
    guest = Guest(built(name), tmp_path)
    (tmp_path / "p.guest").write_text("""
        (class Kept next)
        (class Lost next)
        (func keep (kept)
          (set i 0)
          (while (< i 20000) (set kept (new Kept kept)) (set i (+ i 1)))
          kept)
        (func lose (lost)
          (set i 0)
          (while (< i 50000) (set lost.next (new Lost)) (set i (+ i 1))))
        (func main ()
          (set kept nil)
          (set lost (new Lost))
          (set part 2)
          (while (< part 12)
            (set kept (keep kept))
            (lose lost)
            (rotate (list part ".vmprof"))
            (set part (+ part 1)))
          (print kept))
        """)
    run = guest("--allocation-sampling", "1k", "--allocation-seed", "1",
                "-o", "1.vmprof", "p.guest")
    assert (run.code, run.out) == (0, "<Kept>\n")
    assert run.err == "guest: the profile is in '11.vmprof'\n"
    found = [readers.read(tmp_path / ("%d.vmprof" % number))
             for number in range(1, 12)]
    for number, profile in enumerate(found[:-1], 1):
        assert profile.misfits == 0 and profile.end_time is not None
        kept = (number - 1) * 20000
        carried = [c for c in profile.samples.carried
                   if profile.types[c.type].python == "Kept"]
        assert (carried != []) == (kept > 0)
        # A Kept has 24 bytes.
        objects = sum(weight_objects(c.size, c.interval, profile.gaps)
                      for c in carried)
        assert {(c.size, c.fate) for c in carried} <= {(24, ALIVE)}
        assert {innermost(profile, c.stack) for c in carried} <= {"keep"}
        assert abs(objects - kept) <= SIGMAS * sigma(kept, 24, 1024) / 24
        assert abs(sigmas(profile)) < SIGMAS
    whole = readers.read([str(tmp_path / ("%d.vmprof" % number))
                          for number in range(1, 12)])
    assert whole.misfits == 0
    assert len(whole.samples) == sum(len(profile.samples) for profile in found)


def test_rotate_without_a_profile_does_nothing(tmp_path: Path) -> None:
    guest = Guest(built("guest"), tmp_path)
    (tmp_path / "p.guest").write_text('(func main () (rotate "2.vmprof"))')
    run = guest("p.guest")
    assert (run.code, run.out, run.err) == (0, "", "")
    assert not (tmp_path / "2.vmprof").exists()
    (tmp_path / "p.guest").write_text('(func main () (rotate "no/2.vmprof"))')
    run = guest("--allocation-sampling", "1k", "p.guest")
    assert run.code == 1
    assert run.err.splitlines() == [
        "guest: in main (p.guest:1): rotate: can't write the profile to "
        "'no/2.vmprof': No such file or directory",
        "guest: the profile is in 'out.vmprof'"]
    assert run.profile().end_time is not None
