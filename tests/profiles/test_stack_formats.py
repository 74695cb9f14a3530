"""Tests of the files for pprof, speedscope, flamegraph.pl and DevTools.

The files have the same stacks, labels and sums as the report, and are valid.
"""
from __future__ import annotations

import io
import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import hostile_names
from convert_runs import run_and_fail
from firefox_profiles import OTHER_TID, rich_log
from made_heap import Heap
from made_profiles import PID, Log
from stack_files import (
    Json,
    Stack,
    a_heap,
    label,
    labelled_log,
    own,
    read_chrome,
    read_collapsed,
    read_speedscope,
    speedscope_json,
)
from vmprof_convert import cli, readers
from vmprof_convert.analysis.summary import FUNCTION, TYPE, Choice, Figures, summarize
from vmprof_convert.cli import output
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.meaning.visible_stacks import CUT, LOST
from vmprof_convert.profile.model import Profile
from vmprof_convert.writers import chrome, collapsed, pprof, speedscope


def test_all_formats_agree_with_the_report() -> None:
    """Each format has the report's allocated and live bytes by function and type."""
    profile = a_heap()
    rows = {label(row.function): row
            for row in summarize(profile, choice=Choice((FUNCTION,))).rows}
    typed: dict[Stack, Figures] = {(label(row.function), row.subject.type.name): row.own
             for row in summarize(profile, choice=Choice((FUNCTION, TYPE))).rows
             if row.subject.type is not None and row.own.sum().samples}
    assert len(typed) == 9
    # the value of each stack is rounded
    off = len(profile.stacks)
    for found in (read_collapsed(profile),
                  read_speedscope("allocated bytes", profile)):
        assert own(found, 2).keys() == typed.keys()
        for key, number in own(found, 2).items():
            assert number == pytest.approx(typed[key].bytes().value, abs=off)
    for found in (read_collapsed(profile, weight="objects"),
                  read_speedscope("allocated objects", profile)):
        for key, number in own(found, 2).items():
            assert number == pytest.approx(typed[key].objects().value, abs=off)
    for key, number in own(read_speedscope("bytes alive", profile), 2).items():
        assert number == pytest.approx(typed[key].bytes("alive").value, abs=off)
    in_chrome = own(read_chrome(profile))
    assert {key for key, in in_chrome} == {
        key for key, row in rows.items() if row.own.sum().samples}
    for (name,), number in in_chrome.items():
        assert number == pytest.approx(rows[name].own.bytes().value, abs=off)
    # the rounding error of the sum is half a byte
    total = summarize(profile).bytes.value
    for whole in (read_collapsed(profile), read_chrome(profile),
                  read_speedscope("allocated bytes", profile)):
        assert sum(whole.values()) == pytest.approx(total, abs=0.5)


def test_labels_and_short_paths() -> None:
    profile = readers.read_bytes(labelled_log().data())
    assert read_collapsed(profile) == {
        ("main (main.py:1)", "work (work.py:11)"): 80_000,
        (LOST.name,): 50_000, ("[starting and ending the run]",): 60_000}
    assert read_collapsed(profile) == read_chrome(profile) == read_speedscope(
        "allocated bytes", profile)
    ticks = {("main (main.py:1)", "work (work.py:11)"): 2}
    assert read_collapsed(profile, weight="time") == ticks
    assert read_speedscope("CPU samples", profile) == ticks


def test_stacks_without_their_callers_have_a_separate_root() -> None:
    log = Log()
    main, deep = log.function("main"), log.function("deep", 2)
    log.settings()
    log.allocation([main, deep], size=10_000)
    log.allocation([deep] * 100, size=20_000)
    profile = readers.read_bytes(log.data())
    profile.cut_off = {1: 1}
    for found in (read_collapsed(profile), read_chrome(profile),
                  read_speedscope("allocated bytes", profile)):
        assert found == {("main (app.py:1)", "deep (app.py:2)"): 10_000,
                         (CUT, *["deep (app.py:2)"] * 100): 20_000}


def test_a_stack_that_is_deeper_than_json_allows() -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    log.allocation([f] * 2_000, size=100_000)
    profile = readers.read_bytes(log.data())
    out = io.BytesIO()
    chrome.write(profile, out)
    with pytest.raises(RecursionError):
        json.loads(out.getvalue())
    # nodes for the frames, the root, and the root of stacks without their callers
    assert out.getvalue().count(b'"selfSize"') == 2_002
    assert sum(read_collapsed(profile).values()) == 100_000


def test_common_frames_of_stacks_are_stored_once(tmp_path: Path) -> None:
    """A file may have 100,000 long lines, which the writer does not keep in memory."""
    log = Log()
    log.settings()
    shared = [log.function("a_name_of_some_length_%d" % i) for i in range(300)]
    for i in range(300):
        log.allocation([*shared, log.function("leaf_%d" % i)], size=100)
    profile, path = readers.read_bytes(log.data()), tmp_path / "x.folded"
    with output.replacing(str(path)) as out:
        tracemalloc.start()
        collapsed.write(profile, out)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert path.stat().st_size > 2_500_000 and peak < 1_000_000


@pytest.mark.parametrize("log", [rich_log, labelled_log, hostile_names.log])
def test_file_fits_the_schema_of_speedscope(speedscope_schema: Json,
                                            log: Callable[[], Log]) -> None:
    found = speedscope_json(readers.read_bytes(log().data()))
    jsonschema.validate(found, speedscope_schema)
    # the schema does not define the meaning of the numbers
    frames = len(found["shared"]["frames"])
    for shown in found["profiles"]:
        assert len(shown["samples"]) == len(shown["weights"])
        assert all(0 <= frame < frames
                   for stack in shown["samples"] for frame in stack)
    del found["profiles"][0]["weights"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, speedscope_schema)


WRITERS: dict[str, Callable[[Profile, io.BytesIO], list[str]]] = {
    "collapsed": collapsed.write, "speedscope": speedscope.write,
    "chrome": chrome.write, "pprof": pprof.write}


@pytest.mark.parametrize("name", WRITERS)
def test_refuses_a_profile_without_samples(name: str) -> None:
    log = Log()
    log.settings()
    out = io.BytesIO()
    with pytest.raises(ProfileError, match="no samples"):
        WRITERS[name](readers.read_bytes(log.data()), out)
    assert out.getvalue() == b""


@pytest.mark.parametrize("name, said", [
    ("collapsed", "1 CPU sample, the thread (of 2), times"),
    ("speedscope", "the thread (of 2), times"),
    ("pprof", "times"),
    ("chrome", "1 CPU sample, the thread (of 2), numbers of objects, times"),
])
def test_message_names_data_that_the_format_cannot_contain(name: str,
                                                           said: str) -> None:
    profile = readers.read_bytes(rich_log().data())
    assert WRITERS[name](profile, io.BytesIO()) == [
        "not included, because the format cannot contain this: " + said]


def test_message_names_omitted_types_marks_and_outcomes() -> None:
    heap = Heap()
    heap.allocate("main", ("list", 100_000, 1))
    heap.collect()
    heap.log.mark(heap.now, "x")
    profile = readers.read_bytes(heap.data())
    line, = chrome.write(profile, io.BytesIO())
    assert line.endswith("types, numbers of objects, outcomes of objects (--outcome "
                         "selects one), 1 mark, times")


@pytest.mark.parametrize("name", WRITERS)
def test_hostile_names_are_escaped(name: str) -> None:
    """The files contain no control character or line break of a name."""
    profile = readers.read_bytes(hostile_names.log().data())
    out = io.BytesIO()
    WRITERS[name](profile, out)
    data = out.getvalue()
    if name == "pprof":
        return      # test_pprof.py tests this with pprof itself
    text = data.decode("utf-8")
    lines = text.split("\n")
    if name == "collapsed":
        assert lines.pop() == ""
    assert all(line.isprintable() for line in lines)
    types = {TypeNames(profile).shown(number).name
             for number in range(len(profile.types))}
    if name == "collapsed":
        found = read_collapsed(profile)
        # two file names may look alike without their invisible characters
        assert all(len(stack) == 3 for stack in found)
        assert len(found) == len(hostile_names.HOSTILE)
        assert {stack[-1] for stack in found} == {
            name.replace(";", ":").strip() or "?" for name in types}
    elif name == "speedscope":
        assert types <= {frame["name"]
                         for frame in json.loads(text)["shared"]["frames"]}
    else:
        assert len(read_chrome(profile)) == len(hostile_names.HOSTILE)


# ____________________________________________________________
# the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "app.vmprof").write_bytes(rich_log().data())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name, format_", [
    ("app.collapsed", "collapsed"), ("app.folded", "collapsed"),
    ("app.speedscope.json", "speedscope"), ("app.speedscope.json.gz", "speedscope"),
    ("app.heapprofile", "chrome"), ("app.pb.gz", "pprof"), ("app.pb", "pprof")])
def test_format_follows_from_the_name_of_the_output(
        folder: Path, capsys: pytest.CaptureFixture[str], name: str,
        format_: str) -> None:
    assert cli.main(["export", "app.vmprof", "-o", name]) == 0
    out, err = capsys.readouterr()
    assert out == "wrote %s\n" % name
    assert re.fullmatch("vmprof-convert: not included, .* times\n", err)
    written = (folder / name).read_bytes()
    assert cli.main(["export", "app.vmprof", "--format", format_, "-o",
                     "other" + (
        ".gz" if name.endswith(".gz") else "")]) == 0
    other, = folder.glob("other*")
    assert other.read_bytes() == written


def test_filters_select_samples_of_stacks(folder: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "app.vmprof", "--format", "collapsed", "--thread",
                     str(OTHER_TID)]) == 0
    assert re.fullmatch(r"work \(lib.py:10\) \d+\n", capsys.readouterr().out)
    assert cli.main(["export", "app.vmprof", "--format", "collapsed", "--weight",
                     "time", "--thread", str(PID)]) == 0
    assert capsys.readouterr().out == "main (app.py:1);work (lib.py:10) 1\n"


def test_refuses_a_profile_without_samples_of_the_kind(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    log.allocation([f], size=24)
    (folder / "app.vmprof").write_bytes(log.data())
    assert "has no CPU samples: leave out --weight time" in run_and_fail(
        folder, capsys, "export", "app.vmprof", "-o", "x.folded", "--weight", "time")
    log = Log(interpreter="cpython")
    log.tick([log.function("f")], time=5)
    (folder / "app.vmprof").write_bytes(log.data())
    assert "has no allocation samples" in run_and_fail(
        folder, capsys, "export", "app.vmprof", "-o", "x.heapprofile")
    assert cli.main(["export", "app.vmprof", "--format", "collapsed"]) == 0
    assert capsys.readouterr().out == "f (app.py:1) 1\n"


def test_weight_is_for_collapsed_stacks(folder: Path,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    assert "--weight is for flamegraph.pl" in run_and_fail(
        folder, capsys, "export", "app.vmprof", "-o", "x.pb.gz", "--weight", "time")
