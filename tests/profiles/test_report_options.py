"""Tests of the report's options, in `pypy-alloc report` and `vmprof-convert`."""
from __future__ import annotations

import array
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from made_heap import Heap
from made_profiles import LINES, Log
from report_runs import PROGRAMS, lines, refused, report
from vmprof_convert import readers
from vmprof_convert.analysis.summary import Choice, summarize
from vmprof_convert.meaning.lifetimes import STILL_ALIVE


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the profile of a program that keeps the objects of one function."""
    heap = Heap(interval=500)
    for number in range(3000):
        heap.allocate("main make", ("app.Leaf", 64, 100))
        if number % 3 == 0:
            heap.allocate("main keep", ("list", 32, math.inf),
                          ("list (storage)", 200, math.inf))
        if number % 30 == 0:
            heap.allocate("main", ("<JIT frame>", 800, 100))
    heap.run(20_000)
    heap.collect()
    path = tmp_path_factory.mktemp("made") / "app.vmprof"
    path.write_bytes(heap.data())
    return path


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Write a profile without types and lifetimes."""
    log = Log()
    log.settings()
    for name, size in ("one", 16), ("two", 32):
        log.allocation([log.function(name)], size=size, time=10**9)
    path = tmp_path / "plain.vmprof"
    path.write_bytes(log.data())
    return path


def rows(found: list[str]) -> list[str]:
    """Return the rows of the table."""
    start = next(i for i, line in enumerate(found) if re.search(" %  ", line))
    return found[start + 1:found.index("", start)]


def last_words(found: list[str]) -> list[str]:
    return [re.split(" {2,}", line)[-2] if "app.py" in line
            else re.split(" {2,}", line)[-1] for line in rows(found)]


def words(line: str) -> str:
    return " ".join(line.split())


def test_columns_of_the_default_table(path: Path) -> None:
    found = lines(path)
    assert found[2] == "user code, with the libraries that it calls:"
    assert words(found[3]) == (
        "allocated % total alive objects died young function where")
    keep, make = rows(found)[:2]
    assert words(keep) == (
        "211 ±19 KiB 44.4 211 KiB 211 ±19 KiB 1.82k ±0.27k - keep app.py:2")
    assert words(make) == (
        "185 ±19 KiB 39.0 185 KiB - 2.96k ±0.32k 185 ±19 KiB make app.py:3")
    assert ("alive: objects that the program could reach at 0.00 s (major collection)"
            in found)


def test_by_type(path: Path) -> None:
    found = lines(path, "--by", "type")
    assert words(found[2]) == "allocated % alive objects died young type"
    assert last_words(found) == ["app.Leaf", "list (storage)", "<JIT frame>",
                                 "list"]


def test_by_function_and_type(path: Path) -> None:
    for by in "function,type", "type,function":
        found = lines(path, "--by", by)
        assert found[2].endswith("  type            function  where")
        assert rows(found)[0].endswith("  app.Leaf        make      app.py:3")
        assert rows(found)[1].endswith("  list (storage)  keep      app.py:2")


@pytest.mark.parametrize("by,name", [("file", "app.py"), ("module", "app")])
def test_by_file_and_module(path: Path, by: str, name: str) -> None:
    (row,) = rows(lines(path, "--by", by))
    assert row.endswith("  " + name) and " 100.0 " in row
    assert last_words(lines(path, "--by", by + ",type"))[0] == (
        "app.Leaf" if by == "file" else name)
    (found,) = as_json(path, "--by", by)["rows"]
    assert found[by] == name and "function" not in found


def test_option_group_storage_counts_storage_as_its_owner(path: Path) -> None:
    assert last_words(lines(path, "--by", "type", "--group-storage")) == [
        "list", "app.Leaf", "<JIT frame>"]


def test_option_hide_internal_hides_internal_types(path: Path) -> None:
    found = lines(path, "--by", "type", "--hide-internal", "--notes")
    assert "<JIT frame>" not in last_words(found)
    assert any(re.fullmatch(r"hidden: \d+(\.\d+)? KiB of internal objects of the "
                            "interpreter", line) for line in found)
    # the total includes hidden types
    assert [line for line in found if line.startswith("estimated")] == [
        line for line in lines(path) if line.startswith("estimated")]


@pytest.mark.parametrize("sort,first", [
    ("self", "keep"), ("total", "main"), ("objects", "make"), ("alive", "keep")])
def test_option_sort_chooses_the_first_row(path: Path, sort: str, first: str) -> None:
    for mine in (), ("--by", "function"):
        found = lines(path, "--sort", sort, *mine)
        assert last_words(found)[0] == first
        titles = next(line for line in found if "where" in line).split()
        assert titles[0] == ("total" if sort == "total" else
                             "self" if mine else "allocated")
        if sort in ("objects", "alive"):
            assert titles[2] == sort
        assert titles[1] == "%"


def test_report_notes_that_lines_were_not_recorded(path: Path, plain: Path) -> None:
    for file in path, plain:
        assert "lines: " not in "".join(lines(file))
        found = lines(file, "--by", "line")
        assert ("lines: this profile has no executed lines (record with --lines); "
                "these are the first lines of the functions") in found
        assert all(re.search(r"app.py:\d$", row) for row in rows(found))


def test_rows_of_executed_lines() -> None:
    log = Log(interpreter="cpython", flags=LINES)
    f = log.function("f", 10)
    for line in 11, 12, 12:
        log.raw_stack([-line, f], 1)
    profile = readers.read_bytes(log.data())
    # turn the samples with lines, which are time samples, into allocations
    samples = profile.samples
    samples.size = samples.interval = array.array("q", [1000] * 3)
    summary = summarize(profile, None, Choice(("line",)))
    assert summary.has_lines
    assert [(row.function.name, row.subject.line) for row in summary.rows] == [
        ("f", 12), ("f", 11)]


def test_at_a_time(path: Path) -> None:
    profile = readers.read(path)
    end = profile.end
    whole = summarize(profile).figures
    half = summarize(profile, None, Choice(at=end // 2)).figures
    assert 0 < half.sum().samples < whole.sum().samples
    found = lines(path, "--at", "%.9f" % (end / 2e9))
    assert "  survived at 0.000" in found[3]
    assert "(%d samples" % half.sum().samples in found[0]
    assert "counted" not in "".join(found)
    (keep,) = [row for row in rows(lines(path, "--at", "0.0001"))
               if " keep " in row]
    assert "KiB" in keep
    # the end of the profile is the default
    at_end = summarize(profile, None, Choice(at=end)).figures
    assert at_end.bytes(STILL_ALIVE) == whole.bytes(STILL_ALIVE)


@pytest.mark.parametrize("at", ["-1", "x", "nan", "inf", "", "1e9"])
def test_refuses_invalid_times(path: Path, at: str) -> None:
    assert refused(path, "--at=" + at).endswith(
        "argument --at: invalid number of seconds %r: write 0 or more, such as 2.5, or "
        "peak" % at)


def test_refuses_a_time_after_the_end(path: Path) -> None:
    assert re.fullmatch(
        r"pypy-alloc: \S+: there is no --at 99: the profile ends after "
        r"0\.000\d+ seconds", refused(path, "--at", "99"))


@pytest.mark.parametrize("by", [
    "", "x", "function,line", "type,type", "function,", "types", "file,module"])
def test_refuses_invalid_rows(path: Path, by: str) -> None:
    assert refused(path, "--by", by).endswith(
        "argument --by: invalid kind of row %r: write function, line, file, module, "
        "thread, process, type or label:KEY, or one of these and type, such as "
        "line,type" % by)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("options,why", [
    (("--by", "type"), "there are no types of objects in this profile, which --by "
                       "type needs: it was taken without them"),
    (("--by", "function,type", "--json"), "there are no types of objects in"),
    (("--sort", "alive"), "this profile has no outcomes of objects, which "
                          "--sort alive needs: it was taken without lifetimes"),
    (("--at", "0.5"), "this profile has no outcomes of objects, which --at "
                      "needs"),
])
def test_refuses_options_that_need_missing_data(plain: Path, options: tuple[str, ...],
                                                why: str, program: str) -> None:
    done = report(plain, *options, program=program)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and ": " + why in done.stderr


def test_table_without_lifetimes_has_no_columns_of_outcomes(plain: Path) -> None:
    found = lines(plain)
    assert words(found[3]) == "allocated % total objects function where"
    assert not [line for line in found if "alive" in line or "type" in line]


@pytest.mark.parametrize("options", [
    (), ("--by", "type"), ("--json",), ("--markdown",), ("tree",),
    ("callers", "keep"), ("--user-code",), ("--outcome", "alive"),
    ("--by", "line,type", "--sort", "alive"),
    ("-n", "1", "--sort", "total"), ("--at", "0.0001")])
def test_both_commands_say_the_same(path: Path, options: tuple[str, ...]) -> None:
    one = report(path, *options)
    other = report(path, *options, program="convert")
    assert one.stdout == other.stdout != ""
    assert (one.returncode, other.returncode) == (0, 0)
    assert (one.stderr, other.stderr) == ("", "")


# ________________________________________
# JSON


def as_json(path: Path, *options: str) -> dict[str, Any]:
    done = report(path, *options, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema"] == "vmprof-allocation-report-1"
    return found


def test_json_has_every_estimate_and_bound(path: Path) -> None:
    found = as_json(path, "--by", "function,type", "--sort", "alive")
    summary = summarize(readers.read(path), None,
                        Choice(("function", "type"), "alive"))
    assert found["rows_left_out"] == 0
    assert len(found["rows"]) == len(summary.rows)
    for row, expected in zip(found["rows"], summary.rows):
        assert row["type"] == {"name": expected.subject.type.name,  # type: ignore[union-attr]
                               "kind": expected.subject.type.kind}  # type: ignore[union-attr]
        assert row["function"] == {
            "name": expected.function.name, "file": "app.py",
            "line": expected.function.line, "kind": "python"}
        for key, figures in ("self", expected.own), ("total", expected.total):
            assert set(row[key]) == {
                "allocated", "died_young", "freed_later", "alive", "lost",
                "not_told_apart"}
            for name, state in ("allocated", None), ("alive", STILL_ALIVE):
                assert row[key][name] == {
                    "samples": figures.sum(state).samples,
                    "bytes": figures.bytes(state)._asdict(),
                    "objects": figures.objects(state)._asdict()}
    assert found["sum"]["allocated"]["bytes"]["value"] == pytest.approx(
        sum(row["self"]["allocated"]["bytes"]["value"] for row in found["rows"]))
    assert found["major_collections"] and found["has_lifetimes"]
    assert found["remarks"]


def test_json_has_a_limit_of_rows(path: Path) -> None:
    assert len(as_json(path)["rows"]) == 3
    found = as_json(path, "-n", "1")
    assert (len(found["rows"]), found["rows_left_out"]) == (1, 2)


def test_json_without_lifetimes_has_no_outcomes(plain: Path) -> None:
    found = as_json(plain)
    assert set(found["rows"][0]["self"]) == {"allocated"}
    assert not found["has_types"] and not found["has_lifetimes"]
    assert "type" not in found["rows"][0] and "line" not in found["rows"][0]
    assert found["at"] is None


def test_bounds_of_fixed_gaps_are_not_known(tmp_path: Path) -> None:
    heap = Heap(interval=500, gaps="fixed")
    heap.allocate("main", ("a", 9000, 5))
    path = tmp_path / "fixed.vmprof"
    path.write_bytes(heap.data())
    estimate = as_json(path)["sum"]["allocated"]["bytes"]
    assert estimate["value"] == 9000
    assert estimate["low"] is None and estimate["high"] is None
    assert "±" not in report(path).stdout


def test_the_keys_are_documented() -> None:
    readme = (Path(__file__).parents[2] / "converter" / "README.rst").read_text()
    from vmprof_convert.report import json_table
    assert json_table.SCHEMA in readme
    for key in (*json_table._STATES, "rows_left_out", "allocated", "rows", "self",
                "total", "hidden", "type_not_known", "remarks", "sum", "settings",
                "allocated_counted_by_gc", "minor_collections",
                "major_collections", "has_types", "has_lifetimes", "alive_is_exact",
                "samples", "time_samples", "seconds", "at", "by", "sort", "function",
                "line", "file", "module", "mine", "only", "functions", "callers",
                "callees", "lines", "types", "branches", "branches_left_out", "chain",
                "depth", "parent", "processes", "pid", "source", "command", "begin",
                "type", "value", "low", "high", "bytes", "objects"):
        assert "``%s``" % key in readme, key


def test_hostile_names_stay_in_their_line(tmp_path: Path) -> None:
    heap = Heap(interval=100)
    for name in "a\nb", "\x1b[2J", "\u2028", "\udcff".encode(
            "utf-8", "replace").decode(), "\U0001f40d" * 99, "x" * 5000:
        heap.allocate("main", (name, 5000, 5))
    heap.collect()
    path = tmp_path / "names.vmprof"
    path.write_bytes(heap.data())
    found = lines(path, "--by", "type")
    # types with the same displayed name have one row
    assert len(rows(found)) == 5
    assert all(len(row) < 330 for row in rows(found))


# ________________________________________
# bookkeeping


def test_memory_of_the_bookkeeping(path: Path, tmp_path: Path) -> None:
    assert not [line for line in lines(path) if line.startswith("bookkeeping")]
    assert as_json(path)["bookkeeping"] is None
    profile = tmp_path / "app.vmprof"
    for name, pid in (profile.name, 1), ("app.2.vmprof", 2):
        heap = Heap(bookkeeping=381_000, run="abc", pid=pid, clock=1000)
        heap.allocate("main", ("a", 5000, math.inf))
        (tmp_path / name).write_bytes(heap.data())
    # the report of a run has the sum of its processes
    both = as_json(profile)
    assert both["bookkeeping"] == 762_000
    assert [process["bookkeeping"] for process in both["processes"]] == [381_000] * 2
    (tmp_path / "app.2.vmprof").unlink()
    assert ("bookkeeping: the sampler's data on objects took at most 372 KiB of the "
            "process's memory") in lines(profile, "--notes")
    assert as_json(profile)["bookkeeping"] == 381_000
