"""Tests of the allocations, stacks, threads and metadata of the Firefox profile."""
from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import made_profiles
from firefox_profiles import (
    MS,
    OTHER_TID,
    allocated,
    converted,
    extra,
    frames,
    functions,
    path_of,
    remarks,
    rich_log,
    thread,
)
from made_profiles import PID, Log, jit, machine_code, native
from vmprof_convert.meaning.visible_stacks import COMPILED, EMPTY, LOST

# ________________________________________
# allocations


def test_weight_of_a_sample_includes_unsampled_bytes() -> None:
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


def test_weights_with_fixed_gaps() -> None:
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
    # each weight is 512.16; weights rounded one by one would be 160 bytes less
    for _ in range(1000):
        log.allocation([f], size=24, interval=512 - 12, thread=PID)
        log.allocation([f], size=24, interval=512 - 12, thread=OTHER_TID)
    weight = 24 / (1 - math.exp(-24 / 500))
    assert abs(1000 * (weight - round(weight))) > 50
    profile = converted(log)
    total = sum(allocated(profile, 1).values()) + sum(
        allocated(profile, 2).values())
    assert total == round(2000 * weight)
    # the first thread has the samples of both threads
    assert sum(allocated(profile, 0).values()) == total


def test_allocations_have_their_times_and_no_addresses() -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    for moment in (7_000_000, 2_500_000, 9_000_001):
        log.allocation([f], size=24, time=moment)
    profile = converted(log)
    table = profile["threads"][0]["nativeAllocations"]
    assert table["time"] == [2.5, 7.0, 9.0]
    # addresses would make the front end offer "retained memory", which is unknown here
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
    # each value is the number of bytes since the previous time
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
    assert counter["samples"]["time"] == [1.0, 1.0, 2.0, 4.0]
    # the front end takes the first row as the start of the sum
    assert counter["samples"]["count"] == [
        0, 5000 * 1024, 1000 * 1024, -500 * 1024]


def test_private_memory_is_a_track_of_bytes() -> None:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=16, time=10**6)
    log.figure(1, 0, 2**30)
    log.figure(8, 10**9, 2**20)
    log.figure(8, 2 * 10**9, 2**21)
    counter = converted(log)["counters"][-1]
    assert counter["display"]["label"] == "Private memory"
    assert counter["samples"]["time"] == [1000.0, 1000.0, 2000.0]
    assert counter["samples"]["count"] == [0, 2**20, 2**20]


def test_the_heap_of_the_gc_is_a_track_of_bytes() -> None:
    """The counts are differences, because the front end adds them up."""
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=16, time=10**6)
    for second, used in enumerate((2**20, 2**22, 2**21)):
        log.figure(1, second * 10**9, 2**30)
        log.figure(2, second * 10**9, 2**23)
        log.figure(3, second * 10**9, used)
    heap, resident = converted(log)["counters"][-2:]
    assert resident["display"]["label"] == "Resident memory"
    assert heap["display"]["label"] == "GC heap"
    assert heap["display"]["unit"] == "bytes"
    assert heap["display"]["tooltipRows"][0]["label"] == "in use in the GC's heap"
    assert heap["samples"]["time"] == [0.0, 0.0, 1000.0, 2000.0]
    assert heap["samples"]["count"] == [0, 2**20, 2**22 - 2**20, -2**21]


def test_a_track_of_memory_lasts_as_long_as_the_run() -> None:
    """The sampler omits readings that hardly differ from the one before.

    Therefore, the writer repeats the last value at the end of the run.
    """
    log = Log()
    log.settings()
    log.figure(1, 0, 2**30)
    log.figure(1, 10**9, 2**31)
    log.allocation([log.function("f")], size=16, time=5 * 10**9)
    counter = converted(log)["counters"][-1]
    assert counter["display"]["label"] == "Resident memory"
    assert counter["samples"]["time"] == [0.0, 0.0, 1000.0, 5000.0]
    assert counter["samples"]["count"] == [0, 2**30, 2**30, 0]


def test_the_track_of_the_heap_ends_at_the_last_reading() -> None:
    """The size of the heap is unknown while the GC sweeps, such as at the end."""
    log = Log()
    log.settings()
    log.figure(3, 0, 2**30)
    log.figure(3, 10**9, 2**31)
    log.allocation([log.function("f")], size=16, time=5 * 10**9)
    counter = converted(log)["counters"][-1]
    assert counter["display"]["label"] == "GC heap"
    assert counter["samples"]["time"] == [0.0, 0.0, 1000.0]


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


def test_functions_are_distinguished_by_file_and_line() -> None:
    log = Log()
    f = log.function("f", 12, "app.py")
    # the same code, loaded a second time
    again = log.function("f", 12, "app.py")
    # other functions of the same name
    other_line = log.function("f", 13, "app.py")
    other_file = log.function("f", 12, "lib.py")
    log.settings()
    for function in (f, again, other_line, other_file):
        log.allocation([function, jit(function)], size=24)
    assert functions(converted(log)) == [
        ("f", "app.py", 12), ("f", "app.py", 13), ("f", "lib.py", 12)]


def test_a_function_that_executes_many_lines_is_one_function() -> None:
    log = Log(interpreter="cpython", flags=made_profiles.LINES)
    f = log.function("f", 10, "app.py")
    for line in (11, 12, 13, 11):
        log.raw_stack([-line, f], thread=1)
    profile = converted(log)
    assert functions(profile) == [("f", "app.py", 10)]
    assert frames(profile) == [("f", "Program", "Interpreted", line)
                               for line in (11, 12, 13)]


def test_an_unknown_line_is_null() -> None:
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
    # the frame of the interpreter that entered the machine code of f is not another f
    assert allocated(profile).keys() == {("f", "malloc")}
    assert frames(profile) == [("f", "Program", "JIT", None),
                               ("malloc", "Built-in", "Native", None)]
    table = profile["shared"]["funcTable"]
    # isJS is true for functions of the program
    assert dict(zip((name for name, *_ in functions(profile)),
                    table["isJS"])) == {"f": True, "malloc": False}


def test_one_function_interpreted_and_compiled_has_one_category() -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    log.allocation([f], size=24)
    log.allocation([jit(f)], size=24)
    profile = converted(log)
    assert frames(profile) == [("f", "Program", "Interpreted", None),
                               ("f", "Program", "JIT", None)]
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
    # f, fg, fgh, fghh, fh, g, gh, and the stack for times without samples
    assert profile["shared"]["stackTable"]["length"] == 8
    names = {f: "f", g: "g", h: "h"}
    assert [path_of(profile, stack) for stack in
            profile["threads"][0]["nativeAllocations"]["stack"]] == [
        tuple(names[address] for address in path) for path in paths]


def test_lost_and_empty_stacks_have_separate_roots() -> None:
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
    assert any(text.startswith("lost: the stacks of 2 of 4 samples")
               for text in remarks(profile))
    log = Log(interpreter="cpython")
    log.raw_stack([], 1)
    profile = converted(log)
    (stack,) = profile["threads"][0]["samples"]["stack"]
    assert path_of(profile, stack) == (EMPTY.name,)


def test_file_contains_no_source_text(tmp_path: Path) -> None:
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
    # first all threads together, then the threads in descending order of bytes
    assert [(t["name"], t["tid"], t["isMainThread"], t["pid"])
            for t in profile["threads"]] == [
        ("All threads", "all", True, str(PID)),
        ("Thread 9999", 9999, False, str(PID)),
        ("Thread %d" % OTHER_TID, OTHER_TID, False, str(PID)),
        ("MainThread", PID, False, str(PID)),
        ("Objects (number)", "objects", False, str(PID))]
    assert [allocated(profile, i) for i in range(4)] == [
        {("f",): 1000, ("g",): 2000, ("h",): 3000},
        {("h",): 3000}, {("g",): 2000}, {("f",): 1000}]
    # allocations draw the track of a thread without CPU samples
    assert [t["samples"]["weightType"] for t in profile["threads"][:4]] == [
        "samples", "samples", "bytes", "bytes"]
    assert [sum(t["samples"]["weight"] or ()) for t in profile["threads"][:4]] == [
        0, 0, 2000, 1000]
    assert profile["meta"]["initialVisibleThreads"] == [0, 1, 2, 3, 4]
    assert profile["meta"]["initialSelectedThreads"] == [0]


def test_threads_have_the_names_that_the_program_gave_them() -> None:
    log = Log()
    f = log.function("f")
    log.settings(gaps="fixed")
    for size, tid in ((3000, PID), (2000, OTHER_TID), (1000, 9999)):
        log.allocation([f], size=size, thread=tid)
    log.thread(PID, "boss")
    log.thread(OTHER_TID, "w\u00f6rker \x1b[31m\u202e1" + "x" * 200)
    profile = converted(log)
    names = [t["name"] for t in profile["threads"]]
    assert names[1:2] + names[3:4] == ["boss", "Thread 9999"]
    assert names[2].startswith("w\u00f6rker ?[31m?1xx") and len(names[2]) == 100


def test_threads_that_allocate_most_are_visible_first() -> None:
    log = Log()
    f = log.function("f")
    log.settings(gaps="fixed")
    for number in range(40):
        log.allocation([f], size=1000 + 1000 * number, thread=PID + number)
    profile = converted(log)
    names = [t["name"] for t in profile["threads"]]
    assert len(names) == 42
    seen = [names[i] for i in profile["meta"]["initialVisibleThreads"]]
    assert seen == ["All threads", *("Thread %d" % (PID + number)
                                     for number in range(39, 28, -1)),
                    "Objects (number)"]


def test_a_process_without_samples_of_its_main_thread_has_a_main_thread() -> None:
    log = Log()
    f = log.function("f")
    log.settings()
    log.allocation([f], size=24, thread=OTHER_TID)
    first, objects = converted(log)["threads"]
    assert first["isMainThread"] and first["name"] == "Thread %d" % OTHER_TID
    assert objects["name"] == "Objects (number)"


def test_time_and_allocation_samples_of_one_run() -> None:
    profile = converted(rich_log())
    samples = profile["threads"][0]["samples"]
    assert samples["time"] == [3.0]
    assert path_of(profile, samples["stack"][0]) == ("main", "work")
    assert samples["weight"] is None
    assert thread(profile, "MainThread")["nativeAllocations"]["length"] == 4
    assert profile["meta"]["interval"] == 10


@pytest.mark.parametrize("interpreter", ["pypy", "cpython"])
def test_stock_profiles_without_times_are_spread_over_the_run(
        interpreter: str) -> None:
    """The log records a run of one second. The period of 4 ms is processor time."""
    log = Log(interpreter=interpreter, period=4000)
    f, g = log.function("f"), log.function("g")
    layout = log.words if log.pypy else lambda path: list(reversed(path))
    for tid, path in ((1, [f]), (2, [f, g]), (1, [g])):
        log.raw_stack(layout(path), tid)
    profile = converted(log)
    assert profile["meta"]["interval"] == pytest.approx(1000 / 3)
    assert profile["meta"]["profilingEndTime"] == pytest.approx(1000)
    assert profile["meta"]["product"] == {
        "pypy": "PyPy", "cpython": "CPython"}[interpreter]
    everything, first, second = (t["samples"] for t in profile["threads"])
    assert everything["time"] == pytest.approx([0, 1000 / 3, 2000 / 3])
    assert first["time"] == pytest.approx([0, 2000 / 3])
    assert second["time"] == pytest.approx([1000 / 3])
    assert [path_of(profile, s) for s in first["stack"]] == [("f",), ("g",)]
    assert path_of(profile, second["stack"][0]) == ("f", "g")


def test_version_7_has_times() -> None:
    log = Log(interpreter="cpython", version=7)
    f = log.function("f")
    boot = 123_456_789_000_000
    for after in (5 * MS, 0, 17 * MS):
        log.raw_stack([f], 1, stamp=boot + after)
    (only,) = converted(log)["threads"]
    assert only["samples"]["time"] == [0, 5, 17]


def test_native_frames_of_stock_profiles() -> None:
    log = Log(interpreter="cpython", flags=made_profiles.NATIVE)
    f = log.function("f")
    n = log.native_function("std::vector<int>::push_back")
    log.raw_stack([n, f], 1)
    assert frames(converted(log)) == [
        ("f", "Program", "Interpreted", None),
        ("std::vector<int>::push_back", "Built-in", "Native", None)]


# ________________________________________
# metadata


def test_meta() -> None:
    meta = converted(rich_log())["meta"]
    assert meta["startTime"] == made_profiles.START * 1000
    assert meta["product"] == "PyPy"
    # the last sample is at 5 ms, and the interval is 10 ms
    assert meta["profilingEndTime"] == 15


def test_profile_info_has_the_settings_and_the_losses() -> None:
    log = rich_log()
    log.dropped, log.pressures, log.surprises = 3, 4, 5
    profile = converted(log)
    info = extra(profile)
    assert info["Allocation samples"] == 5
    assert info["CPU samples"] == 1
    # both numbers of allocated bytes have the same unit
    assert re.fullmatch(r"8\.90 KiB \(95 %: .* \.\. .*\)",
                        info["Allocated, an estimate"])
    assert info["Allocated, counted by the GC"] == "12.1 KiB"
    assert info["Minor collections"] == 7
    assert info["Mean bytes between two samples, at the beginning"] == "1000"
    assert ("lost: the stacks of 1 of 6 samples are missing; their bytes are in "
            "[stack lost]") in remarks(profile)
    assert ("3 CPU samples were dropped, because the sampler was recording another "
            "sample") in remarks(profile)
    # the panel omits values for the sampler's developers
    assert not [label for label in info if "unseen" in label or "pressure" in label]


def test_a_complete_profile_has_no_notes() -> None:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=24)
    assert remarks(converted(log)) == []


def test_without_time_samples_there_is_no_interval() -> None:
    log = Log(period=990_000)
    f = log.function("f")
    log.settings(period="")
    log.allocation([f], size=24)
    # an interval of 0 would break the front end
    assert 0 < converted(log)["meta"]["interval"] < 1e-6


def test_the_title_is_the_command() -> None:
    log = Log()
    f = log.function("<module>", 1, "/home/me/app.py")
    log.settings()
    log.allocation([f], size=24)
    # older profiles lack the command
    assert converted(log)["meta"]["product"] == "app.py"
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=24)
    log.command("app.py --fast 'a b' " + "x" * 200)
    meta = converted(log)["meta"]
    assert meta["product"].startswith("app.py --fast 'a b' xx")
    assert len(meta["product"]) == 100
    assert meta["arguments"].endswith("xx") and len(meta["arguments"]) == 220


# ________________________________________
# missing data


def test_internal_settings_are_not_shown() -> None:
    """The information panel describes the settings that are useful to users."""
    log = Log()
    log.settings(run="4f", parent=3, part=2, clock=17, programs="1 uname",
                 native="libpypy.so", limit="1000/s", children=1, bookkeeping=7,
                 facts="types", capabilities="marks", period="0.01", new="x")
    log.allocation([log.function("f")], size=16)
    section, = [section for section in converted(log)["meta"]["extra"]
                if section["label"] == "Sampling"]
    assert {entry["label"] for entry in section["entries"]} == {
        "Engine", "Mean bytes between two samples, at the beginning",
        "Gaps between samples", "Seed of the gaps", "Limit that the interval follows",
        "Library of the interpreter, because native functions were requested",
        # a setting of a newer sampler
        "new"}


def test_notes_about_missing_data_are_those_of_the_report() -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings()
    log.allocation([f, g], size=16)
    log.allocation([g] * 509, size=16)
    log.allocation([f] + [g] * 508, size=16)        # this stack just fits
    log.allocation(None, size=16)
    profile = converted(log)
    said = " ".join(remarks(profile))
    assert "cut: the stacks of 1 samples were deeper than vmprof records" in said
    assert "lost: the stacks of 1 of 4 samples" in said
    assert "child process" not in said and "ends before" not in said
    assert ("[callers cut off]", *("g",) * 509) in allocated(profile)
    assert ("f", *("g",) * 508) in allocated(profile)
    log = Log()
    log.settings(children=2, ended="the program disabled vmprof")
    log.allocation([log.function("f")], size=16)
    assert remarks(converted(log)) == [
        "the profile ends before the program did: the program disabled vmprof",
        "2 child processes were not sampled: their allocations are missing"]
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=16)
    log.flush()
    assert remarks(converted(bytes(log.bytes))) == [
        "the run did not end normally, continues elsewhere, or the program closed the "
        "profile's file (`pypy-alloc control PID status` names the reason if the "
        "process runs); the report contains the earlier records"]
