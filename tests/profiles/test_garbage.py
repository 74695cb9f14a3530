"""What counts as alive, and may be garbage that no major collection has met: no
difference, and no reason to fail."""
from __future__ import annotations

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
from vmprof_convert.analysis import diff, thresholds
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
from vmprof_convert.analysis.summary import Choice, Figures, summarize
from vmprof_convert.meaning.lifetimes import JUDGED, STILL_ALIVE
from vmprof_convert.profile import merging
from vmprof_convert.profile.model import PENDING, Profile
from vmprof_convert.report import caveats

#: a cycle of made_heap's collector, in bytes
CYCLE = 200_000


def figures(profile: Profile) -> Figures:
    return summarize(profile, choice=Choice(judged=True)).figures


def bytes_of(profile: Profile) -> tuple[float, float]:
    """What counts as alive, and what of it was judged."""
    sums = figures(profile)
    return (round(sums.sum(STILL_ALIVE).value_bytes, 3),
            round(sums.sum(JUDGED).value_bytes, 3))


def ended(seed: int, cycles: float, *, leak: int = 0, interval: int = 200,
          collect: bool = False) -> Heap:
    """A program that holds the same all the time, whose garbage gets old before it is
    dropped; `cycles` of the collector long.  `leak`: bytes of objects that stay, too,
    behind each collection."""
    heap = Heap(interval=interval, seed=seed)
    for _ in range(500):
        heap.allocate("main cache", ("dict", 100, math.inf))
    while heap.now < cycles * CYCLE:
        collections = len(heap.majors)
        heap.allocate("main handle", ("list", 100, 50_000))
        if leak and len(heap.majors) > collections:
            for _ in range(leak // 100):
                heap.allocate("main keeps", ("str", 100, math.inf))
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
# what was judged


def test_what_was_old_before_the_last_marking_ended_was_judged() -> None:
    heap = Heap(interval=1)
    heap.allocate("main f", ("list", 3000, math.inf))
    heap.collect()
    heap.log.mark(heap.now, "clean")
    heap.run(1)
    heap.allocate("main f", ("list", 1000, 10))
    heap.log.mark(heap.now, "dirty")
    heap.run(100)
    heap.collect_minor()
    heap.log.mark(heap.now, "promoted")
    heap.run(1)
    heap.collect()
    profile = readers.read_bytes(heap.data())
    assert [bytes_of(diff.moment(profile, find_moment(profile, name))) for name in (
        "clean", "dirty", "promoted")] == [(3000, 3000), (4000, 3000), (3000, 3000)]
    assert bytes_of(profile) == (3000, 3000)


def test_what_a_minor_collection_promotes_is_not_judged_before_the_next_major_one(
        ) -> None:
    for has_major, expected in ((False, (1024, 0)), (True, (1048, 1024))):
        heap = Heap(interval=1)
        heap.allocate("main f", ("list", 1024, 10))
        heap.allocate("main f", ("list", 1024, math.inf))
        heap.collect_minor()
        if has_major:
            # this marking did not look at what is promoted now
            heap.allocate("main f", ("list", 24, math.inf))
            heap.collect_minor()
            heap.mark_and_sweep()
        assert bytes_of(readers.read_bytes(heap.data())) == expected


def test_what_is_in_the_nursery_at_the_end_was_not_judged_at_any_moment() -> None:
    heap = Heap(interval=1)
    heap.allocate("main f", ("list", 1000, math.inf))
    heap.collect()
    heap.run(1)
    heap.allocate("main f", ("list", 24, math.inf))
    profile = readers.read_bytes(heap.data())
    assert PENDING in profile.samples.fate
    assert bytes_of(profile) == bytes_of(diff.moment(profile, heap.now)) == (1024, 1000)


def test_each_process_is_judged_by_its_own_collections() -> None:
    """Whenever it began."""
    parts = []
    for begin, is_collected in ((0, True), (50_000, False)):
        heap = Heap(interval=1)
        heap.allocate("main f", ("list", 1000, math.inf))
        heap.collect_minor()
        heap.run(1)
        if is_collected:
            heap.mark_and_sweep()
        parts.append(merging.Read(readers.read_bytes(heap.data()), "a", begin))
    for order in (parts, parts[::-1]):
        merged = merging.merge(order).profile
        assert bytes_of(merged) == (2000, 1000)
        assert bytes_of(diff.moment(merged, 60_000)) == (2000, 1000)
        # this is before the marking of the first one ended
        assert bytes_of(diff.moment(merged, 1000)) == (1000, 0)


def test_what_was_carried_over_is_judged_in_its_new_part() -> None:
    """By a major collection of that part: of earlier ones, it knows nothing."""
    for has_major, expected in ((False, (64, 0)), (True, (64, 48))):
        log = Log()
        log.settings(facts="types,lifetimes", part=2, first=3, interval=1)
        log.keys = 2
        log.allocation([log.function("g")], size=24, interval=1, time=5)
        log.inherited(1, None, size=48, interval=1)
        log.earlier(2, None, size=16, interval=1)
        if has_major:
            log.event(3, 25, 0, 7)
        log.collection(30)
        log.young(2, 1)
        log.young(3, 0)
        assert bytes_of(readers.read_bytes(log.data())) == expected


def test_what_became_old_while_it_was_marking_may_be_garbage() -> None:
    """It counts as alive for this collection, and as nothing is known of it, as garbage
    for who judges; what became old before was looked for."""
    log = Log()
    log.settings(facts="types,lifetimes", interval=1)
    f = log.function("f")
    for number, size in enumerate((16, 32, 64), 1):
        log.allocation([f], size=size, interval=1, time=10 * number - 5)
        log.collection(10 * number)
        log.young(number, 1)
    log.event(3, 35, 20, 1)
    assert bytes_of(readers.read_bytes(log.data())) == (112, 16)


# ____________________________________________________________
# what is said of a difference


def test_equal_runs_that_end_at_different_points_do_not_differ() -> None:
    """One right behind a major collection, the other long after it."""
    soon, late = (readers.read_bytes(ended(seed, cycles).data())
                  for seed, cycles in ((1, 3.1), (2, 3.9)))
    # all that differs is garbage, and that is far more than chance
    assert bytes_of(late)[0] > 1.3 * bytes_of(soon)[0]
    assert said_of(soon, late) == said_of(late, soon) == {
        "in all": UNCLEAR, "handle": UNCLEAR, "cache": NOISE}


def test_a_row_that_changed_stands_beside_one_of_garbage() -> None:
    soon, late = (readers.read_bytes(ended(seed, cycles, leak=leak).data())
                  for seed, cycles, leak in ((1, 3.1, 0), (2, 3.9, 20_000)))
    assert said_of(soon, late) == {
        "in all": UNCLEAR, "handle": UNCLEAR, "keeps": GREW, "cache": NOISE}
    assert said_of(late, soon)["keeps"] == SHRANK


@pytest.mark.parametrize("collect", [True, False], ids=["collected", "as it ended"])
def test_what_is_kept_is_found(collect: bool) -> None:
    """Where the garbage is collected, a small leak; otherwise one that is larger than
    the garbage that there may be."""
    leak = 4000 if collect else 40_000
    before, after = (readers.read_bytes(
        ended(seed, cycles, leak=leaking, collect=collect).data())
        for seed, cycles, leaking in ((1, 6.1, 0), (2, 6.9, leak)))
    assert said_of(before, after)["in all"] == GREW
    assert said_of(after, before)["in all"] == SHRANK


def test_of_equal_runs_that_end_anywhere_hardly_one_differs_and_none_fails() -> None:
    """Of 60 pairs; 5 of 100 may have a row that changed, so that 10 have a probability
    of 1e-3.  Without a look at what was judged, most would."""
    rng = random.Random(3)
    changed = failed = unclear = 0
    condition = thresholds.parse("alive growth > 0")
    for number in range(60):
        before, after = (readers.read_bytes(ended(
            2 * number + side, 2 + 2 * rng.random(), interval=500).data())
            for side in range(2))
        result = compare(of_runs([before], [after]), Choice(sort="alive"))
        changed += any(one.has_changed for one in result.changes)
        unclear += result.everything.may_be_garbage
        failed += thresholds.of([condition], result)[0].failed
    assert (failed, changed < 10, unclear > 20) == (0, True, True)


def test_between_moments_without_a_collection_nothing_is_clear() -> None:
    heap = Heap(interval=1)
    heap.allocate("main f", ("list", 5000, math.inf))
    heap.collect()
    heap.log.mark(heap.now, "a")
    for name in "b", "c":
        heap.run(1)
        heap.allocate("main f", ("list", 3000, math.inf))
        if name == "c":
            heap.collect()
        heap.log.mark(heap.now, name)
    profile = readers.read_bytes(heap.data())

    def said(first: str, second: str) -> str:
        sides = of_moments(profile, find_moment(profile, first),
                           find_moment(profile, second))
        change, = compare(sides, Choice(sort="alive")).changes
        return verdict(change, "alive")

    assert [said("a", "b"), said("b", "c"), said("a", "c")] == [UNCLEAR, GREW, GREW]


def test_what_was_garbage_at_the_first_moment_has_not_shrunk() -> None:
    heap = Heap(interval=1)
    heap.allocate("main f", ("list", 1000, 10))
    heap.log.mark(heap.now, "dirty")
    heap.run(100)
    heap.collect()
    heap.log.mark(heap.now, "clean")
    profile = readers.read_bytes(heap.data())
    change, = compare(of_moments(profile, find_moment(profile, "dirty"),
                                 find_moment(profile, "clean")),
                      Choice(sort="alive")).changes
    assert verdict(change, "alive") == UNCLEAR
    assert change.estimate("alive") == pytest.approx((-1000, -1000, 0), abs=3)


@pytest.mark.parametrize("survives, runs_on, expected", [
    (0, True, UNCLEAR), (1, True, SHRANK), (0, False, SHRANK)],
    ids=["dropped before or behind", "certainly behind", "collected at the moment"])
def test_what_a_collection_found_alive_may_have_been_dropped_before_the_moment(
        survives: int, runs_on: bool, expected: str) -> None:
    """The next one tells, if the program ran between the one before and the moment."""
    heap = Heap(interval=1)
    heap.allocate("main f", ("list", 1000, math.inf))
    heap.collect()
    if runs_on:
        heap.allocate("main g", ("str", 100, 10))
    heap.log.mark(heap.now, "first")
    heap.run(1)
    for _ in range(survives):
        heap.collect()
    heap.objects[0].death = heap.now
    heap.collect()
    heap.log.mark(heap.now, "second")
    profile = readers.read_bytes(heap.data())
    changes = compare(of_moments(profile, find_moment(profile, "first"),
                                 find_moment(profile, "second")),
                      Choice(sort="alive")).changes
    assert {change.subject.function.name: verdict(change, "alive") for change in changes
            if change.subject and change.subject.function}["f"] == expected


def test_what_was_dropped_before_a_moment_is_told_by_its_own_process() -> None:
    """By its next collection, and not by one of another that comes before or behind."""
    parts = []
    for survives, runs_on in ((False, 9000), (True, 1000)):
        heap = Heap(interval=1)
        heap.allocate("main f", ("list", 1000, math.inf))
        heap.collect()
        heap.allocate("main g", ("str", 100, 10))
        moment = heap.now
        heap.run(runs_on)
        if survives:
            heap.collect()
            heap.run(1000)
        heap.objects[0].death = heap.now
        heap.collect()
        parts.append(merging.Read(readers.read_bytes(heap.data()), "a", 0))
    for order in (parts, parts[::-1]):
        merged = merging.merge(order).profile
        assert bytes_of(diff.moment(merged, moment)) == (2200, 1000)


def test_a_profile_beside_itself_is_the_same_with_all_its_garbage() -> None:
    profile = readers.read_bytes(ended(1, 2.9).data())
    assert set(said_of(profile, profile).values()) == {SAME}


# ____________________________________________________________
# the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """soon and late are of equal runs; leaks holds more."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, heap in (("soon", ended(1, 6.1)), ("late", ended(2, 6.9)),
                       ("leaks", ended(3, 6.1, leak=40_000))):
        (tmp_path / (name + ".vmprof")).write_bytes(heap.data())
    return tmp_path


@pytest.mark.parametrize("arguments, code, said", [
    (["diff", "soon.vmprof", "late.vmprof", "--fail-if", "alive growth > 5k"], 0,
     " may be garbage, as no major collection has begun since it became old: call "),
    (["diff", "soon.vmprof", "late.vmprof", "--fail-if", "alive growth > 5%"], 0,
     " may be garbage, as no major collection has begun since it became old: call "),
    (["diff", "soon.vmprof", "leaks.vmprof", "--fail-if", "alive growth > 5k"], 1,
     "failed: alive growth > 5k"),
    (["diff", "soon.vmprof", "leaks.vmprof", "--fail-if", "alive growth > 5%"], 1,
     "failed: alive growth > 5%"),
    (["check", "late.vmprof", "--fail-if", "alive > 150k"], 0,
     " may be garbage, as no major collection has begun since it became old: call "),
    (["check", "leaks.vmprof", "--fail-if", "alive > 150k"], 1, "failed: alive > 150k"),
    (["check", "late.vmprof", "--fail-if", "allocated > 1M"], 1, "failed: allocated"),
])
def test_garbage_fails_no_build(
        folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str],
        code: int, said: str) -> None:
    assert cli.main(arguments) == code
    assert said in " ".join(capsys.readouterr().out.split())


def test_all_forms_say_what_may_be_garbage(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = {}
    for form in ("table", "markdown", "json"):
        assert cli.main(["diff", "late.vmprof", "late.vmprof", "--to", form]) == 0
        # lines of a terminal end anywhere
        out = " ".join(capsys.readouterr().out.split())
        named[form] = out.count(" in late.vmprof"), out.count(" may be garbage, as ")
    assert named == {"table": (2, 1), "markdown": (2, 1), "json": (0, 2)}
    for condition, times in (("alive > 1G", 1), ("allocated > 1G", 0)):
        assert cli.main(["check", "late.vmprof", "--fail-if", condition]) == 0
        assert capsys.readouterr().out.count(" may be garbage, as ") == times


def test_where_there_is_hardly_any_nothing_is_said() -> None:
    heap = ended(1, 2.5, collect=True)
    assert not caveats.not_judged(
        "survived", ("", figures(readers.read_bytes(heap.data()))))


def test_it_is_in_the_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "soon.vmprof", "late.vmprof", "--sort", "alive", "--json",
                     "--fail-if", "alive growth > 0"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    everything, (one,) = found["everything"], found["verdicts"]
    late = figures(readers.read("late.vmprof"))
    garbage = late.bytes(STILL_ALIVE).value - late.bytes(JUDGED).value
    assert everything["is"] == "unclear"
    assert everything["after"]["may_be_garbage"] == one["may_be_garbage"] == (
        pytest.approx(garbage))
    assert everything["change"]["low"] < 0 < everything["change"]["value"]


@pytest.mark.node
def test_the_page_colours_no_garbage(folder: Path) -> None:
    for other, said in (("late", "may be garbage"), ("leaks", "grew")):
        assert cli.main(["diff", "soon.vmprof", other + ".vmprof", "-o",
                         "x.html"]) == 0
        found = opened(folder / "x.html", "press Survived")
        assert found["changes"]["cache"] == "same"
        if said == "grew":
            assert found["changes"]["keeps"] == found["changes"]["all"] == "grew"
        else:
            assert set(found["changes"].values()) == {"same"}
            assert said in found["said"]
