"""Tests of native memory in the Firefox profile of the GC's heap.

Native memory has a thread and a counter in each process. The numbers of the heap do not
include it.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from convert_runs import load
from firefox_profiles import OTHER_TID, Json, allocated, thread
from made_profiles import PID, Log
from vmprof_convert import cli

MS = 1_000_000
NAME = "Native memory (malloc)"


def write(path: Path, *, pid: int = PID, run: str = "r", raw: bool = True,
          objects: bool = True, parent: int = 0, threads: int = 1) -> None:
    """Write a profile with sampled objects and blocks of native memory.

    The profile has two objects of 24 and 48 bytes, and four blocks of 1000 bytes. The
    program frees two of the blocks.
    """
    log = Log()
    main, work = log.function("main"), log.function("work")
    more = {**({"raw": 1} if raw else {}), **({"parent": parent} if parent else {})}
    log.settings(run=run, pid=pid, facts="types,lifetimes", gaps="fixed", **more)
    log.collection(9 * MS)
    for number in range(2 * objects):
        log.allocation([main], size=24 << number, interval=1, time=number * MS,
                       thread=OTHER_TID if number and threads > 1 else pid)
        log.young(log.keys, 1)
    for number in range(4 * raw):
        key = log.block([main, work], size=1000, interval=1, time=(2 + number) * MS)
        if number % 2:
            log.given_back(key, 8 * MS)
    log.mark(9 * MS, "done")
    path.write_bytes(log.data())


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "app.vmprof"
    write(path)
    return path


def written(*arguments: str) -> Json:
    assert cli.main(["export", *arguments, "-o", "out.json"]) == 0
    return load(Path("out.json"))


def counters(profile: Json) -> dict[tuple[str, str], int]:
    return {(counter["pid"], counter["name"]): sum(counter["samples"]["count"])
            for counter in profile["counters"]}


def test_native_memory_is_separate_from_the_heap(app: Path) -> None:
    both = written("app.vmprof")
    write(app, raw=False)
    alone = written("app.vmprof")
    names = [thread["name"] for thread in both["threads"]]
    assert names == ["MainThread", NAME, "Objects (number)"]
    assert both["meta"]["initialVisibleThreads"] == [0, 1, 2]
    for name in "MainThread", "Objects (number)":
        one, other = thread(both, name), thread(alone, name)
        assert (one["samples"]["weight"], one.get("nativeAllocations", {}).get(
            "weight")) == (other["samples"]["weight"], other.get(
                "nativeAllocations", {}).get("weight"))
    assert allocated(both) == allocated(alone) and len(allocated(both)) == 1
    pid = str(PID)
    found = counters(both)
    assert found.pop((pid, "raw-memory")) == 2000
    assert found == counters(alone)
    raw = thread(both, NAME)
    assert not raw["isMainThread"] and raw["samples"]["weightType"] == "bytes"
    weights = raw["nativeAllocations"]["weight"]
    assert (sum(weights), sum(weight for weight in weights if weight > 0)) == (
        2000, 4000)
    assert allocated(both, 1)["[free()]",] == -2000
    assert not any("collection" in frame for path in allocated(both, 1)
                   for frame in path)


def test_each_process_has_its_own_native_memory(app: Path) -> None:
    write(app, threads=2)
    write(app.with_name("app.11.vmprof"), pid=11, parent=PID)
    found = written("app.vmprof")
    assert {thread["pid"]: [one["name"] for one in found["threads"]
                            if one["pid"] == thread["pid"]]
            for thread in found["threads"]} == {
        "all": ["All processes", NAME, "Objects (number)"],
        str(PID): ["All threads", NAME, "Thread %d" % OTHER_TID, "MainThread"],
        "11": ["MainThread (child)", NAME]}
    assert {key: value for key, value in counters(found).items()
            if key[1] == "raw-memory"} == {
        ("all", "raw-memory"): 4000, (str(PID), "raw-memory"): 2000,
        ("11", "raw-memory"): 2000}


def test_a_process_with_native_memory_only(app: Path) -> None:
    write(app.with_name("app.11.vmprof"), pid=11, parent=PID, objects=False)
    found = written("app.vmprof")
    alone, = (thread for thread in found["threads"] if thread["pid"] == "11")
    assert (alone["name"], alone["isMainThread"]) == (NAME, True)


@pytest.mark.parametrize("options", [["--axis", "bytes"], ["--type", "other"]])
def test_notes_that_native_memory_is_omitted(
        app: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    log = Log()
    log.settings(facts="types,lifetimes", raw=1)
    log.collection(MS)
    log.allocation([log.function("f")], size=24)
    log.young(1, 1, log.type("other"))
    log.block([log.function("g")], size=1000)
    app.write_bytes(log.data())
    found = written("app.vmprof", *options)
    assert [thread["name"] for thread in found["threads"]] == [
        "MainThread", "Objects (number)"]
    assert ("not included: native memory, for which --native-memory writes a separate "
            "file" in capsys.readouterr().err)
    assert "not included" not in (
        written("app.vmprof") and capsys.readouterr().err)


def test_error_without_samples_of_the_heap_names_option_raw(
        app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(app, objects=False)
    assert cli.main(["export", "app.vmprof", "-o", "out.json"]) == 2
    assert ("because it has no samples; --native-memory writes a file of its native "
            "memory" in capsys.readouterr().err)
    found = counters(written("app.vmprof", "--native-memory"))
    assert found[str(PID), "raw-memory"] == 2000


def test_notes_that_blocks_of_earlier_segments_are_omitted(
        app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.settings(facts="types,lifetimes", raw=1, part=2, first=2)
    f = log.function("f")
    log.block([f], size=500)
    log.allocation([f], size=24)
    log.block([f], size=1000, interval=1)
    app.write_bytes(log.data())
    assert allocated(written("app.vmprof"), 1) == {
        ("f", "[type not known]"): 1000}
    assert capsys.readouterr().err == (
        "vmprof-convert: not included: 1 block of native memory from earlier segments "
        "of the profile\n")


def test_option_raw_writes_native_memory_only(app: Path) -> None:
    found = written("app.vmprof", "--native-memory")
    assert [thread["name"] for thread in found["threads"]] == [
        "MainThread", "Objects (number)"]
    assert counters(found) == {
        (str(PID), "raw-memory"): 2000, (str(PID), "allocation-rate"): 4000}
    assert allocated(found)["[free()]",] == -2000


def test_notes_that_the_sampler_missed_frees(app: Path) -> None:
    log = Log()
    log.settings(facts="types,lifetimes", raw=1)
    f = log.function("f")
    log.collection(MS)
    log.allocation([f], size=24)
    log.young(1, 1)
    log.block([f], size=1000, interval=1)
    log.figure(10, 0, 10)
    log.figure(10, 2 * MS, 100)
    app.write_bytes(log.data())
    assert ("native memory: wrong: the samples count 900 B more as alive than malloc"
            in str(written("app.vmprof")["meta"]["extra"]))
