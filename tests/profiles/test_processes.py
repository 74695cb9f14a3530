"""Tests of several processes of a run, each process alone and all together."""
from __future__ import annotations

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest

import firefox_rules
from firefox_profiles import Json, allocated, functions
from made_heap import Heap
from made_profiles import Log
from report_runs import lines, refused, report
from vmprof_convert import cli, readers
from vmprof_convert.analysis.selection import Selection, select
from vmprof_convert.analysis.summary import summarize
from vmprof_convert.cli import run_files
from vmprof_convert.meaning.estimator import Sum
from vmprof_convert.profile import merging
from vmprof_convert.profile.merging import Read
from vmprof_convert.profile.probability import probability

SECOND = 10**9


def log(pid: int, parent: int | None = None, *, clock: int = 0, run: str = "r1",
        command: str = "", **settings: object) -> Log:
    made = Log()
    made.settings(pid=pid, run=run, clock=(100 + clock) * SECOND,
                  **({} if parent is None else {"parent": parent}), **settings)
    if command:
        made.command(command)
    return made


def allocate(made: Log, name: str, *sizes: int, thread: int = 1,
             time: int = SECOND) -> None:
    function = made.function(name, file=name + ".py")
    for size in sizes:
        made.allocation([function], size=size, thread=thread, time=time)
        made.allocated += size


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write the profiles of a process and two children.

    The second child started three seconds later.
    """
    first, second, third = (
        log(10, command="app.py serve"), log(11, 10, clock=0, command="app.py serve"),
        log(12, 10, clock=3, command="other.py"))
    first.thread(10, "MainThread")
    allocate(first, "shared", 5000, thread=10)
    # each process has a different function at the same address
    allocate(second, "worker", 6000, 6000, thread=11)
    allocate(second, "shared", 5000, thread=11)
    # the kernel gave this thread the number of a process that has ended
    allocate(third, "late", 70_000, thread=10)
    for name, made in (("app.vmprof", first), ("app.11.vmprof", second),
                       ("app.12-2.vmprof", third)):
        (tmp_path / name).write_bytes(made.data())
    return tmp_path / "app.vmprof"


def as_json(path: Path, *options: str) -> dict[str, Any]:
    done = report(path, *options, "--json", program="convert")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_children_are_found_next_to_the_first_profile(run: Path) -> None:
    found = lines(run, "--by", "function")
    assert found[0] == ("allocated in 4.00 s by 3 processes (5 samples, one per 1000 B "
                        "on average):")
    assert found[2] == "by process:"
    rows = found[4:7]
    assert [row.split("  ")[-1] for row in rows] == [
        str(run.with_name("app.12-2.vmprof")), str(run.with_name("app.11.vmprof")),
        str(run)]
    assert "12 other.py" in rows[0] and "11 app.py serve" in rows[1]
    assert [row.split()[-2] for row in found[9:12]] == ["late", "worker", "shared"]
    assert any("the processes' GCs counted: 89.8 KiB" in line for line in found)


def test_rows_of_processes_appear_once(run: Path) -> None:
    found = lines(run, "--by", "process")
    assert "by process:" not in found
    assert sum("12 other.py" in line for line in found) == 1


def test_naming_all_profiles_gives_the_same_report(run: Path) -> None:
    two, three = run.with_name("app.11.vmprof"), run.with_name("app.12-2.vmprof")
    assert as_json(run, str(two), str(three))["rows"] == as_json(run)["rows"]
    # some profiles can be named, and a child alone is one process
    assert as_json(run, str(three))["samples"] == 2
    assert as_json(two)["samples"] == 3
    assert as_json(two)["processes"] == []


def test_profiles_of_another_run_are_ignored(run: Path) -> None:
    other = log(13, 10, run="r2")
    allocate(other, "f", 100)
    path = run.with_name("app.13.vmprof")
    path.write_bytes(other.data())
    run.with_name("app.x.vmprof").write_bytes(other.data())
    assert as_json(run)["samples"] == 5
    assert refused(run, str(path), program="convert").endswith(
        "the 2 profiles are of 2 runs: open each run separately")


def test_refuses_to_merge_profiles_without_a_run(run: Path) -> None:
    """Two profiles of stock vmprof may be from two different programs."""
    other = Log()
    other.settings(pid=13)
    allocate(other, "f", 100)
    path = run.with_name("other.vmprof")
    path.write_bytes(other.data())
    for first, second in ((run, path), (path, run)):
        assert refused(first, str(second), program="convert").endswith(
            "other.vmprof: cannot be merged with other profiles, because it has no run "
            "ID (stock vmprof's profiles have none): open it separately")
    assert as_json(path)["samples"] == 1


def test_whole_records_of_a_killed_child_count(run: Path) -> None:
    """The profile of a child may be truncated, unless the user names it."""
    child = run.with_name("app.11.vmprof")
    made = log(11, 10, command="app.py serve")
    allocate(made, "worker", 6000, 6000, thread=11)
    child.write_bytes(made.data()[:-3])
    done = report(run)
    assert (done.returncode, done.stderr) == (0, "")
    assert "by 3 processes" in done.stdout and "worker" in done.stdout
    assert "cut off" in refused(child)
    done = report(run, "export", "--format", "collapsed", program="convert")
    assert done.returncode == 0


def test_a_copy_of_a_profile_is_ignored(run: Path) -> None:
    copy = run.with_name("app.11-2.vmprof")
    copy.write_bytes(run.with_name("app.11.vmprof").read_bytes())
    done = report(run, "--json", program="convert")
    assert json.loads(done.stdout)["samples"] == 5
    assert done.stderr == (
        "vmprof-convert: %s was left out, because it is of the same process as %s\n"
        % (run.with_name("app.11.vmprof"), copy))


def test_hostile_names_of_processes_with_leaks_are_escaped(tmp_path: Path) -> None:
    paths = [leaking(tmp_path, name, command="a\x1b[31m\nb") for name in "xy"]
    done = report(paths[0], "leaks", str(paths[1]))
    assert (done.returncode, done.stderr) == (0, "")
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    assert "\n4321 a" in done.stdout


def test_the_name_of_a_profile_identifies_a_child(run: Path) -> None:
    other = log(13, 10)
    allocate(other, "f", 100)
    for name in "13.14", "13-2-3", "13-", "-2", "x", "13.old", "13 2":
        run.with_name("app.%s.vmprof" % name).write_bytes(other.data())
    assert run_files.children_of(str(run)) == [
        str(run.with_name(name)) for name in ("app.11.vmprof", "app.12-2.vmprof")]
    assert as_json(run)["samples"] == 5


def test_unreadable_profiles_of_children_are_named(run: Path) -> None:
    run.with_name("app.14.vmprof").write_bytes(b"")
    done = report(run)
    assert done.returncode == 0 and "by 3 processes" in done.stdout
    assert done.stderr == (
        "pypy-alloc: %s was left out, although it may be of this run: not a "
        "vmprof profile: the file is empty\n" % run.with_name("app.14.vmprof"))
    # a profile that the user names has to be readable
    assert "app.14.vmprof: not a vmprof profile" in refused(
        run, str(run.with_name("app.14.vmprof")))


@pytest.mark.parametrize("options,samples", [
    (("--process", "12"), 1), (("--process", "app.py*"), 4),
    (("--process", "10", "--process", "11"), 4), (("--process", "other.py"), 1),
    (("--process", "*/app.11.vmprof"), 3), (("--time", "..2"), 4),
    (("--time", "3.5.."), 1), (("--thread", "11"), 3), (("--function", "shared"), 2),
    (("--thread", "MainThread"), 4), (("--file", "late.py"), 1)])
def test_filters(run: Path, tmp_path: Path, options: tuple[str, ...],
                 samples: int) -> None:
    assert as_json(run, *options)["samples"] == samples
    target = tmp_path / "a.json"
    assert cli.main(["export", str(run), "-o", str(target), *options]) == 0
    firefox = json.loads(target.read_text())
    counts = {entry["label"]: entry["value"] for section in firefox["meta"]["extra"]
              for entry in section["entries"]}
    assert counts["Allocation samples"] == samples


def test_option_at_uses_the_common_clock(tmp_path: Path) -> None:
    paths = []
    for number, begin in (1, 0), (2, 5):
        heap = Heap(interval=500, pid=number, clock=(begin + 1) * SECOND, run="r")
        for _ in range(100):
            heap.allocate("main", ("a", 1000, math.inf))
        heap.collect()
        path = tmp_path / ("%d.vmprof" % number)
        path.write_bytes(heap.data())
        paths.append(path)
    second = str(paths[1])
    end = as_json(paths[0])["seconds"]
    assert end < 5
    alone = as_json(paths[0])["samples"]
    assert as_json(paths[0], second)["samples"] == 2 * alone
    assert as_json(paths[0], second, "--at", "4.9")["samples"] == alone
    assert as_json(paths[0], second)["seconds"] == 5 + end


def test_refuses_an_unknown_process(run: Path) -> None:
    assert refused(run, "--process", "99").endswith(
        "no process of this run is called '99': write --process with the number or "
        "the name of one: 10 (app.py serve), 11 (app.py serve), 12 (other.py)")


def test_interval_of_all_processes_is_that_of_all_samples(run: Path) -> None:
    """The confidence interval is the same as for samples of one process."""
    sum_ = Sum()
    for size in 5000, 6000, 6000, 5000, 70_000:
        sum_.add(size, probability(size, 1000, "exponential"))
    found = as_json(run)
    expected = sum_.bytes(1000)
    assert found["sum"]["allocated"]["bytes"] == pytest.approx(expected._asdict())
    assert [(process["pid"], process["parent"], process["begin"],
             process["sum"]["allocated"]["samples"])
            for process in found["processes"]] == [
                (10, None, 0, 1), (11, 10, 0, 3), (12, 10, 3, 1)]
    assert [row["function"]["name"] for row in found["rows"]] == [
        "late", "worker", "shared"]


def test_merged_tables_have_all_rows(run: Path) -> None:
    parts = [Read(readers.read(path), str(path), begin) for path, begin in (
        (run, 0), (run.with_name("app.11.vmprof"), 0),
        (run.with_name("app.12-2.vmprof"), 3 * SECOND))]
    whole = merging.merge(parts)
    profile = whole.profile
    assert len(profile.samples) == 5 and len(profile.stacks) == 4
    assert list(profile.samples.time) == [SECOND] * 4 + [4 * SECOND]
    names = [profile.function(profile.stacks[stack][-1].address).name
             for stack in profile.samples.stack]
    assert names == ["shared", "worker", "worker", "shared", "late"]
    assert profile.stacks[-1] == profile.stacks[3]
    with pytest.raises(IndexError):
        profile.stacks[4]
    # threads of two processes are distinct even if they have the same number
    assert len(set(profile.samples.thread)) == 3
    assert [list(process.threads.values()) for process in profile.processes] == [
        [10], [11], [10]]
    assert summarize(profile).bytes.value == pytest.approx(
        sum(summarize(part.profile).bytes.value for part in parts))
    late = select(profile, Selection(time=(2 * SECOND, None)))
    assert len(late.samples) == 1


def test_start_times_replace_missing_clocks() -> None:
    assert merging.begins([(0, 7.5), (0, 6.0)]) == [1_500_000_000, 0]
    assert merging.begins([(5, 7.5), (0, 6.0)]) == [1_500_000_000, 0]
    assert merging.begins([(5, 0.0), (9, 6.0)]) == [0, 4]
    assert merging.begins([(0, 0.0), (9, 6.0)]) == [0, 0]


def test_refuses_to_merge_profiles_with_different_gaps(tmp_path: Path) -> None:
    paths = []
    for number, gaps in enumerate(("fixed", "exponential")):
        made = log(number + 1, gaps=gaps)
        allocate(made, "f", 100)
        paths.append(tmp_path / ("%d.vmprof" % number))
        paths[-1].write_bytes(made.data())
    assert refused(paths[0], str(paths[1])).endswith(
        "cannot merge these profiles, because only some have gaps of a fixed size: "
        "open each separately")


def test_a_note_of_several_processes_appears_once(tmp_path: Path) -> None:
    paths = []
    for number in range(6):
        made = log(number + 1, ended="it was tired")
        allocate(made, "f", 100)
        paths.append(tmp_path / ("%d.vmprof" % number))
        paths[-1].write_bytes(made.data())
    found = lines(paths[0], *map(str, paths[1:]))
    assert ("  processes 1, 2, 3 and 3 more: the profile ends before the program did: "
            "it was tired") in found


def leaking(folder: Path, name: str, keeps: bool = True, collections: int = 10,
            command: str = "") -> Path:
    heap = Heap(interval=100, run="r")
    if command:
        heap.log.command(command)
    for step in range(4000):
        heap.allocate("main keep" if keeps else "main drop",
                      ("app.Leaf", 64, math.inf if keeps else 100))
        if collections and step % (4000 // collections) == 0:
            heap.collect()
    if collections:
        heap.collect()
    path = folder / ("%s.vmprof" % name)
    path.write_bytes(heap.data())
    return path


def test_leaks_of_all_processes_and_of_each_process(tmp_path: Path) -> None:
    paths = [leaking(tmp_path, "a", keeps=False), leaking(tmp_path, "b"),
             leaking(tmp_path, "c", collections=0)]
    options = ["leaks", *map(str, paths[1:])]
    found = lines(paths[0], *options)
    assert found[0].startswith("leak: app.Leaf  keep")
    assert any("three heap snapshots or major collections of each of 2 processes"
               in line for line in found)
    of_each = [line for line in found if line.startswith("4321: ")]
    assert [line.split(":")[1].split(" by ")[0].strip() for line in of_each][1:] == [
        "the live bytes grew", "not included"]
    data = as_json(paths[0], *options)
    assert [place["function"]["name"] for leak in data["together"]["leaks"]
            for place in leak["places"]] == ["keep", "main"]
    assert [len(process.get("leaks", "-")) for process in data["processes"]] == [
        0, 1, 1]
    few = "heap snapshots or major collections: 1, and three are needed"
    assert data["processes"][2]["error"] == few
    assert "4321: not included: " + few in found


def test_leaks_if_no_process_has_enough_snapshots(tmp_path: Path) -> None:
    paths = [leaking(tmp_path, name, collections=0) for name in "ab"]
    assert ("none of the 2 processes can be examined; process 4321: the command "
            "leaks compares three heap snapshots or major collections") in refused(
                paths[0], "leaks", str(paths[1]))


@pytest.mark.parametrize("asked,misspelt", [
    (("--function", "keep"), ("--function", "kept")),
    (("--type", "app.Leaf"), ("--type", "app.Leave"))])
def test_leaks_of_a_filter_that_matches_only_some_processes(
        tmp_path: Path, asked: tuple[str, str], misspelt: tuple[str, str]) -> None:
    """For example, a server's first process never calls the functions of requests."""
    heap = Heap(interval=100, run="r")
    heap.allocate("main idle", ("app.Other", 64, math.inf))
    first = tmp_path / "first.vmprof"
    first.write_bytes(heap.data())
    found = lines(first, "leaks", str(leaking(tmp_path, "b")), *asked)
    assert any(line.startswith("leak: app.Leaf  keep") for line in found)
    assert "4321: not included: the requested items are missing" in found
    assert misspelt[1] in refused(first, "leaks", str(tmp_path / "b.vmprof"), *misspelt)


def test_refuses_a_pipe_among_several_profiles(run: Path) -> None:
    pipe = run.with_name("pipe")
    os.mkfifo(pipe)
    assert "name only files" in refused(run, str(pipe))


# ________________________________________
# the Firefox profile


def in_firefox(path: Path, *more: str) -> Json:
    target = path.parent / "a.json"
    assert cli.main(["export", str(path), *more, "-o", str(target)]) == 0
    found: Json = json.loads(target.read_text())
    assert firefox_rules.violations(found) == []
    return found


def test_all_processes_first_and_then_each(run: Path) -> None:
    found = in_firefox(run)
    threads = [(thread["pid"], thread["processName"], thread["name"],
                thread["isMainThread"]) for thread in found["threads"]]
    assert threads == [
        ("all", "All processes", "All processes", True),
        ("12", "12 other.py", "Thread 10 (child)", True),
        ("11", "11 app.py serve", "MainThread (child)", True),
        ("10", "10 app.py serve", "MainThread", True),
        ("all", "All processes", "Objects (number)", False)]
    totals = [sum(allocated(found, number).values()) for number in range(4)]
    assert totals[0] == pytest.approx(sum(totals[1:]), abs=3)
    assert found["threads"][1]["nativeAllocations"]["time"] == [4000]
    assert found["threads"][2]["nativeAllocations"]["time"] == [1000] * 3
    # a function of several processes is one function
    assert [name for name, _, _ in functions(found)].count("shared") == 1
    assert [(counter["pid"], counter["name"]) for counter in found["counters"]] == [
        (pid, "allocation-rate") for pid in ("all", "12", "11", "10")]


def test_all_processes_stay_on_top(run: Path) -> None:
    """The Profiler sorts processes by their number of samples.

    It excepts processes of the type "default".
    """
    assert [thread["name"] for thread in in_firefox(run)["threads"]
            if thread["processType"] == "default"] == [
                "All processes", "Objects (number)"]
    alone = in_firefox(run.with_name("app.11.vmprof"))
    assert alone["threads"][0]["name"] == "MainThread"
    assert {thread["processType"] for thread in alone["threads"]} == {"default"}


def test_a_process_with_the_name_of_a_type_does_not_have_the_type(
        tmp_path: Path) -> None:
    paths = []
    for number, command in enumerate(("default", "plugin")):
        made = log(0, clock=number, command=command)
        allocate(made, "f", 100)
        paths.append(tmp_path / ("%d.vmprof" % number))
        paths[-1].write_bytes(made.data())
    types = [thread["processType"] for thread in
             in_firefox(paths[0], str(paths[1]))["threads"]]
    assert types.count("default") == 2 and "plugin" not in types


def test_track_of_all_processes_shows_data_that_all_have(tmp_path: Path) -> None:
    """Only the first process has CPU samples, so that the track shows bytes."""
    paths = []
    for number in 1, 2:
        made = log(number, clock=0, period="0.01")
        allocate(made, "f%d" % number, 100)
        if number == 1:
            made.tick([made.function("f1")], time=SECOND)
        paths.append(tmp_path / ("%d.vmprof" % number))
        paths[-1].write_bytes(made.data())
    found = in_firefox(paths[0], str(paths[1]))
    units = {thread["name"] + thread["pid"]: thread["samples"]["weightType"]
             for thread in found["threads"][:3]}
    assert len(units) == 3 and units["All processesall"] == "bytes"
    assert sorted(units.values()) == ["bytes", "bytes", "samples"]


def test_each_process_has_its_collections_and_its_memory(tmp_path: Path) -> None:
    paths = []
    for number in 1, 2:
        made = log(number, clock=number)
        allocate(made, "f", 100, 100)
        made.event(1, SECOND, 10**6, 200)
        made.event(3, SECOND, 0, 1)
        made.mark(SECOND, "here")
        made.figure(1, SECOND, number * 2**20)
        made.figure(3, SECOND, number * 2**30)
        paths.append(tmp_path / ("%d.vmprof" % number))
        paths[-1].write_bytes(made.data())
    found = in_firefox(paths[0], str(paths[1]))
    starts = [thread["markers"]["startTime"] for thread in found["threads"]]
    assert starts == [[], [1000] * 3, [2000] * 3, []]
    resident = [counter for counter in found["counters"]
                if counter["name"] == "resident-memory"]
    assert [(counter["pid"], counter["samples"]["time"], counter["samples"]["count"])
            for counter in resident] == [
                ("1", [1000] * 2, [0, 2**20]), ("2", [2000] * 2, [0, 2 * 2**20])]
    rows = lines(paths[0], str(paths[1]))[3:6]
    assert "peak resident" in rows[0]
    assert sorted(re.findall(r"\d MiB", "".join(rows[1:]))) == ["1 MiB", "2 MiB"]
    assert "peak heap" in rows[0]
    assert sorted(re.findall(r"\d GiB", "".join(rows[1:]))) == ["1 GiB", "2 GiB"]


def test_two_processes_with_the_same_number(tmp_path: Path) -> None:
    paths = []
    for number in 1, 2:
        made = log(7, clock=number)
        allocate(made, "f", 100)
        paths.append(tmp_path / ("%d.vmprof" % number))
        paths[-1].write_bytes(made.data())
    found = in_firefox(paths[0], str(paths[1]))
    assert [thread["pid"] for thread in found["threads"]] == ["all", "7", "7-1", "all"]


def test_one_process_has_no_thread_for_all_processes(run: Path) -> None:
    found = in_firefox(run.with_name("app.11.vmprof"))
    assert {thread["pid"] for thread in found["threads"]} == {"11"}
    assert {thread["processName"] for thread in found["threads"]} == {"PyPy"}
