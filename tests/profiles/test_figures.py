"""Tests of the memory metrics of the whole process, such as the resident memory.

A "figure" is a reading of such a metric.
"""
from __future__ import annotations

import io
import json

import report_runs
from made_profiles import Log
from vmprof_convert import readers
from vmprof_convert.analysis.process_memory import of_process
from vmprof_convert.analysis.summary import Choice, summarize
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.profile.model import (
    HEAP,
    HEAP_HAS,
    MAJOR_FAULTS,
    MINOR_FAULTS,
    NURSERY,
    PRIVATE,
    PROCESSOR,
    RESIDENT,
    Figure,
    Profile,
)
from vmprof_convert.report import json_table, tables


def sampled() -> Log:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=16, time=100)
    return log


def read(log: Log) -> Profile:
    return readers.read_bytes(log.data())


def read_without_end(log: Log) -> Profile:
    """Read the profile without its trailer, as if the process had been killed."""
    log.flush()
    return readers.read_bytes(bytes(log.bytes))


def memory_in_json(profile: Profile) -> dict[str, dict[str, float]]:
    out = io.StringIO()
    json_table.write(json_table.of_rows(tables.View(
        profile, summarize(profile), Choice(), Origins(profile))), out)
    memory: dict[str, dict[str, float]] = json.loads(out.getvalue())["memory"]
    return memory


def test_figures_are_sorted_by_time() -> None:
    log = sampled()
    log.figure(1, 500, 2**31)
    log.figure(4, 500, 10**9)
    log.figure(6, 500, 70)
    log.figure(7, 500, 3)
    log.figure(8, 500, 2**20)
    log.figure(1, 50, 2**30)
    log.figure(2, 60, 2**26)
    log.figure(3, 60, 2**25)
    log.figure(9, 60, 2**22)
    assert read(log).figures == [
        Figure(RESIDENT, 50, 2**30), Figure(HEAP_HAS, 60, 2**26),
        Figure(HEAP, 60, 2**25), Figure(NURSERY, 60, 2**22),
        Figure(RESIDENT, 500, 2**31),
        Figure(PROCESSOR, 500, 10**9), Figure(MINOR_FAULTS, 500, 70),
        Figure(MAJOR_FAULTS, 500, 3), Figure(PRIVATE, 500, 2**20)]


def test_figures_of_later_versions_are_skipped() -> None:
    log = sampled()
    for kind in 5, 12, 1:
        log.figure(kind, 7, 8)
    profile = read(log)
    assert profile.figures == [Figure(RESIDENT, 7, 8)]
    assert profile.unknown == {"figure 5": 1, "figure 12": 1}


def test_report_has_malloc_s_count_at_the_start_and_the_end() -> None:
    log = sampled()
    log.figure(10, 0, 2 << 20)
    log.figure(10, 10**9, 70 << 20)
    assert of_process(read(log)) == [
        "native memory, as malloc counts it: 2 MiB in use when sampling began, 70 MiB "
        "at the end"]


def test_report_has_the_peak_and_its_time() -> None:
    log = sampled()
    for second, mebibytes in enumerate((10, 300, 300, 40)):
        log.figure(1, second * 10**9, mebibytes << 20)
        log.figure(7, second * 10**9, 5 + second)
    assert of_process(read(log)) == [
        "resident memory: 10 MiB at the start, at most 300 MiB (at 1.00 s), 40 "
        "MiB at the end; 3 pages had to be read from disk"]


def test_report_of_a_killed_process_gives_the_last_reading() -> None:
    log = sampled()
    log.figure(1, 0, 10 << 20)
    log.figure(1, 10**9, 300 << 20)
    assert of_process(read_without_end(log)) == [
        "resident memory: 10 MiB at the start, 300 MiB when last read (at 1.00 s)"]
    log.figure(1, 2 * 10**9, 40 << 20)
    assert of_process(read_without_end(log)) == [
        "resident memory: 10 MiB at the start, at most 300 MiB (at 1.00 s), 40 MiB "
        "when last read (at 2.00 s)"]


def test_report_of_a_process_that_closed_all_its_files() -> None:
    """A daemon closes all files, so that the sampler cannot read its memory again."""
    log = Log()
    log.settings()
    log.figure(1, 10**9, 10 << 20)
    log.allocation([log.function("f")], size=16, time=9 * 10**9)
    assert of_process(read(log)) == [
        "resident memory: 10 MiB at the start, 10 MiB when last read (at 1.00 s)"]


def test_report_has_the_memory_that_is_not_shared() -> None:
    log = sampled()
    log.figure(1, 4 * 10**9, 100 << 20)
    for second, mebibytes in ((1, 20), (2, 60), (4, 30)):
        log.figure(8, second * 10**9, mebibytes << 20)
    assert of_process(read(log)) == [
        "resident memory: 100 MiB at the start, 100 MiB at the end; not shared "
        "with other processes (USS): at most 60 MiB (at 2.00 s), 30 MiB when last read "
        "(at 4.00 s)"]


def test_a_single_reading_is_not_a_maximum() -> None:
    log = sampled()
    log.figure(1, 0, 100 << 20)
    log.figure(1, 3 * 10**9, 300 << 20)
    log.figure(8, 10**9, 60 << 20)
    assert of_process(read(log)) == [
        "resident memory: 100 MiB at the start, 300 MiB at the end; not shared "
        "with other processes (USS): 60 MiB when last read (at 1.00 s)"]


def test_report_has_the_heap_of_the_gc() -> None:
    log = sampled()
    log.figure(1, 3 * 10**9, 100 << 20)
    for second, used, has in ((0, 5, 6), (1, 300, 310), (2, 300, 320), (3, 40, 320)):
        log.figure(3, second * 10**9, used << 20)
        log.figure(2, second * 10**9, has << 20)
        log.figure(9, second * 10**9, 4 << 20)
    assert of_process(read(log)) == [
        "resident memory: 100 MiB at the start, 100 MiB at the end",
        "GC heap: at most 300 MiB (at 1.00 s), 40 MiB when last read (at 3.00 s) in "
        "use, its nursery of 4 MiB included; from the system, the GC had at most "
        "320 MiB (at 2.00 s)"]


def test_report_has_the_heap_without_the_bytes_from_the_system() -> None:
    """An engine may record the bytes in use only."""
    log = sampled()
    log.figure(3, 0, 5 << 20)
    log.figure(3, 10**9, 7 << 20)
    assert of_process(read(log)) == [
        "GC heap: at most 7 MiB (at 1.00 s) in use"]


def test_json_has_the_first_largest_and_last_reading() -> None:
    log = sampled()
    log.figure(1, 0, 10)
    log.figure(1, 10**9, 30)
    log.figure(1, 2 * 10**9, 20)
    log.figure(3, 10**9, 7)
    log.figure(2, 10**9, 9)
    once = {"first_at": 1.0, "most_at": 1.0, "last_at": 1.0}
    assert memory_in_json(read(log)) == {
        "resident": {"first": 10, "first_at": 0.0, "most": 30, "most_at": 1.0,
                     "last": 20, "last_at": 2.0},
        "heap": {"first": 7, "most": 7, "last": 7, **once},
        "heap_has": {"first": 9, "most": 9, "last": 9, **once}}


def test_a_heap_that_is_swept_at_both_ends() -> None:
    """The sampler cannot read the heap while the GC sweeps it.

    The report and the JSON then contain the times of the existing readings.
    """
    log = sampled()
    for second in 0, 5, 9:
        log.figure(1, second * 10**9, 100 << 20)
    # the readings are not in the order of their times
    for second, mebibytes in (2, 8), (6, 50), (4, 90):
        log.figure(3, second * 10**9, mebibytes << 20)
    profile = read(log)
    assert memory_in_json(profile)["heap"] == {
        "first": 8 << 20, "first_at": 2.0, "most": 90 << 20, "most_at": 4.0,
        "last": 50 << 20, "last_at": 6.0}
    assert of_process(profile)[1] == (
        "GC heap: at most 90 MiB (at 4.00 s), 50 MiB when last read (at 6.00 s) in use")


def test_text_and_json_have_the_resident_memory() -> None:
    log = sampled()
    log.figure(1, 50, 2**30)
    profile = read(log)
    line = "resident memory: 1 GiB at the start, 1 GiB at the end"
    assert line in report_runs.text(profile).splitlines()
    out = io.StringIO()
    json_table.write(json_table.of_rows(tables.View(
        profile, summarize(profile), Choice(), Origins(profile))), out)
    assert line in json.loads(out.getvalue())["remarks"]


def test_profile_without_figures() -> None:
    assert of_process(read(sampled())) == []
