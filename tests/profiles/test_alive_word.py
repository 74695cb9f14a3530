"""Tests that all outputs use the word "alive" only if it excludes garbage.

A heap snapshot excludes garbage, and so does a major collection shortly before.
Otherwise, the word is "survived".
"""
from __future__ import annotations

import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import report_runs
from made_heap import Heap
from opened_page import opened
from vmprof_convert import cli, readers
from vmprof_convert.analysis import thresholds
from vmprof_convert.analysis.diff import (
    GREW,
    SHRANK,
    UNCLEAR,
    Sides,
    compare,
    of_moments,
    of_runs,
    verdict,
)
from vmprof_convert.analysis.summary import Choice
from vmprof_convert.profile.model import Profile
from vmprof_convert.readers.records import SNAPSHOTS
from vmprof_convert.writers import firefox, otlp, pprof, speedscope
from vmprof_convert.writers.html import table

SIZE = 1000
WORDS = [(True, "alive"), (False, "survived")]
#: whether the first and the second run end with a heap snapshot, and the words that a
#: comparison of the runs uses
PAIRS = [(True, True, "alive"), (False, False, "survived"),
         (True, False, "alive, then survived"), (False, True, "survived, then alive")]
NAMES = (["a.vmprof"], ["b.vmprof"])


def snapshot(heap: Heap) -> None:
    heap.run(1)
    heap.log.row(SNAPSHOTS, heap.now, 5, SIZE, 1000, 1000, 1000, 5, heap.now)


def made(objects: int, is_exact: bool) -> Heap:
    """Return a run that keeps `objects` objects.

    The run ends with a heap snapshot if `is_exact`, or else long after a major
    collection.
    """
    heap = Heap(interval=1)
    for _ in range(objects):
        heap.allocate("main keeps", ("list", SIZE, math.inf))
    heap.collect()
    if is_exact:
        snapshot(heap)
    else:
        heap.run(2**20)
    return heap


def run(objects: int, is_exact: bool) -> Profile:
    return readers.read_bytes(made(objects, is_exact).data())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with three profiles.

    alive.vmprof and less.vmprof end with a heap snapshot, and survived.vmprof does not.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    for is_exact, word in WORDS:
        (tmp_path / (word + ".vmprof")).write_bytes(made(40, is_exact).data())
    (tmp_path / "less.vmprof").write_bytes(made(4, True).data())
    return tmp_path


def sides(before: bool, after: bool) -> Sides:
    return of_runs([run(40, before)], [run(40, after)])


@pytest.mark.parametrize("is_exact, word", WORDS)
def test_report_for_programs_says_whether_alive_is_exact(
        folder: Path, is_exact: bool, word: str) -> None:
    done = report_runs.report(folder / (word + ".vmprof"), "--json")
    assert json.loads(done.stdout)["alive_is_exact"] is is_exact


def test_report_without_lifetimes_does_not_say_whether_alive_is_exact(
        tmp_path: Path) -> None:
    heap = Heap(facts="types")
    heap.allocate("main", ("list", SIZE, 5))
    path = tmp_path / "a.vmprof"
    path.write_bytes(heap.data())
    assert json.loads(report_runs.report(path, "--json").stdout)[
        "alive_is_exact"] is None


@pytest.mark.parametrize("is_exact, word", WORDS)
def test_page_has_the_word(is_exact: bool, word: str) -> None:
    data = table.make(run(4, is_exact))
    assert data["alive_word"] == word
    assert any(line.startswith(word + ": ") for line in data["remarks"])


@pytest.mark.node
@pytest.mark.parametrize("word, said", [
    ("alive", "39.1 KiB still alive"), ("survived", "39.1 KiB survived")])
def test_page_shows_the_word(folder: Path, word: str, said: str) -> None:
    assert cli.main(["export", word + ".vmprof", "-o", "a.html"]) == 0
    found = opened(folder / "a.html", "press " + word.capitalize(), "press Types")
    assert found["said"] == said


@pytest.mark.node
def test_page_of_a_difference_shows_both_words(folder: Path) -> None:
    for before, after in ("less", "survived"), ("survived", "less"):
        assert cli.main(["diff", before + ".vmprof", after + ".vmprof", "-o",
                         "a.html"]) == 0
        words = ["alive", "survived"][::1 if before == "less" else -1]
        found = opened(folder / "a.html", "press %s, then %s" % (
            words[0].capitalize(), words[1]))
        assert ", ".join(["", "then "]).join(words) in found["said"]
        # a run that may contain garbage shows neither growth nor decrease
        assert set(found["changes"].values()) == {"same"}
    assert cli.main(["diff", "less.vmprof", "alive.vmprof", "-o", "a.html"]) == 0
    assert set(opened(folder / "a.html", "press Alive")["changes"].values()) == {
        "grew"}


@pytest.mark.parametrize("is_exact, word", WORDS)
def test_track_of_the_firefox_profiler_has_the_word(is_exact: bool, word: str) -> None:
    out = io.BytesIO()
    firefox.write(run(4, is_exact), out)
    counter, = (one for one in json.loads(out.getvalue())["counters"]
                if one["name"] == "held-memory")
    assert counter["display"]["label"] == "Memory (%s)" % word
    assert counter["display"]["tooltipRows"][0]["label"] == word
    assert "%s: objects that" % word in out.getvalue().decode()


@pytest.mark.parametrize("is_exact, text", [
    (True, b"alive_is_exact=true"),
    (False, b"alive_is_exact=false: objects in use may include garbage")])
def test_pprof_and_opentelemetry_have_a_comment(is_exact: bool, text: bytes) -> None:
    for writer in pprof, otlp:
        out = io.BytesIO()
        writer.write(run(4, is_exact), out)
        assert out.getvalue().count(b"alive_is_exact=") == 1
        assert text in out.getvalue()


def test_pprof_of_a_difference_has_a_comment_on_both_sides() -> None:
    out = io.BytesIO()
    pprof.write_diff(run(4, True), run(4, False), out)
    assert b"alive_is_exact=true,false: " in out.getvalue()


@pytest.mark.parametrize("is_exact, word", WORDS)
def test_speedscope_has_the_word(is_exact: bool, word: str) -> None:
    out = io.BytesIO()
    speedscope.write(run(4, is_exact), out)
    assert [one["name"] for one in json.loads(out.getvalue())["profiles"]] == [
        "allocated bytes", "allocated objects", "bytes " + word]


@pytest.mark.parametrize("before, after, word", PAIRS)
def test_difference_has_the_words(before: bool, after: bool, word: str) -> None:
    difference = compare(sides(before, after), Choice(sort="alive"))
    assert difference.sides.alive == word
    assert table.make_diff(difference, NAMES)["alive_word"] == word
    out = io.BytesIO()
    speedscope.write_diff(run(4, before), run(40, after), out)
    assert "more: bytes " + word in {
        one["name"] for one in json.loads(out.getvalue())["profiles"]}


@pytest.mark.parametrize("before, after, said", [
    ((4, True), (40, True), GREW), ((4, False), (40, False), UNCLEAR),
    ((40, False), (4, False), UNCLEAR),
    # survivors include all live objects, so that 4 survivors are fewer than 40 alive
    ((4, False), (40, True), GREW), ((40, True), (4, False), SHRANK),
    ((4, True), (40, False), UNCLEAR), ((40, False), (4, True), UNCLEAR)])
def test_possible_garbage_makes_a_change_unclear(
        before: tuple[int, bool], after: tuple[int, bool], said: str) -> None:
    difference = compare(of_runs([run(*before)], [run(*after)]), Choice(sort="alive"))
    assert verdict(difference.everything, "alive") == said
    assert {verdict(change, "alive") for change in difference.changes} == {said}


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("form", [(), ("--markdown",), ("--json",)])
def test_difference_notes_that_one_run_may_contain_garbage(
        folder: Path, capsys: pytest.CaptureFixture[str],
        form: tuple[str, ...]) -> None:
    for other, is_said in ("alive", False), ("survived", True):
        assert cli.main(["diff", "less.vmprof", other + ".vmprof", "--sort", "alive",
                         *form]) == 0
        out = words(capsys.readouterr().out)
        assert ("survived: survived.vmprof may contain garbage" in out) is (
            is_said and form != ("--json",))
        if form == ("--json",):
            assert json.loads(out)["alive_is_exact"] == {
                "before": True, "after": not is_said}
        else:
            assert bool(re.search("alive, then survived", out)) is is_said


def test_each_moment_of_a_run_has_its_own_word(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A later heap snapshot does not exclude garbage at an earlier mark."""
    heap = made(4, False)
    heap.mark("first")
    heap.allocate("main keeps", ("list", SIZE, math.inf))
    heap.collect_minor()
    snapshot(heap)
    heap.mark("second")
    heap.run(2**20)
    heap.mark("third")
    (folder / "a.vmprof").write_bytes(heap.data())
    profile = readers.read("a.vmprof")
    times = [mark.time for mark in profile.marks]
    assert [of_moments(profile, times[first], times[second]).alive
            for first, second in ((0, 1), (1, 2), (0, 2))] == [
        "survived, then alive", "alive, then survived", "survived"]
    assert cli.main(["diff", "a.vmprof", "--between", "first..second"]) == 0
    assert "survived: first may contain garbage" in words(capsys.readouterr().out)


@pytest.mark.parametrize("name, word", [
    ("alive", "alive"), ("survived", "objects that survived")])
def test_check_has_the_word(folder: Path, capsys: pytest.CaptureFixture[str],
                            name: str, word: str) -> None:
    assert cli.main(["check", name + ".vmprof", "--fail-if", "alive > 1M"]) == 0
    assert capsys.readouterr().out.startswith(
        "passed: alive > 1M: %s is 39.06 KiB" % word)


@pytest.mark.parametrize("name, code, said", [
    ("alive", 1, "failed: alive growth > 1k: alive growth is "),
    ("survived", 0,
     "passed: alive growth > 1k: growth of objects that survived is ")])
def test_growth_of_possible_garbage_does_not_fail_a_build(
        folder: Path, capsys: pytest.CaptureFixture[str], name: str, code: int,
        said: str) -> None:
    assert cli.main(["diff", "less.vmprof", name + ".vmprof", "--fail-if",
                     "alive growth > 1k"]) == code
    out = words(capsys.readouterr().out)
    assert said in out
    assert ("because it may contain garbage" in out) is (code == 0)


def test_limit_of_the_second_run_depends_on_that_run_only() -> None:
    condition = thresholds.parse("alive > 30k")
    for before in True, False:
        for after in True, False:
            difference: Any = compare(of_runs([run(4, before)], [run(40, after)]),
                                      Choice())
            found, = thresholds.of([condition], difference)
            assert found.failed is after
