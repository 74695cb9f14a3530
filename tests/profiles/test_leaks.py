"""Tests of the search for leaks in simulations.

The live bytes of a leak grow and continue to grow. The simulations also contain
caches, queues and other objects that are not a leak.
"""
from __future__ import annotations

import io
import json
import math
import random
import re
from pathlib import Path

import pytest

from made_heap import Heap
from made_leaks import (
    INTERVAL,
    a_process,
    brief,
    cache,
    churn,
    found,
    last_used,
    leak,
    queue,
    run_of,
    settled,
    times,
    types,
)
from made_profiles import Log
from report_runs import lines, refused, report
from vmprof_convert import readers
from vmprof_convert.analysis.leaks.search import (
    OldObjects,
    Process,
    find_leaks,
)
from vmprof_convert.analysis.leaks.statistics import rises, sign_test
from vmprof_convert.analysis.leaks.windows import find_windows
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Collection, Columns, Profile
from vmprof_convert.report.leaks.as_json import SCHEMA, content_of_process
from vmprof_convert.report.leaks.text import write_leaks
from vmprof_convert.text.terminal import Terminal

#: a terminal that is wide enough for all lines
WIDE = Terminal(1000)

WITHOUT = {"churn": churn, "last used": last_used, "settled": settled,
           "brief": brief}


@pytest.mark.parametrize("seed", range(20))
def test_finds_a_leak_among_sites_without_leaks(seed: int) -> None:
    rng = random.Random(seed)
    result = found([made(rng) for made in WITHOUT.values()] + [leak(rng)])
    (one,) = result.leaks
    assert [site.type.name for site in one.types] == ["t4"]
    assert [place.function.name for place in one.places] == ["f4", "main"]
    assert one.types[0].p < 1e-6


def test_distinguishes_a_cache_that_fills_from_a_leak() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        result = found([cache(rng), leak(rng)])
        assert types(result.leaks) == [["t1"]]
        assert types(result.slowing) == [["t0"]]


# False alarms are allowed in 5 % of the runs plus four standard deviations. In 97 of
# 100 cases, 50 runs detect false alarms in 30 % of the runs, and 200 runs in 18 %.
@pytest.mark.slow
@pytest.mark.parametrize("runs", [50, pytest.param(200, marks=pytest.mark.hard)])
def test_false_alarms_are_at_most_as_frequent_as_stated(runs: int) -> None:
    """In these runs, objects appear and disappear one by one."""
    rng = random.Random(1)
    alarms = 0
    for _ in range(runs):
        sites = [rng.choice([*WITHOUT.values()])(rng) for _ in range(12)]
        alarms += bool(found(sites).leaks)
    assert alarms <= runs * 0.05 + 4 * math.sqrt(runs * 0.05 * 0.95)


@pytest.mark.slow
def test_objects_that_appear_in_groups_are_not_a_leak() -> None:
    """The sign test alone would report every eighth queue, which is 50 of 400."""
    rng = random.Random(3)
    runs = 400
    alarms = sum(bool(found([queue(rng)]).leaks) for _ in range(runs))
    assert alarms <= runs * 0.05 + 4 * math.sqrt(runs * 0.05 * 0.95)


def test_replaced_objects_are_not_a_leak_with_three_collections() -> None:
    """By chance, the objects of a queue increase twice in one of six runs."""
    rng = random.Random(4)
    runs = 400
    alarms = sum(bool(found([queue(rng)], [5, 12, 20]).leaks) for _ in range(runs))
    assert alarms <= runs * 0.05 + 4 * math.sqrt(runs * 0.05 * 0.95)
    assert types(found([queue(rng), leak(rng)], [5, 12, 20]).leaks) == [["t1"]]


def test_objects_that_stay_are_reported_before_a_queue() -> None:
    """The queue is second even if it grows more.

    Its objects wait for 2 s at the beginning of the run, and for 7 s at the end.
    """
    rng = random.Random(5)
    backlog = [(t, t + 2 + t / 4) for t in times(rng, lambda t: 160, 160)]
    result = found([backlog, leak(rng)])
    assert types(result.leaks) == [["t1"], ["t0"]]
    kept, replaced = result.leaks
    assert kept.stayed == 1.0
    assert replaced.stayed is not None and replaced.stayed < 0.1
    assert replaced.growth.value > kept.growth.value
    text = io.StringIO()
    write_leaks(run_of(range(2, 21)), result, text, terminal=WIDE)
    assert text.getvalue().count(
        "the objects come and go, as in a queue: of the objects of the first window, 0 "
        "% existed at the end of the second\n") == 1
    assert [one["stayed"] for one in content_of_process(
        run_of(range(2, 21)), result)["leaks"]] == [1.0, replaced.stayed]


@pytest.mark.slow
@pytest.mark.parametrize("rate", [3, 10, 40])
def test_interval_of_the_growth_contains_the_truth(rate: float) -> None:
    """The allocation site of the leak also has short-lived objects."""
    rng = random.Random(4)
    # The bounds are 95 % of 200 runs, plus and minus 2.6 standard deviations.
    runs, held, seen = 200, 0, 0
    for _ in range(runs):
        result = found([leak(rng, rate) + churn(rng, rate)])
        if not result.leaks:
            continue
        seen += 1
        one, = result.leaks
        truth = rate * sum(result.seconds) * 16 / -math.expm1(-16 / INTERVAL)
        held += one.growth.low <= truth <= one.growth.high
    # if some leaks are not found, the estimates of the others are too large
    assert seen > (0.99 if rate > 3 else 0.4) * runs
    if rate > 3:
        assert 0.91 <= held / seen <= 0.985


def test_limit_is_the_growth_that_can_just_be_found() -> None:
    rng = random.Random(5)
    limit = found([leak(rng)]).limit
    rate = limit * -math.expm1(-16 / INTERVAL) / 16
    seen = [sum(bool(found([leak(rng, rate * factor)]).leaks)
                for _ in range(100)) for factor in (0.2, 1.5)]
    assert seen[0] < 20 and seen[1] > 80


def test_garbage_does_not_hide_a_leak_of_the_same_site() -> None:
    """A loop keeps 2 % of the objects that it makes."""
    rng = random.Random(6)
    for _ in range(20):
        assert found([leak(rng, 10) + brief(rng, 490)]).leaks


def test_growth_that_happens_once_is_not_a_leak() -> None:
    rng = random.Random(7)
    for born in range(1, 20):
        lives = [(born + rng.random(), math.inf) for _ in range(500)]
        assert not found([lives]).leaks


def test_storage_that_doubles_is_one_object() -> None:
    """A table that is replaced by a larger one grows, but does not prove a leak."""
    sizes = [(2.0**n, 2.0**(n + 1)) for n in range(4)] + [(16.0, math.inf)]
    assert not found([sizes]).leaks


# ________________________________________
# several processes of the same program


def test_processes_together_show_a_leak_that_none_shows_alone() -> None:
    rng = random.Random(9)
    alone, together = 0, 0
    for _ in range(20):
        # each process has its own number and times of collections
        processes = [a_process([churn(rng), leak(rng, 0.6)], [
            1 + 19 * (number + rng.random()) / count for number in range(count)])
            for count in (rng.randrange(8, 60) for _ in range(8))]
        alone += sum(bool(find_leaks([process]).leaks) for process in processes)
        result = find_leaks(processes)
        together += types(result.leaks) == [["t1"]]
        assert [place.function.name for one in result.leaks
                for place in one.places] == ["f1", "main"] * len(result.leaks)
    assert together > 16 and alone < 40


@pytest.mark.slow
@pytest.mark.parametrize("runs", [20, pytest.param(60, marks=pytest.mark.hard)])
def test_false_alarms_of_several_processes_are_not_more_frequent(runs: int) -> None:
    """In 95 of 100 cases, the test detects a rate of false alarms that is too high.

    The detected rate is 40 % with 20 runs, and 27 % with 60 runs.
    """
    rng = random.Random(10)
    alarms = 0
    for _ in range(runs):
        kinds = [rng.choice([*WITHOUT.values()]) for _ in range(6)]
        alarms += bool(find_leaks([
            a_process([kind(rng) for kind in kinds], range(rng.randrange(2, 9), 21))
            for _ in range(4)]).leaks)
    assert alarms <= runs * 0.05 + 4 * math.sqrt(runs * 0.05 * 0.95)


def test_growth_of_several_processes_is_the_sum() -> None:
    rng = random.Random(11)
    processes = [a_process([leak(rng)]) for _ in range(3)]
    alone = [find_leaks([process]) for process in processes]
    together = find_leaks(processes)
    assert together.growth.value == pytest.approx(
        sum(one.growth.value for one in alone))
    assert together.seconds == alone[0].seconds
    assert together.allocated == sum(one.allocated for one in alone)
    width = together.growth.high - together.growth.value
    assert width == pytest.approx(math.hypot(*(
        one.growth.high - one.growth.value for one in alone)), rel=0.05)


# ________________________________________
# statistical tests


@pytest.mark.parametrize("came,went,p", [
    (0, 0, 1.0), (5, 0, 1 / 32), (0, 5, 1.0), (3, 2, 0.5), (8, 2, 56 / 1024)])
def test_the_sign_test_is_exact(came: int, went: int, p: float) -> None:
    assert sign_test(came, went) == pytest.approx(p)


def test_the_sign_test_of_many_objects() -> None:
    exact = sum(math.comb(1000, k) for k in range(550, 1001)) / 2**1000
    assert sign_test(550, 450) == pytest.approx(exact)
    assert sign_test(551, 450) == pytest.approx(exact, rel=0.1)
    assert 0 <= sign_test(10**7, 0) < 1e-300


def test_the_trend_is_exact() -> None:
    assert rises([5.0, 1.0, 1.0, 1.0, 1.0])                # 1 of 120 permutations
    assert rises([5.0, 2.0, -1.0, 3.0, 1.0])               # 5 of 120 permutations
    assert not rises([5.0, 2.0, -3.0, 3.0, 1.0])
    assert not rises([5.0, 0.0, 0.0, 0.0, 0.0])
    rng = random.Random(8)
    runs, rising = 2000, 0
    for _ in range(runs):
        levels = [rng.random() for _ in range(12)]
        rising += rises([b - a for a, b in zip([0.0, *levels], levels)])
    assert rising <= runs * 0.05 + 4 * math.sqrt(runs * 0.05 * 0.95)


# ________________________________________
# the two windows of a comparison


@pytest.mark.parametrize("majors,marks,indices", [
    ([6, 7, 8], (), (0, 1, 2)),
    # the first collection after a quarter of the run, the collection nearest to the
    # middle, and the last collection
    ([1, 4, 5, 6, 7, 12, 20], (), (2, 5, 6)),
    ([6, 7, 8, 9], (), (0, 1, 3)),
    # the first collections after the marks
    ([1, 2, 3, 4, 5, 6], (1.5, 3, 4.5), (1, 2, 4)),
    ([1, 2, 3, 4, 5, 6], (0.5, 1.5, 3, 4.5), (1, 2, 4)),
    # the first event may be a mark or a collection
    ([1, 2, 3], (0.9, 2.1, 3.1), (0, 1, 2)),
    # the halves of the time between two marks, or after a single mark
    ([1, 2, 3, 4, 5, 6], (1.5, 5.5), (1, 3, 5)),
    ([1, 2, 5, 13, 17], (4.0,), (2, 3, 4)),
])
def test_windows(majors: list[int], marks: tuple[float, ...],
                 indices: tuple[int, int, int]) -> None:
    windows = find_windows(run_of(majors, marks))
    assert windows[:3] == indices
    a, b, c = (majors[index] for index in indices)
    assert windows.seconds == (b - a, c - b)
    # the program allocates at a constant rate
    assert windows.allocated == pytest.approx(
        ((b - a) * 2**20, (c - b) * 2**20), abs=2)


@pytest.mark.parametrize("marks", [(), (10.0, 14.0, 18.0)])
def test_the_last_of_successive_collections_counts(marks: tuple[float, ...]) -> None:
    """A program may call gc.collect() twice at a mark.

    Objects that the first call finalizes are not growth.
    """
    windows = find_windows(run_of([10, 10.1, 14, 14.1, 18, 18.1], marks))
    assert [windows.times[number] / 1e9
            for number in windows[:3]] == pytest.approx([10.1, 14.1, 18.1])


def with_minors(profile: Profile, *minors: tuple[float, int]) -> None:
    """Add minor collections (second, MiB that were allocated until then)."""
    profile.collections[:] = sorted([*profile.collections, *(
        Collection(False, int(time * 10**9), 0, allocated << 20)
        for time, allocated in minors)], key=lambda collection: collection.time)


def test_a_collection_that_the_gc_started_is_not_at_a_mark() -> None:
    """The GC starts a collection shortly before the user's mark.

    gc.collect() starts another collection soon after the mark. The program allocates
    many bytes between the two collections.
    """
    profile = run_of([10, 10.2, 13.95, 14.1, 14.2, 18, 18.1], (9.99, 14.0, 17.99))
    with_minors(profile, (9.98, 1000), (13.94, 1560), (14.01, 1640), (17.98, 2000))
    windows = find_windows(profile)
    assert [windows.times[number] / 1e9
            for number in windows[:3]] == pytest.approx([10.2, 14.2, 18.1])


def test_objects_found_dead_by_the_first_of_two_collections_are_dead() -> None:
    """Objects that the collection at 12.6 s finds dead are alive at the mark before.

    The last collection at the mark before (12.1 s) is nearer to the collection at
    12.6 s than the second collection at the last mark (13.5 s).
    """
    lives = [(9.0, 11.5)] * 40 + [(11.0, 12.55)] * 40 + [(12.5, math.inf)] * 40
    made = a_process([lives], [10.0, 10.1, 12.0, 12.1, 12.6, 13.5],
                     (9.99, 11.99, 12.59))
    with_minors(made.profile, (9.98, 100), (11.98, 300), (12.58, 500))
    result = find_leaks([made])
    assert [result.windows[0].times[number] / 1e9 for number in result.windows[0][:3]
            ] == [10.1, 12.1, 13.5]
    assert result.growth.value == pytest.approx(0.0, abs=1e-6)
    assert result.windows_growth == pytest.approx((0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize("allocated, is_named", [((100, 200, 210), True),
                                                 ((100, 200, 300), False)])
def test_less_work_in_the_same_time_is_not_a_cache(allocated: tuple[int, int, int],
                                                   is_named: bool) -> None:
    """The second window has a third of the growth, for a tenth of the allocations."""
    lives = [(9.5, math.inf)] * 30 + [(11.0, math.inf)] * 300 + [(13.0, math.inf)] * 100
    made = a_process([lives], [10.0, 12.0, 14.0])
    with_minors(made.profile, *zip((9.98, 11.98, 13.98), allocated))
    result = find_leaks([made])
    assert (len(result.leaks), len(result.slowing)) == ((1, 0) if is_named else (0, 1))


@pytest.mark.parametrize("majors, is_single", [
    ([10.0, 12.0, 19.5], True), ([9.9, 10.0, 12.0, 19.4, 19.5], True),
    ([9.9, 10.0, 11.9, 12.0, 19.4, 19.5], False)])
def test_report_proposes_two_collections_at_each_mark(majors: list[float],
                                                      is_single: bool) -> None:
    """After one collection, objects that wait for a finalizer still count as alive.

    If the program set marks, the report proposes two collections at each of them.
    """
    for marks in (9.89, 11.89, 19.39), ():
        made = a_process([[(9.5, math.inf)] * 30], majors, marks)
        with_minors(made.profile, (9.88, 100), (11.88, 200), (19.38, 600))
        text = io.StringIO()
        write_leaks(made.profile, find_leaks([made]), text, terminal=Terminal(1000))
        assert ("two calls of gc.collect() at each mark" in text.getvalue()) == (
            is_single and bool(marks))


def test_equal_growth_between_marks_is_not_a_cache() -> None:
    """The second window is four times as long, and has four times the allocations.

    Without marks, the growth looks as if a cache filled.
    """
    lives = [(9.5, math.inf)] * 30 + [(11.0, math.inf)] * 300 + [(13.0, math.inf)] * 290
    for marks, is_named in ((9.99, 11.99, 19.49), True), ((), False):
        made = a_process([lives], [10.0, 12.0, 19.5], marks)
        with_minors(made.profile, (9.98, 100), (11.98, 200), (19.48, 600))
        result = find_leaks([made])
        assert (len(result.leaks), len(result.slowing)) == (
            (1, 0) if is_named else (0, 1))


def test_at_least_five_marks_show_a_trend() -> None:
    """Less than half of the new objects stay, but more are alive at each mark."""
    majors = list(range(4, 20, 2))
    lives = list[tuple[float, float]]()
    for time in majors:
        # a memo that is rebuilt, and objects that are kept
        lives += [(time - 1.0, time + 1.5)] * 60 + [(time - 0.5, math.inf)] * 30
    for marks, is_named in ((majors[-3:], False), (majors, True)):
        result = find_leaks([a_process([lives], majors, marks)])
        assert [leak.places[0].function.name for leak in result.leaks] == (
            ["f0"] if is_named else [])


def test_the_duration_of_collections_does_not_matter() -> None:
    """The two collections at a mark take as long as the work between two marks."""
    profile = run_of([10, 12, 14, 16, 18, 20], (10.0, 14.0, 18.0))
    with_minors(profile, (9.99, 500), (11.99, 510), (13.99, 600), (15.99, 610),
                (17.99, 700), (19.99, 710))
    windows = find_windows(profile)
    assert [windows.times[number] / 1e9 for number in windows[:3]] == [12, 16, 20]


@pytest.mark.parametrize("majors,marks,why", [
    ((), (), "there were 0 in this run: start the program with --leaks"),
    ((1, 2), (), "there were 2 in this run"),
    ((1, 2, 3), (0.5, 0.6, 2), "needs a major collection at each mark"),
    ((1, 2, 3), (2.5,), "needs a major collection at each mark"),
    ((12, 12, 12), (), "needs heap snapshots or major collections at different times"),
    # collections in the first quarter of the run, in which programs import modules
    ((1, 2, 3, 19), (), "after the first quarter .* there were 1: start the program"),
])
def test_too_few_collections(majors: tuple[float, ...], marks: tuple[float, ...],
                             why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        find_windows(run_of(majors, marks))


def test_marks_exclude_the_warm_up() -> None:
    rng = random.Random(9)
    lives = [(t, math.inf) for t in times(rng, lambda t: 50.0 * (t < 8), 50)]
    assert not found([lives], marks=(8.5, 14.5, 19.5)).leaks
    assert found([lives], marks=(1.5, 4.5, 7.5)).leaks


# ________________________________________
# the report


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the profile of a leak.

    The program keeps 2 % of the sessions that a loop makes. Another function makes ten
    times as many bytes of garbage.
    """
    heap = Heap(interval=500, seed=1, nursery=50_000)
    for number in range(20_000):
        heap.allocate("<module> handle make", ("app.Session", 64, (
            math.inf if number % 50 == 0 else 100)))
        for _ in range(5):
            heap.allocate("<module> handle parse", ("str", 128, 200))
        if number < 4000:
            heap.allocate("<module> warm", ("app.Table", 256, math.inf))
    heap.collect()
    path = tmp_path_factory.mktemp("planted") / "app.vmprof"
    path.write_bytes(heap.data())
    return path


def test_report_notes_that_few_collections_are_compared(tmp_path: Path) -> None:
    """Warm-up and objects with finalizers may grow in both windows, too."""
    heap = Heap(interval=100)
    for _ in range(6):
        heap.collect()
        for _ in range(400):
            heap.allocate("main keep", ("app.Leaf", 90, math.inf))
    path = tmp_path / "app.vmprof"
    path.write_bytes(heap.data())
    said = " ".join(" ".join(lines(path, "leaks")).split())
    assert said.startswith("leak: app.Leaf")
    assert "only 4 heap snapshots or major collections are compared" in said


def test_no_note_if_one_process_has_enough_collections() -> None:
    rng = random.Random(6)
    processes = [a_process([leak(rng)]), a_process([leak(rng)], [6, 13, 20])]
    text = io.StringIO()
    write_leaks(processes[0].profile, find_leaks(processes), text, terminal=WIDE)
    assert text.getvalue().startswith("leak: t0")
    assert "are compared" not in text.getvalue()


def test_the_first_two_lines_describe_the_leak(planted: Path) -> None:
    one, two, *_ = lines(planted, "leaks")
    assert re.fullmatch(r"leak: app.Session  make  app.py:\d  <- handle  "
                        r"app.py:\d  <- <module>  app.py:\d", one), one
    assert re.fullmatch(
        r"      grows by [\d.]+ ±[\d.]+ [KMG]iB/s, .* for each MiB "
        r"allocated: .* KiB in the first window, .* KiB in the second", two), two
    assert "app.Table" not in one + two


def test_report_names_one_large_object_of_the_last_moment(tmp_path: Path) -> None:
    """A buffer that is in use at the last moment only is not a leak."""
    heap = Heap(interval=500, seed=2, nursery=50_000)
    for number in range(20_000):
        heap.allocate("<module> handle make", ("app.Session", 64, (
            math.inf if number % 50 == 0 else 100)))
    heap.allocate("<module> read", ("bytearray", 600_000, math.inf))
    for _ in range(3):
        heap.collect()
    path = tmp_path / "app.vmprof"
    path.write_bytes(heap.data())
    said = " ".join(" ".join(lines(path, "leaks")).split())
    one = "586 KiB of it is one object, which existed at the last moment"
    assert re.search(r"bytearray read app.py:\d <- <module> app.py:\d " + one, said)
    assert re.search(r"all together: .*; " + one, said)


def test_report_notes_the_rate_of_false_alarms_for_uncertain_leaks(
        planted: Path) -> None:
    """A leak beyond doubt has no such note."""
    profile = readers.read(planted)
    objects = OldObjects()
    readers.read_into(planted, objects)
    found_leaks = find_leaks([Process(profile, objects)])
    for p, is_said in ((0.0, False), (0.03, True)):
        changed = found_leaks._replace(leaks=[one._replace(
            p=p) for one in found_leaks.leaks])
        out = io.StringIO()
        write_leaks(profile, changed, out)
        assert ("in 5 of 100 runs without a leak" in " ".join(
            out.getvalue().split())) == is_said


def test_report_without_a_leak(tmp_path: Path) -> None:
    """The report also says if there are too few live objects to find a leak."""
    heap = Heap(interval=1000)
    for _ in range(20_000):
        heap.allocate("main work", ("a", 64, 100))
    path = tmp_path / "app.vmprof"
    path.write_bytes(heap.data())
    one, two, *_ = lines(path, "leaks")
    assert one == ("no leak was found in the GC's heap: the live objects of no place "
                   "have enough samples to show a leak")
    assert two.startswith("(0 places") and "is visible from" in two


def test_profile_without_lifetimes(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=24)
    path = tmp_path / "app.vmprof"
    path.write_bytes(log.data())
    assert refused(path, "leaks").endswith(
        "which the command leaks needs: it was taken without lifetimes")


def test_storage_and_internal_types() -> None:
    heap = Heap(interval=500)
    for number in range(6000):
        heap.allocate("main", ("list", 32, math.inf),
                      ("list (storage)", 96, math.inf),
                      ("<map>", 64, math.inf))
        heap.allocate("main", ("str", 200, 100 + number % 7))
    data = heap.data()
    found: list[list[list[str]]] = []
    said: list[list[str]] = []
    for group_storage in False, True:
        objects = OldObjects()
        profile = _read_into(data, objects)
        result = find_leaks([Process(profile, objects)],
                            group_storage=group_storage)
        found.append(types(result.leaks))
        out = io.StringIO()
        write_leaks(profile, result, out, terminal=WIDE)
        said.append(out.getvalue().splitlines()[:3])
    # All types of the allocation site are one leak, and its classes are first. Internal
    # types count, but the first line does not name them.
    assert found == [[["list", "list (storage)", "<map>"]], [["list", "<map>"]]]
    assert said[0][0] == ("leak: list, list (storage)  main  app.py:1")
    assert re.match(r"      of which list \(storage\) \S+ [KMG]iB/s, <map> \S+ "
                    r"[KMG]iB/s, list ", said[0][2])
    assert said[1][0] == "leak: list  main  app.py:1"
    assert re.match(r"      of which list \S+ [KMG]iB/s, <map> ", said[1][2])


def test_classes_of_the_program_are_named_first() -> None:
    heap = Heap(interval=500)
    for _ in range(4000):
        heap.allocate("main", ("str", 32, math.inf), ("app.Node", 32, math.inf),
                      ("list (storage)", 500, math.inf), ("x", 32, math.inf),
                      ("y", 32, math.inf))
        heap.allocate("main other", ("z", 2000, math.inf))
    data = heap.data()
    objects = OldObjects()
    profile = _read_into(data, objects)
    out = io.StringIO()
    write_leaks(profile, find_leaks([Process(profile, objects)]), out, limit=1)
    one, *_, more = [line for line in out.getvalue().splitlines()
                     if line.startswith(("leak", "..."))]
    assert one.startswith("leak: z  other") and more == "... and 1 more"
    out = io.StringIO()
    write_leaks(profile, find_leaks([Process(profile, objects)]), out,
                 terminal=WIDE)
    assert re.search("^leak: app.Node, [strxy, ]+, and 1 more  main",
                     out.getvalue(), re.MULTILINE)


def test_objects_kept_by_libraries_count_for_user_code(tmp_path: Path) -> None:
    """Each library function alone has too few objects for a leak."""
    heap = Heap(interval=2000)
    log = heap.log
    for name, file in [("view", "/srv/app.py"), *(
            ("f%d" % i, "/env/lib/pypy3.9/site-packages/lib.py")
            for i in range(9))]:
        heap._functions[name] = log.function(name, 7, file)
    for number in range(9000):
        heap.allocate("view f%d" % (number % 9), ("str", 120, math.inf))
        heap.allocate("view", ("short", 400, 100))
    path = tmp_path / "app.vmprof"
    path.write_bytes(heap.data())
    one, _, three, *_ = lines(path, "leaks")
    assert one == "leak: str  view  /srv/app.py:7"
    assert re.fullmatch(r"      most of it in f\d  lib.py:7", three)


@pytest.mark.parametrize("width", [30, 60, 100])
def test_leaks_fit_the_terminal(planted: Path, width: int) -> None:
    done = report(planted, "leaks", width=width)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= width


def test_json_report_of_leaks(planted: Path) -> None:
    found = json.loads(report(planted, "leaks", "--json").stdout)
    assert found["schema"] == SCHEMA
    leak = found["leaks"][0]
    assert leak["places"][0]["function"]["name"] == "make"
    assert [type_["name"] for type_ in leak["types"]] == ["app.Session"]
    assert leak["types"][0]["p"] < 0.05
    assert leak["growth"]["low"] < leak["growth"]["value"] < leak["growth"]["high"]
    assert sum(leak["windows"]) == pytest.approx(leak["growth"]["value"])
    readme = (Path(__file__).parents[2] / "converter" / "README.rst").read_text()
    for key in (SCHEMA, *found, *found["rest"], *leak, "place", "share",
                *leak["types"][0]):
        assert "``%s``" % key in readme, key


def _read_into(data: bytes, objects: OldObjects) -> Profile:
    profile = readers.read_bytes(data)
    objects.extend(Columns(*profile.samples.columns()))
    return profile
