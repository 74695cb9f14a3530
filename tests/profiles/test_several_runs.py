"""Tests of differences with several runs per side.

Several runs measure the spread of equal runs. A row has changed if the sides differ by
more than this spread. With one run per side, most differences of compiled code remain
uncertain.
"""
from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from convert_runs import run_and_fail
from made_heap import Heap
from made_profiles import FrameSpec, Log, jit
from opened_page import opened
from vmprof_convert import cli, readers
from vmprof_convert.analysis import spread
from vmprof_convert.analysis.diff import (
    DIFFERS,
    GREW,
    NOISE,
    SHRANK,
    compare,
    of_runs,
    verdict,
)
from vmprof_convert.analysis.summary import Choice
from vmprof_convert.cli import run_files
from vmprof_convert.errors import FileError
from vmprof_convert.meaning.estimator import weight_bytes
from vmprof_convert.profile.model import Profile

#: the mean number of samples of each function in a run
Counts = Mapping[str, float]


def drawn(rng: random.Random, mean: float) -> int:
    """Draw from a Poisson distribution, which is nearly normal for a large mean."""
    if mean > 400:
        return round(rng.normalvariate(mean, math.sqrt(mean)))
    count, at = 0, rng.expovariate(1)
    while at < mean:
        count += 1
        at += rng.expovariate(1)
    return count


def a_log(counts: Mapping[str, int], *, is_compiled: bool = True,
          interval: int = 1000, **settings: object) -> Log:
    """Return a log with the given number of samples of each function, of 64 bytes."""
    log = Log()
    log.settings(interval=interval, **settings)
    main = log.function("main", 1, "app.py")
    for line, (name, count) in enumerate(sorted(counts.items()), 2):
        f = log.function(name, line, "app.py")
        frames: list[FrameSpec] = [jit(main), jit(f)] if is_compiled else [main, f]
        stack = log.define(log.pairs(frames))
        for _ in range(count):
            log.sample(stack, 64, interval, 0, 1)
    return log


def a_run(rng: random.Random, counts: Counts) -> Profile:
    return readers.read_bytes(a_log({
        name: drawn(rng, mean) for name, mean in counts.items()}).data())


def equal(rng: random.Random, more: float = 1.0) -> Counts:
    """Return the mean number of samples of each function in one of several equal runs.

    In every second run, the JIT attributes a fifth of `caller` to `callee`. The samples
    of `warm` depend on the time of its compilation. `more` is a factor for `steady`.
    """
    moved = 200 * rng.randrange(2)
    return {"steady": 3000 * more, "caller": 1000 - moved, "callee": 500 + moved,
            "warm": 400 * rng.lognormvariate(0, 0.1), "small": 40, "tiny": 2}


def said(before: Sequence[Profile], after: Sequence[Profile],
         measure: str = "self") -> dict[str, str]:
    """Return the verdict of each function."""
    result = compare(of_runs(before, after), Choice(sort=measure))
    return {change.subject.function.name: verdict(change, measure)
            for change in result.changes
            if change.subject is not None and change.subject.function is not None}


# ____________________________________________________________
# statistics


@pytest.mark.parametrize("degrees, points", [
    # from tables of Student's t, two-sided, for 5 %, 1 % and 0.1 %
    (1, (12.706, 63.657, 636.619)), (2, (4.303, 9.925, 31.599)),
    (3, (3.182, 5.841, 12.924)), (6, (2.447, 3.707, 5.959)),
    (7, (2.365, 3.499, 5.408)), (30, (2.042, 2.750, 3.646))])
def test_student_s_t(degrees: int, points: Sequence[float]) -> None:
    for probability, point in zip((0.05, 0.01, 0.001), points):
        assert spread.tail(point, degrees) == pytest.approx(probability, rel=2e-3)
        assert spread.tail(-point, degrees) == spread.tail(point, degrees)
    assert spread.quantile(1.959964, degrees) == pytest.approx(points[0], abs=1e-3)
    assert (spread.tail(0, degrees), spread.quantile(0, degrees)) == (1, 0)
    assert spread.tail(1e300, degrees) == pytest.approx(0, abs=1e-14)


def test_the_variance_between_runs() -> None:
    """Three runs per side have four degrees of freedom, and sampling has one."""
    before, after = [9.0, 10.0, 11.0], [19.0, 20.0, 21.0]
    assert spread.degrees(3, 3) == 5
    assert spread.variance(before, after, 0.0) == pytest.approx(4 / 5)
    assert spread.variance(before, after, 0.5) == pytest.approx((0.5 + 4) / 5)
    # the variance of sampling is known, and is the minimum
    assert spread.variance(before, after, 5.0) == 5.0
    assert spread.variance([10.0], [8.0, 12.0], 0.0) == pytest.approx(8 / 2)


def test_holm_with_weights() -> None:
    assert spread.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert spread.holm([0.01, 0.04, 0.03], [1, 1, 1]) == pytest.approx(
        [0.03, 0.06, 0.06])
    # the first test gets nine tenths of the error rate, and then the second gets all
    assert spread.holm([0.03, 0.04], [9, 1]) == pytest.approx([0.03 / 0.9, 0.04])
    assert spread.holm([0.03, 0.001], [9, 1]) == pytest.approx([0.03, 0.01])
    assert spread.holm([]) == []


# In 97 of 100 cases, 30 comparisons detect false alarms in 30 % of the comparisons, and
# 100 comparisons in 13 %.
@pytest.mark.parametrize("comparisons, most", [
    (30, 4), pytest.param(100, 5, marks=pytest.mark.hard)])
def test_comparisons_of_equal_runs_seldom_have_a_changed_row(
        comparisons: int, most: int) -> None:
    """With one run per side, a row may have the verdict DIFFERS, but not GREW."""
    rng = random.Random(1)
    named = differ = 0
    for _ in range(comparisons):
        runs = [a_run(rng, equal(rng)) for _ in range(6)]
        named += bool({GREW, SHRANK} & set(said(runs[:3], runs[3:]).values()))
        alone = set(said(runs[:1], runs[3:4]).values())
        assert not {GREW, SHRANK} & alone
        differ += DIFFERS in alone
    assert named <= most and differ > comparisons / 2, (named, differ)


def test_finds_ten_percent_more_of_a_large_function() -> None:
    """The function has 3000 samples in each of three runs per side.

    With one run per side, the function has the verdict DIFFERS.
    """
    rng = random.Random(2)
    found = differs = 0
    for _ in range(20):
        before = [a_run(rng, equal(rng)) for _ in range(3)]
        after = [a_run(rng, equal(rng, 1.1)) for _ in range(3)]
        rows = said(before, after)
        found += rows["steady"] == GREW
        differs += said(before[:1], after[:1])["steady"] == DIFFERS
    assert found >= 19 and differs > 10


def test_two_runs_and_one_run_are_several_runs() -> None:
    rng = random.Random(3)
    runs = [a_run(rng, {"f": 400, "g": 400}) for _ in range(2)]
    more = a_run(rng, {"f": 900, "g": 400})
    assert said(runs, [more]) == {"f": GREW, "g": NOISE}
    assert said([more], runs) == {"f": SHRANK, "g": NOISE}


def test_exact_numbers_also_differ_between_equal_runs() -> None:
    """At an interval of one byte, all of the variance is between runs."""
    def runs(*counts: int) -> list[Profile]:
        return [readers.read_bytes(a_log({"f": count, "g": 5}, interval=1).data())
                for count in counts]

    assert said(runs(100, 120, 110), runs(115, 112, 118))["f"] == NOISE
    assert said(runs(100, 100, 100), runs(101, 101, 101))["f"] == GREW
    assert said(runs(100, 120, 110), runs(300, 320, 310))["f"] == GREW


def test_sides_with_different_intervals() -> None:
    """The side with the larger interval is less certain."""
    rng = random.Random(4)
    fine, coarse = ([readers.read_bytes(a_log(
        {"f": drawn(rng, 1e6 / weight_bytes(64, interval, "exponential"))},
        interval=interval).data()) for _ in range(3)] for interval in (100, 10_000))
    change, = compare(of_runs(fine, coarse), Choice()).changes
    _, low, high = change.estimate("self")
    # three runs of 100 samples have an error of 6 %, and the other side a small one
    assert low < 0 < high
    assert (high - low) / 2 == pytest.approx(2.57 * 1e6 / math.sqrt(300), rel=0.25)


# ____________________________________________________________
# one run per side


def test_changes_of_interpreted_functions_are_certain() -> None:
    def run(count: int, is_compiled: bool) -> Profile:
        return readers.read_bytes(a_log(
            {"f": count}, is_compiled=is_compiled, interval=1).data())

    for is_compiled, word in ((False, GREW), (True, DIFFERS)):
        assert said([run(100, False)], [run(200, is_compiled)]) == {"f": word}
    assert said([run(100, True)], [run(200, False)]) == {"f": DIFFERS}


def test_compiled_library_code_makes_changes_of_user_code_uncertain() -> None:
    from vmprof_convert.analysis.diff import only_own_code
    profiles = []
    for count in 100, 200:
        log = Log()
        log.settings(interval=1)
        main = log.function("main", 1, "app.py")
        library = log.function("f", 1, "/usr/lib/site-packages/p/lib.py")
        for _ in range(count):
            log.allocation([main, jit(library)], size=64, interval=1)
        profiles.append(readers.read_bytes(log.data()))
    sides = only_own_code(of_runs(profiles[:1], profiles[1:]))
    assert sides is not None
    change, = compare(sides, Choice()).changes
    assert verdict(change, "self") == DIFFERS


@pytest.mark.parametrize("by, word", [
    (("type",), GREW), (("function",), DIFFERS), (("function", "type"), DIFFERS)])
def test_changes_of_live_objects_are_certain_by_type_and_in_all(
        by: tuple[str, ...], word: str) -> None:
    profiles = []
    for count in 100, 300:
        heap = Heap(interval=1)
        # one frame of compiled code is enough to make functions uncertain
        heap._functions["main"] = heap.log.function("main")
        heap.log.allocation([jit(heap._functions["main"])], size=64, interval=1)
        heap._functions["f"] = heap.log.function("f", 2)
        for _ in range(count):
            heap.allocate("main f", ("list", 400, math.inf))
        heap.collect()
        profiles.append(readers.read_bytes(heap.data()))
    result = compare(of_runs(profiles[:1], profiles[1:]), Choice(by=by, sort="alive"))
    assert verdict(result.changes[0], "alive") == word
    assert verdict(result.everything, "alive") == GREW
    places = compare(of_runs(profiles[:1], profiles[1:], is_of_places=True),
                     Choice(by=by, sort="alive"))
    assert verdict(places.everything, "alive") == DIFFERS


def test_memory_of_the_jit_is_uncertain_with_one_run_per_side(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The memory of the JIT depends on the time at which it compiles.

    Rows of the program's objects are before such rows, even if they have fewer bytes.
    """
    runs = []
    for count in 100, 400:
        heap = Heap(interval=1)
        heap._functions["main"] = heap.log.function("main")
        heap.log.allocation([jit(heap._functions["main"])], size=64, interval=1)
        for type_, more in (("<RPython Numbering>", 10), ("<JIT frame>", 10),
                            ("list", 1)):
            for _ in range(count * more):
                heap.allocate("main f", (type_, 64, math.inf))
        heap.collect()
        runs.append(tmp_path / ("%d.vmprof" % count))
        runs[-1].write_bytes(heap.data())
    assert cli.main(["diff", *map(str, runs), "--by", "type", "--sort", "alive"]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(lines) if "by type" in line)
    rows = [line.split() for line in lines[begin + 2:begin + 5]]
    assert [(row[-1] if ">" not in row[-1] else " ".join(row[-2:]),
             {GREW, DIFFERS, "same"} & set(row)) for row in rows] == [
        ("list", {GREW}), ("<JIT frame>", {DIFFERS}),
        ("<RPython Numbering>", {DIFFERS})]
    assert "1 of 4 types changed" in lines
    profiles = [readers.read_bytes(path.read_bytes()) for path in runs]
    of_several = compare(of_runs(profiles[:1] * 2, profiles[1:] * 2),
                         Choice(by=("type",), sort="alive"))
    assert {verdict(change, "alive") for change in of_several.changes} == {GREW, "same"}


# ____________________________________________________________
# the command


Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")

    def write_(name: str, count: int, seed: int, *, run: str = "",
               **settings: Any) -> None:
        rng = random.Random(seed)
        counts = {"steady": drawn(rng, 500), "f": drawn(rng, count)}
        (tmp_path / (name + ".vmprof")).write_bytes(a_log(
            counts, run=run or name, **settings).data())
    return write_


@pytest.fixture
def six(write: Write) -> Path:
    """Write the runs a1 to a3, and b1 to b3, in which `f` allocates 50 % more."""
    for number in 1, 2, 3:
        write("a%d" % number, 2000, number)
        write("b%d" % number, 3000, 10 + number)
    return Path.cwd()


A, B = (["%s%d.vmprof" % (side, number) for number in (1, 2, 3)] for side in "ab")


def test_table_of_several_runs(six: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", *A, "--against", *B]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == (
        "changes: from 3 runs (a1.vmprof, a2.vmprof, a3.vmprof) to 3 runs "
        "(b1.vmprof, b2.vmprof, b3.vmprof), on average")
    assert lines[1].startswith("  samples: ") and "before, " in lines[1]
    row, = (line for line in lines if "app.py:2" in line)
    # 2000 and 3000 samples, each of which represents 1032 bytes
    assert re.fullmatch(r"\+(0.9|1.0)\d ±0.\d+ MiB +grew +(1.9|2.0)\d MiB +"
                        r"(2.9|3.0)\d MiB +f +app.py:2", row)
    row, = (line for line in lines if "app.py:3" in line)
    assert " noise " in row
    assert "1 of 2 functions changed" in lines and "differs" not in out
    assert cli.main(["diff", *A, "--against", *B, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == [3, 3] and not found["one_run"]
    change = found["changes"][0]
    assert (change["function"]["name"], change["is"]) == ("f", "grew")
    for side, count in (("before", 2000), ("after", 3000)):
        value, low, high = (change[side][key] for key in ("value", "low", "high"))
        assert value == pytest.approx(count * 1032, rel=0.1) and low < value < high


def test_table_of_one_run_per_side_names_its_limits(
        six: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for against in [], ["--against"]:
        assert cli.main(["diff", "a1.vmprof", *against, "b1.vmprof"]) == 0
        lines = capsys.readouterr().out.splitlines()
        row, = (line for line in lines if "app.py:2" in line)
        assert " differs " in row
        assert "1 of 2 functions differ by more than sampling" in lines
        assert any(line.startswith("differs: ") and line.endswith(
            "compare several runs per side (diff A1 A2 A3 --against B1 B2 B3)")
            for line in lines)
        assert "noise: sampling alone explains the difference" in lines


def test_a_condition_about_several_runs(
        six: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in (
            ([*A, "--against", *B, "--fail-if", "allocated growth > 5%"], 1),
            ([*A, "--against", *B, "--fail-if", "allocated growth > 60%"], 0),
            ([*B, "--against", *A, "--fail-if", "allocated growth > 0"], 0),
            ([*A, "--against", *B, "--fail-if", "allocated > 2M"], 1),
            ([*A, "--against", *B, "--function", "f", "--fail-if",
              "allocated growth > 5%"], 1),
            ([*A, "--against", *B, "--function", "steady", "--fail-if",
              "allocated growth > 5%"], 0)):
        assert cli.main(["diff", *arguments]) == code
        assert "one run per side" not in capsys.readouterr().out


def test_a_condition_about_one_run_per_side(
        six: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "a1.vmprof", "b1.vmprof", "--fail-if",
                     "allocated growth > 5%", "--fail-if", "allocated > 2M"]) == 1
    out = capsys.readouterr().out
    growth, whole = (line for line in out.splitlines() if line.startswith("failed: "))
    assert "with one run per side, this may be a difference between equal" in growth
    # this condition is about the second run only
    assert "one run per side" not in whole
    for option in "--function", "--file":
        assert "cannot evaluate 'allocated growth > 5%' for --function or --file " \
            "with one run per side" in run_and_fail(
                six, capsys, "diff", "a1.vmprof", "b1.vmprof", option,
                "f" if option == "--function" else "app.py", "--fail-if",
                "allocated growth > 5%")
    assert cli.main(["diff", "a1.vmprof", "b1.vmprof", "--function", "f", "--fail-if",
                     "allocated > 1G"]) == 0


def test_files_of_one_run_are_one_run(
        write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """A user may name all files (a*.vmprof), or only the first file of each run."""
    for side, count in (("a", 500), ("b", 800)):
        for number in range(3):
            name = "%s%d" % (side, number)
            seed = ord(side) + number
            write(name, count, seed, run=name, pid=1, clock=5)
            write(name + ".77", count, seed + 50, run=name, pid=77, parent=1, clock=6)
    sums = []
    for children in True, False:
        paths = [sorted(path.name for path in Path.cwd().iterdir()
                        if path.name.startswith(side)
                        and (children or ".77." not in path.name)) for side in "ab"]
        assert len(paths[0]) == (6 if children else 3)
        assert cli.main(["diff", *paths[0], "--against", *paths[1], "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["runs"] == [3, 3]
        sums.append(found["everything"]["after"]["value"])
    assert sums[0] == sums[1] == pytest.approx(2 * 1300 * 1032, rel=0.1)


def test_files_are_grouped_by_run(write: Write) -> None:
    for name, run in (("a", "x"), ("b", "y"), ("c", "x")):
        write(name, 5, 1, run=run)
    log = Log()
    log.settings()
    for name in "d", "e":
        Path(name + ".vmprof").write_bytes(log.data())
    paths = [name + ".vmprof" for name in "abcde"]
    assert list(run_files.by_run(paths).values()) == [
        ["a.vmprof", "c.vmprof"], ["b.vmprof"], ["d.vmprof"], ["e.vmprof"]]
    with pytest.raises(FileError, match="is not a file"):
        run_files.by_run(["."])


@pytest.mark.parametrize("arguments, message", [
    ([*A, *B], "6 profiles were named: name two, or one with --between, or several "
               "runs per side (diff A1 A2 A3 --against B1 B2 B3)"),
    ([A[0], "--against", B[0], "--between", "x..y"],
     "--between is about one run, and --against about several"),
    ([*A, "--against", B[0], A[1]],
     "a2.vmprof and a2.vmprof are profiles of one run, which cannot be on both sides: "
     "name other runs"),
    ([A[0], A[0], "--against", *B], "a profile was named twice"),
    ([*A, "--against", *B, "-o", "x.pb.gz"],
     "--against: only a table or a page compares several runs per side, and not the "
     "format pprof"),
    ([*A, "--against", "no.vmprof"], "no.vmprof: No such file or directory"),
    ([*A, "--against", *B, "-o", "b2.vmprof", "--json"], "is the profile itself"),
])
def test_refuses_invalid_arguments(
        six: Path, capsys: pytest.CaptureFixture[str], arguments: list[str],
        message: str) -> None:
    assert message in run_and_fail(six, capsys, "diff", *arguments)


@pytest.mark.node
def test_page_of_several_runs(six: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page has the verdicts of the table."""
    assert cli.main(["diff", *A, "--against", *B, "-o", "x.html"]) == 0
    found = opened(six / "x.html")
    assert found["changes"] == {"all": "grew", "main": "grew", "f": "grew",
                                "steady": "same"}
    assert found["legend"] == ["grew", "shrank", "may be chance"]
    assert found["header"].startswith("changes in total, on average: ")
    name, change, _ = found["rows"][0]
    capsys.readouterr()
    assert cli.main(["diff", *A, "--against", *B, "--json"]) == 0
    row = json.loads(capsys.readouterr().out)["changes"][0]
    assert name == "f" == row["function"]["name"]
    assert float(change[1:5]) == pytest.approx(row["change"]["value"] / 2**10, abs=10) \
        or float(change[1:5]) == pytest.approx(row["change"]["value"] / 2**20, abs=0.01)
    # the same difference may be chance if equal runs have a large spread
    for path, count in zip(A, (1000, 2000, 3000)):
        Path(path).write_bytes(a_log({"steady": 500, "f": count}, run=path).data())
    assert cli.main(["diff", *A, "--against", *B, "-o", "x.html"]) == 0
    assert set(opened(six / "x.html")["changes"].values()) == {"same"}


@pytest.mark.node
def test_page_of_one_run_per_side(six: Path) -> None:
    assert cli.main(["diff", "a1.vmprof", "b1.vmprof", "-o", "x.html"]) == 0
    found = opened(six / "x.html")
    assert found["changes"]["f"] == "grew"
    assert found["legend"] == ["more (equal runs differ, too)",
                               "less (equal runs differ, too)", "may be chance"]
    assert "(differs; " in found["header"]
