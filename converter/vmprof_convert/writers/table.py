"""The report for the terminal."""
from __future__ import annotations

from typing import TextIO

from vmprof_convert.estimator import Estimate
from vmprof_convert.model import Function, Profile
from vmprof_convert.program import LOST
from vmprof_convert.summary import Summary, Tally, summarize
from vmprof_convert.units import format_bytes, format_count, format_range


def write(profile: Profile, out: TextIO, limit: int = 25, *,
          tally: Tally | None = None) -> None:
    """Write the `limit` largest functions of `profile` to `out`; `tally`: of
    the samples, if they went there."""
    summary = summarize(profile, tally)
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
              % (profile.lost_stacks, summary.samples + summary.time_samples,
                 LOST.name), file=out)
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
    if profile.unknown:
        lines.append(
            "blocks of kinds that are not known here were passed over: %s; a "
            "newer vmprof-convert may show what is in them"
            % profile.passed_over)
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
        print(_LINE % (
            *_cells(row.self_bytes, row.self_objects, summary, profile.gaps),
            *_cells(row.total_bytes, row.total_objects, summary, profile.gaps),
            _label(row.function)), file=out)
    if len(summary.rows) > limit:
        rest = len(summary.rows) - limit
        print("%10s and %d function%s more" % (
            "...", rest, "s" if rest > 1 else ""), file=out)
    print(file=out)


def _label(function: Function) -> str:
    name, line, file, _ = function
    if not file:
        return name
    return "%s  %s:%d" % (name, file, line) if line else "%s  %s" % (name, file)


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


def _intervals(profile: Profile, summary: Summary) -> str:
    """How far samples were apart; under a limit, how far they came to be."""
    limit = profile.settings.get("limit", "")
    interval: float = profile.interval
    if summary.samples and (limit or summary.varied):
        interval = summary.bytes.value / summary.samples
    text = "one per %s on average" % format_bytes(interval)
    return "auto: " + text if limit else text


def _seconds(profile: Profile) -> str:
    if profile.moments:
        return "%.2f s" % (profile.moments[-1].time / 1e9)
    return "?"
