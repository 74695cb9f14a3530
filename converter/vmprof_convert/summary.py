"""The summary that goes to the terminal: who allocates how much."""
from __future__ import annotations

import collections
import os
from typing import NamedTuple, TextIO

from vmprof_convert import readers
from vmprof_convert.delegation import missing
from vmprof_convert.estimator import Estimate, Sum, probability
from vmprof_convert.program import LOST, ProgramFrames
from vmprof_convert.readers.vmprof import Function, Profile
from vmprof_convert.units import format_bytes, format_count, format_range

#: samples that are alike are counted before they are added up; of so many kinds
_MAX_GROUPS = 10000


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
    time_samples: int
    #: did the interval change?
    varied: bool
    #: callers that compiled code's stacks lack, and up to how many bytes
    missing: list[Function]
    missing_bytes: float


class Tally:
    """Adds samples up while they are read, per stack (reader.Rows)."""

    def __init__(self) -> None:
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        self._settings = settings
        self._sums: dict[int, Sum] = {}
        self._groups: dict[tuple[int, int, int], int] = {}
        self.time_samples = 0
        #: of the samples
        self.smallest_interval = self.largest_interval = 0

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int) -> None:
        if not size:
            self.time_samples += 1
            return
        group = stack, size, interval
        self._groups[group] = self._groups.get(group, 0) + 1
        if len(self._groups) == _MAX_GROUPS:
            self._add_up()

    def add_object(self, key: int, type_: int, survived: int) -> None:
        pass

    def _add_up(self) -> None:
        gaps = self._settings.get("gaps", "exponential")
        for (stack, size, interval), count in self._groups.items():
            sum_ = self._sums.get(stack)
            if sum_ is None:
                sum_ = self._sums[stack] = Sum()
            sum_.add(size, probability(size, interval, gaps), count)
            self.largest_interval = max(self.largest_interval, interval)
            self.smallest_interval = min(self.smallest_interval or interval,
                                         interval)
        self._groups.clear()

    def sums(self) -> dict[int, Sum]:
        """For each stack, number -1 being the lost ones."""
        self._add_up()
        return self._sums


def _tally(profile: Profile) -> Tally:
    tally = Tally()
    tally.begin(profile.settings)
    samples = profile.samples
    for row in zip(samples.stack, samples.time, samples.thread, samples.size,
                   samples.interval, samples.memory):
        tally.add(*row)
    return tally


def summarize(profile: Profile, tally: Tally | None = None) -> Summary:
    """Add the allocation samples of `profile` up, per function; or those of
    `tally`, if they went there.

    A function that stands several times in a stack counts once in its total.
    """
    if tally is None:
        tally = _tally(profile)
    everything = Sum()
    own: dict[Function, Sum] = collections.defaultdict(Sum)
    total: dict[Function, Sum] = collections.defaultdict(Sum)
    program_frames = ProgramFrames(profile)
    for stack, sum_ in tally.sums().items():
        functions = [LOST] if stack < 0 else [
            profile.function(frame.address) for frame in
            program_frames(profile.stacks[stack])] or [
                program_frames.label(profile.stacks[stack])]
        everything.add_sum(sum_)
        own[functions[-1]].add_sum(sum_)
        for function in set(functions):
            total[function].add_sum(sum_)
    gaps = missing(profile)
    lacking = Sum()
    for stack, sum_ in tally.sums().items():
        if stack in gaps.stacks:
            lacking.add_sum(sum_)
    nothing = Estimate(0.0, 0.0, 0.0)
    interval = tally.largest_interval or _first_interval(profile)
    rows = [Row(function,
                own[function].bytes(interval) if function in own else nothing,
                own[function].objects(interval) if function in own else nothing,
                sum_.bytes(interval), sum_.objects(interval))
            for function, sum_ in total.items()]
    rows.sort(key=lambda row: (-row.self_bytes.value, -row.total_bytes.value,
                               row.function))
    return Summary(rows, everything.bytes(interval),
                   everything.objects(interval), everything.samples,
                   tally.time_samples,
                   tally.smallest_interval != tally.largest_interval,
                   gaps.functions if lacking.samples else [],
                   lacking.bytes(interval).value if lacking.samples else 0.0)


def show_file(path: str | os.PathLike[str], out: TextIO, limit: int = 25, *,
              salvage: bool = False) -> None:
    """Write the summary of the profile at `path`, of which no more is kept in
    memory than that takes.  Raises ProfileError, and OSError."""
    tally = Tally()
    profile = readers.read_into(path, tally, salvage=salvage)
    _show(profile, summarize(profile, tally), out, limit)


def show(profile: Profile, out: TextIO, limit: int = 25) -> None:
    """Write the summary of `profile` to `out`; the `limit` largest rows."""
    _show(profile, summarize(profile), out, limit)


def _show(profile: Profile, summary: Summary, out: TextIO, limit: int) -> None:
    if profile.settings or profile.moments:
        print("allocated in %s (%s samples, %s):" % (
            _seconds(profile), summary.samples, _intervals(profile, summary)),
            file=out)
    else:
        print("no allocation samples: the profile was taken without "
              "--allocation-sampling", file=out)
    for line in remarks(profile):
        print("  " + line, file=out)
    if summary.samples:
        print(file=out)
        _table(profile, summary, out, limit)
    if profile.settings or profile.moments:
        print(_total_line(profile, summary), file=out)
    if profile.lost_stacks:
        print("lost: the stacks of %d of %d samples; their bytes are in %s"
              % (profile.lost_stacks, summary.samples, LOST.name), file=out)
    if profile.cut_stacks:
        print("cut: the stacks of %d samples were deeper than vmprof records; "
              "their outermost callers are missing from \"total\""
              % profile.cut_stacks, file=out)
    if summary.missing:
        names = ", ".join(sorted({f.name for f in summary.missing})[:3])
        if len(summary.missing) > 3:
            names += " and %d more" % (len(summary.missing) - 3)
        print("missing: compiled code that resumes what waits in \"yield from\" "
              "or \"await\" doesn't show who waits; up to %s are missing from "
              "\"total\" of %s" % (format_bytes(summary.missing_bytes), names),
              file=out)
    if summary.time_samples:
        print("time samples: %d; vmprofshow and vmprof-convert show them"
              % summary.time_samples, file=out)


def remarks(profile: Profile) -> list[str]:
    """What of the run is not in the profile, one line each."""
    lines = []
    if profile.end_time is None:
        lines.append("the run did not end normally; this is what it had "
                     "written")
    if profile.ended:
        lines.append("the profile ends before the program did: %s"
                     % profile.ended)
    if profile.children:
        lines.append(
            "%d child process%s not sampled: what %s allocated is not in here"
            % (profile.children, *(
                ("es were", "they") if profile.children > 1 else
                (" was", "it"))))
    return lines


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
        rest = len(summary.rows) - limit
        print("%10s and %d function%s more" % (
            "...", rest, "s" if rest > 1 else ""), file=out)
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


def _first_interval(profile: Profile) -> int:
    text = profile.settings.get("interval", "")
    # of a damaged profile it may be anything
    return int(text) if text.isascii() and text.isdigit() else 0


def _intervals(profile: Profile, summary: Summary) -> str:
    """How far samples were apart; under a limit, how far they came to be."""
    limit = profile.settings.get("limit", "")
    interval: float = _first_interval(profile)
    if summary.samples and (limit or summary.varied):
        interval = summary.bytes.value / summary.samples
    text = "one per %s on average" % format_bytes(interval)
    return "auto: " + text if limit else text


def _seconds(profile: Profile) -> str:
    if profile.moments:
        return "%.2f s" % (profile.moments[-1].time / 1e9)
    return "?"
