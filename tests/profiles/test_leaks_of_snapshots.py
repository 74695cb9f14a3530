"""Tests of leaks between heap snapshots.

The tests cover snapshots after the end of the program, objects that replace old ones,
and several allocation sites with one retainer.
"""
from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

import report_runs
from made_heap import Heap
from vmprof_convert.profile.held import ALONE, NO_PATH
from vmprof_convert.readers.records import SNAPSHOTS

#: live bytes before the program keeps anything
BASE = 10**6


def run(path: Path, snapshots: Sequence[tuple[int, int]], *,
        answers: Sequence[tuple[int, str]] = (),
        functions: Sequence[str] = ("keep",), majors: Sequence[int] = ()) -> Path:
    """Write the profile of a program that keeps 32 kB of sessions in each step.

    Args:
        path: the path of the profile.
        snapshots: steps with a heap snapshot after them, and the live bytes that the
            snapshot found.
        answers: steps after which the profile has the retainer of the sessions, and the
            path of this retainer; "" if no path leads to the sessions.
        functions: the functions, each of which keeps the same number of sessions.
        majors: steps with a major collection after them.
    """
    # only the given major collections happen
    heap = Heap(interval=200, minors=10**6)
    log = heap.log
    for step in range(8):
        for _ in range(500):
            for name in functions:
                heap.allocate("main " + name, ("app.Session", 64, math.inf))
            heap.allocate("main parse", ("str", 128, 200))
        heap.collect_minor()
        if step in majors:
            heap.mark_and_sweep()
        heap.run(1000)
        for at, live in snapshots:
            if at == step:
                log.row(SNAPSHOTS, heap.now, 5, live, 1000, 1000, 1000, 5, heap.now)
        for number, (at, holder) in enumerate(answers, 1):
            if at == step:
                log.held(number, heap.now, objects=900, size=99_000)
                log.holder(number, 1, 1000 * step, 800, holder or "app.other", "list")
                for name in functions:
                    log.held_object(
                        number, heap._stack(["main", name]), heap.type("app.Session"),
                        size=1000, set_=1 if holder else 0,
                        how=ALONE if holder else NO_PATH)
    path.write_bytes(heap.data())
    return path


def leaks_of(path: Path) -> str:
    done = report_runs.report(path, "leaks", width=1000)
    return done.stdout + done.stderr


def growing(*steps: int, rate: int = 32_000) -> list[tuple[int, int]]:
    return [(step, BASE + rate * step) for step in steps]


def test_leak_is_certain_if_all_live_objects_grow(tmp_path: Path) -> None:
    text = leaks_of(run(tmp_path / "a.vmprof", growing(2, 3, 4, 5, 6, 7)))
    assert text.startswith("leak: app.Session  keep")
    assert "replace" not in text


def test_replaced_objects_are_not_a_certain_leak(tmp_path: Path) -> None:
    """The live bytes stay the same, because older objects without samples died."""
    path = run(tmp_path / "a.vmprof", [(step, BASE) for step in range(2, 8)])
    text = leaks_of(path)
    assert text.startswith("new objects replaced objects from before the sampling: ")
    assert "leak, or new objects that replace old ones: app.Session  keep" in text
    assert "\nleak: " not in text


@pytest.mark.parametrize("last, is_found", [(BASE + 200_000, True), (BASE, False)])
def test_snapshot_after_the_end_does_not_count_if_the_program_dropped_its_objects(
        tmp_path: Path, last: int, is_found: bool) -> None:
    longer = ": let the program run longer"
    for early, said in ((), " in this run" + longer), (
            (0,), longer + ", or include the warm-up with --time .."):
        path = run(tmp_path / "a.vmprof", [*growing(*early, 3, 5), (7, last)])
        text = leaks_of(path)
        assert text.startswith("leak: app.Session") is is_found
        assert ("and there were 2" + said in text) is not is_found


def test_three_moments_after_the_warm_up_suffice(tmp_path: Path) -> None:
    path = run(tmp_path / "a.vmprof", growing(7), majors=(0, 3, 5))
    assert leaks_of(path).startswith("leak: app.Session")


def test_retainers_after_the_end_do_not_count(tmp_path: Path) -> None:
    local = "in job() app.py:1 -> local found"
    path = run(tmp_path / "a.vmprof", growing(2, 3, 4, 5, 6, 7),
               answers=[(2, local), (5, local), (7, "")])
    text = leaks_of(path)
    assert "held by %s (100 %%)" % local in text
    # the retained size grows by 1000 bytes per step
    assert "%s: +2.93 KiB from 0.00 s to 0.00 s" % local in text


@pytest.mark.parametrize("functions, said", [
    (("keep", "index"), "next place"), (("keep", "index", "log"), "next 2 places")])
def test_places_with_one_retainer_have_a_sum(
        tmp_path: Path, functions: tuple[str, ...], said: str) -> None:
    path = run(tmp_path / "a.vmprof", growing(2, 3, 4, 5, 6, 7, rate=100_000),
               answers=[(2, "app.KEPT"), (5, "app.KEPT")], functions=functions)
    text = leaks_of(path)
    assert text.count("held by app.KEPT") == len(functions)
    (found,) = re.findall(
        r"this retainer also keeps what grows at the (next .*): together "
        r"([\d.]+) ±([\d.]+) (.*)/s\n", text)
    rates = re.findall(
        r"leak: app.Session .*\n +grows by ([\d.]+) ±([\d.]+) (.*)/s, ", text)
    assert (found[0], len(rates)) == (said, len(functions))
    assert {unit for _, _, unit in rates} == {found[3]}
    assert float(found[1]) == pytest.approx(sum(float(rate) for rate, _, _ in rates),
                                            rel=0.02)
    assert float(found[2]) == pytest.approx(math.hypot(*(
        float(error) for _, error, _ in rates)), rel=0.05)


def test_places_with_other_retainers_have_no_sum(tmp_path: Path) -> None:
    text = leaks_of(run(tmp_path / "a.vmprof", growing(2, 3, 4, 5, 6, 7, rate=100_000),
                        answers=[(2, ""), (5, "")], functions=("keep", "index")))
    assert text.count("leak: ") == 2 and "together" not in text.split("all toge")[0]
