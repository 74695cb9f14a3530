"""Attribute processor time, or the growth of resident memory, to functions.

The reports --of time and --of rss use this module. The number of a row is its processor
time or its growth. The error of this number is unknown.
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

#: the metrics of the rows (Amounts.of): processor time, growth of resident memory
TIME, RESIDENT = "time", "rss"
#: the units of the rows' numbers (Amounts.unit)
SECONDS, SAMPLES, BYTES = "seconds", "samples", "bytes"

#: the function that represents growth without samples that explain it
UNEXPLAINED = Function("[nothing sampled explains it]", 0, "", LABEL)
#: the function that represents growth outside of the GC's heap
OUTSIDE = Function("[outside of the GC's heap]", 0, "", LABEL)


class Row(NamedTuple):
    """The time or growth of one function, or of another subject (summary.Subject)."""

    subject: Subject
    #: the time or growth in the function itself, and with its callees
    own: float
    total: float


class Amounts(NamedTuple):
    """The rows of a report, with the largest one first."""

    of: str
    unit: str
    #: the whole time, or the whole growth
    sum: float
    rows: list[Row]
    #: the first line of the report, and notes about the numbers
    title: str
    notes: list[str]


#: the time or growth of each stack (-1 if it was lost) and type (-1 if it is unknown)
_Parts = Mapping[tuple[int, int], float]

#: the seconds between two timer ticks of many kernels. Linux compares a process's
#: processor time with the period only at timer ticks
_TICK = 0.004


def time(profile: Profile, ticks: Mapping[int, int], choice: Choice,
         origins: Origins) -> Amounts:
    """Return the processor time of each function, or of other rows.

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
        "at unknown intervals")
    title = "%s of time in %s, %s:" % (
        format_seconds(count * period), format_number(count, "sample"), apart
    ) if period else "%s of time, %s:" % (format_number(count, "sample"), apart)
    notes = []
    if 0 < period < _TICK:
        notes.append(
            "many kernels take at most one sample in 4 ms, even if a shorter period is "
            "set: then this time is too short, and only its shares are right")
    # Only stock vmprof for CPython records lines in CPU samples.
    if LINE in choice.by and (profile.settings or not has_lines(profile)):
        notes.append(
            "lines: CPU samples have no executed lines; these are the first lines of "
            "the functions")
    if not profile.settings:
        notes.append("allocations: not sampled; use --allocation-sampling")
    return Amounts(TIME, SECONDS if period else SAMPLES, count * (period or 1.0), rows,
                   title, notes)


def resident(profile: Profile, growths: Sequence[Growth], parts: _Parts,
             choice: Choice, origins: Origins) -> Amounts:
    """Return the growth of resident memory by function, or by other rows.

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
        "the growth between two readings is divided among the stacks sampled in "
        "between (or before, if their memory was first touched later), in proportion "
        "to their bytes, and up to these bytes%s: they allocated while the process "
        "grew, but need not hold the memory. No stack has a share of the bytes that "
        "the process shrank by"
        % ("; objects that were not short-lived come first" if profile.has_lifetimes
           else ""),
        *(["%s of the growth (%.0f %%) are outside of the GC's heap: the process grew "
           "by more than the GC took from the system. --of rss has no samples of this "
           "memory: look at C extensions, ctypes and cffi, array, mmap, and the JIT's "
           "machine code" % (
               format_bytes(outside), 100 * outside / grown)] if outside else []),
        *(["the memory of the GC was not read%s: memory of C code may be attributed to "
           "stacks that only allocated at the same time" % (
               "" if len(growths) == 1 else " in each process")]
          if any(growth.outside is None for growth in growths) else []),
        *(["%s of the growth exceed the bytes sampled shortly before: %smemory that "
           "the GC reserves" % (
               format_bytes(unexplained), "libraries in C, the interpreter and its "
               "machine code, or " if any(
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
    """Sort rows by `total` if `choice.sort` is TOTAL, otherwise by `own`."""
    rows.sort(key=lambda row: (
        (-row.total, -row.own) if choice.sort == TOTAL else (-row.own, -row.total),
        row.subject))
