"""Tests of pprof files with pprof itself, `go tool pprof`."""
from __future__ import annotations

import collections
import io
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import hostile_names
from firefox_profiles import rich_log
from made_heap import Heap
from made_held import TREE, a_tree
from made_profiles import Log
from stack_files import a_heap, label, labelled_log
from vmprof_convert import cli, readers
from vmprof_convert.analysis.summary import FUNCTION, TYPE, Choice, summarize
from vmprof_convert.meaning.estimator import weight_bytes
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.writers import pprof as writer


class Sample(NamedTuple):
    #: the outermost function is first
    functions: tuple[str, ...]
    lines: tuple[int, ...]
    values: dict[str, int]
    labels: dict[str, str]


Run = Callable[..., str]


@pytest.fixture
def pprof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs pprof in a temporary folder."""
    go = shutil.which("go")
    if go is None:
        pytest.fail("go is missing: run `make test`, which installs it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PPROF_TMPDIR", str(tmp_path))

    def run(*arguments: str) -> str:
        done = subprocess.run([go, "tool", "pprof", *arguments], text=True,
                              capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return run


def write(log: bytes, *options: str, name: str = "app") -> str:
    """Convert a log with vmprof-convert, and return the name of the output."""
    Path(name + ".vmprof").write_bytes(log)
    assert cli.main(["export", name + ".vmprof", "-o", name + ".pb.gz", *options]) == 0
    return name + ".pb.gz"


def raw(text: str) -> list[Sample]:
    """Return the samples from the output of `pprof -raw`, which prints everything."""
    head, samples, locations, _ = re.split(
        r"^(?:Samples|Locations|Mappings)\n?:?\n?", text, flags=re.MULTILINE)
    del head
    places = {int(number): (name, int(line)) for number, name, line in re.findall(
        r"^ *(\d+): 0x0 M=1 (.*) \S* ?[^\n]*?:(\d+)(?::\d+)? s=\d+(?:\(\))?$",
        locations, re.MULTILINE)}
    types, *rows = samples.strip("\n").split("\n")
    names = [name.partition("/")[0] for name in types.split()]
    found: list[Sample] = []
    for row in rows:
        match = re.fullmatch(r" *((?:\d+ +)*\d+): ((?:\d+ ?)+)", row)
        if match:
            values = dict(zip(names, map(int, match[1].split())))
            stack = [places[int(number)] for number in reversed(match[2].split())]
            found.append(Sample(tuple(name for name, _ in stack),
                                tuple(line for _, line in stack), values, {}))
        else:
            found[-1].labels.update(re.findall(r"(\w+):\[(.*?)\](?= \w+:\[|$)",
                                               row.strip()))
    return found


def test_bytes_and_objects_of_each_function(pprof: Run) -> None:
    profile = a_heap()
    heap = summarize(profile, choice=Choice((FUNCTION, TYPE)))
    out = io.BytesIO()
    writer.write(profile, out)
    Path("app.pb").write_bytes(out.getvalue())
    samples = raw(pprof("-raw", "app.pb"))
    sums: dict[tuple[str, str], dict[str, int]] = collections.defaultdict(
        lambda: collections.defaultdict(int))
    for sample in samples:
        assert sample.labels["thread"] == "MainThread"
        for name, value in sample.values.items():
            sums[sample.functions[-1], sample.labels["type"]][name] += value
    rows = {(label(row.function).replace(".py", ""), row.subject.type.name): row.own
            for row in heap.rows
            if row.subject.type is not None and row.own.sum().samples}
    assert sums.keys() == rows.keys() and len(rows) == 9
    off = len(samples)
    for key, figures in rows.items():
        for name, estimate in (("alloc_space", figures.bytes()),
                            ("alloc_objects", figures.objects()),
                            ("inuse_space", figures.bytes("alive")),
                            ("inuse_objects", figures.objects("alive"))):
            assert sums[key][name] == pytest.approx(estimate.value, abs=off)
    total = sum(sample.values["alloc_space"] for sample in samples)
    assert total == pytest.approx(heap.bytes.value, abs=0.5)


def test_stacks_of_retainers_are_reference_paths(pprof: Run) -> None:
    """The bytes of each path are the exact retained sizes."""
    samples = raw(pprof("-raw", write(a_tree().data(), "--retainers")))
    assert {sample.functions: sample.values for sample in samples} == {
        tuple(part.replace("app.py", "app") for part in stack): {"held_space": size}
        for stack, size in TREE.items()}


def flat(text: str) -> dict[str, int]:
    """Return the bytes of each function itself from `pprof -top -unit=B`."""
    return {name: int(value) for value, name in re.findall(
        r"^ *(-?\d+)B? +\S+% +\S+% +\S+ +\S+% +(.*)$", text, re.MULTILINE)
        if int(value)}


def test_top(pprof: Run) -> None:
    """The default sample type is the allocated bytes."""
    log = labelled_log()
    name = write(log.data())
    text = pprof("-top", "-unit=B", name)
    assert "Type: alloc_space\n" in text
    assert flat(text) == {"work (work:11)": 80_000, "[stack lost]": 50_000,
                          "[starting and ending the run]": 60_000}
    text = pprof("-top", "-sample_index=cpu", name)
    assert re.search(r"20ms +100% +100% +20ms +100% +work \(work:11\)", text)
    assert flat(pprof("-top", "-unit=B", "-tagfocus=thread=worker;1", name)) == {
        "work (work:11)": 40_000}


@pytest.mark.parametrize("command, name", [
    ("-m gunicorn -w 4 shop:application", "gunicorn"), ("web/shop.py a", "shop.py")])
def test_the_file_is_the_name_of_the_program(pprof: Run, command: str,
                                             name: str) -> None:
    profile = a_heap()
    profile.command = command
    out = io.BytesIO()
    writer.write(profile, out)
    Path("app.pb").write_bytes(out.getvalue())
    assert pprof("-top", "app.pb").startswith("File: %s\n" % name)


def test_executed_lines_and_files(pprof: Run) -> None:
    log = Log(flags=4 | 2)
    f = log.function("f", 10, "/srv/app/app.py")
    log.settings()
    log.raw_stack([f, 1, 0], thread=4321)
    log.allocation([f], size=24)
    text = pprof("-raw", write(log.data()))
    assert "f (app:10) /srv/app/app.py:10" in text


def test_no_name_has_a_dot(pprof: Run) -> None:
    """pprof's flame graph would show only the part after the dot."""
    log = Log()
    f = log.function("f", 3, "/usr/lib/pypy3.9/concurrent/futures/a.b.py")
    g = log.function("g", 4, "<frozen importlib._bootstrap>")
    log.settings()
    log.allocation([f, g], size=24)
    sample, = raw(pprof("-raw", write(log.data())))
    assert sample.functions[0] == "f (concurrent/futures/a/b:3)"
    assert sample.functions[1].startswith("g (<frozen importlib/_bootstrap>:4)")


def test_pprof_computes_a_difference(pprof: Run) -> None:
    def one(size: int) -> bytes:
        log = Log()
        main, grows, same = map(log.function, ("main", "grows", "same"))
        log.settings()
        log.allocation([main, grows], size=size)
        log.allocation([main, same], size=30_000)
        return log.data()
    before = write(one(20_000), name="before")
    after = write(one(90_000), name="after")
    text = pprof("-top", "-unit=B", "-diff_base", before, after)
    assert flat(text) == {"grows (app:1)": 70_000}


def test_several_processes_have_a_label(pprof: Run) -> None:
    for pid in (11, 12):
        log = Log()
        log.settings(pid=pid, run="r")
        log.command("worker.py")
        log.allocation([log.function("f")], size=pid * 1000, thread=pid)
        Path("%d.vmprof" % pid).write_bytes(log.data())
    assert cli.main(["export", "11.vmprof", "12.vmprof", "-o", "both.pb.gz"]) == 0
    assert sorted((sample.labels["process"], sample.labels["thread"],
                   sample.values["alloc_space"])
                  for sample in raw(pprof("-raw", "both.pb.gz"))) == [
                      ("11 worker.py", "MainThread", 11_000),
                      ("12 worker.py", "MainThread", 12_000)]


def test_difference_is_the_same_as_in_pprof(pprof: Run) -> None:
    """The difference includes decreases, and the sample types of both profiles."""
    def one(*sizes: int) -> bytes:
        log = Log()
        main = log.function("main")
        log.settings()
        for name, size in zip(("grows", "shrinks", "same"), sizes):
            log.allocation([main, log.function(name)], size=size)
        return log.data()
    write(one(20_000, 90_000, 30_000), name="before")
    write(one(90_000, 50_000, 30_000), name="after")
    assert cli.main(["diff", "before.vmprof", "after.vmprof", "-o", "d.pb.gz"]) == 0
    ours = pprof("-top", "-unit=B", "d.pb.gz")
    assert flat(ours) == {"grows (app:1)": 70_000, "shrinks (app:1)": -40_000}
    theirs = pprof("-top", "-unit=B", "-diff_base", "before.pb.gz", "after.pb.gz")
    assert flat(ours) == flat(theirs)
    # percentages refer to the first profile
    assert re.search(r"70000B 50.00% .* grows", ours), ours


def test_sample_types_depend_on_the_data_of_the_profile(pprof: Run) -> None:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=24)
    assert raw(pprof("-raw", write(log.data())))[0].values.keys() == {
        "alloc_objects", "alloc_space"}
    log = Log(interpreter="cpython", period=2000)
    log.raw_stack([log.function("f")], thread=5)
    sample, = raw(pprof("-raw", write(log.data())))
    assert sample.values == {"samples": 1, "cpu": 2_000_000}
    # the interval between these time samples is unknown
    log = Log()
    log.settings(period="soon")
    log.tick([log.function("f")], time=5)
    sample, = raw(pprof("-raw", write(log.data())))
    assert sample.values == {"samples": 1}


def test_comments_name_missing_data(pprof: Run) -> None:
    log = rich_log()
    log.settings(ended="vmprof.disable()")
    log.command("app.py --secret")
    text = pprof("-comments", write(log.data()))
    assert "app.py --secret" in text and "ends before the program did" in text


def test_hostile_names_are_escaped(pprof: Run) -> None:
    data = hostile_names.log().data()
    profile = readers.read_bytes(data)
    text = pprof("-raw", write(data))
    assert all(line.replace("\t", "").isprintable() for line in text.split("\n"))
    for command in ("-top", "-traces", "-tags", "-tree"):
        text = pprof(command, "-nodecount=1000", "app.pb.gz")
        assert "\x1b" not in text
    shown = TypeNames(profile)
    text = pprof("-tags", "-nodecount=1000", "app.pb.gz")
    missing = [name for name in (shown.shown(number).name
                                 for number in range(len(profile.types)))
               if name not in text]
    assert missing == []


def test_weight_of_a_sample_is_that_of_the_estimator(pprof: Run) -> None:
    heap = Heap(interval=1000)
    heap.allocate("main", ("x", 24, 1))
    heap.log.allocation(heap._stack(["other"]), size=24, interval=1000, time=heap.now)
    heap.collect()
    found = raw(pprof("-raw", write(heap.data())))
    other, = (sample for sample in found if sample.functions == ("other (app:1)",))
    assert other.values["alloc_space"] == pytest.approx(
        weight_bytes(24, 1000, "exponential"), abs=1)
