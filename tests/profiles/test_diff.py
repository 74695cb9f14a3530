"""Tests of the differences of two profiles, or of two moments of one profile."""
from __future__ import annotations

import io
import json
import math
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import hostile_names
from compared_runs import a_run
from convert_runs import run_and_fail
from made_heap import Heap
from made_profiles import Log
from stack_files import Json, label
from vmprof_convert import cli, readers
from vmprof_convert.analysis import diff
from vmprof_convert.analysis.diff import (
    GREW,
    NOISE,
    SAME,
    SHRANK,
    compare,
    difference,
    find_moment,
    of_moments,
    of_runs,
    verdict,
)
from vmprof_convert.analysis.summary import (
    FUNCTION,
    LINE,
    MODULE,
    TYPE,
    Choice,
    Summary,
    summarize,
)
from vmprof_convert.cli import formats
from vmprof_convert.cli.options import FORMS
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.stacks import Stacks
from vmprof_convert.writers import collapsed, speedscope

MS = 1_000_000


def found(before: Profile, after: Profile, by: tuple[str, ...] = (FUNCTION,),
          measure: str = "self") -> dict[str, tuple[str, float]]:
    """Return the verdict (GREW, SHRANK, SAME, NOISE) and the growth of each row."""
    result = compare(of_runs([before], [after]), Choice(by=by, sort=measure))
    rows = {}
    for change in result.changes:
        assert change.subject is not None
        function, type_ = change.subject.function, change.subject.type
        name = (function.name if function else change.subject.module) or (
            type_.name if type_ else "")
        rows[name] = (verdict(change, measure), change.estimate(measure).value)
    rows["everything"] = (verdict(result.everything, measure),
                          result.everything.estimate(measure).value)
    return rows


def test_a_profile_and_itself_do_not_differ() -> None:
    profile = a_run(1)
    for measure in ("self", "total", "objects", "alive"):
        assert set(found(profile, profile, measure=measure).values()) == {(SAME, 0.0)}


def test_finds_rows_that_grew_or_shrank() -> None:
    rows = found(a_run(1), a_run(2, more=500))
    assert rows.pop("grows")[0] == GREW
    assert rows.pop("everything")[0] == GREW
    assert {said for said, _ in rows.values()} == {NOISE}
    back = found(a_run(2, more=500), a_run(1))
    assert back["grows"][0] == SHRANK and back["grows"][1] == pytest.approx(
        -200_000, rel=0.5)


def test_difference_of_each_measure_is_the_difference_of_the_sums() -> None:
    before, after = a_run(3), a_run(4, more=300, leak=50)
    for measure in ("self", "total", "objects", "alive"):
        rows = found(before, after, measure=measure)
        old, new = summarize(before).figures, summarize(after).figures
        assert rows["everything"][1] == pytest.approx(
            diff.amount([new], measure).value - diff.amount([old], measure).value)
    assert found(before, after, (TYPE,), "alive")["str"][0] == GREW


def test_difference_is_certain_if_each_object_is_sampled() -> None:
    """A sampling interval of one byte samples each object."""
    rows = found(a_run(1, 1), a_run(2, 1, more=1))
    assert rows["grows"] == (GREW, 400.0)
    assert rows["f"] == (SAME, 0.0)


def estimate_of(count: int, interval: int = 1000) -> Estimate:
    """Return the estimate of `count` samples of small objects."""
    from vmprof_convert.meaning.estimator import Sum
    from vmprof_convert.profile.probability import probability
    sum_ = Sum()
    sum_.add(64, probability(64, interval, "exponential"), count)
    return sum_.bytes(interval)


def test_intervals_contain_the_difference() -> None:
    """At least 95 % of the confidence intervals contain the true difference."""
    rng = random.Random(7)
    for before, after in ((3, 5), (20, 30), (200, 200)):
        held = 0
        runs = 2000
        for _ in range(runs):
            old, new = (estimate_of(_poisson(rng, mean)) for mean in (before, after))
            made = difference(new, old)
            truth = (after - before) * 1032.3
            held += made.low <= truth <= made.high
        # the limit is 4 standard deviations below 95 %
        assert held > runs * 0.95 - 4 * math.sqrt(runs * 0.95 * 0.05)


def _poisson(rng: random.Random, mean: float) -> int:
    count, at = 0, rng.expovariate(1)
    while at < mean:
        count += 1
        at += rng.expovariate(1)
    return count


@pytest.mark.slow
def test_at_most_5_percent_of_equal_pairs_have_a_changed_row() -> None:
    """The test compares 200 pairs of runs of one program with 30 functions."""
    wrong = 0
    rng = random.Random(9)
    for _ in range(200):
        profiles = []
        for _ in range(2):
            log = Log()
            log.settings()
            for number in range(30):
                f = log.function("f%d" % number, number + 1)
                for _ in range(_poisson(rng, 3 + number)):
                    log.allocation([f], size=64)
            profiles.append(readers.read_bytes(log.data()))
        result = compare(of_runs(profiles[:1], profiles[1:]), Choice())
        wrong += any(change.has_changed for change in result.changes)
    # 5 % of 200 pairs are 10, and 4 standard deviations are 12
    assert wrong <= 22


# ____________________________________________________________
# identity of functions and lines


def _program(folder: str, functions: Sequence[tuple[str, int, int]]) -> Profile:
    """Return a profile with a sample of each function (name, line, size)."""
    log = Log()
    main = log.function("<module>", 1, folder + "/app.py")
    log.settings()
    for name, line, size in functions:
        log.allocation([main, log.function(name, line, folder + "/app.py")], size=size)
    return readers.read_bytes(log.data())


def test_functions_that_moved_are_matched() -> None:
    """In the second run, the functions have other lines, and their file is moved."""
    before = _program("/srv/old", [("f", 10, 50_000), ("__init__", 20, 60_000),
                                   ("__init__", 40, 70_000)])
    after = _program("/srv/new", [("f", 12, 50_000), ("__init__", 25, 60_000),
                                  ("__init__", 45, 90_000)])
    result = compare(of_runs([before], [after]), Choice())
    moved = {(change.subject.function.name, change.subject.function.line):
             change.estimate("self").value for change in result.changes
             if change.subject is not None and change.subject.function is not None}
    assert moved == {("f", 12): 0.0, ("__init__", 25): 0.0, ("__init__", 45): 20_000}


def test_lines_move_with_their_function() -> None:
    profiles = []
    for first, folder in ((10, "/a"), (30, "/b")):
        log = Log(flags=4 | 2)
        f = log.function("f", first, folder + "/app.py")
        main = log.function("<module>", 1, folder + "/app.py")
        log.settings()
        log.allocation([main, f], size=50_000)
        profile = readers.read_bytes(log.data())
        assert isinstance(profile.stacks, Stacks)
        profile.stacks.frames[:] = [
            frame._replace(line=first + 5) if frame.address == f else frame
            for frame in profile.stacks.frames]
        profiles.append(profile)
    change, = compare(of_runs(profiles[:1], profiles[1:]), Choice(by=(LINE,))).changes
    assert change.subject is not None and change.subject.line == 35
    assert change.estimate("self").value == 0.0


def test_indistinguishable_functions_of_one_name_are_one_row() -> None:
    before = _program("/a", [("__init__", 10, 50_000)])
    after = _program("/a", [("__init__", 12, 50_000), ("__init__", 30, 70_000)])
    change, = compare(of_runs([before], [after]), Choice()).changes
    assert change.subject is not None and change.subject.function is not None
    assert (change.subject.function.name, change.subject.function.line) == (
        "__init__", 0)
    assert change.estimate("self").value == 70_000


def test_modules_and_types() -> None:
    before = _program("/a", [("f", 10, 50_000)])
    after = _program("/b", [("f", 10, 90_000)])
    assert found(before, after, (MODULE,)) == {
        "app": (GREW, 40_000), "everything": (GREW, 40_000)}


# ____________________________________________________________
# two moments of one run


def marked(seed: int = 1, interval: int = 3000) -> Heap:
    """Return a run with the user's marks "warm" and "done".

    Between the marks, `f` allocates short-lived objects, and the objects of `keeps`
    stay alive. `cache` has allocated its objects before the first mark.
    """
    heap = Heap(interval=interval, seed=seed)
    for _ in range(500):
        heap.allocate("main cache", ("dict", 400, 1e12))
    heap.collect()
    heap.mark("warm")
    heap.run(1)
    for _ in range(1000):
        heap.allocate("main f", ("list", 200, 10))
        heap.allocate("main keeps", ("str", 100, 1e12))
    heap.collect()
    heap.mark("done")
    heap.run(1)
    for _ in range(1000):
        heap.allocate("main later", ("list", 200, 1e12))
    return heap


def test_objects_alive_at_both_marks_make_no_difference() -> None:
    profile = readers.read_bytes(marked().data())
    sides = of_moments(profile, find_moment(profile, "warm"),
                       find_moment(profile, "done", is_last=True))
    result = compare(sides, Choice(sort="alive"))
    rows = {change.subject.function.name: change for change in result.changes
            if change.subject is not None and change.subject.function is not None}
    assert verdict(rows["keeps"], "alive") == GREW
    # few samples determine the size of `cache`, but they are the same at both marks
    value, low, high = rows["cache"].estimate("alive")
    # only a change by two samples cannot be excluded
    assert (value, low) == (0.0, -high) and high == pytest.approx(7400, rel=0.1)
    assert verdict(rows["cache"], "alive") == SAME
    assert "later" not in rows
    grown = result.everything.estimate("alive")
    assert grown.low < 100_000 < grown.high


def test_difference_of_marks_has_the_allocations_between_them() -> None:
    profile = readers.read_bytes(marked(interval=1).data())
    first, second = (find_moment(profile, name) for name in ("warm", "done"))
    result = compare(of_moments(profile, first, second), Choice())
    assert {label(change.subject.function): change.estimate("self").value
            for change in result.changes
            if change.subject is not None and change.subject.function is not None} == {
        "f (app.py:3)": 200_000, "keeps (app.py:4)": 100_000, "cache (app.py:2)": 0}
    assert result.everything.estimate("self").value == 300_000


def test_objects_freed_between_marks_are_a_decrease() -> None:
    heap = Heap(interval=1)
    for _ in range(10):
        heap.allocate("main f", ("list", 400, 10_000))
    heap.collect()
    heap.mark("full")
    heap.run(20_000)
    heap.collect()
    heap.mark("empty")
    profile = readers.read_bytes(heap.data())
    sides = of_moments(profile, *(find_moment(profile, name)
                                  for name in ("full", "empty")))
    change, = compare(sides, Choice(sort="alive")).changes
    assert verdict(change, "alive") == SHRANK
    assert change.estimate("alive").value == -4000


def test_an_unknown_moment_is_refused() -> None:
    profile = readers.read_bytes(marked().data())
    assert find_moment(profile, "0.0000001") == 100
    for text in ("cold", "-1", "nan", "1e9", ""):
        with pytest.raises(ProfileError, match=r"no mark '.*the marks are: warm, done"):
            find_moment(profile, text)


# ____________________________________________________________
# formats and the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with a.vmprof and b.vmprof.

    In b.vmprof, the function `grows` allocates 200 kB more, which stay alive.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, seed, more in (("a", 1, 0), ("b", 2, 500)):
        heap = Heap(interval=500, seed=seed)
        for _ in range(1000):
            heap.allocate("main f", ("list", 64, 100))
        for _ in range(more):
            heap.allocate("main grows", ("str", 400, 1e12))
        heap.collect()
        (tmp_path / (name + ".vmprof")).write_bytes(heap.data())
    return tmp_path


def test_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "a.vmprof", "b.vmprof"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "changes: from a.vmprof to b.vmprof"
    row, = (line for line in lines if "app.py:3" in line)
    assert re.fullmatch(r" *\+\d+ ±\d+ KiB +grew +- +\d+ KiB +grows +app.py:3", row)
    row, = (line for line in lines if line.endswith("app.py:2"))
    assert re.fullmatch(r" *[-+][\d.]+ ±[\d.]+ KiB +noise +.*", row)
    assert any(re.fullmatch(r".* grew .* alive", line) for line in lines)
    assert not any("garbage" in line for line in lines)


def test_noise_is_explained_if_a_row_is_noise(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, is_said, count in (
            (["a.vmprof", "b.vmprof"], True, "1 of 2 functions changed"),
            (["a.vmprof", "a.vmprof"], False, "none of 1 function changed")):
        assert cli.main(["diff", *arguments]) == 0
        out = capsys.readouterr().out.splitlines()
        assert any(line.startswith("noise: ") for line in out) == is_said
        assert count in out


def test_rows_are_user_code_by_default(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The JIT attributes an allocation to one of several library functions by chance.

    The calling function of the program does not depend on chance.
    """
    def log(callee: str) -> bytes:
        made = Log()
        made.settings()
        for _ in range(500):
            made.allocation([made.function("main", 1, "app.py"), made.function(
                callee, 7, "/usr/lib/site-packages/p/lib.py")], size=400)
        return made.data()

    paths = [str(tmp_path / name) for name in ("a.vmprof", "b.vmprof")]
    for path, callee in zip(paths, ("outer", "inner")):
        Path(path).write_bytes(log(callee))

    def rows(*options: str) -> dict[str, str]:
        assert cli.main(["diff", *paths, "--json", *options]) == 0
        data = json.loads(capsys.readouterr().out)
        assert data["mine"] == ("--by" not in options)
        return {row["function"]["name"]: row["is"] for row in data["changes"]}

    assert rows() == rows("--user-code") == {"main": SAME}
    assert rows("--by", "function") == {"outer": SHRANK, "inner": GREW}
    assert cli.main(["diff", *paths]) == 0
    assert ("\nuser code, with the libraries that it calls, by function, "
            "allocated:\n") in capsys.readouterr().out


def test_an_installed_program_has_rows_of_all_functions(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Log()
    made.settings()
    made.allocation([made.function("f", 7, "/usr/lib/site-packages/p/lib.py")],
                    size=400)
    path = tmp_path / "a.vmprof"
    path.write_bytes(made.data())
    assert cli.main(["diff", str(path), str(path)]) == 0
    assert "\nby function, allocated:\n" in capsys.readouterr().out


def test_other_output_formats(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "a.vmprof", "b.vmprof", "--by", "type", "--markdown"]) == 0
    assert re.search(r"\| grew \| - \| .* \| `str` \|\n", capsys.readouterr().out)
    assert cli.main(["diff", "a.vmprof", "b.vmprof", "-o", "x.json", "--sort",
                     "alive"]) == 0
    found: dict[str, Any] = json.loads((folder / "x.json").read_text())
    assert found["schema"] == "vmprof-allocation-diff-1"
    assert found["changes"][0]["function"]["name"] == "grows"
    assert found["changes"][0]["is"] == "grew" == found["everything"]["is"]
    assert found["changes"][0]["change"]["low"] > 100_000
    # --json without -o writes to standard output
    capsys.readouterr()
    assert cli.main(["diff", "a.vmprof", "b.vmprof", "--json", "-n", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["changes"]), found["changes_left_out"]) == (1, 1)


def test_a_dash_is_standard_output(folder: Path,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.iterdir())
    outputs = []
    for options in [], ["-o", "-"]:
        assert cli.main(["diff", "a.vmprof", "b.vmprof", *options]) == 0
        outputs.append(capsys.readouterr())
    assert outputs[0] == outputs[1] and "changes: from" in outputs[0].out
    assert cli.main(["diff", "a.vmprof", "b.vmprof", "--json", "-o", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "vmprof-allocation-diff-1"
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("command", ["diff", "check"])
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "certainly true (99.99 %)" in out
    assert ("growth > 5%" in out) == (command == "diff")


def test_help_of_diff_lists_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["diff", "--help"])
    out = capsys.readouterr().out
    listed = set(re.findall(r"--[a-z-]+", out))
    assert {"--sort", "--by", "--limit", "--group-storage", "--between"} <= listed
    assert not listed & {"--retainers", "--csv", "--at", "--hide-internal", "--of"}


def test_option_json_overrides_the_suffix_of_the_output(folder: Path) -> None:
    assert cli.main(["diff", "a.vmprof", "b.vmprof", "--json", "-o", "x.md"]) == 0
    assert json.loads((folder / "x.md").read_text(encoding="utf-8"))["changes"]


def test_no_profile_that_was_read_is_overwritten(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, settings in (("app", {}), ("app.7", {"parent": 1})):
        log = Log()
        log.settings(run="r", **settings)
        log.allocation([log.function("f")], size=24)
        (folder / (name + ".vmprof")).write_bytes(log.data())
    child = folder / "app.7.vmprof"
    before = child.read_bytes()
    assert "is the profile itself" in run_and_fail(
        folder, capsys, "diff", "a.vmprof", "app.vmprof", "--format", "pprof", "-o",
        "app.7.vmprof")
    assert child.read_bytes() == before
    other = folder / "other.vmprof"
    other.write_bytes(before)
    assert "other.vmprof: this is a profile" in run_and_fail(
        folder, capsys, "diff", "a.vmprof", "app.vmprof", "--format", "pprof", "-o",
        "other.vmprof")
    assert other.read_bytes() == before


def test_suffixes_of_outputs_are_those_of_other_commands() -> None:
    """`report` and `export` have the same suffixes for the same formats."""
    for name, format_ in formats.DIFF_FORMATS.items():
        for suffix in format_.suffixes:
            assert formats.of_name("x" + suffix, formats.DIFF_FORMATS) == format_
            if name in FORMS:
                assert FORMS[name] == suffix
            else:
                assert formats.of_name("x" + suffix) == format_ == formats.FORMATS[name]
    assert formats.of_name("x.json.gz", formats.DIFF_FORMATS) is None


def test_each_profile_is_summarized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def count(profile: Profile, *, choice: Choice) -> Summary:
        counted.append(profile)
        return summarize(profile, choice=choice)

    monkeypatch.setattr(diff, "summarize", count)
    before, after = a_run(1), a_run(2)
    diff.compare(diff.of_runs([before], [after]), Choice())
    assert counted == [before, after]


def test_collapsed_stacks_have_two_numbers(folder: Path) -> None:
    assert cli.main(["diff", "a.vmprof", "b.vmprof", "-o", "x.folded"]) == 0
    lines = (folder / "x.folded").read_text().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.fullmatch(r"main \(app.py:1\);\w+ \(app.py:\d\);\w+ \d+ \d+", line)
    grows, = (line for line in lines if "grows" in line)
    assert grows.split()[-2] == "0" and int(grows.split()[-1]) > 100_000


def test_speedscope_has_a_profile_of_the_increases() -> None:
    out = io.BytesIO()
    speedscope.write_diff(a_run(1, 1), a_run(2, 1, more=2), out)
    shown = {one["name"]: one for one in json.loads(out.getvalue())["profiles"]}
    assert {name for name in shown if "allocated" in name} == {
        "more: allocated bytes", "more: allocated objects"}
    assert shown["more: allocated bytes"]["endValue"] == 800
    out = io.BytesIO()
    with pytest.raises(ProfileError, match="no difference"):
        speedscope.write_diff(a_run(1, 1), a_run(2, 1), out)


def test_difference_fits_the_schema_of_speedscope(speedscope_schema: Json) -> None:
    out = io.BytesIO()
    speedscope.write_diff(a_run(1), a_run(2, more=50, leak=50), out)
    jsonschema.validate(json.loads(out.getvalue()), speedscope_schema)


def test_hostile_names_are_escaped(tmp_path: Path,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    before, after = tmp_path / "a.vmprof", tmp_path / "b.vmprof"
    before.write_bytes(hostile_names.log().data())
    log = hostile_names.log()
    log.allocation([log.function("\x1b[2J", 1, "\u202e")], size=10)
    after.write_bytes(log.data())
    for options in (["--by", "line,type"], ["--by", "file", "--markdown"],
                    ["--by", "module"], ["--json"], ["--format", "collapsed"]):
        if "collapsed" not in options:
            options += ["-n", "999"]
        assert cli.main(["diff", str(before), str(after), *options]) == 0
        out = capsys.readouterr().out
        assert all(line.isprintable() for line in out.split("\n"))
    out_ = io.BytesIO()
    collapsed.write_diff(readers.read(before), readers.read(after), out_)
    assert len(out_.getvalue().splitlines()) == len(hostile_names.HOSTILE) + 1


@pytest.mark.parametrize("arguments, said", [
    (["a.vmprof"], "1 profiles were named: name two"),
    (["a.vmprof", "b.vmprof", "--between", "x..y"], "2 profiles were named"),
    (["a.vmprof", "b.vmprof", "-o", "x.svg"], "the output's name must end with .txt"),
    (["a.vmprof", "b.vmprof", "--fail-if", "alive >"], "invalid condition 'alive >'"),
    (["a.vmprof", "b.vmprof", "--format", "pprof", "--sort", "alive"],
     "--sort: only tables support this, and not the format pprof"),
    (["a.vmprof", "b.vmprof", "-o", "x.folded", "--by", "type", "-n", "3"],
     "--limit, --by: only tables support this, and not the format collapsed"),
    (["a.vmprof", "b.vmprof", "--format", "speedscope", "--group-storage"],
     "--group-storage: only tables support this"),
    (["a.vmprof", "b.vmprof", "-o", "x.html", "-n", "3"],
     "--limit: only tables support this, and not the format html"),
    (["a.vmprof", "b.vmprof", "-o", "x.html", "--by", "file,type"],
     "--by file,type: a page has rows for functions, or for types"),
    (["a.vmprof", "b.vmprof", "--format", "pprof", "--json"],
     "argument --json: not allowed with argument --format"),
])
def test_refuses_invalid_arguments(
        folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str],
        said: str) -> None:
    assert said in run_and_fail(folder, capsys, "diff", *arguments)


def test_profiles_that_can_not_be_compared(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.settings(gaps="fixed")
    log.allocation([log.function("f")], size=24)
    (folder / "fixed.vmprof").write_bytes(log.data())
    log = Log()
    log.settings()
    (folder / "none.vmprof").write_bytes(log.data())
    for arguments, said in (
            (["a.vmprof", "fixed.vmprof"], "--allocation-distribution fixed"),
            (["none.vmprof", "none.vmprof"], "no allocation samples to compare"),
            (["a.vmprof", "no.vmprof"], "no.vmprof: No such file or directory"),
            (["none.vmprof", "a.vmprof", "--sort", "alive"], "without lifetimes"),
            (["a.vmprof", "b.vmprof", "--function", "x"], "a.vmprof: no function"),
            (["a.vmprof", "--between", "x..y"], "there is no mark 'x'"),
            (["a.vmprof", "b.vmprof", "-o", "a.vmprof", "--json"],
             "is the profile itself")):
        assert said in run_and_fail(folder, capsys, "diff", *arguments)
