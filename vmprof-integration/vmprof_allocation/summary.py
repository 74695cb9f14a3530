"""The summary that goes to the terminal: who allocates how much."""
from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import NamedTuple, TextIO

from vmprof_allocation.delegation import missing
from vmprof_allocation.estimator import Estimate, Sum, probability
from vmprof_allocation.program import LOST, ProgramFrames
from vmprof_allocation.reader import Function, Profile
from vmprof_allocation.sizes import format_bytes, format_count, format_range


class Row(NamedTuple):
    function: Function
    #: allocated by the function itself; and with what it calls
    self_bytes: Estimate
    self_objects: Estimate
    total_bytes: Estimate
    total_objects: Estimate


class Summary(NamedTuple):
    """The functions, largest first, and the sums over all of them."""

    rows: list[Row]
    bytes: Estimate
    objects: Estimate
    samples: int


def _groups(profile: Profile) -> Iterator[tuple[int, int, float, int]]:
    """(stack, size, probability, number of samples), for samples alike."""
    samples = profile.samples
    groups = collections.Counter(
        zip(samples.stack, samples.size, samples.interval))
    for (stack, size, interval), count in groups.items():
        if size:
            yield stack, size, probability(size, interval, profile.gaps), count


def summarize(profile: Profile) -> Summary:
    """Add the allocation samples of `profile` up, per function.

    A function that stands several times in a stack counts once in its total.
    """
    everything = Sum()
    own: dict[Function, Sum] = collections.defaultdict(Sum)
    total: dict[Function, Sum] = collections.defaultdict(Sum)
    functions: dict[int, list[Function]] = {-1: [LOST]}
    program_frames = ProgramFrames(profile)
    for stack, size, p, count in _groups(profile):
        if stack not in functions:
            functions[stack] = [
                profile.function(frame.address) for frame in
                program_frames(profile.stacks[stack])] or [
                    program_frames.label(profile.stacks[stack])]
        everything.add(size, p, count)
        own[functions[stack][-1]].add(size, p, count)
        for function in set(functions[stack]):
            total[function].add(size, p, count)
    nothing = Sum()
    rows = [Row(function, own.get(function, nothing).bytes(),
                own.get(function, nothing).objects(),
                sum_.bytes(), sum_.objects())
            for function, sum_ in total.items()]
    rows.sort(key=lambda row: (-row.self_bytes.value, -row.total_bytes.value,
                               row.function))
    return Summary(rows, everything.bytes(), everything.objects(),
                   everything.samples)


def show(profile: Profile, out: TextIO, limit: int = 25) -> None:
    """Write the summary of `profile` to `out`; the `limit` largest rows."""
    summary = summarize(profile)
    lost = profile.lost_stacks
    print("allocated in %s (%s samples, one per %s on average):" % (
        _seconds(profile), summary.samples, _intervals(profile)), file=out)
    if profile.end_time is None:
        print("  the run did not end normally; this is what it had written",
              file=out)
    print(file=out)
    if summary.samples:
        _table(profile, summary, out, limit)
    print(_total_line(profile, summary), file=out)
    if lost:
        print("lost: the stacks of %d of %d samples; their bytes are in %s"
              % (lost, summary.samples, LOST.name), file=out)
    if profile.cut_stacks:
        print("cut: the stacks of %d samples were deeper than vmprof records; "
              "their outermost callers are missing from \"total\""
              % profile.cut_stacks, file=out)
    _missing_callers(profile, out)
    time_samples = len(profile.samples) - summary.samples
    if time_samples:
        print("time samples: %d; the profile holds them too" % time_samples,
              file=out)


def _missing_callers(profile: Profile, out: TextIO) -> None:
    stacks, functions = missing(profile)
    lacking = Sum()
    for stack, size, p, count in _groups(profile):
        if stack in stacks:
            lacking.add(size, p, count)
    if not lacking.samples:
        return
    names = ", ".join(sorted({f.name for f in functions})[:3])
    if len(functions) > 3:
        names += " and %d more" % (len(functions) - 3)
    print("missing: compiled code that resumes what waits in \"yield from\" or "
          "\"await\" doesn't show who waits; up to %s are missing from "
          "\"total\" of %s" % (format_bytes(lacking.bytes().value), names),
          file=out)


_LINE = "%10s %5s %-11s %7s %-11s  %10s %5s %-11s %7s %-11s  %s"


def _table(profile: Profile, summary: Summary, out: TextIO, limit: int) -> None:
    print(_LINE % ("self", "%", "95 %", "objects", "95 %",
                   "total", "%", "95 %", "objects", "95 %", "function"),
          file=out)
    for row in summary.rows[:limit]:
        f = row.function
        print(_LINE % (
            *_cells(row.self_bytes, row.self_objects, summary, profile.gaps),
            *_cells(row.total_bytes, row.total_objects, summary, profile.gaps),
            "%s  %s:%d" % (f.name, f.file, f.line) if f.file else f.name,
        ), file=out)
    if len(summary.rows) > limit:
        print("%10s and %d functions more" % (
            "...", len(summary.rows) - limit), file=out)
    print(file=out)


def _cells(bytes_: Estimate, objects: Estimate, summary: Summary,
           gaps: str) -> tuple[str, str, str, str, str]:
    if not bytes_.value:
        return "-", "", "", "-", ""
    # fixed gaps are not independent of what the program does: nobody knows
    known = gaps != "fixed"
    return (format_bytes(bytes_.value),
            "%.1f" % (100 * bytes_.value / summary.bytes.value),
            format_range(*_sorted(bytes_)) if known else "",
            format_count(objects.value),
            format_range(*_sorted(objects), False) if known else "")


def _sorted(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high


def _total_line(profile: Profile, summary: Summary) -> str:
    estimate = "estimated total: %s" % format_bytes(summary.bytes.value)
    if profile.gaps != "fixed":
        estimate += " (95 %%: %s .. %s)" % (
            format_bytes(summary.bytes.low), format_bytes(summary.bytes.high))
    if not profile.moments:
        return estimate
    last = profile.moments[-1]
    counted = "the GC itself counted: %s in %d minor collections" % (
        format_bytes(last.allocated), last.collections)
    if last.pressures:
        counted += (" (and what was allocated shortly before %d memory "
                    "pressures)" % last.pressures)
    if last.surprises:
        counted += (" (and what was allocated before %d collections that "
                    "were not seen)" % last.surprises)
    return "%s; %s" % (estimate, counted)


def _intervals(profile: Profile) -> str:
    first = int(profile.settings.get("interval", "0"))
    found = set(profile.samples.interval) - {0} or {first}
    if len(found) == 1:
        return format_bytes(found.pop())
    return "%s to %s" % (format_bytes(min(found)), format_bytes(max(found)))


def _seconds(profile: Profile) -> str:
    if profile.moments:
        return "%.2f s" % (profile.moments[-1].time / 1e9)
    return "?"
