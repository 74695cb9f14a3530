"""Tests of reports on other amounts than allocations.

These are `--of time`, the processor time, and `--of rss`, the growth of the resident
memory.
"""
from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from made_heap import Heap
from made_profiles import Log
from report_runs import as_json, lines, refused, report
from vmprof_convert import readers
from vmprof_convert.analysis import process_memory
from vmprof_convert.analysis.by_stack import tick_seconds
from vmprof_convert.meaning.estimator import weight_bytes
from vmprof_convert.profile.model import Profile
from vmprof_convert.writers.firefox import axis

MIB = 2**20
SECOND = 10**9


def write(path: Path, log: Log | bytes) -> Path:
    path.write_bytes(log if isinstance(log, bytes) else log.data())
    return path


def by_name(found: dict[str, Any]) -> dict[str, tuple[float, float]]:
    return {row["function"]["name"]: (row["self"], row["total"])
            for row in found["rows"]}


@pytest.fixture
def timed(tmp_path: Path) -> Path:
    """Write a profile of vmprof without allocation sampling, one sample per 10 ms."""
    log = Log()
    main, work = log.function("main"), log.function("work", 5, "lib.py")
    for stack in [main], [main, work], [main, work], [main, work, work]:
        log.raw_stack(log.words(stack), 1)
    return write(tmp_path / "timed.vmprof", log)


def test_report_of_a_time_profile_shows_time(timed: Path) -> None:
    assert lines(timed) == [
        "40 ms of time in 4 samples, one per 10 ms:", "",
        "user code, with the libraries that it calls:",
        " time     %  total  function  where",
        "30 ms  75.0  30 ms  work      lib.py:5",
        "10 ms  25.0  40 ms  main      app.py:1", "",
        "allocations: not sampled; use --allocation-sampling"]
    assert lines(timed, "--of", "time") == lines(timed)
    assert lines(timed, "--by", "file", "--sort", "total")[2:5] == [
        "total      %   self  file", "40 ms  100.0  10 ms  app.py",
        "30 ms   75.0  30 ms  lib.py"]
    assert lines(timed, "-n", "1")[-3] == "  ... and 1 function more"
    assert "| `work` | `lib.py:5` |" in report(timed, "--markdown").stdout


def test_json_report_of_time(timed: Path) -> None:
    found = as_json(timed)
    assert (found["schema"], found["of"], found["unit"]) == (
        "vmprof-allocation-amounts-1", "time", "seconds")
    assert found["sum"] == pytest.approx(0.04) and found["mine"] is True
    assert by_name(found) == {"work": (0.03, 0.03), "main": (0.01, 0.04)}
    assert as_json(timed, "-n", "1")["rows_left_out"] == 1


def test_time_samples_in_a_profile_with_allocations(tmp_path: Path) -> None:
    log = Log()
    main, work = log.function("main"), log.function("work")
    log.settings(period="0.001")
    log.allocation([main], size=24, time=SECOND)
    log.tick([main, work], time=SECOND, thread=1)
    log.tick([main], time=3 * SECOND, thread=2)
    path = write(tmp_path / "both.vmprof", log)
    assert lines(path)[0].startswith("allocated in ")
    assert lines(path)[-1] == (
        "CPU samples: 2; --of time sums them, and the command view shows them")
    assert by_name(as_json(path, "--of", "time")) == {
        "main": (0.001, 0.002), "work": (0.001, 0.001)}
    # filters also apply to CPU samples
    for options, names in ((("--thread", "1"), {"main", "work"}),
                           (("--time", "2.."), {"main"}),
                           (("--function", "work"), {"main", "work"})):
        assert set(by_name(as_json(path, "--of", "time", *options))) == names


@pytest.mark.parametrize("period, seconds", [
    ("0.000001", 1e-6), ("59", 59), ("0.0000009", 0), ("60", 0), ("1000", 0)])
def test_sampling_period_is_the_same_in_all_formats(
        tmp_path: Path, period: str, seconds: float) -> None:
    log = Log()
    log.settings(period=period)
    log.tick([log.function("f")])
    path = write(tmp_path / "app.vmprof", log)
    profile = readers.read(path)
    assert tick_seconds(profile) == seconds
    assert as_json(path, "--of", "time")["sum"] == (seconds or 1)
    assert axis.Axis(profile, [0], axis.TIME).interval == (
        seconds * 1e3 or axis.DEFAULT_INTERVAL)


def test_time_samples_with_an_unknown_period(tmp_path: Path) -> None:
    for period in "", "soon", "nan", "-1", "1e9":
        log = Log()
        log.settings(period=period)
        log.tick([log.function("f")])
        path = write(tmp_path / "app.vmprof", log)
        found = as_json(path, "--of", "time")
        assert (found["unit"], found["sum"], by_name(found)) == (
            "samples", 1, {"f": (1, 1)})
        assert lines(path, "--of", "time")[0] == (
            "1 sample of time, at unknown intervals:")


@pytest.mark.parametrize("period,is_told", [(990, True), (4000, False)])
def test_notes_that_the_kernel_limits_the_rate_of_time_samples(
        tmp_path: Path, period: int, is_told: bool) -> None:
    log = Log(period=period)
    log.raw_stack(log.words([log.function("f")]), 1)
    path = write(tmp_path / "app.vmprof", log)
    assert any("at most one sample in 4 ms" in line for line in lines(path)) == is_told


def grown(*figures: tuple[int, int], sizes: tuple[tuple[str, int, int], ...]) -> Log:
    """Return a log of a process whose resident memory was read several times.

    Args:
        figures: readings of the resident memory (second, MiB).
        sizes: allocations (function, second, bytes).
    """
    log = Log()
    log.settings(run="r")
    functions: dict[str, int] = {}
    for name, time, size in sizes:
        if name not in functions:
            functions[name] = log.function(name)
        log.allocation([functions[name]], size=size, time=time * SECOND)
    for time, value in figures:
        log.figure(1, time * SECOND, value * MIB)
    return log


def test_growth_is_attributed_to_samples_since_the_reading_before(
        tmp_path: Path) -> None:
    path = write(tmp_path / "app.vmprof", grown(
        (1, 10), (3, 16), (5, 12), (7, 112), sizes=(
            ("early", 0, 50 * MIB), ("a", 2, 8 * MIB), ("b", 2, 4 * MIB),
            # the resident memory shrinks from second 3 to second 5
            ("c", 4, 9 * MIB),
            ("a", 6, 40 * MIB), ("late", 8, 50 * MIB))))
    found = as_json(path, "--of", "rss")
    assert (found["unit"], found["sum"]) == ("bytes", 106 * MIB)
    assert by_name(found) == pytest.approx({
        "[nothing sampled explains it]": (60 * MIB, 60 * MIB),
        "a": (44 * MIB, 44 * MIB), "b": (2 * MIB, 2 * MIB)})
    text = lines(path, "--of", "rss", "--sort", "total")
    assert text[0] == (
        "resident memory: 10 MiB at the start, 112 MiB when last read (at 7.00 s); it "
        "grew by 106 MiB, and shrank by 4 MiB (4 readings of it)")
    assert text[4].startswith("60 MiB  56.6  60 MiB  [nothing sampled explains it]")
    assert any(line.startswith("60 MiB of the growth exceed the bytes sampled shortly ")
               for line in text)
    assert [row.split()[0] for row in lines(
        path, "--of", "rss", "--by", "file")[3:5]] == ["60", "46"]


@pytest.mark.parametrize("resident, heap, outside, name", [
    # C code keeps 20 MiB, while the program makes garbage
    ((10, 20, 30), (8, 8, 8), 20, "C code"),
    # the GC's heap has all of the growth, or half of it
    ((10, 20, 30), (8, 18, 28), 0, "the GC"),
    ((10, 20, 30), (8, 13, 18), 10, "both"),
    # the GC frees memory that malloc keeps, and takes it again
    ((60, 60, 60, 80), (50, 20, 50, 70), 0, "kept by malloc"),
    # the size of the GC's heap fluctuates
    ((10, 20, 30, 40), (8, 4, 8, 8), 30, "swings"),
    # C code frees 20 MiB, and takes them again
    ((30, 10, 30), (8, 8, 8), 20, "again"),
    # the GC gets memory that it does not use at first
    ((10, 10, 50), (8, 48, 48), 0, "used later")], ids=str)
def test_growth_outside_of_the_heap_is_attributed_to_no_function(
        tmp_path: Path, resident: tuple[int, ...], heap: tuple[int, ...], outside: int,
        name: str) -> None:
    log = grown(*enumerate(resident), sizes=tuple(
        ("innocent", time, 100 * MIB) for time in range(1, len(resident))))
    for time, value in enumerate(heap):
        log.figure(2, time * SECOND, value * MIB)
    path = write(tmp_path / "app.vmprof", log)
    grew = sum(max(after - before, 0) for before, after in zip(resident, resident[1:]))
    expected = {"[outside of the GC's heap]": outside, "innocent": grew - outside}
    assert by_name(as_json(path, "--of", "rss")) == pytest.approx({
        name: (value * MIB, value * MIB) for name, value in expected.items() if value})
    said = any(line.startswith("%d MiB of the growth (%.0f %%) are outside of the " % (
        outside, 100 * outside / grew)) for line in lines(path, "--of", "rss"))
    assert said == bool(outside)


def test_notes_that_the_heap_was_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "app.vmprof",
                 grown((1, 10), (3, 16), sizes=(("f", 2, 8 * MIB),)))
    assert any(line.startswith("the memory of the GC was not read: memory of C "
                               "code may be attributed")
               for line in lines(path, "--of", "rss"))


def test_report_of_a_killed_process_gives_the_last_reading(tmp_path: Path) -> None:
    log = grown((1, 10), (3, 16), sizes=(("f", 2, 8 * MIB),))
    log.flush()
    killed = tmp_path / "killed.vmprof"
    killed.write_bytes(bytes(log.bytes))
    assert lines(killed, "--of", "rss")[0].startswith(
        "resident memory: 10 MiB at the start, 16 MiB when last read (at 3.00 s); it "
        "grew")
    other = write(tmp_path / "other.vmprof",
                  grown((1, 10), (4, 14), sizes=(("f", 2, 8 * MIB),)))
    assert lines(killed, str(other), "--of", "rss")[0].startswith(
        "resident memory: 20 MiB at the start, 30 MiB when last read; it grew")


def test_short_lived_objects_are_the_last_to_explain_growth(tmp_path: Path) -> None:
    heap = Heap(interval=500)
    for _ in range(200):
        heap.allocate("main keep", ("app.Kept", 1000, math.inf))
        heap.allocate("main drop", ("app.Dropped", 4000, 0))
    heap.collect()
    profile = readers.read_bytes(heap.data())

    def growth(bytes_: float) -> process_memory.Growth:
        return process_memory.growth(with_figures(profile, round(bytes_)))

    names = {number: type_.python for number, type_ in enumerate(profile.types)}
    bytes_ = dict.fromkeys(names.values(), 0.0)
    for type_, size, interval in zip(profile.samples.type, profile.samples.size,
                                     profile.samples.interval):
        bytes_[names[type_]] += weight_bytes(size, interval, "exponential")
    little = growth(bytes_["app.Kept"] / 2)
    assert {names[type_] for _, type_ in little.parts} == {"app.Kept"}
    assert little.unexplained == 0
    much = growth(bytes_["app.Kept"] + 1000)
    assert {names[type_] for _, type_ in much.parts} == {"app.Kept", "app.Dropped"}
    all_ = growth(sum(bytes_.values()) + 1000)
    assert all_.unexplained == pytest.approx(1000, abs=1)
    assert sum(all_.parts.values()) == pytest.approx(sum(bytes_.values()))


def with_figures(profile: Profile, bytes_: int) -> Profile:
    from dataclasses import replace

    from vmprof_convert.profile.model import RESIDENT, Figure
    return replace(profile, figures=[Figure(RESIDENT, -1, MIB),
                                     Figure(RESIDENT, profile.end, MIB + bytes_)])


def test_growth_of_several_processes_adds_up(tmp_path: Path) -> None:
    paths = []
    for number in 1, 2:
        log = grown((1, 10), (3, 14), sizes=(("shared", 2, 8 * MIB),))
        paths.append(write(tmp_path / ("%d.vmprof" % number), log))
    assert by_name(as_json(paths[0], str(paths[1]), "--of", "rss")) == {
        "shared": (8 * MIB, 8 * MIB)}


@pytest.mark.parametrize("options,why", [
    (("--of", "time"), "the profile has no CPU samples, which --of time needs: record "
                       "with --period"),
    (("--of", "rss"), "resident memory was read not at all in this run, and its "
                      "growth needs two readings: it is read ten times a second"),
    (("--of", "rss", "--at", "1"), "--at is about bytes: leave out --of rss"),
    (("--of", "time", "--hide-internal"),
     "--hide-internal is about bytes: leave out --of time"),
    (("--of", "time", "--native-memory"),
     "--native-memory is about bytes: leave out --of time"),
    (("--of", "time", "--sort", "alive"),
     "--sort alive is about bytes: write self or total, or leave out --of time"),
    (("--of", "time", "--by", "type"), "CPU time has no types: leave out --by type"),
    (("--of", "rss", "--thread", "1"),
     "--of rss shows the resident memory of whole processes: of the filters, it "
     "supports only --process and --user-code"),
])
def test_refuses_options_that_do_not_fit_the_amount(
        tmp_path: Path, options: tuple[str, ...], why: str) -> None:
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=24, time=SECOND)
    assert refused(write(tmp_path / "app.vmprof", log), *options).endswith(": " + why)


def test_memory_that_is_touched_after_the_next_reading(tmp_path: Path) -> None:
    """A block of 40 MiB is sampled at 2 s. Most of its pages are resident after 3 s."""
    path = write(tmp_path / "app.vmprof", grown(
        (1, 10), (3, 20), (5, 50), (7, 60), sizes=(("a", 2, 40 * MIB),)))
    found = as_json(path, "--of", "rss")
    # the growth from 5 s to 7 s is unexplained, because the block has explained its
    # 40 MiB before
    assert by_name(found) == pytest.approx({
        "a": (40 * MIB, 40 * MIB),
        "[nothing sampled explains it]": (10 * MIB, 10 * MIB)})
