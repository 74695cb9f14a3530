"""Tests of the process's memory in the report on leaks, with made-up readings.

The first line of the report, the headline, is the growth outside of the GC's heap if it
is large.
"""
from __future__ import annotations

import io
import random

import pytest

from made_leaks import SECOND, Kept, churn, leak, process_of
from vmprof_convert.analysis.leaks.search import (
    Leaks,
    Process,
    find_leaks,
)
from vmprof_convert.analysis.process_memory import untouched
from vmprof_convert.profile.model import (
    HEAP,
    HEAP_HAS,
    NURSERY,
    PRIVATE,
    RESIDENT,
    Collection,
    Figure,
    Moment,
)
from vmprof_convert.report.leaks.as_json import content_of_process
from vmprof_convert.report.leaks.text import ProcessLeaks, write_leaks
from vmprof_convert.text.terminal import Terminal

MIB = 2**20
#: the times in seconds of the three moments in made_leaks; the report compares the two
#: windows between these moments
FIRST, MIDDLE, LAST = 5, 12, 20

#: bytes at the start, and growth in bytes per second
Line = tuple[float, float]


def process(resident: Line | None, heap: Line | None = None,
            private: Line | None = None, rate: float = 0.0,
            kind: str = HEAP_HAS) -> Process:
    """Return a process with made-up readings of its memory.

    There are ten readings per second, and one reading of private memory per second.
    Some objects of the process are short-lived. If `rate` is not 0, others leak.

    Args:
        resident: the line of the resident memory; None without readings.
        heap: the line of the GC's heap; None without readings.
        private: the line of the private memory; None without readings.
        rate: the number of sampled objects that leak per second.
        kind: the kind of the heap's readings, HEAP_HAS or HEAP.
    """
    rng = random.Random(1)
    objects = [Kept("main f", "str", 16, *life) for life in churn(rng)]
    if rate:
        objects += [Kept("main keep", "app.Node", 16, *life)
                    for life in leak(rng, rate)]
    made = process_of(objects)
    for figure, line, pause in ((RESIDENT, resident, 0.1), (kind, heap, 0.1),
                                (PRIVATE, private, 1.0)):
        if line is not None:
            made.profile.figures += [
                Figure(figure, int(number * pause * SECOND),
                       int(line[0] + line[1] * number * pause))
                for number in range(int(20 / pause) + 1)]
    return made


def said(result: Leaks, parts: list[ProcessLeaks] | None = None) -> list[str]:
    text = io.StringIO()
    write_leaks(process_of([]).profile, result, text, terminal=Terminal(1000),
                 parts=parts or ())
    return text.getvalue().splitlines()


def memory_line(text: list[str]) -> str:
    line, = (line for line in text if line.startswith("memory: "))
    return line


def test_growth_outside_of_the_heap_is_the_headline() -> None:
    made = process((50 * MIB, 20 * MIB), (8 * MIB, 0.0), (40 * MIB, 20 * MIB))
    result = find_leaks([made])
    assert result.leaks == []
    text = said(result)
    assert text[0] == ("outside of the GC's heap, the process grew by 20 MiB/s, 300 "
                       "MiB in all")
    assert "C extensions, ctypes and cffi, array, mmap, and freed memory" in text[1]
    assert text[2].startswith("no leak was found in the GC's heap: ")
    assert memory_line(text) == (
        "memory: meanwhile resident memory grew by 300 MiB, from 150 MiB to 450 MiB "
        "(140 MiB in the first window, 160 MiB in the second); private memory (USS) "
        "grew by 300 MiB, from 140 MiB to 440 MiB; the GC's own stayed at 8 MiB; that "
        "explains 0 %; 300 MiB came outside of the GC's heap, where no samples are "
        "taken")
    content = content_of_process(made.profile, result)["memory"]
    assert content == {
        "resident": pytest.approx((150 * MIB, 290 * MIB, 450 * MIB)),
        "private": pytest.approx((140 * MIB, 280 * MIB, 440 * MIB)),
        "heap": (8 * MIB,) * 3, "most": (8 * MIB,) * 3,
        "grown": pytest.approx(300 * MIB),
        "explained_by_heap": 0.0, "outside_heap": pytest.approx(300 * MIB),
        "surely_outside": pytest.approx(296 * MIB),
        "rates": pytest.approx((20 * MIB, 20 * MIB)),
        "is_far": True}


def test_growth_that_happens_once_is_not_the_headline() -> None:
    """The reason may be that a program warms up, or that malloc keeps freed memory.

    The line that begins with "memory:" reports such growth.
    """
    made = process((50 * MIB, 0), (8 * MIB, 0))
    made.profile.figures[:] = [
        figure._replace(value=figure.value + 40 * MIB)
        if figure.kind == RESIDENT and figure.time > 8 * SECOND else figure
        for figure in made.profile.figures]
    result = find_leaks([made])
    assert result.memory is not None and result.memory.surely_outside > 30 * MIB
    text = said(result)
    assert text[0].startswith("no leak was found in the GC's heap: ")
    assert "40 MiB came outside of the GC's heap" in memory_line(text)


def test_growth_in_the_last_window_alone_is_not_the_headline() -> None:
    """Private memory was read at the start and at the end only.

    Its interpolation grows in both windows, but is not the headline either.
    """
    made = process((50 * MIB, 0), (8 * MIB, 0))
    made.profile.figures[:] = [
        figure._replace(value=figure.value + 40 * MIB)
        if figure.kind == RESIDENT and figure.time > 15 * SECOND else figure
        for figure in made.profile.figures] + [
            Figure(PRIVATE, 0, 40 * MIB), Figure(PRIVATE, 20 * SECOND, 79 * MIB)]
    result = find_leaks([made])
    assert result.memory is not None and result.memory.surely_outside > 10 * MIB
    assert result.memory.is_far is False


def test_peaks_of_the_heap_between_collections_are_not_the_headline() -> None:
    """The memory of a peak of the heap stays resident.

    At the last moment, the heap is then smaller, although the process is larger.
    """
    made = process((50 * MIB, 1 * MIB), (40 * MIB, -1 * MIB))
    assert find_leaks([made]).memory.is_far      # type: ignore[union-attr]
    made.profile.figures += [Figure(HEAP_HAS, time * SECOND + SECOND // 2, size * MIB)
                             for time, size in ((3, 41), (9, 48), (17, 56))]
    made.profile.figures.sort(key=lambda figure: figure.time)
    result = find_leaks([made])
    assert result.memory is not None and result.memory.explained == 15 * MIB
    text = said(result)
    assert text[0].startswith("no leak was found in the GC's heap: ")
    assert memory_line(text).endswith(
        "the GC's own shrank by 15 MiB, from 35 MiB to 20 MiB; the GC's largest size "
        "was 41 MiB until the first moment, and 56 MiB until the last; that explains "
        "100 %; 0 B came outside of the GC's heap, where no samples are taken")


def test_growth_of_the_heap_is_not_the_headline() -> None:
    text = said(find_leaks([process((50 * MIB, 2 * MIB), (8 * MIB, 2 * MIB))]))
    assert text[0].startswith("no leak was found in the GC's heap: ")
    assert memory_line(text).endswith(
        "the GC's own grew by 30 MiB, from 18 MiB to 48 MiB; that explains 100 %; 0 B "
        "came outside of the GC's heap, where no samples are taken")


def test_the_larger_of_a_leak_and_outside_growth_is_first() -> None:
    much = said(find_leaks([process((50 * MIB, 2 * MIB), (8 * MIB, 0), rate=20)]))
    assert much[0].startswith("outside of the GC's heap, the process grew by 2 MiB/s")
    assert much[2].startswith("leak: app.Node  keep")
    # 20 sampled objects per second represent about 1000 bytes each, or 0.3 MiB in all
    result = find_leaks([process((50 * MIB, 0.15 * MIB), (8 * MIB, 0), rate=20)])
    assert result.memory is not None and result.memory.outside > 2 * MIB
    result = result._replace(leaks=[leak._replace(growth=leak.growth._replace(
        value=4.0 * MIB)) for leak in result.leaks])
    text = said(result)
    assert text[0].startswith("leak: app.Node  keep")
    assert any(line.startswith("outside of the GC's heap, the process grew")
               for line in text)


def test_a_leak_is_first_if_the_heap_grew_more_than_the_rest() -> None:
    """The growth of the heap decides, and not the size of the leak.

    A service that warms up grows outside of the heap, too.
    """
    for heap, first in ((0.5, "outside of the GC's heap"), (1.5, "leak: app.Node")):
        made = process((50 * MIB, 2 * MIB), (8 * MIB, heap * MIB), rate=20)
        text = said(find_leaks([made]))
        assert text[0].startswith(first)
        assert any(line.startswith("outside of the GC's heap, the process grew")
                   for line in text)
    # without a leak, the growth outside of the heap is first
    text = said(find_leaks([process((50 * MIB, 2 * MIB), (8 * MIB, 1.5 * MIB))]))
    assert text[0].startswith("outside of the GC's heap")


def test_certain_outside_growth_is_at_most_the_outside_growth() -> None:
    """The heap may grow just before the last moment."""
    made = process((50 * MIB, 2 * MIB), (8 * MIB, 0))
    made.profile.figures[:] = [
        figure._replace(value=28 * MIB)
        if figure.kind == HEAP_HAS and figure.time > 19.95 * SECOND else figure
        for figure in made.profile.figures]
    memory = find_leaks([made]).memory
    assert memory is not None and 0 < memory.outside < 15 * MIB
    assert memory.surely_outside <= memory.outside


def test_errors_of_the_readings_are_not_the_headline() -> None:
    """A profile omits changes of a value by less than 1/128.

    Both the first and the last value may have this error.
    """
    for start, rate, is_far in ((1000, 2.0, False), (1000, 2.3, True),
                                (20, 0.13, False), (20, 0.14, True)):
        result = find_leaks([process((start * MIB, rate * MIB), (8 * MIB, 0))])
        assert result.memory is not None and result.memory.is_far == is_far


@pytest.mark.parametrize("resident, heap, private, is_far", [
    # the program reads files through mmap; or it leaks, and a forked process shares its
    # pages from now on
    (20, 0, 0, None),
    (20, 0, -5, None),
    (20, 19.9, 0, False),
    # a forked process writes to shared pages
    (0, 0, 2, False)])
def test_growth_of_only_resident_or_private_memory_is_not_the_headline(
        resident: float, heap: float, private: float, is_far: bool | None) -> None:
    made = process((50 * MIB, resident * MIB), (8 * MIB, heap * MIB),
                   (400 * MIB, private * MIB))
    result = find_leaks([made])
    assert result.memory is not None and result.memory.outside == 0.0
    text = said(result)
    assert text[0].startswith("no leak was found in the GC's heap: ")
    assert ("growth outside of the GC's heap is unknown" in memory_line(text)) == (
        is_far is None)
    assert content_of_process(made.profile, result)["memory"]["is_far"] is is_far


def test_incomplete_readings_of_private_memory_are_ignored() -> None:
    """Private memory is unknown before its first and after its last reading."""
    made = process((50 * MIB, 20 * MIB), (8 * MIB, 0.0), (40 * MIB, 20 * MIB))
    for number in range(2):
        made.profile.figures[:] = [
            figure for figure in made.profile.figures if figure.kind != PRIVATE
            or (figure.time < 9 * SECOND if number else figure.time > 9 * SECOND)]
        result = find_leaks([made])
        assert result.memory is not None and result.memory.private is None
        assert result.memory.outside == pytest.approx(300 * MIB)
        made = process((50 * MIB, 20 * MIB), (8 * MIB, 0.0), (40 * MIB, 20 * MIB))


def test_a_value_holds_until_shortly_before_the_next_reading() -> None:
    """A profile omits readings without a change."""
    made = process(None, None)
    made.profile.figures += [
        Figure(RESIDENT, 0, 50 * MIB),
        Figure(RESIDENT, 8 * SECOND, 90 * MIB),
        Figure(RESIDENT, 19 * SECOND, 100 * MIB),
        Figure(HEAP_HAS, 0, 10 * MIB)]
    result = find_leaks([made])
    assert result.memory is not None
    assert result.memory.resident == (50 * MIB, 90 * MIB, 100 * MIB)
    assert result.memory.heap == (10 * MIB,) * 3
    # the value is interpolated in the 0.1 s before a reading
    made.profile.figures[1] = Figure(RESIDENT, int(5.05 * SECOND), 90 * MIB)
    result = find_leaks([made])
    assert result.memory is not None
    assert result.memory.resident[0] == pytest.approx(70 * MIB)


def test_no_growth_is_certain_in_windows_shorter_than_the_readings() -> None:
    """Growth between two readings may have happened before the first moment."""
    made = process(None)
    made.profile.figures += [Figure(RESIDENT, int(time * SECOND), int(value * MIB))
                             for time, value in ((0, 50), (5.05, 90), (20.01, 130))]
    result = find_leaks([made])
    assert result.memory is not None
    assert result.memory.outside > 20 * MIB and result.memory.surely_outside == 0
    assert said(result)[0].startswith("no leak was found in the GC's heap: ")


def test_a_heap_that_was_not_read_explains_nothing() -> None:
    text = said(find_leaks([process((50 * MIB, 20 * MIB))]))
    assert text[0] == ("the process grew by 20 MiB/s, 300 MiB in all; the size of the "
                       "GC's heap was not read")
    assert memory_line(text).endswith("the size of the GC's heap was not read")
    # some engines record the bytes in use, but not the GC's memory from the system
    made = process((50 * MIB, 20 * MIB), (8 * MIB, 20 * MIB), kind=HEAP)
    assert memory_line(said(find_leaks([made]))).endswith(
        "that explains 100 %; 0 B came outside of the GC's heap, where no samples are "
        "taken")


def test_notes_that_no_memory_was_read() -> None:
    made = process(None)
    result = find_leaks([made])
    text = said(result)
    assert text[0].startswith("no leak was found in the GC's heap: ")
    assert memory_line(text) == (
        "memory: resident memory was not read: growth outside of the GC's heap "
        "(ctypes, cffi, array, mmap, C extensions) is unknown")
    assert content_of_process(made.profile, result)["memory"] is None


def test_a_decrease_is_not_explained() -> None:
    text = said(find_leaks([process((500 * MIB, -10 * MIB), (80 * MIB, -2 * MIB))]))
    assert memory_line(text) == (
        "memory: meanwhile resident memory shrank by 150 MiB, from 450 MiB to 300 MiB "
        "(-70 MiB in the first window, -80 MiB in the second); the GC's own "
        "shrank by 30 MiB, from 70 MiB to 40 MiB")


def test_several_processes_are_added_up() -> None:
    processes = [process((50 * MIB, rate * MIB), (8 * MIB, MIB)) for rate in (11, 31)]
    result = find_leaks(processes)
    assert result.memory is not None
    assert result.memory.outside == pytest.approx(600 * MIB)
    assert said(result)[0] == ("outside of the GC's heap, the processes grew by 40 "
                               "MiB/s, 600 MiB in all")
    parts = [ProcessLeaks(str(number), one.profile, find_leaks([one]))
             for number, one in enumerate(processes)]
    text = said(result, parts)
    for number, outside in enumerate((150, 450)):
        line, = (line for line in text
                 if line.startswith("%d: the live bytes" % number))
        assert line.endswith("; outside of the GC's heap, it grew by %d MiB" % outside)
    unknown = find_leaks([*processes, process(None)])
    assert unknown.memory is None
    assert memory_line(said(unknown)).startswith(
        "memory: resident memory was not read in each process: ")


def test_first_use_of_the_nursery_is_growth_of_the_heap() -> None:
    """The GC gets the nursery at the start. Its pages become resident one by one."""
    made = process((50 * MIB, 8 * MIB), (250 * MIB, 0.0), (40 * MIB, 8 * MIB))
    made.profile.figures.append(Figure(NURSERY, 0, 240 * MIB))
    made.profile.moments[:] = [Moment(time * SECOND, time * 8 * MIB, 0, 0, 0, 0, 0)
                               for time in range(21)]
    text = said(find_leaks([made]))
    assert text[0].startswith("no leak was found")
    assert "that explains 100 %; 0 B came outside" in memory_line(text)


@pytest.mark.parametrize("collections, moments, touched", [
    ([], [], [0, 0, 0]),
    ([], [(10, 30)], [0, 30, 30]),
    # a collection empties the nursery, and the most bytes that were in use count
    ([(10, 30), (20, 80)], [(15, 50), (30, 90)], [0, 50, 50]),
    ([(10, 30), (20, 40)], [(30, 75)], [0, 30, 35]),
    # large objects are outside of the nursery
    ([(10, 500)], [], [0, 100, 100]),
])
def test_touched_bytes_of_the_nursery(
        collections: list[tuple[int, int]], moments: list[tuple[int, int]],
        touched: list[int]) -> None:
    profile = process_of([]).profile
    profile.figures[:] = [Figure(NURSERY, 0, 100)]
    profile.collections[:] = [Collection(False, time, 0, number)
                              for time, number in collections]
    profile.moments[:] = [Moment(time, allocated, 0, 0, 0, 0, 0)
                          for time, allocated in moments]
    assert untouched(profile, [5, 25, 35]) == [100 - bytes_ for bytes_ in touched]
