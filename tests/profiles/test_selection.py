"""Tests of filters, which all formats share, and of `--user-code`."""
from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import calls
import firefox_rules
from made_heap import Heap
from made_profiles import Log
from report_runs import PROGRAMS, as_json, lines, refused
from vmprof_convert import cli, readers
from vmprof_convert.analysis.selection import Selection, select
from vmprof_convert.analysis.summary import Choice, summarize
from vmprof_convert.meaning.estimator import weight_bytes
from vmprof_convert.meaning.lifetimes import FATES
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.user_code import has_own_code, only_own
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.model import LABEL


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return calls.write(tmp_path_factory.mktemp("calls"))


@pytest.fixture(scope="module")
def heap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a profile with types and outcomes."""
    made = Heap(interval=1, nursery=4000, minors=2)
    for _ in range(100):
        made.allocate("main", ("app.Kept", 64, math.inf), ("app.Short", 32, 10),
                      ("list", 40, 9000))
    made.collect()
    path = tmp_path_factory.mktemp("heap") / "heap.vmprof"
    path.write_bytes(made.data())
    return path


def allocated(path: Path, *options: str) -> int:
    found = as_json(path, "--by", "function", *options)
    value: float = found["sum"]["allocated"]["bytes"]["value"]
    return round(value)


def in_firefox(path: Path, folder: Path, *options: str) -> int:
    """Return the allocated bytes in the Firefox profile that these options give."""
    out = folder / "out.json"
    assert cli.main(["export", str(path), "-o", str(out), *options]) == 0
    profile = json.loads(out.read_bytes())
    assert firefox_rules.violations(profile) == []
    return sum(int(weight) for thread in profile["threads"]
               # other threads repeat the samples of all threads
               if isinstance(thread["tid"], int)
               for weight in thread.get("nativeAllocations", {"weight": []})["weight"]
               if weight > 0)


def of(*words: str) -> int:
    return sum(size for stack, size in calls.CALLS.items()
               if any(word in stack.split() for word in words))


ALL = sum(calls.CALLS.values())


@pytest.mark.parametrize("options,expected", [
    ((), ALL),
    (("--function", "index"), of("index")),
    (("--function", "render"), of("render", "save")),
    (("--function", "core.py:render"), of("render")),
    (("--function", "jinja/core.py:render"), of("render")),
    (("--function", "re*"), of("render", "save")),
    (("--function", "index", "--function", "walk"), of("index", "walk")),
    (("--function", "index", "--function", "[a-z]umps"), of("index", "dumps")),
    (("--file", "views.py"), of("index", "views", "walk")),
    (("--file", "jinja"), of("render", "save", "jinja")),
    (("--file", "jinja/"), of("render", "save", "jinja")),
    (("--file", calls.VIEWS), of("index", "views", "walk")),
    (("--file", "json/*.py"), of("dumps")),
    (("--file", "json", "--function", "core.py:render"), 4000),
    (("--thread", "2000"), 5), (("--thread", "1000"), ALL - 5),
    (("--thread", "1000", "--thread", "2000"), ALL),
    (("--time", "0..1"), 1000), (("--time", "1..3"), 6000),
    (("--time", "..2"), 3000), (("--time", "10.."), 5),
    (("--time", "0..1", "--user-code"), 1000),
])
def test_filters_select_the_same_samples_in_all_formats(
        path: Path, tmp_path: Path, options: tuple[str, ...], expected: int) -> None:
    assert allocated(path, *options) == expected
    if expected:
        assert in_firefox(path, tmp_path, *options) == expected


def test_report_names_the_filters(path: Path) -> None:
    found = lines(path, "--function", "index", "--time", "..3", "--thread", "1000")
    assert found[1] == "  only time 0..3 s, thread 1000, function index"
    assert not any("counted" in line for line in found)
    assert as_json(path, "--file", "a*", "--time", "2..")["only"] == {
        "time": [2.0, None], "process": [], "thread": [], "function": [],
        "file": ["a*"], "type": [], "fate": [], "label": []}


@pytest.mark.parametrize("options,expected", [
    (("--type", "app.Kept"), 6400), (("--type", "app.*"), 9600),
    (("--type", "list", "--type", "app.Short"), 7200),
    (("--outcome", "allocated"), 13600), (("--outcome", "died-young"), None),
    (("--outcome", "alive,freed-later,died-young"), 13600),
])
def test_filters_by_type_and_outcome(
        heap: Path, tmp_path: Path, options: tuple[str, ...],
        expected: int | None) -> None:
    found = allocated(heap, *options)
    assert found == in_firefox(heap, tmp_path, *options)
    if expected is None:
        summary = summarize(readers.read(heap))
        expected = round(summary.figures.bytes(FATES["died-young"]).value)
        assert 0 < expected < 13600
    assert found == expected


def test_filter_by_outcome_at_a_time(heap: Path) -> None:
    profile = readers.read(heap)
    half = profile.end // 2
    alive = summarize(profile, None, Choice(at=half)).figures.bytes("alive").value
    assert allocated(heap, "--outcome", "alive", "--at", "%.9f" % (half / 1e9)) == (
        round(alive))
    assert alive != summarize(profile).figures.bytes("alive").value


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("options,why", [
    (("--function", "indx"), "no function that was sampled is called 'indx': write "
     "--function with the name of one, or with *; there is 'index'"),
    (("--function", "app.py:indx"), "or with *; there is 'index'"),
    (("--function", "\x1b[2J\u202e"), "is called '?[2J?'"),
    (("--file", "no.py"), "no function that was sampled is in 'no.py'"),
    (("--file", "jinja/loader.py"), "a folder, or *; there is 'jinja/loaders.py'"),
    (("--type", "int"), "there are no types of objects in this profile"),
    (("--outcome", "alive"), "this profile has no outcomes of objects"),
    (("--time", "99.."), "there is no --time 99..: the profile ends after 10"),
    (("callers", "rendr"), "no function that was sampled is called 'rendr': write "
     "its name, its file and name (app.py:main), or a pattern with *; there is "
     "'render'"),
    (("tree", "--by", "type"), "invalid kind of row 'type': write function, line"),
    (("tree", "--by", "line,type"), "invalid kind of row 'line,type'"),
])
def test_refuses_invalid_filters_and_options(
        path: Path, program: str, options: tuple[str, ...], why: str) -> None:
    said = refused(path, *options, program=program)
    assert why in said, said


def test_refuses_a_type_without_objects(heap: Path) -> None:
    assert "no type in this profile is called 'int'" in refused(
        heap, "--type", "int")
    assert refused(heap, "--type", "app.Kep").endswith("; there is 'app.Kept'")


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a profile with two named threads, one of which never allocated."""
    log = calls.log(pid=1000)
    log.thread(2000, "pool-1")
    log.thread(3000, "idle")
    path = tmp_path_factory.mktemp("named") / "named.vmprof"
    path.write_bytes(log.data())
    return path


@pytest.mark.parametrize("options,expected", [
    (("--thread", "pool-1"), 5), (("--thread", "pool*"), 5),
    (("--thread", "2000", "--thread", "pool-1"), 5),
    (("--thread", "MainThread"), ALL - 5),
    (("--thread", "MainThread", "--thread", "2000"), ALL),
    (("--thread", "MainThread", "--time", "1..3"), 6000),
    (("--thread", "MainThread", "--function", "index"), of("index")),
])
def test_filter_by_the_name_of_a_thread(
        named: Path, tmp_path: Path, options: tuple[str, ...], expected: int) -> None:
    assert allocated(named, *options) == expected
    assert in_firefox(named, tmp_path, *options) == expected


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", ["7", "pool", "-1", "\u0663", "9" * 30])
def test_refuses_an_unknown_thread(path: Path, named: Path, name: str,
                                   program: str) -> None:
    option = "--thread=" + name
    why = "no thread of this profile is called '%s'" % name
    said = refused(named, option, program=program)
    assert why in said
    assert said.endswith(": 1000 (MainThread), 2000 (pool-1), 3000 (idle)")
    assert refused(path, option, program=program).endswith(": 1000, 2000")


def test_error_names_ten_of_many_threads(tmp_path: Path) -> None:
    log = Log()
    function = log.function("f")
    log.settings()
    for number in range(1, 21):
        log.allocation([function], size=24, thread=number)
    path = tmp_path / "many.vmprof"
    path.write_bytes(log.data())
    assert refused(path, "--thread", "x").endswith(
        "of one: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, and 10 more")


@pytest.mark.parametrize("options", [
    ("--thread", "idle"), ("--thread", "2000", "--time", "..1"),
    ("--thread", "2000", "--function", "index")])
def test_a_filter_that_matches_no_sample(
        named: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    """The thread exists, so that the report is empty, and not an error."""
    assert allocated(named, *options) == 0
    said = refused(named, "export", "-o", str(tmp_path / "out.json"), *options,
                   program="convert")
    assert "none of the 11 samples matches the selection: " in said
    assert options[1] in said
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("option,values", [
    ("--time", ("", "..", "1", "2..1", "1..1", "a..b", "-1..2", "1..inf", "1..2..3")),
    ("--thread", ("",)),
    ("--outcome", ("", "dead", "alive,", "alive,dead"))])
def test_refuses_invalid_values_of_filters(path: Path, option: str,
                                           values: tuple[str, ...]) -> None:
    for value in values:
        said = refused(path, "%s=%s" % (option, value))
        assert re.search("argument %s: invalid [a-z]+ %s: write " % (
            option, re.escape(repr(value))), said), said


# ________________________________________
# user code


def own(path: Path) -> dict[str, tuple[int, int]]:
    return {row["function"]["name"].replace("<module>", str(row["function"]["file"])): (
        round(row["self"]["allocated"]["bytes"]["value"]),
        round(row["total"]["allocated"]["bytes"]["value"]))
        for row in as_json(path)["rows"]}


def test_allocations_of_libraries_count_for_the_calling_user_code(path: Path) -> None:
    assert own(path) == {
        "index": (of("index"), of("index")),
        "walk": (of("walk"), of("walk")),
        # the code that a module of the program runs during its import is user code
        calls.VIEWS: (90, 90 + of("jinja") - 700),
        calls.APP: (0, ALL - 5),
        "serve": (0, of("serve")),
        "[import]": (of("jinja"), of("jinja")),
        "[libraries alone]": (5, 5)}


def test_user_code_is_the_default(path: Path) -> None:
    assert as_json(path)["mine"] is True
    assert as_json(path) == as_json(path, "--user-code") == as_json(
        path, "--user-code", "--by", "function")
    assert as_json(path, "--by", "function")["mine"] is False
    # the function to improve is in the first ten lines
    for found in lines(path), lines(path, "--user-code"):
        assert found[4].endswith("  index              views.py:5")
        assert " 88.8 " in found[4]
    title = "user code, with the libraries that it calls"
    assert found[2] == title + ":"
    assert lines(path)[2] == title + " (--by function shows all code: 52 % in dumps):"


def test_an_installed_program_is_shown_whole(tmp_path: Path) -> None:
    made = Log()
    made.settings()
    made.allocation([made.function("main", 3, calls.PACKAGES + "tool/__main__.py")],
                    size=24)
    path = tmp_path / "tool.vmprof"
    path.write_bytes(made.data())
    found = as_json(path)
    assert found["mine"] is False
    assert [row["function"]["name"] for row in found["rows"]] == ["main"]
    profile = readers.read(path)
    assert not has_own_code(profile, Origins(profile))
    assert lines(path)[-3].endswith("  main      tool/__main__.py:3")
    # --user-code also applies to an installed program
    (row,) = as_json(path, "--user-code")["rows"]
    assert row["function"]["name"] == "[libraries alone]"


def test_stacks_of_user_code(path: Path) -> None:
    profile = readers.read(path)
    chosen = only_own(profile, Origins(profile))
    program = Program(chosen)
    assert len(chosen.stacks) == len(profile.stacks)
    assert chosen.stacks[-1] == chosen.stacks[len(chosen.stacks) - 1]
    assert chosen.stacks[:2] == [chosen.stacks[0], chosen.stacks[1]]
    shown = [[program.function(frame).name for frame in stack]
             for stack in chosen.stacks]
    assert ["<module>", "serve", "index"] in shown
    assert ["<module>", "[import]"] in shown
    assert ["<module>", "<module>", "[import]"] in shown
    assert ["[libraries alone]"] in shown
    with pytest.raises(IndexError):
        chosen.stacks[len(chosen.stacks)]


def test_display_of_an_exception_is_not_an_import_of_the_program(
        tmp_path: Path) -> None:
    """PyPy imports many modules for an uncaught exception, or at Ctrl-C."""
    made = Log()
    made.settings()
    excepthook = made.function("excepthook", 12, "<builtin>/sys/app.py")
    load = made.function("_find_and_load", 1002,
                         "<builtin>/frozen importlib._bootstrap")
    module = made.function("<module>", 1, "/usr/lib/pypy3.9/traceback.py")
    work = made.function("work", 1, "app.py")
    made.allocation([made.function("<module>", 1, "app.py"), work], size=10)
    made.allocation([excepthook, load, module], size=20)
    made.allocation([excepthook, module], size=40)
    # an excepthook calls a function of the program
    made.allocation([excepthook, work], size=80)
    path = tmp_path / "app.vmprof"
    path.write_bytes(made.data())
    found = {name: own_ for name, (own_, _) in own(path).items()}
    assert found == pytest.approx({
        "work": weight(10) + weight(80), "app.py": 0,
        "[showing an exception]": weight(20) + weight(40)}, abs=2)


def weight(size: int) -> float:
    return weight_bytes(size, 1000, "exponential")


def test_labels_do_not_change(tmp_path: Path) -> None:
    made = Log()
    made.settings()
    made.allocation(None, size=24)
    made.allocation([made.function("f")], size=24)
    profile = readers.read_bytes(made.data())
    rows = summarize(select(profile, Selection(mine=True))).rows
    assert {row.function.name for row in rows} == {"[stack lost]", "f"}
    assert {row.function.kind for row in rows} == {LABEL, "python"}


def test_mine_in_the_firefox_profiler(path: Path, tmp_path: Path) -> None:
    assert in_firefox(path, tmp_path, "--user-code") == ALL
    text = (tmp_path / "out.json").read_text()
    assert "[import]" in text and "dumps" not in text
