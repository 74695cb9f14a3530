"""The report for the terminal."""
from __future__ import annotations

from typing import TextIO

from vmprof_convert import remarks
from vmprof_convert.estimator import Estimate
from vmprof_convert.lifetimes import DIED_YOUNG, STILL_ALIVE
from vmprof_convert.model import Function, Profile
from vmprof_convert.summary import (
    BY_FUNCTION,
    FUNCTION,
    LINE,
    TOTAL,
    TYPE,
    Choice,
    Figures,
    Row,
    Subject,
    Summary,
    Tally,
    summarize,
)
from vmprof_convert.units import (
    format_bytes,
    format_count,
    format_deviation,
    format_range,
)


def write(profile: Profile, out: TextIO, limit: int = 25,
          choice: Choice = BY_FUNCTION, *, tally: Tally | None = None) -> None:
    """Write the `limit` largest rows of `profile` to `out`; `tally`: of the
    samples, if they went there.  Raises ProfileError, before anything is
    written, if the profile can't tell what is asked."""
    summary = summarize(profile, tally, choice)
    if profile.settings or profile.moments:
        print("allocated in %s (%s samples, %s):" % (
            _seconds(profile, choice), summary.samples,
            _intervals(profile, summary)), file=out)
    else:
        print("no allocation samples: the profile was taken without "
              "--allocation-sampling", file=out)
    for line in remarks.of_run(profile):
        print("  " + line, file=out)
    if summary.samples:
        print(file=out)
        table = _Lifetimes if profile.has_lifetimes else _Plain
        table(profile, summary, choice).write(out, limit)
    if profile.settings or profile.moments:
        print(_total_line(profile, summary, choice), file=out)
    for line in remarks.of_figures(profile, summary, choice):
        print(line, file=out)


#: of the column of types
MAX_WIDTH = 40


class _Table:
    """The rows: what they are of stands at their end."""

    def __init__(self, profile: Profile, summary: Summary, choice: Choice):
        self.summary = summary
        self.choice = choice
        #: a row has figures of two kinds, of a function, and with what it calls
        self.has_total = choice.by != (TYPE,)
        self.width = 0
        # fixed gaps are not independent of what the program does: nobody knows
        self.has_intervals = profile.gaps != "fixed"

    def write(self, out: TextIO, limit: int) -> None:
        rows = self.summary.rows[:limit]
        width = max([len(row.subject.type.name) for row in rows
                     if row.subject.type], default=0)
        self.width = max(min(width, MAX_WIDTH), len(TYPE))
        for line in self.head():
            print(line.rstrip(), file=out)
        for row in rows:
            print("%s  %s" % (self.figures(row), self.label(row.subject)),
                  file=out)
        if len(self.summary.rows) > limit:
            rest = len(self.summary.rows) - limit
            print("%10s and %d %s%s more" % (
                "...", rest, self.noun(), "s" if rest > 1 else ""), file=out)
        print(file=out)

    def noun(self) -> str:
        return self.choice.by[0] if len(self.choice.by) == 1 else "row"

    def title(self) -> str:
        """Of what the rows are of."""
        return "  ".join(["%-*s" % (self.width, name) if name == TYPE else name
                          for name in (TYPE, FUNCTION, LINE)
                          if name in self.choice.by])

    def label(self, subject: Subject) -> str:
        parts = []
        if subject.type is not None:
            parts.append(subject.type.name)
        if subject.function is not None:
            parts.append(_function(subject.function, subject.line))
        if len(parts) == 2:
            parts[0] = "%-*s" % (self.width, parts[0])
        return "  ".join(parts)

    def head(self) -> list[str]:
        raise NotImplementedError

    def figures(self, row: Row) -> str:
        raise NotImplementedError

    def share(self, bytes_: Estimate) -> str:
        return "%.1f" % (100 * bytes_.value / self.summary.bytes.value)


class _Plain(_Table):
    """What was allocated, as nothing more is known."""

    _PART = "%10s %5s %-11s %7s %-11s"

    def head(self) -> list[str]:
        titles = ("self", "total") if self.has_total else ("allocated",)
        return ["%s  %s" % ("  ".join(
            self._PART % (title, "%", "95 %", "objects", "95 %")
            for title in titles), self.title())]

    def figures(self, row: Row) -> str:
        parts = (row.own, row.total) if self.has_total else (row.total,)
        return "  ".join(self._PART % self._cells(part) for part in parts)

    def _cells(self, figures: Figures) -> tuple[str, str, str, str, str]:
        bytes_, objects = figures.bytes(), figures.objects()
        if not figures.sum().samples:
            return "-", "", "", "-", ""
        known = self.has_intervals
        return (format_bytes(bytes_.value), self.share(bytes_),
                format_range(*_sorted(bytes_)) if known else "",
                format_count(objects.value),
                format_range(*_sorted(objects), False) if known else "")


class _Lifetimes(_Table):
    """What was allocated, and what became of it: of the functions alone, or
    with what they call, as the rows are sorted."""

    _PART = "%9s %-6s %6s %-6s"
    _ALLOCATED = "%9s %5s %-6s %6s %-6s"
    _OTHER = "%9s"

    def __init__(self, profile: Profile, summary: Summary, choice: Choice):
        super().__init__(profile, summary, choice)
        self._is_total = choice.sort == TOTAL or not self.has_total

    def head(self) -> list[str]:
        then = ("alive at the end" if self.choice.at is None
                else "alive at %.9g s" % (self.choice.at / 1e9))
        names = ("total", "self") if self._is_total else ("self", "total")
        columns = ("bytes", "95 %", "number", "95 %")
        above = "%-36s  %-30s  %-30s" % (
            "%14s" % "allocated" + (": " + names[0] if self.has_total else ""),
            "%15s" % "died young", "%21s" % then)
        parts = [self._ALLOCATED % ("bytes", "%", *columns[1:]),
                 self._PART % columns, self._PART % columns]
        if self.has_total:
            parts.append(self._OTHER % names[1])
        return [above, "%s  %s" % ("  ".join(parts), self.title())]

    def figures(self, row: Row) -> str:
        shown, other = ((row.total, row.own) if self._is_total
                        else (row.own, row.total))
        bytes_, deviation, *objects = self._cells(shown, None)
        share = self.share(shown.bytes()) if shown.sum().samples else ""
        parts = [self._ALLOCATED % (bytes_, share, deviation, *objects),
                 self._PART % self._cells(shown, DIED_YOUNG),
                 self._PART % self._cells(shown, STILL_ALIVE)]
        if self.has_total:
            parts.append(self._OTHER % (
                format_bytes(other.bytes().value) if other.sum().samples
                else "-"))
        return "  ".join(parts)

    def _cells(self, figures: Figures,
               state: str | None) -> tuple[str, str, str, str]:
        if not figures.sum(state).samples:
            return "-", "", "-", ""
        bytes_, objects = figures.bytes(state), figures.objects(state)
        known = self.has_intervals
        return (format_bytes(bytes_.value),
                format_deviation(*_sorted(bytes_)) if known else "",
                format_count(objects.value),
                format_deviation(*_sorted(objects), False) if known else "")


def _function(function: Function, line: int) -> str:
    """`line`: the executed one; or 0."""
    line = line or function.line
    if not function.file:
        return function.name
    place = "%s:%d" % (function.file, line) if line else function.file
    return "%s  %s" % (function.name, place)


def _sorted(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.low, estimate.value, estimate.high


def _total_line(profile: Profile, summary: Summary, choice: Choice) -> str:
    estimate = "estimated total: %s" % format_bytes(summary.bytes.value)
    if profile.gaps != "fixed":
        estimate += " (95 %%: %s .. %s)" % (
            format_bytes(summary.bytes.low), format_bytes(summary.bytes.high))
    if not profile.moments or choice.at is not None:
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


def _seconds(profile: Profile, choice: Choice) -> str:
    if choice.at is not None:
        return "%.9g s" % (choice.at / 1e9)
    if profile.moments:
        return "%.2f s" % (profile.end / 1e9)
    return "?"
