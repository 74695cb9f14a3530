"""Make the content of a report on a difference between runs: lines and tables.

The input is a `Difference` (analysis/diff.py). Its two sides are groups of runs, or two
moments of one run. The output is a `Sheet` (tables.py).
"""
from __future__ import annotations

from collections.abc import Sequence

from vmprof_convert.analysis import diff
from vmprof_convert.analysis.diff import (
    DIFFERS,
    NOISE,
    UNCLEAR,
    Change,
    Difference,
    verdict,
)
from vmprof_convert.analysis.summary import (
    FILE,
    FUNCTION,
    LINE,
    MODULE,
    TYPE,
    Figures,
    Subject,
    key_of,
)
from vmprof_convert.analysis.thresholds import SEVERAL
from vmprof_convert.meaning.lifetimes import STILL_ALIVE
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.report import caveats
from vmprof_convert.report.tables import (
    FIGURE,
    NAME,
    OWN,
    PLACE,
    Column,
    Sheet,
    Table,
    noun_of,
    place_of,
)
from vmprof_convert.text.escape import printable, shortened
from vmprof_convert.text.units import (
    format_bytes,
    format_count,
    format_difference,
    format_number,
)

WHAT_DIFFERS = (
    "differs: by more than sampling, but equal runs may differ as much. Compilation "
    "decides which function allocates an object, if any, and how much the JIT keeps: "
    "compare several runs per side (%s)" % SEVERAL)
#: names of the measures in tables, except for ALIVE_BYTES, whose name is Sides.alive
_WHAT = {diff.ALLOCATED: "allocated", diff.TOTAL: "allocated, with callees",
         diff.OBJECTS: "objects"}
#: maximum length of a path in characters
_MAX_PATH = 1000


#: names of the runs before and after, or of two moments of one run
Names = tuple[Sequence[str], Sequence[str]]


def title(names: Names) -> str:
    """Return the part of a title that names the two sides of a difference."""
    return "from %s to %s" % tuple(
        side[0] if len(side) == 1 else "%d runs (%s)" % (len(side), ", ".join(side))
        for side in names)


def of_runs(difference: Difference, names: Names) -> list[str]:
    """Return the lines about data that the profiles do not contain.

    Each line names the profiles that lack the data.
    """
    sides = difference.sides
    if sides.is_one_run:
        return caveats.of_run(sides.after[0])
    about: dict[str, list[str]] = {}
    for name, profile in zip((*names[0], *names[1]), sides.runs):
        for line in caveats.lost(profile):
            about.setdefault(line, []).append(name)
    return caveats.thinned(*sides.runs) + [
        "%s: %s" % ("all profiles" if len(those) == len(sides.runs)
                    else ", ".join(those), line)
        for line, those in about.items()]


def _what(difference: Difference, measure: str) -> str:
    """Return the name of a measure in tables."""
    return _WHAT.get(measure) or difference.sides.alive


def not_exact(difference: Difference, names: Names) -> list[str]:
    """Return a line that names the sides whose live objects may be garbage."""
    if diff.ALIVE_BYTES not in difference.in_all:
        return []
    sides = [side[0] if len(side) == 1 else "the runs " + word
             for word, side, is_exact in zip(("before", "after"), names,
                                             difference.sides.exact) if not is_exact]
    if not sides:
        return []
    return ["survived: %s may contain garbage, which may explain unclear rows: neither "
            "a heap snapshot nor a major collection came last; call gc.collect() at "
            "the end of the program, or at a mark" % " and ".join(sides)]


def of(difference: Difference, limit: int | None, names: Names,
       is_own: bool = False) -> Sheet:
    """Return the report of the largest changes.

    Args:
        difference: the difference.
        limit: maximum number of changes; None for no limit.
        names: the names of the two sides.
        is_own: whether the difference contains only user code.
    """
    measure, sides = difference.measure, difference.sides
    is_several = len(sides.runs) > 2
    head = ["changes%s: %s%s" % (
        " in the run" if sides.is_one_run else "", title(names),
        ", on average" if is_several else "")]
    counts = [[summary.samples for summary in summaries]
              for summaries in (difference.before, difference.after)]
    if is_several:
        head.append("samples: %s before, %s after" % tuple(
            ", ".join(map(str, of_side)) for of_side in counts))
    else:
        head += ["%s: %s" % (name, format_number(count, "sample"))
                 for (name,), (count,) in zip(names, counts)]
    head += of_runs(difference, names)
    head += caveats.of_labels(*sides.runs)
    shown = difference.changes[:limit]
    rest = difference.changes[len(shown):]
    more = ""
    if rest:
        noise = sum(verdict(change, measure) == NOISE for change in rest)
        more = "... and %d more%s" % (
            len(rest), ", all of them noise" if noise == len(rest) else "")
    columns = _columns(difference)
    origins = Origins(sides.after[-1])
    tables = [_everything(difference)]
    if shown:
        tables.append(Table(
            "%sby %s, %s:" % (OWN + ", " if is_own else "",
                              " and ".join(difference.choice.by),
                              _what(difference, measure)),
            columns, [(*_figures(change, measure), *_labels(
                change.subject, difference.choice.by, origins))
                      for change in shown if change.subject is not None], more))
    notes = not_exact(difference, names)
    is_spread_unknown = sides.is_spread_unknown(measure, difference.choice.by)
    changed = sum(change.has_changed for change in difference.changes
                  if change.is_spread_unknown == is_spread_unknown)
    notes.append("%s of %s %s" % (
        changed or "none", _count(difference),
        "differ by more than sampling" if is_spread_unknown else "changed"))
    said = {row[1] for table in tables for row in table.rows}
    # explain only verdicts that occur in a row
    if DIFFERS in said:
        notes.append(WHAT_DIFFERS)
    if NOISE in said:
        notes.append("noise: " + (
            "sampling alone explains the difference" if is_spread_unknown else
            "equal runs differ as much (of 100 such %s, %.0f have no row that "
            "changed)" % ("comparisons" if is_several else "pairs",
                          100 * diff.CONFIDENCE)))
    if UNCLEAR in said:
        notes.append("unclear: the difference exceeds chance, but may be garbage")
    return Sheet([printable(line) for line in head], tables,
                 [printable(line) for line in notes])


def _count(difference: Difference) -> str:
    return format_number(len(difference.changes), noun_of(difference.choice))


def _columns(difference: Difference) -> list[Column]:
    columns = [Column("change", FIGURE, 0), Column("is", FIGURE, 0),
               Column("before", FIGURE, 2), Column("after", FIGURE, 1)]
    by = difference.choice.by
    if TYPE in by:
        columns.append(Column(TYPE, NAME))
    if FUNCTION in by or LINE in by:
        columns += [Column(FUNCTION, NAME), Column("where", PLACE)]
    elif FILE in by:
        columns.append(Column(FILE, PLACE))
    elif MODULE in by:
        columns.append(Column(MODULE, NAME))
    elif (key := key_of(by)) is not None:
        columns.append(Column(shortened(key), NAME))
    return columns


def _everything(difference: Difference) -> Table:
    rows = [(*_figures(change, measure), _what(difference, measure))
            for measure, change in difference.in_all.items()]
    return Table("", [Column("change", FIGURE, 0), Column("is", FIGURE, 0),
                      Column("before", FIGURE, 2), Column("after", FIGURE, 1),
                      Column("in all", NAME)], rows)


def in_all(difference: Difference) -> str:
    """Return the changes of the totals in one line, with each measure."""
    parts = []
    for measure, change in difference.in_all.items():
        text, said, before, after = _figures(change, measure)
        parts.append("%s %s (%s; %s, then %s)" % (
            text, _what(difference, measure), said, before, after))
    return ", ".join(parts)


def _figures(change: Change, measure: str) -> tuple[str, ...]:
    is_bytes = measure != diff.OBJECTS
    estimate = change.estimate(measure)
    return (format_difference(estimate.low, estimate.value, estimate.high, is_bytes),
            verdict(change, measure), _value(change.before, measure),
            _value(change.after, measure))


def _value(runs: Sequence[Figures], measure: str) -> str:
    """Return the mean of a measure over the runs, or "-" if they have no samples."""
    sums = [figures.sum(STILL_ALIVE if measure == diff.ALIVE_BYTES else None)
            for figures in runs]
    if not any(sum_.samples for sum_ in sums):
        return "-"
    if measure == diff.OBJECTS:
        return format_count(sum(sum_.value_objects for sum_ in sums) / len(sums))
    return format_bytes(sum(sum_.value_bytes for sum_ in sums) / len(sums))


def _labels(subject: Subject, by: tuple[str, ...],
            origins: Origins) -> tuple[str, ...]:
    labels = []
    if TYPE in by:
        labels.append("" if subject.type is None else subject.type.name)
    if subject.function is not None:
        labels += [shortened(subject.function.name),
                   place_of(subject.function, subject.line, origins)]
    elif subject.file or subject.module or subject.label:
        labels.append(shortened(
            subject.label or subject.module or subject.file, _MAX_PATH))
    return tuple(labels)
