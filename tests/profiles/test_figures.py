"""What was read of the whole process: blocks of figures."""
from __future__ import annotations

import io
import json

import report_runs
from made_profiles import Log, entry
from vmprof_convert import readers, sheet
from vmprof_convert.model import (
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
from vmprof_convert.origins import Origins
from vmprof_convert.resident import of_process
from vmprof_convert.summary import Choice, summarize
from vmprof_convert.writers import table_json


def sampled() -> Log:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=16, time=100)
    return log


def read(log: Log) -> Profile:
    return readers.read_bytes(log.data())


def test_figures_are_kept_by_time() -> None:
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


def test_figures_of_times_to_come() -> None:
    log = sampled()
    log.figures += entry(5, 5, 6) + entry(10) + entry(1, 7, 8, 9)
    profile = read(log)
    assert profile.figures == [Figure(RESIDENT, 7, 8)]
    assert profile.unknown == {"figures/5": 1, "figures/10": 1}


def test_the_peak_and_when() -> None:
    log = sampled()
    for second, mebibytes in enumerate((10, 300, 300, 40)):
        log.figure(1, second * 10**9, mebibytes << 20)
        log.figure(7, second * 10**9, 5 + second)
    assert of_process(read(log)) == [
        "resident memory: 10 MiB at the start, at most 300 MiB (at 1.00 s), 40 "
        "MiB at the end; 3 pages had to be read from disk"]


def test_what_no_other_process_has() -> None:
    log = sampled()
    log.figure(1, 0, 100 << 20)
    for second, mebibytes in ((1, 20), (2, 60), (4, 30)):
        log.figure(8, second * 10**9, mebibytes << 20)
    assert of_process(read(log)) == [
        "resident memory: 100 MiB at the start, 100 MiB at the end; of it, no other "
        "process's (USS): at most 60 MiB (at 2.00 s), 30 MiB when last read (at "
        "4.00 s)"]


def test_the_heap_of_the_gc_beside() -> None:
    log = sampled()
    log.figure(1, 0, 100 << 20)
    for second, used, has in ((0, 5, 6), (1, 300, 310), (2, 300, 320), (3, 40, 320)):
        log.figure(3, second * 10**9, used << 20)
        log.figure(2, second * 10**9, has << 20)
        log.figure(9, second * 10**9, 4 << 20)
    assert of_process(read(log)) == [
        "resident memory: 100 MiB at the start, 100 MiB at the end",
        "GC heap: at most 300 MiB (at 1.00 s), 40 MiB when last read (at 3.00 s) in "
        "use, its nursery of 4 MiB included; from the system, the GC had at most "
        "320 MiB (at 2.00 s)"]


def test_the_heap_without_what_the_gc_has() -> None:
    """As an engine tells it that knows no more."""
    log = sampled()
    log.figure(3, 0, 5 << 20)
    log.figure(3, 10**9, 7 << 20)
    assert of_process(read(log)) == [
        "GC heap: at most 7 MiB (at 1.00 s) in use"]


def test_in_numbers_for_programs() -> None:
    log = sampled()
    log.figure(1, 0, 10)
    log.figure(1, 10**9, 30)
    log.figure(1, 2 * 10**9, 20)
    log.figure(3, 10**9, 7)
    log.figure(2, 10**9, 9)
    profile = read(log)
    out = io.StringIO()
    table_json.write(table_json.of_rows(sheet.View(
        profile, summarize(profile), Choice(), Origins(profile))), out)
    assert json.loads(out.getvalue())["memory"] == {
        "resident": {"first": 10, "most": 30, "most_at": 1.0, "last": 20},
        "heap": {"first": 7, "most": 7, "most_at": 1.0, "last": 7},
        "heap_has": {"first": 9, "most": 9, "most_at": 1.0, "last": 9}}


def test_in_every_report() -> None:
    log = sampled()
    log.figure(1, 50, 2**30)
    profile = read(log)
    line = "resident memory: 1 GiB at the start, 1 GiB at the end"
    assert line in report_runs.text(profile).splitlines()
    out = io.StringIO()
    table_json.write(table_json.of_rows(sheet.View(
        profile, summarize(profile), Choice(), Origins(profile))), out)
    assert line in json.loads(out.getvalue())["remarks"]


def test_profile_without_figures() -> None:
    assert of_process(read(sampled())) == []
