"""Tests that objects that may be garbage neither change a row nor fail a build.

The rows compare the live bytes of two runs, or of two moments.

Without a heap snapshot or a major collection at the end, the sampler cannot tell live
objects from garbage.
"""
from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from made_heap import Heap
from made_profiles import Log
from opened_page import opened
from vmprof_convert import cli, readers
from vmprof_convert.analysis import thresholds
from vmprof_convert.analysis.diff import (
    GREW,
    NOISE,
    SAME,
    SHRANK,
    UNCLEAR,
    compare,
    find_moment,
    of_moments,
    of_runs,
    verdict,
)
from vmprof_convert.analysis.summary import Choice
from vmprof_convert.meaning.lifetimes import is_alive_exact
from vmprof_convert.profile import merging
from vmprof_convert.profile.model import Profile

KB, MB = 1000, 1000_000
NURSERY = 400 * KB
#: bytes that a program allocates between two major collections
CYCLE = 10 * NURSERY


def heap_of(interval: int = 4 * KB, seed: int = 1) -> Heap:
    return Heap(interval=interval, seed=seed, nursery=NURSERY)


def ended(seed: int, cycles: float, *, leak: int = 0, interval: int = 4 * KB,
          collect: bool = False) -> Heap:
    """Return the heap of a program that keeps the same number of bytes, or leaks.

    The program also makes garbage, which becomes old before the program drops it.

    Args:
        seed: the seed of the samples.
        cycles: the length of the run, as a number of major collections.
        leak: bytes of objects that the program keeps after each major collection.
        interval: the mean number of bytes from one sample to the next.
        collect: whether the program calls gc.collect() at its end.
    """
    heap = heap_of(interval, seed)
    for _ in range(500):
        heap.allocate("main cache", ("dict", 2 * KB, math.inf))
    while heap.now < cycles * CYCLE:
        collections = len(heap.majors)
        heap.allocate("main handle", ("list", 2 * KB, MB))
        if leak and len(heap.majors) > collections:
            for _ in range(leak // (2 * KB)):
                heap.allocate("main keeps", ("str", 2 * KB, math.inf))
    if collect:
        for object_ in heap.objects:
            if object_.type == "list":
                object_.death = min(object_.death, heap.now)
        heap.collect()
    return heap


def said_of(before: Profile, after: Profile) -> dict[str, str]:
    result = compare(of_runs([before], [after]), Choice(sort="alive"))
    return {"in all": verdict(result.everything, "alive"), **{
        change.subject.function.name: verdict(change, "alive")
        for change in result.changes if change.subject and change.subject.function}}


# ____________________________________________________________
# after a major collection


@pytest.mark.parametrize("after, is_exact", [(0, True), (200 * KB, True),
                                             (300 * KB, False)])
def test_alive_is_exact_shortly_after_a_major_collection(
        after: int, is_exact: bool) -> None:
    heap = heap_of()
    heap.allocate("main f", ("list", 3 * MB, math.inf))
    heap.collect()
    heap.run(after)
    assert is_alive_exact(readers.read_bytes(heap.data())) is is_exact


def test_marks_after_a_major_collection() -> None:
    heap = heap_of()
    heap.allocate("main f", ("list", 3 * MB, math.inf))
    heap.mark("before")
    heap.collect()
    heap.mark("clean")
    heap.run(MB)
    heap.mark("dirty")
    heap.run(MB)
    heap.collect_minor()
    heap.mark("promoted")
    heap.collect()
    profile = readers.read_bytes(heap.data())
    assert [is_alive_exact(profile, find_moment(profile, name)) for name in (
        "before", "clean", "dirty", "promoted")] == [False, True, False, False]
    assert is_alive_exact(profile)


@pytest.mark.parametrize("marking, is_exact", [(20, False), (2, True)])
def test_objects_promoted_during_marking_may_be_garbage(
        marking: int, is_exact: bool) -> None:
    """A collection that is marking does not examine newly promoted objects."""
    log = Log()
    log.settings(facts="types,lifetimes", interval=1)
    f = log.function("f")
    for number in range(1, 4):
        log.allocation([f], size=MB, interval=1, time=10 * number - 5)
        log.allocated = number * MB
        log.collection(10 * number)
        log.event(1, 10 * number, 0, number * MB)
        log.young(number, 1)
    log.event(3, 35, marking, 1)
    assert is_alive_exact(readers.read_bytes(log.data())) is is_exact


def test_each_process_needs_a_collection() -> None:
    parts = []
    for begin, is_collected in ((0, True), (50 * MB, False)):
        heap = heap_of()
        heap.allocate("main f", ("list", MB, math.inf))
        if is_collected:
            heap.collect()
        parts.append(merging.Read(readers.read_bytes(heap.data()), "a", begin))
    for order in (parts, parts[::-1]):
        assert not is_alive_exact(merging.merge(order).profile)
    both = [parts[0], parts[0]._replace(begin=50 * MB)]
    assert is_alive_exact(merging.merge(both).profile)


# ____________________________________________________________
# differences


def test_equal_runs_that_end_at_different_points_do_not_differ() -> None:
    """One run ends soon after a major collection, and the other run long after one."""
    soon, late = (readers.read_bytes(ended(seed, cycles).data())
                  for seed, cycles in ((1, 3.1), (2, 3.9)))
    assert said_of(soon, late) == said_of(late, soon) == {
        "in all": UNCLEAR, "handle": UNCLEAR, "cache": NOISE}


def test_leak_is_found_between_exact_runs() -> None:
    before, after = (readers.read_bytes(
        ended(seed, cycles, leak=leaking, collect=True).data())
        for seed, cycles, leaking in ((1, 6.1, 0), (2, 6.9, 80 * KB)))
    assert said_of(before, after)["in all"] == said_of(before, after)["keeps"] == GREW
    assert said_of(after, before)["in all"] == said_of(after, before)["keeps"] == SHRANK


def test_only_the_larger_run_has_to_be_exact() -> None:
    profiles = []
    for leak, later in itertools.product((0, 800 * KB), (0, MB)):
        heap = ended(1, 6.9, leak=leak, collect=True)
        heap.run(later)
        profiles.append(readers.read_bytes(heap.data()))
    exact_few, few_later, exact_many, many_later = profiles
    assert said_of(few_later, exact_many)["in all"] == GREW
    assert said_of(exact_many, few_later)["in all"] == SHRANK
    assert said_of(exact_few, many_later)["in all"] == UNCLEAR
    assert said_of(many_later, exact_few)["in all"] == UNCLEAR


def test_equal_runs_that_end_anywhere_never_fail() -> None:
    """No run ends right after a collection, so that all may have garbage."""
    rng = random.Random(3)
    unclear = 0
    condition = thresholds.parse("alive growth > 0")
    for number in range(30):
        before, after = (readers.read_bytes(ended(
            2 * number + side, rng.choice((2, 3)) + 0.1 + 0.8 * rng.random(),
            interval=10 * KB).data())
            for side in range(2))
        result = compare(of_runs([before], [after]), Choice(sort="alive"))
        assert not any(one.has_changed for one in result.changes)
        assert not thresholds.of([condition], result)[0].failed
        unclear += verdict(result.everything, "alive") == UNCLEAR
    # if garbage counted, most of these pairs would have changed
    assert unclear > 15


def test_moments_of_a_run() -> None:
    heap = heap_of(interval=1)
    heap.allocate("main f", ("list", 5 * MB, math.inf))
    heap.collect()
    heap.mark("a")
    for name in "b", "c":
        heap.run(1)
        heap.allocate("main f", ("list", 3 * MB, math.inf))
        if name == "c":
            heap.collect()
        heap.mark(name)
    profile = readers.read_bytes(heap.data())

    def said(first: str, second: str) -> str:
        sides = of_moments(profile, find_moment(profile, first),
                           find_moment(profile, second))
        change, = compare(sides, Choice(sort="alive")).changes
        return verdict(change, "alive")

    assert [said("a", "b"), said("b", "c"), said("a", "c")] == [UNCLEAR, GREW, GREW]


def test_object_that_is_dropped_between_moments() -> None:
    heap = heap_of(interval=1)
    heap.allocate("main f", ("list", MB, math.inf))
    heap.collect()
    heap.mark("first")
    heap.run(1)
    heap.objects[0].death = heap.now
    heap.collect()
    heap.mark("second")
    profile = readers.read_bytes(heap.data())
    change, = compare(of_moments(profile, find_moment(profile, "first"),
                                 find_moment(profile, "second")),
                      Choice(sort="alive")).changes
    assert verdict(change, "alive") == SHRANK
    assert change.estimate("alive") == pytest.approx((-MB, -MB, -MB), abs=3)


def test_profile_compared_with_itself() -> None:
    profile = readers.read_bytes(ended(1, 2.9).data())
    assert set(said_of(profile, profile).values()) == {SAME}


# ____________________________________________________________
# commands


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write profiles of equal runs (soon, late, exact), and of a leak (leaks).

    Only the runs `exact` and `leaks` call gc.collect() at their end.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, heap in (("soon", ended(1, 6.1)), ("late", ended(2, 6.9)),
                       ("exact", ended(1, 6.1, collect=True)),
                       ("leaks", ended(3, 6.1, leak=800 * KB, collect=True))):
        (tmp_path / (name + ".vmprof")).write_bytes(heap.data())
    return tmp_path


GARBAGE = ("it is not certain that this is less than the limit, because it may "
           "contain garbage: neither a heap snapshot nor a major collection ended the "
           "run; call ")


@pytest.mark.parametrize("arguments, code, said", [
    (["diff", "soon.vmprof", "late.vmprof", "--fail-if", "alive growth > 5k"], 0,
     GARBAGE),
    (["diff", "soon.vmprof", "late.vmprof", "--fail-if", "alive growth > 5%"], 0,
     GARBAGE),
    (["diff", "exact.vmprof", "late.vmprof", "--fail-if", "alive growth > 5k"], 0,
     GARBAGE),
    (["diff", "soon.vmprof", "leaks.vmprof", "--fail-if", "alive growth > 5k"], 1,
     "failed: alive growth > 5k"),
    (["diff", "soon.vmprof", "leaks.vmprof", "--fail-if", "alive > 3M"], 1,
     "failed: alive > 3M"),
    (["diff", "exact.vmprof", "leaks.vmprof", "--fail-if", "alive growth > 5k"], 1,
     "failed: alive growth > 5k"),
    (["diff", "exact.vmprof", "leaks.vmprof", "--fail-if", "alive growth > 5%"], 1,
     "failed: alive growth > 5%"),
    (["check", "late.vmprof", "--fail-if", "alive > 150k"], 0, GARBAGE),
    (["check", "late.vmprof", "--fail-if", "alive > 1G"], 0, "passed: alive > 1G"),
    (["check", "leaks.vmprof", "--fail-if", "alive > 3M"], 1, "failed: alive > 3M"),
    (["check", "late.vmprof", "--fail-if", "allocated > 20M"], 1, "failed: allocated"),
])
def test_possible_garbage_does_not_fail_a_build(
        folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str],
        code: int, said: str) -> None:
    assert cli.main(arguments) == code
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("form", [[], ["--markdown"]])
@pytest.mark.parametrize("names, said", [
    (("late", "soon"), "late.vmprof and soon.vmprof may contain garbage"),
    (("late", "exact"), "survived: late.vmprof may contain garbage"),
    (("exact", "leaks"), "")])
def test_diff_names_the_profiles_that_may_contain_garbage(
        folder: Path, capsys: pytest.CaptureFixture[str], form: list[str],
        names: tuple[str, str], said: str) -> None:
    assert cli.main(["diff", *("%s.vmprof" % name for name in names),
                     *form]) == 0
    # the terminal may wrap lines anywhere
    out = " ".join(capsys.readouterr().out.split())
    assert said in out
    assert ("may contain garbage" in out) == bool(said)


def test_json_says_that_live_objects_may_be_garbage(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, exact in (("late", False), ("exact", True)):
        assert cli.main(["diff", "soon.vmprof", name + ".vmprof", "--sort", "alive",
                         "--json", "--fail-if", "alive growth > 0"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        (one,) = found["verdicts"]
        assert found["alive_is_exact"] == {"before": False, "after": exact}
        assert found["everything"]["is"] == "unclear"
        assert one["may_be_garbage"] is not exact


@pytest.mark.node
def test_page_does_not_colour_possible_garbage(folder: Path) -> None:
    for first, second, word, all_, said in (
            ("soon", "late", "Survived", "same", "may be garbage"),
            ("exact", "leaks", "Alive", "grew", "")):
        assert cli.main(["diff", first + ".vmprof", second + ".vmprof", "-o",
                         "x.html"]) == 0
        found = opened(folder / "x.html", "press " + word)
        assert found["changes"]["cache"] == "same"
        assert found["changes"]["all"] == all_
        if said:
            assert set(found["changes"].values()) == {"same"}
            assert said in found["said"]
            assert found["legend"][2] == "may be chance, or garbage"
        else:
            assert found["changes"]["keeps"] == "grew"
            assert found["legend"][2] == "may be chance"
