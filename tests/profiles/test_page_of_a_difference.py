"""Tests of the HTML page of a difference, which shows changes in colours."""
from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import hostile_names
from compared_runs import a_log, a_run
from made_heap import Heap
from made_profiles import Log
from opened_page import Json, opened
from vmprof_convert import cli, readers
from vmprof_convert.analysis.diff import aligned, compare, of_moments, of_runs
from vmprof_convert.analysis.summary import Choice, summarize
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Profile
from vmprof_convert.writers import collapsed, speedscope
from vmprof_convert.writers.html import table

PATHS = ("a.vmprof", "b.vmprof")
NAMES = (PATHS[:1], PATHS[1:])
MEASURES = ("bytes", "objects", "alive")


def columns(data: Json) -> dict[str, dict[str, list[int]]]:
    """Return the columns before, after and variance of each measure."""
    found = {name: data["diff"][name] for name in ("before", "variance")}
    found["after"] = {measure: data[measure] for measure in MEASURES}
    return found


def verdicts(data: Json, measure: str = "bytes") -> dict[str, str]:
    """Return the verdict of each node with its descendants, as looks.js does."""
    sides = columns(data)
    exact = data["diff"]["exact"] if measure == "alive" else (True, True)
    sums = {side: [0.0] * len(data["parent"]) for side in sides}
    for side, of_measure in sides.items():
        for node, value in zip(data["node"], of_measure[measure]):
            sums[side][node] += value
        for node in range(len(data["parent"]) - 1, 0, -1):
            sums[side][data["parent"][node]] += sums[side][node]
    result = {}
    for node, frame in enumerate(data["frame"]):
        change = sums["after"][node] - sums["before"][node]
        chance = data["diff"]["z"] * math.sqrt(sums["variance"][node])
        result[data["frames"][frame][0]] = (
            "same" if abs(change) <= chance or not exact[change > 0] else
            "grew" if change > 0 else "shrank")
    return result


def test_both_sides_have_the_sums_of_their_reports() -> None:
    sides = of_runs([a_run(1)], [a_run(2, more=100, leak=50)])
    data = table.make_diff(compare(sides, Choice()), NAMES)
    for name, profile in zip(("before", "after"), sides.runs):
        figures = summarize(profile).figures
        assert [sum(columns(data)[name][measure]) for measure in MEASURES] == [
            pytest.approx(value, abs=0.5) for value in (
                figures.bytes().value, figures.objects().value,
                figures.bytes("alive").value)]


def test_page_does_not_summarize_the_profiles_again(
        monkeypatch: pytest.MonkeyPatch) -> None:
    heap = Heap(interval=1)
    heap.allocate("main f", ("list", 4096, math.inf))
    profile = readers.read_bytes(heap.data())
    difference = compare(of_runs([profile], [profile]), Choice())
    monkeypatch.setattr(table, "summarize", None)
    said, = table.make_diff(difference, NAMES)["remarks"]
    assert said.startswith("survived: a.vmprof and b.vmprof may contain garbage")


def test_variance_is_the_sum_of_both_sides() -> None:
    sides = of_runs([a_run(1)], [a_run(2)])
    data = table.make_diff(compare(sides, Choice()), NAMES)
    for measure, value in (("bytes", "bytes"), ("objects", "objects")):
        wanted = sum(getattr(summarize(profile).figures.sum(), "_%s_variance" % value)
                     for profile in sides.runs)
        assert sum(columns(data)["variance"][measure]) == pytest.approx(wanted, abs=0.5)


def test_objects_at_both_moments_of_a_run_make_no_difference() -> None:
    log = a_log(1)
    profile = readers.read_bytes(log.data())
    same = table.make_diff(compare(
        of_moments(profile, profile.end, profile.end), Choice()), NAMES)
    assert not any(sum(same["diff"]["variance"][measure]) for measure in MEASURES)
    assert set(verdicts(same).values()) == {"same"}
    all_of_it = table.make_diff(compare(
        of_moments(profile, 0, profile.end), Choice()), NAMES)
    assert verdicts(all_of_it)["main"] == "grew"


@pytest.mark.slow
def test_equal_runs_seldom_have_a_colour() -> None:
    """At most 5 % of the pairs of equal runs have a colour.

    The probability that 17 of 100 pairs then have a colour is 1e-5.
    """
    coloured = 0
    for seed in range(100):
        sides = of_runs([a_run(2 * seed)], [a_run(2 * seed + 1)])
        data = table.make_diff(compare(sides, Choice()), NAMES)
        coloured += set(verdicts(data).values()) != {"same"}
    assert coloured < 17


def test_functions_that_moved_are_matched() -> None:
    def log(folder: str, lines: int) -> Profile:
        made = Log()
        made.settings()
        for _ in range(200):
            file = folder + "/site-packages/p/app.py"
            made.allocation([made.function("main", 1 + lines, file),
                             made.function("f", 10 + lines, file)], size=400)
        return readers.read_bytes(made.data())

    sides = aligned(of_runs([log("/old", 0)], [log("/new", 7)]))
    data = table.make_diff(compare(sides, Choice()), NAMES)
    assert data["frames"][1:] == [["main", "p/app.py", 8, "installed packages"],
                                  ["f", "p/app.py", 17, "installed packages"]]
    assert len(data["parent"]) == 3
    out = io.BytesIO()
    before, after = sides.runs
    collapsed.write_diff(before, after, out)
    assert out.getvalue().startswith(b"main (p/app.py:8);f (p/app.py:17) ")
    assert len(out.getvalue().splitlines()) == 1
    with pytest.raises(ProfileError, match="no difference"):
        speedscope.write_diff(before, after, io.BytesIO())


def test_a_function_with_two_possible_successors_has_no_line() -> None:
    def log(*lines: int) -> Profile:
        made = Log()
        made.settings()
        for line in lines:
            made.allocation([made.function("f", line, "app.py")], size=400)
        return readers.read_bytes(made.data())

    sides = aligned(of_runs([log(10)], [log(20, 30)]))
    assert {function.line for profile in sides.runs for function in
            profile.functions.values()} == {0}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def open_(before: Log, after: Log, *actions: str,
              options: Sequence[str] = ()) -> Json:
        monkeypatch.chdir(tmp_path)
        for name, log in zip(PATHS, (before, after)):
            Path(name).write_bytes(log.data())
        assert cli.main(["diff", *PATHS, "-o", "x.html", *options]) == 0
        return opened(tmp_path / "x.html", *actions)
    return open_


def test_frames_and_rows_of_a_difference(page: Any) -> None:
    found = page(a_log(1, 1, more=100), a_log(1, 1, leak=50))
    assert found["title"] == "from a.vmprof to b.vmprof"
    assert found["changes"] == {"all": "shrank", "main": "shrank", "f": "same",
                                "g": "same", "h": "same", "grows": "shrank",
                                "leaks": "grew"}
    # all numbers are exact, because the interval is one byte
    assert found["rows"][:2] == [["grows", "\u221239.1 KiB", "\u221239.1 KiB"],
                                 ["leaks", "+19.5 KiB", "+19.5 KiB"]]
    assert found["cells"][:4] == ["shrank", "shrank", "grew", "grew"]
    assert found["said"].endswith("(\u221219.5 KiB) allocated")


@pytest.mark.parametrize("actions", [
    ["press Alive"], ["press Alive", "press … and types", "press Types"],
    ["press Alive", "press By type", "press Flame graph", "write leaks"]])
def test_changes_of_live_objects(page: Any, actions: list[str]) -> None:
    found = page(a_log(1, 1), a_log(1, 1, leak=50), *actions)
    assert found["changes"]["all"] == "grew"
    assert found["rows"][0] in (["leaks", "+19.5 KiB", "+19.5 KiB"],
                                ["str", "+19.5 KiB"])


def test_options_choose_the_first_view(page: Any) -> None:
    logs = a_log(1, 1, more=100), a_log(1, 1, leak=50)

    def rows(*options: str) -> list[list[str]]:
        found: list[list[str]] = page(*logs, options=options)["rows"]
        return found

    # the largest change of the chosen measure is first
    assert rows()[0] == ["grows", "\u221239.1 KiB", "\u221239.1 KiB"]
    assert rows("--sort", "alive")[0] == ["leaks", "+19.5 KiB", "+19.5 KiB"]
    assert rows("--sort", "objects")[0] == ["grows", "\u2212100", "\u2212100"]
    assert rows("--sort", "total")[0][0] == "grows"
    assert rows("--sort", "total")[1] == ["main", "-", "\u221219.5 KiB"]
    assert rows("--by", "type")[0] == ["str", "\u221219.5 KiB"]


def test_header_has_the_changes_of_all_measures(
        page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """The changes are the same as in the table of `diff`."""
    found = page(a_log(1, more=100), a_log(2, leak=50))["header"]
    assert found.startswith("changes in total: ")
    capsys.readouterr()
    assert cli.main(["diff", *PATHS]) == 0
    rows = [re.split("  +", line.strip())
            for line in capsys.readouterr().out.splitlines()]
    in_all = {row[-1]: row for row in rows if row[-1] in (
        "allocated", "objects", "alive")}
    assert len(in_all) == 3
    for what, (change, said, before, after, _) in in_all.items():
        assert "%s %s (%s; %s, then %s)" % (change, what, said, before, after) in found


def test_option_group_storage_counts_storage_as_its_owner(page: Any) -> None:
    def logs() -> list[Log]:
        made = []
        for count in 1, 3:
            heap = Heap(interval=1)
            for _ in range(count):
                heap.allocate("main f", ("list (storage)", 400, math.inf))
            heap.collect()
            made.append(heap.log)
        return made

    for options, name in (((), "list (storage)"), (("--group-storage",), "list")):
        found = page(*logs(), options=("--by", "type", *options))
        assert found["rows"] == [[name, "+800 B"]]


def test_page_says_that_a_change_may_be_chance(page: Any) -> None:
    found = page(a_log(1), a_log(2))
    assert set(found["changes"].values()) == {"same"}
    assert set(found["cells"]) == {"same"}
    assert found["said"].endswith(", may be chance) allocated")


def test_hostile_names_are_drawn_as_names(page: Any) -> None:
    found = page(hostile_names.log(), hostile_names.log(), "press … and types",
                 "write <script>")
    assert "<script>alert(1)</script>" in found["frames"]
