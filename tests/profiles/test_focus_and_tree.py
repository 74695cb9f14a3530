"""Tests of the commands callers and tree."""
from __future__ import annotations

import array
from pathlib import Path
from typing import Any

import pytest

import calls
from made_profiles import LINES, Log
from report_runs import as_json, lines, refused, report
from vmprof_convert import readers
from vmprof_convert.analysis.callers import focus
from vmprof_convert.analysis.summary import Choice, tally_of
from vmprof_convert.meaning.origins import Origins

ALL = sum(calls.CALLS.values())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calls.write(tmp_path_factory.mktemp("calls"))


def size(figures: dict[str, Any]) -> int:
    value: float = figures["allocated"]["bytes"]["value"]
    return round(value)


def names(rows: list[dict[str, Any]]) -> dict[str, int]:
    return {row["function"]["name"]: size(row["total"]) for row in rows}


def test_focus_shows_callers_and_callees(path: Path) -> None:
    found = as_json(path, "callers", "index")
    assert (size(found["self"]), size(found["total"])) == (1000, 7300)
    assert names(found["callers"]) == {"serve": 7300}
    # two functions of the same name have two rows
    assert [(row["function"]["name"], size(row["total"]))
            for row in found["callees"]] == [
        ("render", 6000), ("[itself]", 1000), ("render", 300)]
    assert found["lines"] == [] and found["types"] == []


def test_focus_on_an_outermost_function(path: Path) -> None:
    assert names(as_json(path, "callers", "_bootstrap")["callers"]) == {
        "[no caller]": 5}


def test_focus_on_a_recursive_function(path: Path) -> None:
    """A sample counts once, however often the function is on its stack."""
    found = as_json(path, "callers", "walk")
    assert size(found["total"]) == 70
    assert names(found["callers"]) == {"serve": 70}
    assert names(found["callees"]) == {"[itself]": 70}
    (function,) = found["functions"]
    assert size(function["total"]) == 70


def test_focus_lists_the_functions_of_the_same_name(path: Path) -> None:
    found = lines(path, "callers", "render")
    assert "2 functions are called render; the tables below add them up:" in found
    at = found.index("2 functions are called render; the tables below add them up:")
    assert [line.split()[-1] for line in found[at + 2:at + 4]] == [
        "jinja/core.py:7", "jinja/loaders.py:9"]
    one = as_json(path, "callers", "core.py:render")
    assert len(one["functions"]) == 1 and size(one["total"]) == 6040
    both = as_json(path, "callers", "render")
    assert size(both["total"]) == 6340
    assert sum(names(both["callers"]).values()) == 6340


def test_callers_and_callees_add_up(path: Path) -> None:
    for name in {place[0] for place in calls.FUNCTIONS.values()} | {"*"}:
        found = as_json(path, "callers", name)
        total = size(found["total"])
        for rows in found["callers"], found["callees"]:
            assert sum(size(row["total"]) for row in rows) == total, name


def test_parts_in_the_terminal(path: Path) -> None:
    found = lines(path, "callers", "index")
    assert [line for line in found if line.endswith(":")] == [
        "allocated in 10.00 s (11 samples, one per 1 B on average):",
        "called by:", "calls:"]
    assert any(line.rstrip().endswith("[itself]") for line in found)


def test_a_name_that_mine_hides_is_not_suggested(path: Path) -> None:
    why = refused(path, "callers", "dumps", "--user-code")
    assert "is called 'dumps'" in why and "there is" not in why
    assert why.endswith(
        "; --user-code hides this function, because it is not user code")
    # hidden functions of similar names are not suggested either
    assert "dumps" not in refused(path, "callers", "dump", "--user-code").replace(
        "'dump'", "")
    assert refused(path, "callers", "dump").endswith("there is 'dumps'")
    assert refused(path, "callers", "serv", "--user-code").endswith("there is 'serve'")


def test_suggests_only_functions_of_the_selected_samples(path: Path) -> None:
    assert "there is" not in refused(path, "callers", "dumps", "--thread", "2000")


def test_focus_with_user_code_only(path: Path) -> None:
    found = as_json(path, "callers", "serve", "--user-code")
    assert names(found["callees"]) == {"index": 7300, "walk": 70}


def test_lines_of_a_function() -> None:
    log = Log(interpreter="cpython", flags=LINES)
    f, g = log.function("f", 10), log.function("g", 50)
    for stack in [-51, g, -11, f], [-12, f], [-51, g, -12, f]:
        log.raw_stack(stack, 1)
    profile = readers.read_bytes(log.data())
    # turn the samples with lines, which are time samples, into allocations
    samples = profile.samples
    samples.size = array.array("q", [16, 160, 1600])
    samples.interval = array.array("q", [1, 1, 1])
    found = focus(profile, tally_of(profile, None), "f", Choice(), Origins(profile))
    assert [(row.subject.line, round(row.total.bytes().value))
            for row in found.lines] == [(12, 1760), (11, 16)]


# ________________________________________
# the tree


def test_the_tree_has_the_calls_of_all_stacks(path: Path) -> None:
    found = as_json(path, "tree")
    branches = found["branches"]
    assert found["branches_left_out"] == 0
    totals: dict[str, list[tuple[int, int]]] = {}
    for number, branch in enumerate(branches):
        stack = [f["function"]["name"] for f in branch["chain"]]
        parent = branch["parent"]
        assert parent is None or parent < number
        assert branch["depth"] == (
            0 if parent is None else branches[parent]["depth"] + 1)
        while parent is not None:
            stack = [f["function"]["name"] for f in branches[parent]["chain"]] + stack
            parent = branches[parent]["parent"]
        totals.setdefault(" ".join(stack), []).append(
            (size(branch["self"]), size(branch["total"])))
    assert totals == {
        "<module>": [(0, ALL - 5)],
        "<module> serve": [(0, 7370)],
        "<module> serve index": [(1000, 7300)],
        "<module> serve index render": [(2000, 6000)],
        "<module> serve index render dumps": [(4000, 4000), (300, 300)],
        # a function that calls itself directly appears once
        "<module> serve walk": [(30, 70)],
        "<module> serve walk render walk": [(40, 40)],
        "<module> _find_and_load": [(0, 850)],
        "<module> _find_and_load <module>": [(700, 700), (90, 150)],
        "<module> _find_and_load <module> _find_and_load <module>": [(60, 60)],
        "_bootstrap run": [(5, 5)]}


def test_the_largest_branches_are_shown(path: Path) -> None:
    whole = as_json(path, "tree")["branches"]
    for limit in range(1, len(whole) + 2):
        found = as_json(path, "tree", "-n", str(limit))
        branches = found["branches"]
        assert len(branches) == min(limit, len(whole))
        least = min(size(branch["total"]) for branch in branches)
        sizes = sorted((size(branch["total"]) for branch in whole), reverse=True)
        assert least == sizes[len(branches) - 1]
        assert bool(found["branches_left_out"]) == (limit < len(whole))


def test_the_tree_in_the_terminal(path: Path) -> None:
    found = lines(path, "tree", "--user-code", "-n", "5")
    start = next(i for i, line in enumerate(found) if line.endswith("where")) + 1
    at = found[start - 1].index("function")
    assert [line[at:] for line in found[start:start + 5]] == [
        "<module>    app.py:1",
        "- serve     app.py:10",
        # a callee without displayed siblings has no dash
        "  index     views.py:5",
        "- [import]",
        "- <module>  views.py:1"]
    assert found[start + 5].strip().startswith("... and ")


@pytest.mark.parametrize("by", ["file", "module"])
def test_a_file_has_one_name_in_the_tree_and_in_the_table(path: Path, by: str) -> None:
    def shown(*options: str) -> set[str]:
        found = lines(path, *options, "--by", by)
        start = next(i for i, line in enumerate(found) if line.endswith(by))
        at = found[start].rindex(by)
        return {part for line in found[start + 1:found.index("", start)]
                for part in line[at:].strip().removeprefix("- ").split(" > ")}

    assert ("app.py" if by == "file" else "app") in shown("tree")
    assert shown("tree") == shown()


def test_a_deep_recursion(tmp_path: Path) -> None:
    log = Log()
    log.settings(interval=1)
    f, g = log.function("f"), log.function("g")
    for stack in [f] * 500, [f, g] * 250, [g] * 3 + [f]:
        log.allocation(stack, size=100, interval=1)
    path = tmp_path / "deep.vmprof"
    path.write_bytes(log.data())
    found = as_json(path, "tree")["branches"]
    assert [(len(branch["chain"]), size(branch["total"])) for branch in found] == [
        (1, 200), (499, 100), (2, 100)]
    for width in 30, 80, 1000:
        done = report(path, "tree", width=width)
        assert (done.returncode, done.stderr) == (0, "")
        assert max(map(len, done.stdout.splitlines())) <= width
    assert "g > 497 more > g" in report(path, "tree").stdout


@pytest.mark.parametrize("sort", ["self", "total", "objects", "alive"])
def test_the_tree_is_sorted(path: Path, sort: str, tmp_path: Path) -> None:
    done = report(path, "tree", "--sort", sort)
    if sort == "alive":
        assert "--sort alive needs" in done.stderr
    else:
        assert done.returncode == 0


def test_without_samples(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    log.flush()
    path = tmp_path / "empty.vmprof"
    path.write_bytes(log.data())
    assert lines(path, "tree") == lines(path)
    assert as_json(path, "tree")["branches"] == []
    done = report(path, "callers", "f")
    assert done.returncode == 2 and (
        "there are no allocation samples here, which the command callers "
        "needs" in done.stderr)


def test_time_samples_alone(tmp_path: Path) -> None:
    log = Log()
    log.raw_stack(log.words([log.function("f")]), 0)
    path = tmp_path / "time.vmprof"
    path.write_bytes(log.data())
    assert lines(path, "tree") == [
        "no allocation samples: the profile was taken without --allocation-sampling",
        "CPU samples: 1; --of time sums them, and the command view shows them"]
    assert lines(path)[0] == "10 ms of time in 1 sample, one per 10 ms:"
    assert "no allocation samples" in report(path, "callers", "f").stderr
