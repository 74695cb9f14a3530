"""Tests of the report on the retainers of live objects, and of its reader.

An "answer" is the result of one heap snapshot, with the retainers that it found.
"""
from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import hostile_names
from made_heap import Heap
from made_held import a_log, a_tree, written
from made_profiles import HELD_OBJECTS, Log
from report_runs import as_json, lines, refused, report
from vmprof_convert import readers
from vmprof_convert.analysis import holders
from vmprof_convert.profile.held import (
    ALONE,
    NO_PATH,
    OTHERWISE,
    TOGETHER,
    Holder,
    Step,
)


def test_reader_returns_the_retainers(tmp_path: Path) -> None:
    (held,) = readers.read_events(written(tmp_path, a_log())).held
    assert (held.time, held.problem, held.objects, held.bytes) == (
        2_000_000_000, 0, 1500, 200_000)
    assert (held.still, held.duration, held.memory) == (7000, 300000, 2**20)
    assert held.holders[0] == Holder(
        1, 4096, 70_000, 700, "shop._seen", "dict", ("web.seen",))
    assert held.holders[3] == Holder(3, 3 * 4096, 30_000, 200)
    assert held.paths[0] == -1
    assert len(held.sizes) == 46 == len(held.stacks) == len(held.hows)


def test_reader_returns_the_reference_paths(tmp_path: Path) -> None:
    (held,) = readers.read_events(written(tmp_path, a_tree())).held
    assert held.steps == [
        Step(-1, 150_000, "shop", "dict"), Step(0, 70_000, "._seen", "dict"),
        Step(0, 2_100, ".few", "shop.Few"),
        Step(-1, 8_000, "PyPy's own: JIT compiler", "")]
    assert list(held.paths[-5:]) == [2, -1, 3, -1, -1]
    assert held.path(2) == "shop.few"


def test_the_table(tmp_path: Path) -> None:
    """The largest retainer is first, with the objects that it retains.

    Small rows are omitted.
    """
    first, _, head, *rows = lines(written(tmp_path, a_log()), "retainers")
    assert first == "live objects at 2 s, by retainer: 195 KiB in 1500 objects"
    assert head.split("  ")[0] == "retained size"
    assert [" ".join(row.split()) for row in rows[:10]] == [
        "68.4 KiB 700 68.4 ±0.002 KiB shop._seen (dict), also web.seen",
        "64 % str from make app.py:9",
        "36 % shop.Visit from main app.py:3",
        "29.3 KiB 300 29.3 ±0.002 KiB shop.price -> variable cache (dict)",
        "29.3 KiB 200 29.3 ±0.002 KiB shop._seen (dict) and shop.price -> variable "
        "cache (dict), together",
        "3.91 ±0.002 KiB held in other ways: by smaller retainers, or by several",
        "8.79 KiB 4.88 ±0.002 KiB held by the interpreter alone",
        "100 % PyPy's own: compiled code",
        "5.86 ±0.002 KiB waits for its finalizer, or is held by such an object",
        "1000 ±2 B no path: held by C code, or uncollected garbage"]
    assert rows[-1] == ("the program paused for 7 us; another process examined the "
                        "heap for 300 us, and needed 1 MiB of memory")


def test_an_object_that_shrank_counts_with_its_current_size(tmp_path: Path) -> None:
    """The sampling probability of an object depends on its allocated size."""
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=900)
    log.holder(1, 1, 900, 10, "shop.read", "list")
    for _ in range(9):
        log.held_object(1, [log.function("f")], log.type("bytes"), size=65536, set_=1,
                        how=ALONE, live_size=100)
    (answer,) = json.loads("\n".join(lines(written(tmp_path, log), "retainers",
                                           "--json"))
                           )["processes"][0]["answers"]
    (row,) = answer["holders"]
    assert row["from_samples"]["value"] == 900


def test_all_instances_of_a_class(tmp_path: Path) -> None:
    """The instances have a row in addition to the rows of retainers and groups."""
    log = Log()
    log.settings(gaps="fixed")
    log.held(1, 0, objects=10, size=9000)
    of_class = 1 << 31
    log.holder(1, 1, 1000, 1, "shop.one", "list")
    log.holder(1, 2, 1000, 1, "shop.other", "list")
    log.holder(1, 3, 2000, 2)
    log.holder(1, of_class, 7000, 7, "all instances of shop.Session", "shop.Session")
    text, frames = log.type("str"), [log.function("f")]
    for how, set_, size in (
            (ALONE, 1, 500), (ALONE, 1 | of_class, 500), (TOGETHER, 3 | of_class, 2000),
            (OTHERWISE, of_class, 4500), (OTHERWISE, 0, 300),
            # a class that the profile does not name
            (OTHERWISE, of_class << 1, 200)):
        log.held_object(1, frames, text, size=size, set_=set_, how=how)
    path = written(tmp_path, log)
    found = [" ".join(line.split()) for line in lines(path, "retainers")]
    assert "6.84 KiB 7 6.84 ±0.002 KiB all instances of shop.Session" in found
    (answer,) = json.loads("\n".join(lines(path, "retainers", "--json")))[
        "processes"][0]["answers"]
    assert [(row["holders"][0]["path"], row["from_samples"]["value"])
            for row in answer["holders"]] == [
        ("all instances of shop.Session", 7000), ("shop.one", 2000), ("shop.one", 1000),
        ("shop.other", 0)]
    assert answer["rest"]["otherwise"]["value"] == 500


def test_fewer_rows(tmp_path: Path) -> None:
    text = "\n".join(lines(written(tmp_path, a_log()), "retainers", "-n", "1"))
    assert "... and 2 more" in text
    assert "shop.price -> variable cache (dict)\n" not in text


def test_json_report(tmp_path: Path) -> None:
    """README.rst documents the keys."""
    done = report(written(tmp_path, a_log()), "retainers", "--json")
    answer = json.loads(done.stdout)
    assert answer["schema"] == "vmprof-allocation-held-1"
    (process,) = answer["processes"]
    (one,) = process["answers"]
    assert (one["time"], one["problem"], one["bytes"]) == (2.0, None, 200_000)
    first, _, together, small = one["holders"]
    assert first["holders"] == [{"path": "shop._seen", "type": "dict",
                                 "address": 4096, "aliases": ["web.seen"]}]
    assert (first["bytes"], first["objects"]) == (70_000, 700)
    assert first["from_samples"]["value"] == 70_000
    assert first["parts"][0] == {
        "share": 45 / 70, "type": "str", "line": None,
        "function": {"name": "make", "file": "app.py", "line": 9}}
    assert [holder["path"] for holder in together["holders"]] == [
        "shop._seen", "shop.price -> variable cache"]
    assert small["bytes"] == 100
    assert {how: rest["value"] for how, rest in one["rest"].items()} == {
        "otherwise": 4000, "interpreter": 5000, "finalizer": 6000, "no_path": 1000}
    text = (Path(__file__).parents[2] / "converter/README.rst").read_text()
    for keys in answer, process, one, first, first["holders"][0]:
        for key in keys:
            assert "``%s``" % key in text, key


def test_markdown(tmp_path: Path) -> None:
    text = "\n".join(lines(written(tmp_path, a_log()), "retainers", "--markdown"))
    assert ("| 68.4 KiB | 700 | 68.4 ±0.002 KiB | `shop._seen (dict), also web.seen` |"
            in text)


def test_the_last_answer_counts(tmp_path: Path) -> None:
    log = a_log()
    log.held(2, 3_000_000_000, objects=10, size=1000)
    log.holder(2, 1, 900, 9, "shop.other", "list")
    log.holder(2, 2, 70_700, 710, "shop._seen", "dict")
    log.holder(2, 4, 29_000, 300, "shop.price -> variable cache", "dict")
    log.holder(2, 6, 28_000, 280)
    log.holder(1, 16, 700, 7, "in work() -> local x", "list")
    for thread in range(2):         # either may be the earlier retainer of this name
        log.holder(2, 8 << thread, 800, 8, "in work() -> local x", "list")
    found = lines(written(tmp_path, log), "retainers")
    assert found[0].startswith("live objects at 3 s")
    assert " ".join(found[2].split()).startswith(
        "retained size since 2 s objects")
    assert [" ".join(line.split()) for line in found[3:7]] == [
        "69.0 KiB +700 B 710 shop._seen (dict)",
        "28.3 KiB -1000 B 300 shop.price -> variable cache (dict)",
        "27.3 KiB 280 shop._seen (dict) and shop.price -> variable cache (dict), "
        "together", "900 B 9 shop.other (list)"]
    assert [" ".join(line.split()) for line in found[7:9]] == [
        "800 B 8 in work() -> local x (list)"] * 2
    assert found[-2:] == [
        "since: only for retainers that were also among the largest at that time",
        "the profile has 2 heap snapshots with retainers; --json shows all"]


def test_a_failed_snapshot_does_not_hide_an_earlier_answer(tmp_path: Path) -> None:
    log = a_log()
    log.held(2, 3_000_000_000, 1005)
    found = lines(written(tmp_path, log), "retainers")
    assert found[0].startswith("live objects at 2 s")
    assert found[-2:] == [
        "a later heap snapshot at 3 s has no answer: the process that examined the "
        "heap was ended before it had an answer",
        "the profile has 2 heap snapshots with retainers; --json shows all"]


@pytest.mark.parametrize("rows, first", [
    (1, "live objects at 1 s, by retainer: 1000 B in 10 objects"),
    (2, "the retainers at 1 s are unknown: the profile ended before the answer was "
        "written")])
def test_a_truncated_answer_is_ignored(tmp_path: Path, rows: int, first: str) -> None:
    log = Log()
    log.settings()
    log.held(1, 1_000_000_000, objects=10, size=1000, rows=rows)
    log.holder(1, 1, 900, 9, "shop.other", "list")
    assert lines(written(tmp_path, log), "retainers")[0] == first


@pytest.mark.parametrize("problem, said", [
    (1001, "there was not enough memory for the process that examined the heap"),
    (1005, "the process that examined the heap was ended before it had an answer"),
    (2011, "signal 11 ended the process that examined the heap")])
def test_report_gives_the_reason_for_a_missing_answer(tmp_path: Path, problem: int,
                                                      said: str) -> None:
    log = Log()
    log.settings()
    log.held(1, 1_000_000_000, problem)
    assert lines(written(tmp_path, log), "retainers") == [
        "the retainers at 1 s are unknown: " + said]


def test_refuses_a_profile_without_retainers(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    assert "this profile has no retainers" in refused(
        written(tmp_path, log), "retainers")


def test_several_processes(tmp_path: Path) -> None:
    """Each process with an answer has its own table."""
    a_run = {"run": "abc", "pid": 1}
    (tmp_path / "app.vmprof").write_bytes(a_log(**a_run).data())
    (tmp_path / "app.2.vmprof").write_bytes(
        a_log(run="abc", pid=2, parent=1).data())
    found = lines(tmp_path / "app.vmprof", "retainers")
    assert [line.partition(" at ")[0] for line in found
            if " by retainer" in line] == [
        "live objects in process 1", "live objects in process 2"]


@pytest.mark.parametrize("row", [
    (1, 0, 0, 0, 1, 0, NO_PATH, 0), (1, 0, 0, 10, 0, 0, NO_PATH, 0),
    (9, 0, 0, 10, 1, 0, NO_PATH, 0), (1, 99, 0, 10, 1, 0, NO_PATH, 0),
    (1, 0, 0, 10, 1, 0, OTHERWISE, 2)],
    ids=["no size", "no interval", "no question", "no stack", "no path"])
def test_damaged_records_are_refused(tmp_path: Path, row: tuple[int, ...]) -> None:
    log = a_log()
    log.row(HELD_OBJECTS, *row)
    assert "damaged profile" in refused(written(tmp_path, log), "retainers")


def test_json_has_the_reference_paths(tmp_path: Path) -> None:
    found = as_json(written(tmp_path, a_tree()), "retainers")
    assert found["processes"][0]["answers"][0]["paths"] == [
        {"path": "shop", "type": "dict", "bytes": 150_000},
        {"path": "shop._seen", "type": "dict", "bytes": 70_000},
        {"path": "shop.few", "type": "shop.Few", "bytes": 2_100},
        {"path": "PyPy's own: JIT compiler", "type": "", "bytes": 8000}]


def test_an_unnamed_group_of_retainers(tmp_path: Path) -> None:
    """A profile does not name small groups, which count as "otherwise"."""
    log = a_log()
    log.held_object(1, [log.function("f")], 0, size=50_000, set_=6, how=TOGETHER)
    log.held_object(1, [log.function("f")], 0, size=50_000, set_=6, how=99)
    done = report(written(tmp_path, log), "retainers", "--json")
    (one,) = json.loads(done.stdout)["processes"][0]["answers"]
    assert one["rest"]["otherwise"]["value"] == 104_000


@pytest.mark.parametrize("name", hostile_names.HOSTILE)
def test_hostile_names_are_escaped(tmp_path: Path, name: str) -> None:
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=1000)
    log.holder(1, 1, 900, 9, "shop[\"%s\"]" % name.replace("\x1f", ""), name)
    for line in lines(written(tmp_path, log), "retainers"):
        assert line.isprintable()


# ________________________________________
# retainers of leaks


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the profile of a leak with several retainers.

    A list in a dict retains 75 % of the growing objects, and two names together retain
    5 %. A reference path leads to 14 %, and no path leads to 6 %.
    """
    heap = Heap(interval=500, seed=1, nursery=50_000)
    for number in range(20_000):
        heap.allocate("main make", ("app.Session", 64, (
            math.inf if number % 50 == 0 else 100)))
        heap.allocate("main parse", ("str", 128, 200))
    heap.collect()
    log = heap.log
    frames = heap._stack(["main", "make"])
    log.held(1, heap.now, objects=900, size=99_000)
    log.holder(1, 1, 90_000, 800, "app.sessions", "dict")
    log.holder(1, 2, 80_000, 700, "app.sessions[\"all\"]", "list", "app.all")
    log.holder(1, 4, 500, 5, "app.last", "list")
    log.holder(1, 5, 300, 5)
    type_ = heap.type("app.Session")
    log.held_step(1, 1, 0, 99_000, "app", "dict")
    log.held_step(1, 2, 1, 90_000, ".sessions", "dict")
    for set_, how, count, step in ((3, ALONE, 75, 2), (5, TOGETHER, 5, 1),
                                   (0, OTHERWISE, 14, 2), (0, NO_PATH, 6, 0)):
        for _ in range(count):
            log.held_object(1, frames, type_, size=1000, set_=set_, how=how, path=step)
    path = tmp_path_factory.mktemp("leaking") / "app.vmprof"
    path.write_bytes(heap.data())
    return path


def test_a_leak_has_its_retainers(leaking: Path) -> None:
    """The JSON also has the retainers that the text omits."""
    text = "\n".join(lines(leaking, "leaks"))
    assert 'held by app.sessions["all"] (75 %), app.sessions (14 %)' in text
    found = as_json(leaking, "leaks")
    leak = found["leaks"][0]
    assert leak["places"][0]["function"]["name"] == "make"
    shares = [(one["share"], one["bytes"], [
        holder["path"] for holder in one["holders"]], one["path"], one["how"])
        for one in leak["held_by"]]
    assert shares == [
        (0.75, 75_000, ['app.sessions["all"]'], None, None),
        (0.14, 14_000, [], "app.sessions", "otherwise"),
        (0.06, 6_000, [], None, "no_path"),
        (0.05, 5_000, ["app.last", "app.sessions"], None, None)]
    assert leak["held_by"][0]["holders"] == [{
        "path": 'app.sessions["all"]', "type": "list", "address": 8192,
        "aliases": ["app.all"], "bytes": 80_000, "objects": 700}]
    readme = (Path(__file__).parents[2] / "converter/README.rst").read_text()
    for key in "held_by", *leak["held_by"][0], *leak["held_by"][0]["holders"][0]:
        assert "``%s``" % key in readme, key


def test_a_leak_without_a_reference_path(tmp_path: Path) -> None:
    """The report says that C code may hold the objects."""
    heap = Heap(interval=500, seed=1, nursery=50_000)
    for _ in range(20_000):
        heap.allocate("main make", ("app.Session", 640, math.inf))
    heap.collect()
    frames, type_ = heap._stack(["main", "make"]), heap.type("app.Session")
    heap.log.held(1, heap.now, objects=900, size=99_000)
    for _ in range(100):
        heap.log.held_object(1, frames, type_, size=1000, set_=0, how=NO_PATH)
    path = tmp_path / "app.vmprof"
    path.write_bytes(heap.data())
    assert ("held by C code, or uncollected garbage (100 %)"
            in "\n".join(lines(path, "leaks")))


def test_a_leak_without_an_answer(tmp_path: Path) -> None:
    heap = Heap(interval=500, seed=1, nursery=50_000)
    for _ in range(20_000):
        heap.allocate("main make", ("app.Session", 640, math.inf))
    heap.log.held(1, heap.now, problem=1001)
    path = tmp_path / "app.vmprof"
    path.write_bytes(heap.data())
    assert as_json(path, "leaks")["leaks"][0]["held_by"] is None


def test_long_reference_path_keeps_its_end() -> None:
    """The end of a path names the object that retains the others."""
    path = "shop.first" + "['x']" * 200 + ".retainer"
    text = holders.text_of(path, "dict")
    assert text.startswith("shop.first['x']") and text.endswith(".retainer (dict)")
    assert len(text) == holders.MAX_PATH + len(" (dict)") and text.count("...") == 1
    assert holders.text_of("shop._seen\n", "") == "shop._seen?"
