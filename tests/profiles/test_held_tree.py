"""Tests of the tree of retainers in files for other viewers.

The tree contains each live byte once, and each retainer has the same bytes
as in the report.
"""
from __future__ import annotations

import collections
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import pytest

import firefox_rules
import hostile_names
from firefox_profiles import converted, frames, functions, path_of, thread
from made_held import TREE, a_tree, written
from made_profiles import Log
from report_runs import refused, report
from stack_files import Json, text_of
from vmprof_convert.analysis.holder_tree import OTHERWISE
from vmprof_convert.profile.held import ALONE
from vmprof_convert.writers.firefox.convert import HELD_BY

Stacks = dict[tuple[str, ...], int]


def folded(path: Path, *options: str) -> Stacks:
    """Return the bytes of each stack in the output, by flamegraph.pl's rules."""
    out = path.with_suffix(".folded")
    done = report(path, "export", "-o", str(out), *options, "--retainers")
    assert done.returncode == 0, done.stderr
    found: Stacks = {}
    for line in out.read_text().splitlines():
        match = re.fullmatch(r"(.*) (\d+)", line)
        assert match, line
        found[tuple(match[1].split(";"))] = int(match[2])
    return found


def through(stacks: Stacks, name: str) -> int:
    """Return the bytes of all stacks that contain this name."""
    return sum(number for stack, number in stacks.items() if name in stack)


def test_the_tree_has_each_byte_once(tmp_path: Path) -> None:
    assert folded(written(tmp_path, a_tree())) == TREE


def test_unreachable_bytes_are_reported_separately(tmp_path: Path) -> None:
    done = report(written(tmp_path, a_tree()), "export", "--format", "collapsed",
                  "--retainers")
    assert done.stderr.endswith(
        "not included: 1000 ±2 B, which no reference path reaches; it is uncollected "
        "garbage, or held by C code\n")


@pytest.mark.parametrize("seed", range(20))
def test_random_paths_have_the_bytes_reached_through_them(tmp_path: Path,
                                                          seed: int) -> None:
    """A path has the bytes of all paths below it, and no byte counts twice."""
    rng = random.Random(seed)
    log = Log()
    log.settings(gaps="fixed")
    main, type_ = log.function("main", 3), log.type("str")
    log.allocation([main], size=1000, interval=1)
    before = [rng.randrange(-1, number) if number else -1 for number in range(30)]
    own = [16 + 8 * rng.randrange(1000) for _ in before]
    through, paths = list(own), list[str]()
    for number in reversed(range(30)):
        if before[number] >= 0:
            through[before[number]] += through[number]
    rest = 8 * rng.randrange(1000) + 8
    log.held(1, 0, objects=12, size=sum(own) + rest)
    for number, one in enumerate(before):
        label = ".x%d" % number if one >= 0 else "m%d" % number
        paths.append((paths[one] if one >= 0 else "") + label)
        log.held_step(1, number + 1, one + 1, through[number], label, "list")
    for number, size in enumerate(own):
        for _ in range(rng.choice((0, 1, 30))):
            log.held_object(1, [main], type_, size=rng.choice((8, size)), set_=0,
                            how=ALONE, path=number + 1)
    stacks = folded(written(tmp_path, log))
    assert sum(stacks.values()) == sum(own) + rest
    for path, size, all_ in zip(paths, own, through):
        name = path + " (list)"
        assert sum(number for stack, number in stacks.items() if name in stack) == all_
        assert sum(number for stack, number in stacks.items() if [
            part for part in stack if part.endswith(" (list)")][-1:] == [name]) == size
    assert stacks[OTHERWISE,] == rest


def test_speedscope(tmp_path: Path, speedscope_schema: Json) -> None:
    path = written(tmp_path, a_tree())
    out = tmp_path / "x.speedscope.json"
    assert report(path, "export", "-o", str(out), "--retainers").returncode == 0
    found = json.loads(out.read_text())
    jsonschema.validate(found, speedscope_schema)
    (shown,) = found["profiles"]
    assert (shown["name"], shown["unit"], shown["endValue"]) == (
        "held bytes", "bytes", 200_000)
    frames = found["shared"]["frames"]
    assert {tuple(text_of(frames[frame]) for frame in stack): weight for stack, weight
            in zip(shown["samples"], shown["weights"])} == folded(path)


def test_group_storage(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=900)
    log.held_step(1, 1, 0, 900, "shop", "dict")
    of_list = log.type(owner="list")
    for _ in range(20):
        log.held_object(1, [log.function("f")], of_list, size=45, set_=0, how=ALONE,
                        path=1)
    path = written(tmp_path, log)
    assert [stack[1] for stack in folded(path)] == ["list (storage)"]
    assert [stack[1] for stack in folded(path, "--group-storage")] == ["list"]


@pytest.mark.parametrize("size, known", [(10, 400), (30, 900)])
def test_live_bytes_without_samples(tmp_path: Path, size: int, known: int) -> None:
    """A path has bytes without samples if it leads to objects from before the sampling.

    By chance, the samples may also represent more bytes than the path has. The tree
    then reduces the bytes of the samples in proportion.
    """
    log = Log()
    log.settings(gaps="fixed")
    log.held(1, 0, objects=50, size=3000)
    log.held_step(1, 1, 0, 900, "shop", "dict")
    f, g = log.function("f"), log.function("g")
    for function in f, g, g, g:
        for _ in range(10):
            log.held_object(1, [function], log.type("str"), size=size, set_=0,
                            how=ALONE, path=1)
    stacks = folded(written(tmp_path, log))
    assert sum(stacks.values()) == 3000
    assert {stack: number for stack, number in stacks.items()
            if stack != (OTHERWISE,)} == {
        stack: number for stack, number in (
            (("shop (dict)", "str", "f (app.py:1)"), known // 4),
            (("shop (dict)", "str", "g (app.py:1)"), known - known // 4),
            (("shop (dict)",), 900 - known)) if number}


# ________________________________________
# the Firefox Profiler's thread


def held_by(profile: Json) -> Stacks:
    """Return the stacks of the thread of retainers, outermost first, without lines."""
    samples = thread(profile, HELD_BY)["samples"]
    assert samples["weightType"] == "bytes"
    return {path_of(profile, stack): weight for stack, weight in zip(
        samples["stack"], samples["weight"]) if weight}


def test_retainers_have_a_thread(tmp_path: Path) -> None:
    """The thread has the tree of the collapsed stacks, at the time of the snapshot."""
    log = a_tree()
    log.last_time = 4 * 10**9
    profile = converted(log)
    stacks = held_by(profile)
    assert stacks == {tuple(name.partition(" (app.py")[0] for name in stack): number
                      for stack, number in folded(written(tmp_path, log)).items()}
    samples = thread(profile, HELD_BY)["samples"]
    times = [time for time, weight in zip(samples["time"], samples["weight"]) if weight]
    # on the time axis, the tree takes a fiftieth of the run
    assert 2000 <= min(times) <= max(times) < 2000 + 4000 / 50
    assert [name for name, category, _, _ in frames(profile)
            if category == "Type of object"] == ["str", "shop.Visit", "shop.Item"]
    # the allocating function is the same as in the other threads
    assert len([one for one in functions(profile) if one[0] == "main"]) == 1


def test_no_thread_without_an_answer() -> None:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=1000)
    log.held(1, 0, 1001)
    assert HELD_BY not in [one["name"] for one in converted(log)["threads"]]


@pytest.mark.parametrize("options, has_it", [
    ((), True), (("--user-code",), True), (("--type", "*"), False),
    (("--time", "0.."), False), (("--process", "4321"), True),
    (("--axis", "bytes"), True)])
def test_no_thread_if_the_samples_are_filtered(
        tmp_path: Path, options: Sequence[str], has_it: bool) -> None:
    """The tree always contains all live objects of a process."""
    path = written(tmp_path, a_tree(facts="types", pid=4321))
    out = tmp_path / "x.json"
    done = report(path, "export", "-o", str(out), *options)
    assert done.returncode == 0, done.stderr
    profile = json.loads(out.read_text())
    assert firefox_rules.violations(profile) == []
    assert (HELD_BY in [one["name"] for one in profile["threads"]]) == has_it


def test_each_process_has_its_thread(tmp_path: Path) -> None:
    (tmp_path / "app.vmprof").write_bytes(a_tree(run="abc", pid=1).data())
    second = a_tree(run="abc", pid=2, parent=1)
    second.held(2, 3_000_000_000, objects=10, size=1000)
    (tmp_path / "app.2.vmprof").write_bytes(second.data())
    out = tmp_path / "x.json"
    assert report(tmp_path / "app.vmprof", "export", "-o", str(out)).returncode == 0
    profile = json.loads(out.read_text())
    assert firefox_rules.violations(profile) == []
    assert {one["pid"]: sum(one["samples"]["weight"]) for one in profile["threads"]
            if one["name"] == HELD_BY} == {"1": 200_000, "2": 1000}


# ________________________________________
# errors, and several processes


@pytest.mark.parametrize("options, said", [
    (("-o", "x.json.gz"), "--retainers is not needed here"),
    (("-o", "x.html"), "--retainers is not needed here"),
    (("-o", "x.heapprofile"),
     "--retainers is for the formats pprof, otlp, speedscope, collapsed, and not for "
     "chrome"),
    (("-o", "x.folded", "--weight", "objects"), "leave out --weight objects"),
    (("-o", "x.pb.gz", "--samples", "3"), "--samples limits the allocation samples"),
    (("-o", "x.pb.gz", "--user-code"), "--retainers shows all live objects"),
    (("-o", "x.pb.gz", "--type", "str"), "--retainers shows all live objects")])
def test_refuses_options_that_do_not_fit(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str],
        said: str) -> None:
    path = written(tmp_path, a_tree())
    monkeypatch.chdir(tmp_path)
    assert said in refused(path, "export", "--retainers", *options)
    assert [file.name for file in tmp_path.iterdir()] == ["app.vmprof"]


def test_error_gives_the_reason_for_a_missing_tree(tmp_path: Path) -> None:
    log = Log()
    log.settings()
    path = written(tmp_path, log)
    assert "this profile has no retainers" in refused(
        path, "export", "--format", "pprof", "-o", str(tmp_path / "x.pb"),
        "--retainers")
    log = Log()
    log.settings()
    log.held(1, 1_000_000_000, 1001)
    path = written(tmp_path, log)
    assert ("the retainers at 1 s are unknown: there was not enough memory for the "
            "process that examined the heap" in refused(
                path, "export", "--format", "collapsed", "--retainers"))


def test_the_tree_has_the_last_answer_of_each_process(tmp_path: Path) -> None:
    """Each root is a process. A message names the processes without an answer."""
    first = a_tree(run="abc", pid=1)
    first.held(2, 3_000_000_000, objects=10, size=1000)
    first.held_step(2, 1, 0, 900, "web", "dict")
    first.command("serve.py")
    (tmp_path / "app.vmprof").write_bytes(first.data())
    second = a_tree(run="abc", pid=2, parent=1)
    (tmp_path / "app.2.vmprof").write_bytes(second.data())
    third = Log()
    third.settings(run="abc", pid=3, parent=1)
    third.held(1, 1_000_000_000, 2011)
    (tmp_path / "app.3.vmprof").write_bytes(third.data())
    stacks = folded(tmp_path / "app.vmprof")
    by_process = collections.Counter[str]()
    for stack, number in stacks.items():
        by_process[stack[0]] += number
    assert by_process == {"process 1 serve.py": 1000, "process 2": 200_000}
    assert stacks["process 1 serve.py", "web (dict)"] == 900
    done = report(tmp_path / "app.vmprof", "export", "--format", "collapsed",
                  "--retainers")
    assert ("the retainers in process 3 at 1 s are unknown: signal 11 ended the "
            "process that examined the heap" in done.stderr)
    assert "1000 ±2 B of process 2" in done.stderr
    assert set(folded(tmp_path / "app.vmprof", "--process", "2")) == {
        stack[1:] for stack in stacks if stack[0] == "process 2"}


@pytest.mark.parametrize("name", hostile_names.HOSTILE)
def test_hostile_names_are_escaped(tmp_path: Path, name: str) -> None:
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=1000)
    log.held_step(1, 1, 0, 900, "shop[\"%s\"]" % name.replace("\x1f", ""), name)
    stacks = folded(written(tmp_path, log))
    assert sum(stacks.values()) == 1000
    assert all(part.isprintable() for stack in stacks for part in stack)


@pytest.mark.parametrize("row", [
    (0, 1000, 10, "shop.a", "list"), (2, -1, 10, "shop.a", "list"),
    (3, 1000, 10, "shop.a", "list"), (1, 1000, 10, "shop.a", "list"), (2, 1000, 10),
    (6, 1000, 10)],
    ids=["no bit", "size", "several, named", "again", "one, no name", "unknown"])
def test_damaged_holders(tmp_path: Path, row: tuple[int, int, int, str]) -> None:
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=1000)
    log.holder(1, 1, 900, 9, "shop.all", "list")
    log.holder(1, *row)
    assert "damaged profile" in refused(written(tmp_path, log), "retainers")


@pytest.mark.parametrize("step, before, size", [
    (2, -1, 10), (2, 2, 10), (3, 1, 10), (2, 1, -8), (2, 1, 901)])
def test_damaged_paths(tmp_path: Path, step: int, before: int, size: int) -> None:
    log = Log()
    log.settings()
    log.held(1, 0, objects=10, size=1000)
    log.held_step(1, 1, 0, 900, "shop", "dict")
    log.held_step(1, step, before, size, ".all", "list")
    assert "damaged profile" in refused(written(tmp_path, log), "retainers")
