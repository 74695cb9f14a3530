"""Attribute processor time, or the growth of resident memory, to functions.

The reports --of time and --of rss use this module. Each row has one number whose error
is unknown.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vmprof_convert.analysis.by_stack import tick_seconds
from vmprof_convert.analysis.process_memory import Growth
from vmprof_convert.analysis.summary import (
    LINE,
    TOTAL,
    TYPE,
    Choice,
    Places,
    Subject,
)
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.meaning.visible_stacks import has_lines
from vmprof_convert.profile.model import LABEL, Function, Profile
from vmprof_convert.text.units import format_bytes, format_number, format_seconds

#: the metrics of the rows
TIME, RESIDENT = "time", "rss"
#: the units of a number
SECONDS, SAMPLES, BYTES = "seconds", "samples", "bytes"

#: the function that represents growth without samples that explain it
UNEXPLAINED = Function("[nothing sampled explains it]", 0, "", LABEL)
#: the function that represents growth outside of the GC's heap
OUTSIDE = Function("[outside of the GC's heap]", 0, "", LABEL)


class Row(NamedTuple):
    """The number of one function, or of another subject."""

    subject: Subject
    #: the number of the function itself, and the number with its callees
    own: float
    total: float


class Amounts(NamedTuple):
    """The rows of a report, with the largest one first."""

    of: str
    unit: str
    #: the sum of all rows
    sum: float
    rows: list[Row]
    #: the first line of the report, and notes about the numbers
    title: str
    notes: list[str]


#: the number for each stack (-1 if it was lost) and type (-1 if it is unknown)
_Parts = Mapping[tuple[int, int], float]

#: the seconds between two checks of a process's processor time by Linux: once per timer
#: tick, of which many kernels have 250 per second
_TICK = 0.004


def time(profile: Profile, ticks: Mapping[int, int], choice: Choice,
         origins: Origins) -> Amounts:
    """Return the processor time of each subject.

    Args:
        profile: the profile.
        ticks: the number of CPU samples of each stack.
        choice: the kind of rows, and their order.
        origins: the origins of the profile's functions.
    """
    period = tick_seconds(profile)
    count = sum(ticks.values())
    rows = _rows(profile, {(stack, -1): number * (period or 1.0)
                           for stack, number in ticks.items()}, choice, origins)
    apart = "one per %s" % format_seconds(period) if period else (
        "nobody knows how far apart")
    title = "%s of time in %s, %s:" % (
        format_seconds(count * period), format_number(count, "sample"), apart
    ) if period else "%s of time, %s:" % (format_number(count, "sample"), apart)
    notes = []
    if 0 < period < _TICK:
        notes.append(
            "many kernels give a sample once in 4 ms at most, whatever was asked for: "
            "then this time is too short, and only its shares are right")
    # Only stock vmprof for CPython records lines in CPU samples.
    if LINE in choice.by and (profile.settings or not has_lines(profile)):
        notes.append(
            "lines: time samples have none; these are where the functions begin")
    if not profile.settings:
        notes.append("allocations: none were sampled; --allocation-sampling does")
    return Amounts(TIME, SECONDS if period else SAMPLES, count * (period or 1.0), rows,
                   title, notes)


def resident(profile: Profile, growths: Sequence[Growth], parts: _Parts,
             choice: Choice, origins: Origins) -> Amounts:
    """Return the growth of resident memory of each subject.

    Args:
        profile: the profile of all processes.
        growths: the growth of each process.
        parts: the growth of each stack and type, summed over all processes.
        choice: the kind of rows, and their order.
        origins: the origins of the profile's functions.
    """
    rows = _rows(profile, parts, choice, origins)
    unexplained = sum(growth.unexplained for growth in growths)
    grown = sum(growth.grown for growth in growths)
    outside = sum(growth.outside or 0.0 for growth in growths)
    for function, bytes_ in (UNEXPLAINED, unexplained), (OUTSIDE, outside):
        if bytes_:
            rows.append(Row(Subject(function, 0), bytes_, bytes_))
    sort(rows, choice)
    first = sum(growth.first for growth in growths)
    last = sum(growth.last for growth in growths)
    # With several processes, the times of the last readings may differ.
    until = {growth.until for growth in growths}
    title = "resident memory: %s at the start, %s %s; it grew by %s, and " \
        "shrank by %s (%s of it)" % (
            format_bytes(first), format_bytes(last),
            until.pop() if len(until) == 1 else "when last read", format_bytes(grown),
            format_bytes(sum(growth.shrunk for growth in growths)),
            format_number(sum(growth.readings for growth in growths), "reading"))
    return Amounts(RESIDENT, BYTES, grown, rows, title, [
        "what it grew by between two readings counts for the stacks that were sampled "
        "in between (or before the first of the two, if their memory was touched "
        "later), as their bytes are to each other, and for no more than these%s: "
        "who allocated when the process grew, which need not be who holds it. What it "
        "shrank by is nobody's" % (
            "; first for objects that did not die young" if profile.has_lifetimes
            else ""),
        *(["%s of it (%.0f %%) came outside of the GC's heap: the process grew by more "
           "than the GC took of the system. Nothing is sampled there, so who it is of, "
           "--of rss can't know: look at C extensions, ctypes and cffi, array, mmap, "
           "and the JIT's machine code" % (
               format_bytes(outside), 100 * outside / grown)] if outside else []),
        *(["what the GC has of the system was not read%s: what C code took may count "
           "for stacks that only allocated meanwhile" % (
               "" if len(growths) == 1 else " in each process")]
          if any(growth.outside is None for growth in growths) else []),
        *(["%s of it is more than the bytes sampled shortly before: %swhat the GC sets "
           "aside" % (format_bytes(unexplained), "libraries in C, the interpreter and "
              "its machine code, or " if any(
                  growth.outside is None for growth in growths) else "")]
          if unexplained else [])])


def _rows(profile: Profile, parts: _Parts, choice: Choice,
          origins: Origins) -> list[Row]:
    places = Places(profile, choice.by, origins)
    names = TypeNames(profile, group_storage=choice.group_storage)
    own: dict[Subject, list[float]] = {}
    total: dict[Subject, list[float]] = {}
    for (stack, type_), amount in parts.items():
        of_stack = places.of(stack)
        shown = names.shown(type_) if TYPE in choice.by else None
        own.setdefault(of_stack[-1].of_type(shown), []).append(amount)
        for place in set(of_stack):
            total.setdefault(place.of_type(shown), []).append(amount)
    rows = [Row(subject, math.fsum(own.get(subject, ())), math.fsum(amounts))
            for subject, amounts in total.items()]
    sort(rows, choice)
    return rows


def sort(rows: list[Row], choice: Choice) -> None:
    """Sort rows by their total, or by their own number."""
    rows.sort(key=lambda row: (
        (-row.total, -row.own) if choice.sort == TOTAL else (-row.own, -row.total),
        row.subject))
