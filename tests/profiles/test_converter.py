"""vmprof-convert: what is in the file, what happens to bad input, and who may
fetch what --view serves."""
from __future__ import annotations

import collections
import copy
import gzip
import http.client
import io
import json
import math
import os
import re
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Union
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import firefox_rules
import made_profiles
from made_profiles import PID, Log, jit, machine_code, native
from vmprof_convert import cli, readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.program import COMPILED, EMPTY, LOST
from vmprof_convert.readers import container
from vmprof_convert.view import progress, serve
from vmprof_convert.writers import firefox
from vmprof_convert.writers.firefox import convert

Json = dict[str, Any]
OTHER_TID = 5555
MS = 1_000_000


def converted(log: Log | bytes) -> Json:
    """What stands in the file; it must pass the checker."""
    data = log if isinstance(log, bytes) else log.data()
    profile: Json = json.loads(
        firefox.encode(convert(readers.read_bytes(data))))
    assert firefox_rules.violations(profile) == []
    return profile


def rich_log() -> Log:
    """Has some of everything: two threads, both kinds of samples, the JIT,
    native code, resident memory, a lost stack."""
    log = Log(flags=made_profiles.PYPY | made_profiles.MEMORY)
    main = log.function("main", 1, "app.py")
    work = log.function("work", 10, "lib.py")
    malloc = log.native_function("malloc")
    log.settings(period="0.01")
    log.allocation([main, work], size=24, time=1 * MS, memory=5000)
    log.allocation([main, jit(work)], size=48, time=2 * MS, memory=6000)
    log.tick([main, work], time=3 * MS)
    log.allocation([main, native(malloc)], size=5000, time=4 * MS, memory=5500)
    log.allocation([work], size=64, time=4 * MS, thread=OTHER_TID)
    log.allocation(None, size=32, time=5 * MS)
    log.allocated, log.collections = 12345, 7
    return log


# ________________________________________
# reading the result, by walking its tables as the front end does


def path_of(profile: Json, stack: int) -> tuple[str, ...]:
    """The names of a stack's functions, outermost first."""
    shared = profile["shared"]
    names: list[str] = []
    row: int | None = stack
    while row is not None:
        frame = shared["stackTable"]["frame"][row]
        func = shared["frameTable"]["func"][frame]
        names.append(shared["stringArray"][shared["funcTable"]["name"][func]])
        row = shared["stackTable"]["prefix"][row]
    return tuple(reversed(names))


def allocated(profile: Json, thread: int = 0) -> dict[tuple[str, ...], int]:
    """Bytes per stack."""
    table = profile["threads"][thread]["nativeAllocations"]
    result: dict[tuple[str, ...], int] = collections.defaultdict(int)
    for stack, weight in zip(table["stack"], table["weight"]):
        result[path_of(profile, stack)] += weight
    return dict(result)


def functions(profile: Json) -> list[tuple[str, str | None, int | None]]:
    """Name, file and line of the definition of each function."""
    shared = profile["shared"]
    strings, files = shared["stringArray"], shared["sources"]["filename"]
    table = shared["funcTable"]
    return [(strings[name], None if source is None else strings[files[source]],
             line)
            for name, source, line in zip(
                table["name"], table["source"], table["lineNumber"])]


def frames(profile: Json) -> list[tuple[str, str, str, int | None]]:
    """Function, category, subcategory and executed line of each frame."""
    table, names = profile["shared"]["frameTable"], functions(profile)
    categories = profile["meta"]["categories"]
    return [(names[func][0], categories[category]["name"],
             categories[category]["subcategories"][sub], line)
            for func, category, sub, line in zip(
                table["func"], table["category"], table["subcategory"],
                table["line"])]


def extra(profile: Json) -> dict[str, Any]:
    return {entry["label"]: entry["value"]
            for section in profile["meta"]["extra"]
            for entry in section["entries"]}


# ________________________________________
# allocations


def test_a_sample_stands_for_the_bytes_of_all_that_were_not_sampled() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings()
    for _ in range(1000):
        log.allocation([f], size=24, interval=1000)
    log.allocation([f, g], size=5000, interval=700)
    bytes_ = allocated(converted(log))
    assert bytes_[("f",)] == round(1000 * 24 / (1 - math.exp(-24 / 1000)))
    assert bytes_[("f", "g")] == pytest.approx(
        5000 / (1 - math.exp(-5000 / 700)), abs=1)


def test_fixed_gaps_have_weights_of_their_own() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings(gaps="fixed")
    log.allocation([f], size=24, interval=1000)
    log.allocation([g], size=5000, interval=1000)
    assert allocated(converted(log)) == {("f",): 1000, ("g",): 5000}


def test_the_total_is_right_to_the_byte() -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    # each weight is 512.16; rounded one by one, they would be 160 bytes less
    for _ in range(1000):
        log.allocation([f], size=24, interval=512 - 12, thread=PID)
        log.allocation([f], size=24, interval=512 - 12, thread=OTHER_TID)
    weight = 24 / (1 - math.exp(-24 / 500))
    assert abs(1000 * (weight - round(weight))) > 50
    profile = converted(log)
    total = sum(allocated(profile, 0).values()) + sum(
        allocated(profile, 1).values())
    assert total == round(2000 * weight)
    assert extra(profile)["Allocated, estimated from the samples"] == total


def test_allocations_have_their_times_and_no_addresses() -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    for moment in (7_000_000, 2_500_000, 9_000_001):
        log.allocation([f], size=24, time=moment)
    profile = converted(log)
    table = profile["threads"][0]["nativeAllocations"]
    assert table["time"] == [2.5, 7.0, 9.000001]
    # else the front end offers "retained memory", of which nothing is known
    assert set(table) == {"length", "time", "stack", "weight", "weightType"}


def test_samples_are_sorted_together_with_their_stacks() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings()
    log.allocation([f], size=24, time=9 * MS)
    log.allocation([g], size=9000, time=3 * MS)
    table = (profile := converted(log))["threads"][0]["nativeAllocations"]
    assert [path_of(profile, stack) for stack in table["stack"]] == [
        ("g",), ("f",)]
    assert table["weight"][0] > 8000 > table["weight"][1]


def test_the_rate_of_allocation_is_a_track() -> None:
    log = Log()
    f = log.function("f")
    log.settings(gaps="fixed")
    for moment, size in ((0, 1000), (MS // 2, 2000), (5 * MS, 3000)):
        log.allocation([f], size=size, time=moment)
    log.allocation([f], size=4000, time=5 * MS + 1, thread=OTHER_TID)
    (counter,) = converted(log)["counters"]
    assert counter["samples"]["time"] == [0, 1, 2, 3, 4, 5, 6]
    # each counts what was allocated since the one before
    assert counter["samples"]["count"] == [0, 3000, 0, 0, 0, 0, 7000]
    assert counter["display"]["label"] == "Allocation rate"
    assert counter["display"]["graphType"] == "line-rate"


def test_a_long_run_has_no_more_bins_than_a_screen_shows() -> None:
    log = Log()
    f = log.function("f")
    log.settings(gaps="fixed")
    for second in range(0, 3600, 7):
        log.allocation([f], size=1000, time=second * 10**9)
    (counter,) = converted(log)["counters"]
    assert 1000 <= counter["samples"]["length"] <= 1002
    assert sum(counter["samples"]["count"]) == 1000 * len(range(0, 3600, 7))


def test_resident_memory_is_a_track_of_bytes() -> None:
    profile = converted(rich_log())
    counter = profile["counters"][1]
    assert counter["display"]["label"] == "Resident memory"
    assert counter["samples"]["time"] == [1.0, 2.0, 4.0]
    assert counter["samples"]["count"] == [
        5000 * 1024, 1000 * 1024, -500 * 1024]


def test_without_allocations_there_is_no_table_and_no_track() -> None:
    log = Log()
    f = log.function("f")
    log.raw_stack(log.words([f]), 0)
    profile = converted(log)
    assert "nativeAllocations" not in profile["threads"][0]
    assert profile["counters"] == []
    assert "Allocation samples" not in extra(profile)


# ________________________________________
# stacks


def test_a_function_is_one_with_file_and_definition() -> None:
    log = Log()
    f = log.function("f", 12, "app.py")
    # the same code, loaded once more
    again = log.function("f", 12, "app.py")
    # others of the same name
    other_line = log.function("f", 13, "app.py")
    other_file = log.function("f", 12, "lib.py")
    log.settings()
    for function in (f, again, other_line, other_file):
        log.allocation([function, jit(function)], size=24)
    assert functions(converted(log)) == [
        ("f", "app.py", 12), ("f", "app.py", 13), ("f", "lib.py", 12)]


def test_a_function_stays_one_however_many_lines_it_executes() -> None:
    log = Log(interpreter="cpython", flags=made_profiles.LINES)
    f = log.function("f", 10, "app.py")
    for line in (11, 12, 13, 11):
        log.raw_stack([-line, f], thread=1)
    profile = converted(log)
    assert functions(profile) == [("f", "app.py", 10)]
    assert frames(profile) == [("f", "Python", "Interpreted", line)
                               for line in (11, 12, 13)]


def test_a_line_that_is_not_known_is_null() -> None:
    log = Log()
    f = log.function("f", 0, "")
    log.settings()
    log.allocation([f, 0xDEAD8], size=24)
    profile = converted(log)
    assert functions(profile) == [("f", None, None),
                                  ("<unknown 0xdead8>", None, None)]
    assert [line for *_, line in frames(profile)] == [None, None]


def test_interpreted_jit_and_native_frames() -> None:
    log = Log()
    f = log.function("f")
    malloc = log.native_function("malloc")
    log.settings()
    log.allocation([f, jit(f), machine_code(0x77), native(malloc)], size=24)
    profile = converted(log)
    # the interpreter's f is the f whose machine code it entered
    assert allocated(profile).keys() == {("f", "malloc")}
    assert frames(profile) == [("f", "Python", "JIT", None),
                               ("malloc", "Native", "Other", None)]
    table = profile["shared"]["funcTable"]
    # Python is what the front end calls JS
    assert dict(zip((name for name, *_ in functions(profile)),
                    table["isJS"])) == {"f": True, "malloc": False}


def test_one_function_interpreted_and_compiled_has_one_category() -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    log.allocation([f], size=24)
    log.allocation([jit(f)], size=24)
    profile = converted(log)
    assert frames(profile) == [("f", "Python", "Interpreted", None),
                               ("f", "Python", "JIT", None)]
    assert functions(profile) == [("f", "app.py", 1)]
    assert "grey" in [c["color"] for c in profile["meta"]["categories"]]


def test_stacks_share_their_prefixes() -> None:
    log = Log()
    f, g, h = (log.function(name) for name in "fgh")
    log.settings()
    paths = [[f, g, h], [f, g], [f], [f, h], [g, h], [f, g, h, h], [g]]
    for path in paths:
        log.allocation(path, size=24)
    profile = converted(log)
    # f, fg, fgh, fghh, fh, g, gh
    assert profile["shared"]["stackTable"]["length"] == 7
    names = {f: "f", g: "g", h: "h"}
    assert [path_of(profile, stack) for stack in
            profile["threads"][0]["nativeAllocations"]["stack"]] == [
        tuple(names[address] for address in path) for path in paths]


def test_lost_and_empty_stacks_have_roots_of_their_own() -> None:
    log = Log()
    f = log.function("f")
    log.settings(gaps="fixed")
    log.allocation([f], size=1000)
    log.allocation(None, size=2000)
    log.allocation(None, size=3000)
    log.allocation([machine_code(0x7000)] * 509, size=4000)
    profile = converted(log)
    assert allocated(profile) == {
        ("f",): 1000, (LOST.name,): 5000, (COMPILED.name,): 4000}
    assert extra(profile)["Samples whose stack got lost"] == 2
    log = Log(interpreter="cpython")
    log.raw_stack([], 1)
    profile = converted(log)
    (stack,) = profile["threads"][0]["samples"]["stack"]
    assert path_of(profile, stack) == (EMPTY.name,)


def test_nothing_of_the_source_goes_into_the_file(tmp_path: Path) -> None:
    source = tmp_path / "app.py"
    source.write_text("secret = 1\n")
    log = Log()
    f = log.function("f", 1, str(source))
    log.settings()
    log.allocation([f], size=24)
    assert converted(log)["shared"]["sources"]["content"] == [None]


# ________________________________________
# threads, and time


def test_each_thread_has_its_samples_and_is_visible() -> None:
    log = Log()
    f, g, h = (log.function(name) for name in "fgh")
    log.settings(gaps="fixed")
    log.allocation([g], size=2000, time=1, thread=OTHER_TID)
    log.allocation([f], size=1000, time=2, thread=PID)
    log.allocation([h], size=3000, time=3, thread=9999)
    log.tick([h], time=4, thread=9999)
    profile = converted(log)
    assert [(t["name"], t["tid"], t["isMainThread"], t["pid"])
            for t in profile["threads"]] == [
        ("MainThread", PID, True, str(PID)),
        ("Thread %d" % OTHER_TID, OTHER_TID, False, str(PID)),
        ("Thread 9999", 9999, False, str(PID))]
    assert [allocated(profile, i) for i in range(3)] == [
        {("f",): 1000}, {("g",): 2000}, {("h",): 3000}]
    assert [t["samples"]["length"] for t in profile["threads"]] == [0, 0, 1]
    assert profile["meta"]["initialVisibleThreads"] == [0, 1, 2]


def test_a_process_whose_main_thread_has_no_samples_has_one_still() -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    log.allocation([f], size=24, thread=OTHER_TID)
    (thread,) = converted(log)["threads"]
    assert thread["isMainThread"] and thread["name"] == "Thread %d" % OTHER_TID


def test_time_and_allocation_samples_of_one_run() -> None:
    profile = converted(rich_log())
    samples = profile["threads"][0]["samples"]
    assert samples["time"] == [3.0]
    assert path_of(profile, samples["stack"][0]) == ("main", "work")
    assert profile["threads"][0]["nativeAllocations"]["length"] == 4
    assert profile["meta"]["interval"] == 10


@pytest.mark.parametrize("interpreter", ["pypy", "cpython"])
def test_stock_profiles_without_times_are_spread_by_period(
        interpreter: str) -> None:
    log = Log(interpreter=interpreter, period=4000)
    f, g = log.function("f"), log.function("g")
    layout = log.words if log.pypy else lambda path: list(reversed(path))
    for thread, path in ((1, [f]), (2, [f, g]), (1, [g])):
        log.raw_stack(layout(path), thread)
    profile = converted(log)
    assert profile["meta"]["interval"] == 4
    assert profile["meta"]["product"] == {
        "pypy": "PyPy", "cpython": "CPython"}[interpreter]
    first, second = (t["samples"] for t in profile["threads"])
    assert first["time"] == [0, 8] and second["time"] == [4]
    assert [path_of(profile, s) for s in first["stack"]] == [("f",), ("g",)]
    assert path_of(profile, second["stack"][0]) == ("f", "g")


def test_version_7_has_times() -> None:
    log = Log(interpreter="cpython", version=7)
    f = log.function("f")
    boot = 123_456_789_000_000
    for after in (5 * MS, 0, 17 * MS):
        log.raw_stack([f], 1, stamp=boot + after)
    (thread,) = converted(log)["threads"]
    assert thread["samples"]["time"] == [0, 5, 17]


def test_native_frames_of_stock_profiles() -> None:
    log = Log(interpreter="cpython", flags=made_profiles.NATIVE)
    f = log.function("f")
    n = log.native_function("std::vector<int>::push_back")
    log.raw_stack([n, f], 1)
    assert frames(converted(log)) == [
        ("f", "Python", "Interpreted", None),
        ("std::vector<int>::push_back", "Native", "Other", None)]


# ________________________________________
# about the profile


def test_meta() -> None:
    meta = converted(rich_log())["meta"]
    assert meta["startTime"] == made_profiles.START * 1000
    assert meta["product"] == "PyPy"
    # the last sample is at 5 ms, and the interval is 10 ms
    assert meta["profilingEndTime"] == 15


def test_the_profile_info_panel_tells_the_settings_and_what_is_lost() -> None:
    log = rich_log()
    log.dropped, log.pressures, log.surprises = 3, 4, 5
    info = extra(converted(log))
    assert info["Allocation samples"] == 5
    assert info["Allocated, counted by the GC"] == 12345
    assert info["Samples whose stack got lost"] == 1
    assert info["Time samples dropped"] == 3
    assert info["Minor collections"] == 7
    assert info["Times the GC changed its state unseen"] == 5
    assert info["interval"] == "1000" and info["engine"] == "hook"


def test_without_time_samples_the_interval_is_a_millisecond() -> None:
    log = Log(period=990_000)
    f = log.function("f")
    log.settings(period="")
    log.allocation([f], size=24)
    assert converted(log)["meta"]["interval"] == 1


# ________________________________________
# size


def calls(function: Callable[[], object]) -> int:
    """How many functions, Python's and C's, `function` calls."""
    number = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.parametrize("dimension", ["samples", "depth", "distinct"])
def test_the_work_grows_with_the_size_and_no_faster(dimension: str) -> None:
    def work(factor: int) -> int:
        size = {"samples": 4000, "depth": 40, "distinct": 400}
        size[dimension] *= factor
        profile = readers.read_bytes(made_profiles.large(**size))
        return calls(lambda: firefox.encode(convert(profile)))
    small, large = work(1), work(4)
    assert large < 4.2 * small


def test_many_threads_are_no_more_work_than_one() -> None:
    def work(threads: int) -> int:
        log = Log()
        f = log.function("f")
        log.settings()
        for number in range(4000):
            log.allocation([f], size=24, thread=PID + number % threads)
        profile = readers.read_bytes(log.data())
        return calls(lambda: convert(profile))
    # a thread costs about 40 calls; a pass over all samples would be 4000
    assert work(400) - work(1) < 400 * 100


def test_half_a_million_samples_of_depth_30() -> None:
    profile = readers.read_bytes(made_profiles.large(500_000, 30, 5000))
    result = convert(profile)
    assert result["threads"][0]["nativeAllocations"]["length"] == 500_000
    shared = result["shared"]["stackTable"]
    assert shared["length"] < 5000 * 30
    assert len(firefox.encode(result)) < 20 * 2**20


def test_depth_5000() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings(gaps="fixed")
    log.allocation([f] * 5000, size=1000)
    log.allocation([f] * 4999 + [g], size=2000)
    profile = converted(log)
    assert profile["shared"]["stackTable"]["length"] == 5001
    assert allocated(profile) == {
        ("f",) * 5000: 1000, ("f",) * 4999 + ("g",): 2000}


# ________________________________________
# what is missing


def test_what_is_not_in_the_profile_is_said_as_in_the_report() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings()
    log.allocation([f, g], size=16)
    log.allocation([g] * 509, size=16)
    log.allocation([f] + [g] * 508, size=16)        # just fits
    log.allocation(None, size=16)
    profile = converted(log)
    found = extra(profile)
    assert found["Samples whose stack was deeper than vmprof records"] == 1
    assert found["Samples whose stack got lost"] == 1
    assert found["Child processes that were not sampled"] == 0
    assert "Why the profile ends before the program did" not in found
    log = Log()
    log.settings(children=2, ended="the program disabled vmprof")
    log.allocation([log.function("f")], size=16)
    found = extra(converted(log))
    assert found["Child processes that were not sampled"] == 2
    assert found["Why the profile ends before the program did"] == (
        "the program disabled vmprof")
    # and not a second time, among the settings
    assert not {"children", "ended"} & set(found)


# ________________________________________
# the command


@pytest.mark.parametrize("arguments", [[], ["-o", "out.json"]])
def test_reader_of_stdout_that_leaves_is_no_error(
        folder: Path, arguments: list[str]) -> None:
    """The file is written all the same."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "vmprof_convert", "app.vmprof", *arguments],
            cwd=folder, stdout=write, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / (arguments or ["", "app.vmprof.json.gz"])[1]).exists()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with app.vmprof in it."""
    (tmp_path / "app.vmprof").write_bytes(rich_log().data())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def load(path: Path) -> Json:
    data = path.read_bytes()
    result: Json = json.loads(
        gzip.decompress(data) if path.name.endswith(".gz") else data)
    assert firefox_rules.violations(result) == []
    return result


def test_the_output_is_named_after_the_profile(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["app.vmprof"]) == 0
    assert names(folder) == ["app.vmprof", "app.vmprof.json.gz"]
    assert load(folder / "app.vmprof.json.gz") == converted(rich_log())
    assert capsys.readouterr() == ("wrote app.vmprof.json.gz\n", "")


def test_the_output_is_compressed_if_its_name_says_so(folder: Path) -> None:
    assert cli.main(["app.vmprof", "-o", "a.json"]) == 0
    assert cli.main(["app.vmprof", "-o", "b.json.gz"]) == 0
    assert load(folder / "a.json") == load(folder / "b.json.gz")
    assert (folder / "a.json").read_bytes()[:1] == b"{"
    assert (folder / "b.json.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_the_same_profile_makes_the_same_file(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["app.vmprof", "-o", "a.json.gz"]) == 0
    monkeypatch.setattr(time, "time", lambda: 1.0)
    assert cli.main(["app.vmprof", "-o", "b.json.gz"]) == 0
    assert (folder / "a.json.gz").read_bytes() == (
        folder / "b.json.gz").read_bytes()


def test_gzipped_profiles_and_the_module_as_a_command(folder: Path) -> None:
    (folder / "zipped.vmprof").write_bytes(gzip.compress(rich_log().data()))
    done = subprocess.run(
        [sys.executable, "-m", "vmprof_convert", "zipped.vmprof"],
        cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert load(folder / "zipped.vmprof.json.gz") == converted(rich_log())


def test_a_profile_from_a_pipe(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vmprof_convert", "/dev/stdin", "-o", "a.json"],
        cwd=folder, capture_output=True, input=rich_log().data())
    assert done.returncode == 0, done.stderr
    assert load(folder / "a.json") == converted(rich_log())


def test_salvage_reads_what_is_whole(folder: Path) -> None:
    data = rich_log().data()
    whole = len(data) - 25      # without the trailer
    (folder / "app.vmprof").write_bytes(data[:whole + 3])
    assert cli.main(["app.vmprof", "-o", "a.json"]) == 2
    assert not (folder / "a.json").exists()
    assert cli.main(["app.vmprof", "-o", "a.json", "--salvage"]) == 0
    profile = load(folder / "a.json")
    assert extra(profile)["Allocation samples"] == 5
    assert extra(profile)["Cut off at the end"] == 3


def big_endian(data: bytes) -> bytes:
    return data[:40][::-1] + data[40:]


def log_with(tail: bytes) -> bytes:
    """A good log, but for its last record."""
    log = rich_log()
    log.flush()
    return bytes(log.bytes) + tail


def samples(payload: str, *head: int) -> bytes:
    log = rich_log()
    log.flush()
    log.block("samples", made_profiles.digits(*head, log.keys) + payload)
    return log.data()


def damaged_gzip() -> bytes:
    data = bytearray(gzip.compress(rich_log().data() * 50))
    data[20:40] = bytes(b ^ 0x55 for b in data[20:40])
    return bytes(data)


HOSTILE = {
    "empty": b"",
    "a few bytes": b"\x00\x00",
    "only a head": struct.pack("<5q", 0, 3, 0, 10_000, 0),
    "a program": b"\x7fELF" + bytes(100),
    "text": b"import vmprof\n" * 20,
    "json": b'{"meta": {}}' * 10,
    "big-endian": big_endian(rich_log().data()),
    "no samples": Log().data(),
    "truncated": rich_log().data()[:-7],
    "truncated in a stack": log_with(b"\x01" + struct.pack("<qqq", 1, 9, 1)),
    "depth huge": log_with(b"\x01" + struct.pack("<qq", 1, 2**62)),
    "depth over the limit": log_with(
        b"\x01" + struct.pack("<qq", 1, 2**16 + 1) + bytes(8 * 2**17)),
    "depth negative": log_with(b"\x01" + struct.pack("<qq", 1, -1)),
    "count negative": log_with(b"\x01" + struct.pack("<qq", -1, 0) + bytes(99)),
    # as an unmerged fork of vmprof writes it: a float where the count is
    "count a float": log_with(b"\x01" + struct.pack("<dq", 1.5, 0) + bytes(99)),
    "string too long": log_with(b"\x02" + struct.pack("<qq", 8, 2**62)),
    "string of negative length": log_with(b"\x02" + struct.pack("<qq", 8, -8)),
    "meta without a value": log_with(b"\x07" + struct.pack("<q", 0)),
    "unknown record": log_with(b"\xee" + bytes(40)),
    "second header": log_with(b"\x05\x00\x06\x08\x04pypy"),
    "sample before the header": rich_log().data()[:40] + b"\x01" + bytes(99),
    "version 99": rich_log().data().replace(b"\x05\x00\x06", b"\x05\x00\x63"),
    "samples no digits": samples("hello", *range(7)),
    "samples too few": samples("", 1, 2),
    "samples cut off": samples(made_profiles.digits(1, 1), *range(7)),
    "sample too large": samples(
        made_profiles.digits(1 + 3, 1, 2**63, 1, 1), *range(7)),
    "sample too late": samples(
        made_profiles.digits(1 + 3, 2**63, 1, 1, 1), *range(7)),
    "sample without an interval": samples(
        made_profiles.digits(1 + 1, 1, 18, 1), *range(7)),
    "sample of no stack": samples(
        made_profiles.digits(1 + 3 + 8 * 99, 1, 18, 1, 1), *range(7)),
    "moment too large to write": samples("", 1, 2**5000, 3, 4, 5, 6, 7),
    "member cut off": made_profiles.member(rich_log().data())[:-9],
    "member damaged": made_profiles.member(rich_log().data())[:-9] + bytes(9),
    "member of nothing": made_profiles.member(b""),
    "gzip of nothing": gzip.compress(b""),
    "gzip cut off": gzip.compress(rich_log().data())[:-9],
    "gzip damaged": damaged_gzip(),
    "gzip without a body": b"\x1f\x8b",
}


def run_and_fail(folder: Path, capsys: pytest.CaptureFixture[str],
                 *arguments: str) -> str:
    """Run the command, which must complain in one line, and leave everything
    in the folder as it is; returns the line."""
    before = {path: path.read_bytes() for path in folder.iterdir()
              if path.is_file()}
    entries = names(folder)
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert re.fullmatch("vmprof-convert: [^\n]+\n", err), err
    assert out == ""
    assert names(folder) == entries
    assert before == {path: path.read_bytes() for path in before}
    return str(err)


@pytest.mark.parametrize("what", HOSTILE)
def test_bad_input_is_one_line_and_no_output(
        what: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad").write_bytes(HOSTILE[what])
    (folder / "old.json").write_text("precious")
    for arguments in (["-o", "old.json"], ["-o", "new.json.gz"], [], ["--view"]):
        assert "bad: " in run_and_fail(folder, capsys, "bad", *arguments)


def test_a_gzip_bomb_is_no_meal(
        folder: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_UNPACKED", 2**20)
    head = rich_log().data()
    (folder / "bomb").write_bytes(gzip.compress(head + bytes(2**26)))
    assert "unpacks to more than" in run_and_fail(folder, capsys, "bomb")
    (folder / "fits").write_bytes(gzip.compress(head))
    assert cli.main(["fits"]) == 0


def test_what_is_no_file(folder: Path,
                         capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sub").mkdir()
    for path, message in (
            ("sub", "is not a file"), (".", "is not a file"),
            ("/dev/zero", "is not a file"),
            ("missing", "No such file"), ("app.vmprof/x", "Not a directory"),
            # can be opened, but not be read
            ("/proc/self/mem", "Input/output error")):
        error = run_and_fail(folder, capsys, path, "-o", "out.json")
        assert path in error and message in error


def test_an_unreadable_file(folder: Path, capsys: pytest.CaptureFixture[str],
                            monkeypatch: pytest.MonkeyPatch) -> None:
    # root may read everything, and tests run as root sometimes
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "app.vmprof")
    monkeypatch.setattr(readers, "read", refuse)
    assert run_and_fail(folder, capsys, "app.vmprof") == (
        "vmprof-convert: app.vmprof: Permission denied\n")


def test_too_little_memory(folder: Path, capsys: pytest.CaptureFixture[str],
                           monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError
    monkeypatch.setattr(readers, "read", refuse)
    assert "memory" in run_and_fail(folder, capsys, "app.vmprof")


def test_the_name_of_a_file_does_not_break_the_line(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_and_fail(folder, capsys, "no\nsuch\x1b[31m\udcff")


def odd_names() -> bytes:
    log = rich_log()
    addresses = []
    for text in (b"\xed\xa0\x80 half of a pair", b"\xff\xfe", b"\x00", b"",
                 b"py:" + "\U0001f40d".encode() + b":1:x", b"a" * 10**6,
                 b"py:f:" + b"9" * 5000 + b":x", b"py:f:-3:x", b"py:f:nan:x",
                 "py:f:\u0663:x".encode(), b"::::", b"py:::", b"n:a::b:0:-"):
        log.addresses += 8
        log.name(log.addresses, text)
        addresses.append(log.addresses)
    log.meta(b"\xed\xa0\x80", b"\xed\xb0\x80")
    log.allocation(addresses, size=24)
    return log.data()


def odd_settings(**changes: object) -> bytes:
    log = Log()
    f = log.function("f")
    log.settings(**changes)
    log.tick([f])
    log.allocation([f], size=2**63 - 1, interval=1, time=2**63 - 1)
    log.allocation([f], size=1, interval=2**63 - 1, time=0)
    return log.data()


def odd_start(seconds: int) -> bytes:
    data = bytearray(rich_log().data())
    at = data.index(b"\x06", 46)
    data[at + 1:at + 9] = struct.pack("<q", seconds)
    return bytes(data)


def odd_head(period: int) -> bytes:
    log = Log(period=period)
    f = log.function("f")
    log.raw_stack(log.words([f]), -2**63 + 5)
    log.raw_stack(log.words([f]), 7)
    log.raw_stack([*log.words([f]), 99], 2**63 - 1)
    return log.data()


def odd_stamps() -> bytes:
    log = Log(interpreter="cpython", version=7, flags=made_profiles.MEMORY)
    f = log.function("f")
    for stamp in (-2**63, 2**63 - 1, 0):
        log.raw_stack([f], 1, memory=stamp, stamp=stamp)
    return log.data()


@pytest.mark.parametrize("data", [
    odd_names(), odd_settings(), odd_settings(period="nan"),
    odd_settings(period="inf"), odd_settings(period="-1"),
    odd_settings(period="1e-320"), odd_settings(period="soon"),
    odd_settings(pid="\udc80".encode("utf-8", "replace").decode()),
    odd_settings(pid=""), odd_settings(gaps="odd"),
    odd_settings(interval="9" * 5000),
    odd_start(2**63 - 1), odd_start(-2**63), odd_head(0), odd_head(-5),
    odd_head(2**63 - 1), odd_stamps(),
])
def test_odd_input_makes_a_good_file(data: bytes) -> None:
    converted(data)


SMALL = rich_log().data()


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.one_of(
    st.binary(max_size=9), st.sampled_from([
        b"\x00" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x01", b";", b","]))),
    min_size=1, max_size=4), st.booleans())
@example([(0, b"")], False)
def test_whatever_is_in_the_file_it_is_an_error_or_a_good_profile(
        changes: list[tuple[int, bytes]], salvage: bool) -> None:
    data = bytearray(SMALL)
    for at, new in changes:
        data[at:at + len(new)] = new
    try:
        profile = convert(readers.read_bytes(bytes(data), salvage=salvage))
    except ProfileError as error:
        assert "\n" not in str(error)
    else:
        assert firefox_rules.violations(
            json.loads(firefox.encode(profile))) == []


# ________________________________________
# the output file


def test_an_existing_output_is_replaced_whole(folder: Path) -> None:
    old = folder / "old.json"
    old.write_text("x" * 10**6)
    old.chmod(0o640)
    (folder / "link.json").symlink_to("old.json")
    assert cli.main(["app.vmprof", "-o", "link.json"]) == 0
    assert load(old) == converted(rich_log())
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert (folder / "link.json").is_symlink()
    assert names(folder) == ["app.vmprof", "link.json", "old.json"]


def test_a_new_output_has_the_usual_permissions(folder: Path) -> None:
    mask = os.umask(0o027)
    try:
        assert cli.main(["app.vmprof", "-o", "a.json"]) == 0
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(mask)
    assert stat.S_IMODE((folder / "a.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("function", ["fsync", "chmod", "replace"])
def test_if_writing_fails_the_old_output_stays(
        function: str, folder: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")
    (folder / "old.json").write_text("precious")
    monkeypatch.setattr(os, function, full)
    assert run_and_fail(folder, capsys, "app.vmprof", "-o", "old.json") == (
        "vmprof-convert: old.json: No space left on device\n")


def test_ctrl_c_leaves_the_old_output(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt
    (folder / "old.json").write_text("precious")
    monkeypatch.setattr(os, "fsync", interrupt)
    assert cli.main(["app.vmprof", "-o", "old.json"]) == 130
    assert (folder / "old.json").read_text() == "precious"
    assert names(folder) == ["app.vmprof", "old.json"]


def test_outputs_that_can_not_be(folder: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sub.json").mkdir()
    (folder / "in.json").write_bytes(rich_log().data())
    os.mkfifo(folder / "pipe.json")
    for source, target, message in (
            ("app.vmprof", "a.txt", ".json or .json.gz"),
            ("app.vmprof", "", ".json or .json.gz"),
            ("app.vmprof", "sub.json", "not a regular file"),
            ("app.vmprof", "pipe.json", "not a regular file"),
            ("app.vmprof", "no/a.json", "no such folder"),
            ("in.json", "in.json", "the profile itself")):
        assert message in run_and_fail(folder, capsys, source, "-o", target)


def test_nan_never_gets_into_a_file() -> None:
    with pytest.raises(ValueError):
        firefox.encode({"time": [math.nan]})


# ________________________________________
# the bar


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_shown_on_terminals_only(
        terminal: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    stderr = Stream()
    monkeypatch.setattr(progress, "DELAY", 0)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", stderr)
    assert cli.main(["app.vmprof"]) == 0
    shown = stderr.getvalue()
    assert ("reading" in shown and "converting" in shown) == terminal
    assert terminal or shown == ""


def test_progress_is_told_up_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    convert(readers.read_bytes(made_profiles.large(100, 4, 50)),
            lambda done, total: told.append((done, total)))
    assert told[0] == (0, 50) and told[-1] == (50, 50)
    assert told == sorted(told)


# ________________________________________
# --view


@pytest.fixture
def server() -> Iterator[serve.ProfileServer]:
    with serve.ProfileServer(b'{"meta":1}') as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


Answer = tuple[int, dict[str, str], bytes]


def ask(server: serve.ProfileServer, path: str | None = None,
        method: str = "GET", host: str | None = None,
        **headers: str) -> Answer:
    """One request; `host` replaces the Host header, "" leaves it out."""
    address, port = server.server_address[:2]
    connection = http.client.HTTPConnection(str(address), port, timeout=20)
    connection.putrequest(method, server.path if path is None else path,
                          skip_host=True)
    if host != "":
        connection.putheader("Host", host or "127.0.0.1:%d" % port)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    answer = (response.status, dict(response.getheaders()), response.read())
    connection.close()
    return answer


def test_the_profiler_gets_the_profile_and_that_ends_it(
        server: serve.ProfileServer) -> None:
    assert not server.fetched.is_set()
    status, headers, body = ask(server, Origin=serve.PROFILER)
    assert (status, body) == (200, b'{"meta":1}')
    assert headers["Access-Control-Allow-Origin"] == (
        "https://profiler.firefox.com")
    assert headers["Content-Type"] == "application/json"
    assert server.fetched.wait(20)


@pytest.mark.parametrize("status, request_", [
    (404, {"path": "/"}),
    (404, {"path": "/profile.json"}),
    (404, {"path": "/../../etc/passwd"}),
    (404, {"path": "//app.vmprof"}),
    (404, {"path": "/%ff"}),
    (403, {"Origin": "https://evil.example"}),
    (403, {"Origin": "null"}),
    (403, {"Origin": "https://profiler.firefox.com.evil.example"}),
    (403, {"Origin": "http://profiler.firefox.com"}),
    (403, {"host": "evil.example"}),
    (403, {"host": "localhost"}),
    (403, {"host": "127.0.0.1"}),
    (403, {"host": "127.0.0.1:1"}),
    (403, {"host": ""}),
    (403, {"method": "OPTIONS", "Origin": "https://evil.example"}),
    (403, {"method": "HEAD", "Origin": "https://evil.example"}),
    (501, {"method": "POST"}),
    (501, {"method": "PUT"}),
])
def test_nobody_else_gets_anything(
        server: serve.ProfileServer, status: int,
        request_: dict[str, str]) -> None:
    got, headers, body = ask(server, **request_)
    assert got == status
    assert server.data not in body
    assert "Access-Control-Allow-Origin" not in headers
    # the Profiler still can
    assert not server.fetched.is_set()
    assert ask(server, Origin=serve.PROFILER)[0] == 200


def test_a_browser_that_asks_first_may_fetch(
        server: serve.ProfileServer) -> None:
    status, headers, _ = ask(server, method="OPTIONS", Origin=serve.PROFILER,
                             Access_Control_Request_Private_Network="true")
    assert status == 204
    assert headers["Access-Control-Allow-Origin"] == serve.PROFILER
    assert headers["Access-Control-Allow-Private-Network"] == "true"
    assert ask(server, method="HEAD")[::2] == (200, b"")
    assert not server.fetched.is_set()


def test_it_listens_on_loopback_under_a_random_path() -> None:
    paths = set()
    for _ in range(2):
        with serve.ProfileServer(b"") as server:
            assert server.server_address[0] == "127.0.0.1"
            assert server.url.startswith(
                "http://127.0.0.1:%d/" % server.server_address[1])
            # 256 bits
            assert re.fullmatch(r"/[\w-]{43}/profile\.json", server.path)
            paths.add(server.path)
    assert len(paths) == 2


def test_a_fetch_that_breaks_off_does_not_end_it(
        capsys: pytest.CaptureFixture[str]) -> None:
    with serve.ProfileServer(bytes(2**26)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with socket.create_connection(
                ("127.0.0.1", server.server_port)) as half:
            half.sendall(("GET %s HTTP/1.0\r\nHost: %s\r\n\r\n" % (
                server.path, server.host)).encode())
            assert half.recv(1) == b"H"
        assert ask(server, path="/")[0] == 404
        assert not server.fetched.is_set()
        assert len(ask(server)[2]) == 2**26
        assert server.fetched.wait(20)
        server.shutdown()
    assert capsys.readouterr() == ("", "")      # no traceback


class Browser:
    """Stands in for webbrowser: opens the Profiler's page, which fetches."""

    def __init__(self, then: Exception | type[BaseException] | None = None):
        self.then = then
        self.url = ""
        self.body = b""

    def open(self, address: str) -> bool:
        prefix = "https://profiler.firefox.com/from-url/"
        assert address.startswith(prefix)
        assert "/" not in address[len(prefix):]
        self.url = unquote(address[len(prefix):])
        if self.then is not None:
            raise self.then
        host, path = self.url[len("http://"):].split("/", 1)
        connection = http.client.HTTPConnection(host, timeout=20)
        connection.request("GET", "/" + path,
                           headers={"Origin": "https://profiler.firefox.com"})
        self.body = connection.getresponse().read()
        return True


@pytest.mark.parametrize("arguments, left", [
    ([], ["app.vmprof"]), (["-o", "a.json"], ["a.json", "app.vmprof"])])
def test_view(arguments: list[str], left: list[str], folder: Path,
              capsys: pytest.CaptureFixture[str],
              monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser()
    monkeypatch.setattr("webbrowser.open", browser.open)
    assert cli.main(["app.vmprof", "--view", *arguments]) == 0
    assert json.loads(browser.body) == converted(rich_log())
    assert names(folder) == left
    out, err = capsys.readouterr()
    assert "https://profiler.firefox.com/from-url/http%3A%2F%2F127.0.0.1" in out
    assert err == ""


def test_view_ends_on_ctrl_c(folder: Path,
                             monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser(KeyboardInterrupt)
    monkeypatch.setattr("webbrowser.open", browser.open)
    assert cli.main(["app.vmprof", "--view"]) == 0
    assert names(folder) == ["app.vmprof"]
    port = int(browser.url.split(":")[2].split("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


# ________________________________________
# the checker: each rule, and a profile that breaks it

GOOD = converted(rich_log())
MARKER = {"type": "GC", "bytes": 5}
SCHEMA = {"name": "GC", "display": [], "fields": [
    {"key": "bytes", "label": "Bytes", "format": "bytes"}],
    "graphs": [{"key": "bytes", "type": "line-filled", "color": "red"}]}

#: a path of keys, and the value to set there; a function is called with the
#: old value; DELETE removes it
DELETE = object()
Change = tuple[str, Any]


def changed(*changes: Change) -> Json:
    profile = copy.deepcopy(GOOD)
    for path, value in changes:
        keys: list[Union[str, int]] = [
            int(key) if key.lstrip("-").isdigit() else key
            for key in path.split(".")]
        where: Any = profile
        for key in keys[:-1]:
            where = where[key]
        if value is DELETE:
            del where[keys[-1]]
        else:
            where[keys[-1]] = value(where[keys[-1]]) if callable(value) else value
    return profile


def balanced(*weights: int, addresses: list[int]) -> Change:
    length = len(weights)
    return ("threads.0.nativeAllocations", {
        "length": length, "time": [1.0] * length, "stack": [0] * length,
        "weight": list(weights), "weightType": "bytes",
        "memoryAddress": addresses, "threadId": [1] * length})


def with_marker(data: Json, **columns: list[Any]) -> list[Change]:
    return [("meta.markerSchema", [SCHEMA]), ("threads.0.markers", {
        "length": 1, "data": [data], "name": [0], "startTime": [1],
        "endTime": [2], "phase": [1], "category": [0], **columns})]


def reverse(values: list[Any]) -> list[Any]:
    return values[::-1]


def repeat(values: list[Any]) -> list[Any]:
    return values + values[-1:]


NATIVE_ALLOCATIONS = "threads.0.nativeAllocations"
FRAMES, FUNCS = "shared.frameTable", "shared.funcTable"
STACKS = "shared.stackTable"

BROKEN: list[tuple[str, list[Change]]] = [
    # values
    ("is nan", [("meta.interval", math.nan)]),
    ("is inf", [(NATIVE_ALLOCATIONS + ".weight.0", math.inf)]),
    ("unpaired surrogate", [("shared.stringArray.0", "\ud800")]),
    # version and meta
    ("preprocessedProfileVersion", [("meta.preprocessedProfileVersion", 47)]),
    ("malformed", [("meta", DELETE)]),
    ("meta.version", [("meta.version", "36")]),
    ("not in milliseconds", [("meta.interval", 0)]),
    ("not in milliseconds", [("meta.interval", 990_000)]),
    ("meta.interval is no number", [("meta.interval", DELETE)]),
    ("meta.startTime", [("meta.startTime", 9e18)]),
    ("profilingStartTime", [("meta.profilingStartTime", DELETE)]),
    ("profilingEndTime", [("meta.profilingEndTime", DELETE)]),
    ("before the start", [("meta.profilingEndTime", -1)]),
    ("meta.product", [("meta.product", DELETE)]),
    ("meta.arguments", [("meta.arguments", DELETE)]),
    ("meta.importedFrom", [("meta.importedFrom", None)]),
    ("meta.symbolicated", [("meta.symbolicated", False)]),
    ("symbolicationNotSupported", [("meta.symbolicationNotSupported", DELETE)]),
    ("OnSearchfox", [("meta.sourceCodeIsNotOnSearchfox", DELETE)]),
    ("meta.markerSchema", [("meta.markerSchema", DELETE)]),
    ("meta.extra: a section", [("meta.extra", DELETE)]),
    ("meta.extra: a section", [("meta.extra.0.label", DELETE)]),
    ("meta.extra: a bad entry", [("meta.extra.0.entries.0.format", "apples")]),
    ("meta.extra: a bad entry", [("meta.extra.0.entries.0.value", "5")]),
    ("sampleUnits", [("meta.sampleUnits", {"time": "s"})]),
    # categories
    ("no category is grey", [("meta.categories.0.color", "yellow")]),
    ("unknown colour", [("meta.categories.1.color", "snake")]),
    ("not Other", [("meta.categories.1.subcategories", reverse)]),
    # shared tables
    ("columns ['prefix', 'prefixOffset']", [
        (STACKS + ".prefixOffset", [0] * GOOD["shared"]["stackTable"]["length"]),
        (STACKS + ".prefix", DELETE)]),
    ("frameTable.line: its length", [(FRAMES + ".line", repeat)]),
    ("shared: has", [("shared.nativeSymbols", DELETE)]),
    ("stringArray: a string is there twice", [("shared.stringArray", repeat)]),
    ("stringArray: not all", [("shared.stringArray.0", None)]),
    ("sources.filename", [("shared.sources.filename.0", 99)]),
    ("sources.startLine", [("shared.sources.startLine.0", 0)]),
    ("sources.content", [("shared.sources.content.0", 1)]),
    # functions
    ("funcTable.name", [(FUNCS + ".name.0", 99)]),
    ("funcTable.name", [(FUNCS + ".name.0", True)]),
    ("funcTable.resource", [(FUNCS + ".resource.0", 0)]),
    ("funcTable.source", [(FUNCS + ".source.0", -1)]),
    ("funcTable.lineNumber", [(FUNCS + ".lineNumber.0", 0)]),
    ("funcTable.columnNumber", [(FUNCS + ".columnNumber.0", -1)]),
    ("funcTable.isJS", [(FUNCS + ".isJS.0", 1)]),
    ("funcTable.originalLocation", [(FUNCS + ".originalLocation.0", 0)]),
    ("a function is there twice", [
        (FUNCS + "." + key + ".1", GOOD["shared"]["funcTable"][key][0])
        for key in ("name", "source", "lineNumber", "isJS")]),
    # frames
    ("frameTable.func", [(FRAMES + ".func.0", 99)]),
    ("frameTable.address", [(FRAMES + ".address.0", 0)]),
    ("frameTable.nativeSymbol", [(FRAMES + ".nativeSymbol.0", -1)]),
    ("frameTable.inlineDepth", [(FRAMES + ".inlineDepth.0", None)]),
    ("frameTable.originalLocation", [(FRAMES + ".originalLocation.0", 0)]),
    ("frameTable.line", [(FRAMES + ".line.0", 0)]),
    ("frameTable.column", [(FRAMES + ".column.0", -1)]),
    ("frameTable.category: null", [(FRAMES + ".category.0", None)]),
    ("frameTable.category: an index", [(FRAMES + ".category.0", 9)]),
    ("frameTable.subcategory: null", [(FRAMES + ".subcategory.0", None)]),
    ("frameTable.subcategory: an index", [(FRAMES + ".subcategory.0", 3)]),
    ("frames of two categories", [
        (FRAMES + ".category.1", 2), (FRAMES + ".subcategory.1", 0)]),
    ("a frame is there twice", [
        (FRAMES + ".subcategory.2", 1)]),
    # stacks
    ("stackTable.frame", [(STACKS + ".frame.0", 99)]),
    ("not a smaller index", [(STACKS + ".prefix.0", 0)]),
    ("not a smaller index", [(STACKS + ".prefix.0", -1)]),
    ("not a smaller index", [(STACKS + ".prefix.1", 2)]),
    ("a stack is there twice", [
        (STACKS + ".frame.2", GOOD["shared"]["stackTable"]["frame"][1]),
        (STACKS + ".prefix.2", GOOD["shared"]["stackTable"]["prefix"][1])]),
    # threads
    ("threads: there are none", [("threads", [])]),
    ("one main thread", [("threads.0.isMainThread", False)]),
    ("one main thread", [("threads.1.isMainThread", True)]),
    ("one main thread", [("threads.1.pid", "77")]),
    ("threads: one is there twice", [("threads.1.tid", PID)]),
    ("pid is no string", [("threads.%d.pid" % i, PID) for i in (0, 1)]),
    ("registerTime", [("threads.0.registerTime", 5)]),
    ("isMainThread is no boolean", [("threads.1.isMainThread", 0)]),
    ("name is no string", [("threads.0.name", None)]),
    ("pausedRanges is missing", [("threads.0.pausedRanges", DELETE)]),
    ("jsAllocations", [("threads.0.jsAllocations", {})]),
    ("not all threads", [("meta.initialVisibleThreads", [0])]),
    ("not all threads", [("meta.initialVisibleThreads", DELETE)]),
    ("initialSelectedThreads", [("meta.initialSelectedThreads", [])]),
    ("initialSelectedThreads", [("meta.initialSelectedThreads", [2])]),
    ("keepProfileThreadOrder", [("meta.keepProfileThreadOrder", DELETE)]),
    # samples
    ("samples: columns", [("threads.0.samples.weight", DELETE)]),
    ("samples.weightType", [("threads.0.samples.weightType", "objects")]),
    ("samples.weight: its length", [("threads.0.samples.weight", [1, 1])]),
    ("samples.stack", [("threads.0.samples.stack.0", None)]),
    ("a time is outside", [("threads.0.samples.time.0", 1e6)]),
    ("a time is outside", [("threads.0.samples.time.0", -1)]),
    ("a time is no number", [("threads.0.samples.time.0", None)]),
    # allocations
    ("nativeAllocations: empty", [("threads.0.nativeAllocations", {
        "length": 0, "time": [], "stack": [], "weight": [],
        "weightType": "bytes"})]),
    ("do not ascend", [(NATIVE_ALLOCATIONS + ".time", reverse)]),
    ("nativeAllocations.stack: its length", [
        (NATIVE_ALLOCATIONS + ".stack", repeat)]),
    ("nativeAllocations.stack", [(NATIVE_ALLOCATIONS + ".stack.0", 99)]),
    ("weightType is not bytes", [(NATIVE_ALLOCATIONS + ".weightType", "samples")]),
    ("not all are integers", [(NATIVE_ALLOCATIONS + ".weight.0", 1.5)]),
    ("without memoryAddress", [(NATIVE_ALLOCATIONS + ".weight.0", -1)]),
    ("nativeAllocations: columns", [
        (NATIVE_ALLOCATIONS + ".threadId", [1] * 4)]),
    ("not a small integer", [balanced(5, addresses=[2**40])]),
    ("not unique", [balanced(5, 5, addresses=[1, 1])]),
    ("a death without its birth", [balanced(-5, addresses=[1])]),
    ("a death without its birth", [balanced(5, -6, addresses=[1, 1])]),
    ("no counter track", [("counters", []), ("threads.0.samples", {
        "length": 0, "time": [], "stack": [], "weight": None,
        "weightType": "samples"})]),
    # markers
    ("markers: columns", [("threads.0.markers.phase", DELETE)]),
    ("no schema's name", with_marker({**MARKER, "type": "gc"})),
    ("markers.name", with_marker(MARKER, name=[99])),
    ("markers.category", with_marker(MARKER, category=[None])),
    ("markers.phase", with_marker(MARKER, phase=[4])),
    ("a bad graph", [*with_marker(MARKER), (
        "meta.markerSchema.0", lambda s: {**s, "graphs": [{
            "key": "heap", "type": "line-filled", "color": "red"}]})]),
    ("a bad graph", [*with_marker(MARKER), (
        "meta.markerSchema.0", lambda s: {**s, "graphs": [{
            "key": "bytes", "type": "line-filled"}]})]),
    # counters
    ("main thread", [("counters.0.mainThreadIndex", 1)]),
    ("main thread", [("counters.0.pid", "1")]),
    ("description is no string", [("counters.0.description", DELETE)]),
    ("columns ['number']", [("counters.0.samples.number", [])]),
    ("counters[1]: empty", [("counters.1.samples", {
        "length": 0, "time": [], "count": []})]),
    ("do not ascend", [("counters.1.samples.time", reverse)]),
    ("bins are not of one width", [("counters.0.samples.time.1", 0.0)]),
    ("bins are not of one width", [("counters.0.samples", {
        "length": 1, "time": [0], "count": [0]})]),
    ("a negative rate", [("counters.0.samples.count.1", -1)]),
    ("before the first bin", [("counters.0.samples.count.0", 1)]),
    ("the sum gets negative", [
        ("counters.1.samples.count.%d" % i, 5) for i in (0, 1)]),
    ("count: not all are integers", [("counters.0.samples.count.0", 0.5)]),
    ("graphType is unknown", [("counters.0.display.graphType", "bars")]),
    ("unit is not bytes", [("counters.0.display.unit", "B")]),
    ("color is unknown", [("counters.0.display.color", "black")]),
    ("label is missing", [("counters.0.display.label", "")]),
    ("sortWeight", [("counters.0.display.sortWeight", None)]),
    ("tooltipRows: there are none", [("counters.0.display.tooltipRows", [])]),
    ("a bad row", [("counters.0.display.tooltipRows.0.source", "sum")]),
    ("a bad row", [("counters.0.display.tooltipRows.0.format.unit", "MB")]),
    ("display: has", [("counters.0.display.tooltipRows", DELETE)]),
]


@pytest.mark.parametrize("message, changes", BROKEN, ids=[
    "%s: %s" % (message, " ".join(path for path, _ in changes))
    for message, changes in BROKEN])
def test_the_checker_sees(message: str, changes: list[Change]) -> None:
    found = firefox_rules.violations(changed(*changes))
    assert any(message in text for text in found), found


def test_the_checker_lets_good_profiles_pass() -> None:
    for profile in (GOOD, changed(*with_marker(MARKER)),
                    changed(balanced(5, 7, -5, addresses=[1, 2, 1]))):
        assert firefox_rules.violations(profile) == []


def test_every_message_of_the_checker_is_tested() -> None:
    source = Path(firefox_rules.__file__).read_text()
    messages = re.findall(r'(?:report|found\.append)\(\s*"([^"]*)"', source)
    assert len(messages) > 70
    found = [text for _, changes in BROKEN
             for text in firefox_rules.violations(changed(*changes))]
    for message in messages:
        parts = re.split(r"%(?:\(\w+\))?[sdr]", message)
        pattern = ".*".join(map(re.escape, parts))
        assert any(re.search(pattern, text) for text in found), message
