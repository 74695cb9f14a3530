"""What a difference shows: lines and tables of text, whoever draws them."""
from __future__ import annotations

from collections.abc import Iterator

from vmprof_convert import diff, remarks
from vmprof_convert.diff import Change, Difference
from vmprof_convert.lifetimes import STILL_ALIVE
from vmprof_convert.origins import Origins
from vmprof_convert.printable import printable, shortened
from vmprof_convert.sheet import (
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
from vmprof_convert.summary import (
    FILE,
    FUNCTION,
    LINE,
    MODULE,
    TYPE,
    Figures,
    Subject,
    key_of,
)
from vmprof_convert.units import (
    format_bytes,
    format_count,
    format_difference,
    format_number,
)

#: what is said of a row
GREW, SHRANK, UNCLEAR, NOISE, SAME = "grew", "shrank", "unclear", "noise", "same"

_WHAT = {diff.ALLOCATED: "allocated", diff.TOTAL: "allocated, with what it calls",
         diff.OBJECTS: "objects", diff.ALIVE_BYTES: "alive"}
#: of a path so many characters are kept
_MAX_PATH = 1000


def verdict(change: Change, measure: str) -> str:
    """GREW, SHRANK; UNCLEAR: garbage may be why; NOISE: it may be chance; SAME: it is
    no difference."""
    value = change.estimate(measure).value
    if not value:
        return SAME
    if change.has_changed:
        return GREW if value > 0 else SHRANK
    return UNCLEAR if change.may_be_garbage else NOISE


def of(difference: Difference, limit: int | None, names: tuple[str, str],
       is_own: bool = False) -> Sheet:
    """The `limit` largest changes; `names`: of what is compared; `is_own`: of the
    program's own code."""
    before, after = difference.before, difference.after
    measure = difference.measure
    head = ["what %s: from %s to %s" % (
        "became of the run" if difference.sides.is_one_run else "changed", *names)]
    for name, summary, profile in ((names[0], before, difference.sides.before),
                                   (names[1], after, difference.sides.after)):
        head.append("%s: %s" % (name, format_number(summary.samples, "sample")))
        if not difference.sides.is_one_run:
            head += ["%s: %s" % (name, line) for line in remarks.of_run(profile)]
    if difference.sides.is_one_run:
        head += remarks.of_run(difference.sides.after)
    head += remarks.of_labels(*difference.sides[:2])
    shown = difference.changes[:limit]
    rest = difference.changes[len(shown):]
    more = ""
    if rest:
        noise = sum(verdict(change, measure) == NOISE for change in rest)
        more = "... and %d more%s" % (
            len(rest), ", all of them noise" if noise == len(rest) else "")
    columns = _columns(difference)
    origins = Origins(difference.sides.after)
    tables = [_everything(difference)]
    if shown:
        tables.append(Table(
            "%sby %s, %s:" % (OWN + ", " if is_own else "",
                              " and ".join(difference.choice.by), _WHAT[measure]),
            columns, [(*_figures(change, measure), *_labels(
                change.subject, difference.choice.by, origins))
                      for change in shown if change.subject is not None], more))
    changed = sum(change.has_changed for change in difference.changes)
    notes = remarks.not_judged((names[0], before.figures), (names[1], after.figures))
    notes.append("%s of %s changed" % (changed or "none", _count(difference)))
    said = {row[1] for table in tables for row in table.rows}
    # what no row says needs no word
    if NOISE in said:
        notes.append("noise: runs that are alike differ as much (of 100 such pairs, "
                     "%.0f have no row that changed)" % (100 * diff.CONFIDENCE))
    if UNCLEAR in said:
        notes.append("unclear: more than chance, but not more than what may be garbage")
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
    rows = [(*_figures(change, measure), _WHAT[measure])
            for measure, change in _in_all(difference)]
    return Table("", [Column("change", FIGURE, 0), Column("is", FIGURE, 0),
                      Column("before", FIGURE, 2), Column("after", FIGURE, 1),
                      Column("in all", NAME)], rows)


def in_all(difference: Difference) -> str:
    """In a line."""
    parts = []
    for measure, change in _in_all(difference):
        text, said, before, after = _figures(change, measure)
        parts.append("%s %s (%s; %s, then %s)" % (text, _WHAT[measure], said, before,
                                                   after))
    return ", ".join(parts)


def _in_all(difference: Difference) -> Iterator[tuple[str, Change]]:
    """Of each measure."""
    everything = difference.everything
    measures = [diff.ALLOCATED, diff.OBJECTS]
    if all(profile.has_lifetimes for profile in difference.sides[:2]):
        measures.append(diff.ALIVE_BYTES)
    for measure in measures:
        # inside one run, nothing is allocated less often than before
        change = everything._replace(lost=(
            Figures(everything.lost.interval) if difference.sides.is_one_run
            and measure != diff.ALIVE_BYTES else difference.lost.figures))
        yield measure, diff.judged(change, measure)


def _figures(change: Change, measure: str) -> tuple[str, ...]:
    is_bytes = measure != diff.OBJECTS
    estimate = change.estimate(measure)
    return (format_difference(estimate.low, estimate.value, estimate.high, is_bytes),
            verdict(change, measure), _value(change.before, measure),
            _value(change.after, measure))


def _value(figures: Figures, measure: str) -> str:
    if measure == diff.OBJECTS:
        sum_ = figures.sum()
        return format_count(sum_.value_objects) if sum_.samples else "-"
    sum_ = figures.sum(STILL_ALIVE if measure == diff.ALIVE_BYTES else None)
    return format_bytes(sum_.value_bytes) if sum_.samples else "-"


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
