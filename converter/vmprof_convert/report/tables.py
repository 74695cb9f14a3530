"""Make the content of a report: lines of text, and tables with cells of text.

Each `of_...` function turns the result of an analysis into a `Sheet`, which
terminal_table.py and markdown.py write. The subject of a row is its function, line,
file, module, type or label. This module replaces unprintable characters in all text
from the profile.
"""
from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vmprof_convert.analysis.call_tree import Branch
from vmprof_convert.analysis.callers import Focus
from vmprof_convert.analysis.cpu_and_rss import BYTES, SAMPLES, SECONDS, Amounts
from vmprof_convert.analysis.process_memory import peak, readings
from vmprof_convert.analysis.selection import Selection
from vmprof_convert.analysis.summary import (
    ALIVE,
    BY_FUNCTION,
    FILE,
    FUNCTION,
    LINE,
    MODULE,
    OBJECTS,
    PARTS,
    PROCESS,
    SELF,
    TOTAL,
    TYPE,
    Choice,
    Figures,
    Row,
    Subject,
    Summary,
    Tally,
    has_totals,
    key_of,
    summarize,
)
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.meaning.lifetimes import (
    DIED_YOUNG,
    STILL_ALIVE,
    alive_word,
    is_alive_exact,
)
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.visible_stacks import UNKNOWN_LINE
from vmprof_convert.profile.model import HEAP, RESIDENT, Function, Profile
from vmprof_convert.profile.names import process_name
from vmprof_convert.report import caveats
from vmprof_convert.text.escape import printable, shortened
from vmprof_convert.text.units import (
    format_bytes,
    format_count,
    format_estimate,
    format_moment,
    format_seconds,
)

#: Kinds of columns: figures (numbers with their units), names, and places (a file,
#: often with a line). In a narrow terminal, names lose their end, and places lose their
#: beginning.
FIGURE, NAME, PLACE = "figure", "name", "place"

#: suffix of a line that is the first line of a function, if no executed line is known
_NOT_EXECUTED = " (def)"
#: maximum length of a path in characters
_MAX_PATH = 1000
#: titles of a table of all code, and of a table of user code
ALL = "all code"
OWN = "user code, with the libraries that it calls"
#: functions that format an amount in each unit of Amounts
_FORMATS: dict[str, Callable[[float], str]] = {
    SECONDS: format_seconds, BYTES: format_bytes,
    SAMPLES: lambda number: "%d" % number}
#: maximum number of rows in the table of processes
MAX_PROCESSES = 12


class Column(NamedTuple):
    """A column of a table."""
    title: str
    kind: str
    #: Rank of a column of figures. In a narrow terminal, the columns with the largest
    #: rank are left out first. A column of rank 0 is never left out.
    rank: int = 0


class Table(NamedTuple):
    """A table whose cells are text."""

    #: line above the table, or ""
    title: str
    columns: list[Column]
    rows: list[tuple[str, ...]]
    #: line below the table about the rows that were left out, or ""
    rest: str = ""


class Sheet(NamedTuple):
    """A report: lines, tables and notes, independent of the output format."""

    #: the title, and facts that the reader needs before the tables
    head: list[str]
    tables: list[Table]
    #: notes on the figures, which are shown below the tables
    notes: list[str]


class AmountsView(NamedTuple):
    """The input of a report about CPU samples or resident memory."""

    profile: Profile
    amounts: Amounts
    choice: Choice
    origins: Origins
    selection: Selection = Selection()
    limit: int | None = None


class View(NamedTuple):
    """The input of a report about allocations."""

    profile: Profile
    summary: Summary
    choice: Choice
    origins: Origins
    selection: Selection = Selection()
    #: maximum number of rows of a table; None for all rows
    limit: int | None = None
    #: sums of the samples of each process in profile.processes
    of_processes: Sequence[Figures] = ()
    #: whether all notes are shown; otherwise only notes without which the reader may
    #: misinterpret the figures
    all_remarks: bool = False
    #: hint at another view (such as --user-code) and its largest row, or ""
    other: str = ""


def of(profile: Profile, choice: Choice = BY_FUNCTION, limit: int | None = 25, *,
       tally: Tally | None = None) -> Sheet:
    """Return a report of the largest rows of a profile.

    Args:
        profile: the profile.
        choice: the kind of rows, and their order.
        limit: maximum number of rows; None for all rows.
        tally: sums of the samples, if the reader put them there instead of into the
            profile.

    Raises:
        ProfileError: the profile lacks data that `choice` needs.
    """
    origins = Origins(profile)
    summary = summarize(profile, tally, choice, origins=origins)
    return of_rows(View(profile, summary, choice, origins, limit=limit))


def of_rows(view: View) -> Sheet:
    """Return a report with the largest rows of `view.summary`."""
    choice, summary = view.choice, view.summary
    rows = summary.rows[:view.limit]
    title = OWN if view.selection.mine else ""
    if view.other:
        title = "%s (%s)" % (title or ALL, view.other)
    title += ":" if title else ""
    left_out = len(summary.rows) - len(rows)
    table = _Columns(view).table(title, rows, rest=_more(left_out, noun_of(choice)))
    return _sheet(view, [table] if rows else [])


def of_focus(view: View, focus: Focus) -> Sheet:
    """Return a report of one function: its callers, callees, lines and types."""
    columns = _Columns(view)
    several = len(focus.functions) > 1
    tables = [columns.table(
        "%d functions are called %s; the tables below add them up:" % (
            len(focus.functions), shortened(focus.name)) if several else "",
        focus.functions[:view.limit],
        rest=_more(_beyond(focus.functions, view.limit)))]
    for title, rows, by in (("called by:", focus.callers, FUNCTION),
                            ("calls:", focus.callees, FUNCTION),
                            (_title_of_lines(focus), focus.lines, LINE),
                            ("types, with its callees:", focus.types, TYPE)):
        if rows:
            part = _Columns(view._replace(choice=view.choice._replace(by=(by,))),
                            is_split=True)
            tables.append(part.table(title, rows[:view.limit],
                                     rest=_more(_beyond(rows, view.limit))))
    return _sheet(view, tables)


def _title_of_lines(focus: Focus) -> str:
    unknown = sum(row.own.sum().value_bytes for row in focus.lines
                  if row.subject.line == UNKNOWN_LINE)
    share = unknown / max(focus.row.total.sum().value_bytes, 1.0)
    return "its lines, with their callees%s:" % (
        " (the line is unknown for %.3g %% of the bytes)" % (100 * share)
        if unknown else "")


def of_tree(view: View, branches: Sequence[Branch], left_out: int) -> Sheet:
    """Return a report of the call tree.

    Args:
        view: the profile and the options.
        branches: the branches to show; each one comes after its parent.
        left_out: number of branches that are not shown.
    """
    columns = _Columns(view._replace(choice=view.choice._replace(
        sort=TOTAL if view.choice.sort not in (OBJECTS, ALIVE)
        else view.choice.sort)), is_total=True)
    table = columns.table(
        "", [branch.row for branch in branches],
        names=["%s%s" % (indent, _chain(branch.chain, view.origins))
               for indent, branch in zip(_indents(branches), branches)],
        rest=_more(left_out, "branch", "branches"))
    return _sheet(view, [table] if branches else [])


def of_amounts(view: AmountsView) -> Sheet:
    """Return a report of CPU samples or resident memory, without error bounds."""
    profile, choice, amounts = view.profile, view.choice, view.amounts
    is_total = choice.sort == TOTAL
    labels = _Labels(choice.by, view.origins)
    format_ = _FORMATS[amounts.unit]
    has_two = has_totals(choice.by)
    columns = [Column("total" if is_total else "self" if not view.selection.mine
                      and has_two else amounts.of, FIGURE, 0), Column("%", FIGURE, 1)]
    if has_two:
        columns.append(Column("self" if is_total else "total", FIGURE, 3))
    rows = []
    for row in amounts.rows[:view.limit]:
        first, other = ((row.total, row.own) if is_total else (row.own, row.total))
        cells = [format_(first) if first else "-",
                 "%.1f" % (100 * first / amounts.sum) if amounts.sum else ""]
        if has_two:
            cells.append(format_(other) if other else "-")
        rows.append((*cells, *labels.of(row.subject)))
    left_out = len(amounts.rows) - len(rows)
    title = OWN + ":" if view.selection.mine else ""
    head = [amounts.title]
    if str(view.selection):
        head.append("only %s" % str(view.selection))
    head += caveats.of_run(profile) + caveats.of_labels(profile)
    table = Table(title, [*columns, *labels.columns], rows,
                  _more(left_out, noun_of(choice)))
    return Sheet(list(map(printable, head)), [table] if rows else [],
                 list(map(printable, amounts.notes)))


def _sheet(view: View, tables: list[Table]) -> Sheet:
    profile, summary, choice = view.profile, view.summary, view.choice
    head = [caveats.title(profile, summary, choice)]
    if str(view.selection):
        head.append("only %s" % printable(str(view.selection)))
    head += caveats.of_run(profile) + caveats.of_labels(profile)
    is_all = view.selection.is_everything
    notes = []
    if not (profile.settings or profile.moments):
        notes = caveats.of_figures(profile, summary, choice)
    elif view.all_remarks:
        notes = [caveats.sums(profile, summary, choice, is_all=is_all),
                 *caveats.of_figures(profile, summary, choice)]
    else:
        notes = caveats.brief(profile, summary, choice, is_all=is_all)
    if profile.processes and choice.by != (PROCESS,):
        tables = [_processes(view), *tables]
    return Sheet([printable(line) for line in head], tables,
                 [printable(line) for line in notes])


def _processes(view: View) -> Table:
    """Return the table of the processes, sorted by their allocated bytes."""
    of_each = sorted(zip(view.of_processes, view.profile.processes),
                     key=lambda pair: -pair[0].sum().value_bytes)
    shown = of_each[:MAX_PROCESSES]
    choice = view.choice._replace(by=(FUNCTION,), sort=SELF)
    # objects need no column: the table answers which process allocates how many bytes
    columns = _Columns(view._replace(choice=choice), is_split=True)
    peaks = [(title, found) for title, kind in (("peak resident", RESIDENT),
                                                ("peak heap", HEAP))
             if any(found := [_peak(process.profile, kind) for _, process in shown])]
    rows = []
    for i, (figures, process) in enumerate(shown):
        rows.append((*columns.of(Row(Subject(None, 0), figures, figures)),
                     *(found[i] for _, found in peaks),
                     shortened(process_name(process.profile, process.source)),
                     shortened(process.source, _MAX_PATH)))
    return Table("by process:", [
        *columns.figures, *[Column(title, FIGURE, 4) for title, _ in peaks],
        Column("process", NAME), Column("file", PLACE)], rows,
        _more(len(of_each) - len(shown), "process"))


def _peak(profile: Profile, kind: str) -> str:
    """Return the largest value of a memory metric, or "" if it was never read.

    Args:
        profile: the profile of one process.
        kind: the metric, RESIDENT or HEAP.
    """
    read = readings(profile, kind)
    return format_bytes(peak(read).value) if read else ""


def noun_of(choice: Choice) -> str:
    """Return the singular noun for a row of a report, such as "function"."""
    return ("row" if len(choice.by) > 1 else "value" if key_of(choice.by)
            else choice.by[0])


def _plural(noun: str) -> str:
    return noun + ("es" if noun.endswith("s") else "s")


def _beyond(rows: Sequence[Row], limit: int | None) -> int:
    return 0 if limit is None else max(len(rows) - limit, 0)


def _more(left_out: int, noun: str = "", plural: str = "") -> str:
    """Return the line below a table about rows that were left out.

    Args:
        left_out: number of these rows.
        noun: noun for a row; empty if the title of the table contains the noun.
        plural: plural of the noun, if the plural is irregular.
    """
    if not left_out:
        return ""
    if noun and left_out > 1:
        noun = plural or _plural(noun)
    return "... and %d%s more" % (left_out, " " + noun if noun else "")


def _indents(branches: Sequence[Branch]) -> Iterable[str]:
    """Yield the indentation of each branch of the call tree.

    A branch that is shown without siblings is in the column of its parent. Other
    branches are indented and have a hyphen.
    """
    shown = collections.Counter(branch.parent for branch in branches)
    depths: list[int] = []
    for branch in branches:
        is_alone = shown[branch.parent] == 1 or branch.parent < 0
        depths.append((depths[branch.parent] if branch.parent >= 0 else 0)
                      + (not is_alone))
        yield "  " * (depths[-1] - (not is_alone)) + "- " * (not is_alone)


def _chain(chain: list[Subject], origins: Origins) -> str:
    """Return the name of a branch: its functions, files or modules, outermost first."""
    names = [_name(subject, origins) for subject in chain]
    if len(names) > 3:
        names[1:-1] = ["%d more" % (len(names) - 2)]
    return " > ".join(names)


def _name(subject: Subject, origins: Origins) -> str:
    """Return the name of the subject's function, file, module or label."""
    if subject.function is not None:
        return shortened(subject.function.name)
    return shortened(subject.label or subject.module or origins.path(subject.file),
                     _MAX_PATH)


class _Labels:
    """The columns on the right of a table, which name the subject of each row."""

    def __init__(self, by: tuple[str, ...], origins: Origins) -> None:
        self._origins = origins
        self._has_types = TYPE in by
        self._place = next((place for place in (FUNCTION, LINE, FILE, MODULE, *PARTS)
                            if place in by), None) or key_of(by)
        self.columns = [Column(TYPE, NAME)] if self._has_types else []
        if self._place in (FUNCTION, LINE):
            self.columns += [Column(FUNCTION, NAME), Column("where", PLACE)]
        elif self._place is not None:
            self.columns.append(Column(
                self._place, PLACE if self._place == FILE else NAME))

    def of(self, subject: Subject) -> Iterable[str]:
        """Yield the cells that name the subject of a row."""
        function = subject.function
        if self._has_types:
            # a row without a type has the name of its function instead
            yield (subject.type.name if subject.type else function.name
                   if function and self._place is None else "")
        if self._place is not None:
            yield _name(subject, self._origins)
        if self._place in (FUNCTION, LINE):
            yield place_of(function, subject.line, self._origins) if function else ""


class _Columns:
    """The columns with figures in a table about allocations, and their cells."""

    def __init__(self, view: View, *, is_split: bool = False,
                 is_total: bool = False) -> None:
        """Choose the columns.

        Args:
            view: the profile and the options.
            is_split: whether `own` and `total` of each row are equal, so that one
                column shows both.
            is_total: whether the first column is the total, whatever the sort order is.
        """
        self._view = view
        choice = view.choice
        self._by = choice.by
        # fixed gaps may correlate with the program's loops, so the error is unknown
        self._has_intervals = view.profile.gaps != "fixed"
        self._all = view.summary.bytes.value
        self._is_total = is_total or choice.sort == TOTAL
        # for a type or a label, self and total are the same
        has_two = has_totals(choice.by) and not is_split
        shown = ("total" if self._is_total else "self") if has_two else "allocated"
        if view.selection.mine and shown == "self":
            shown = "allocated"
        self.figures: list[Column] = [Column(shown, FIGURE, 0),
                                       Column("%", FIGURE, 1)]
        self._kinds = ["bytes", "%"]
        alive = alive_title(view.profile, choice.at)
        if choice.sort == OBJECTS:
            self._add("objects", "objects", 2)
        if choice.sort == ALIVE:
            self._add("alive", alive, 2)
        if has_two:
            self._add("other", "self" if self._is_total else "total", 3)
        if view.profile.has_lifetimes and choice.sort != ALIVE:
            self._add("alive", alive, 4)
        if choice.sort != OBJECTS:
            self._add("objects", "objects", 5)
        if view.profile.has_lifetimes:
            self._add("died young", "died young", 6)

    def _add(self, kind: str, title: str, rank: int) -> None:
        self._kinds.append(kind)
        self.figures.append(Column(title, FIGURE, rank))

    def table(self, title: str, rows: Sequence[Row], *, rest: str = "",
              names: Sequence[str] = ()) -> Table:
        """Return the table of these rows.

        Args:
            title: line above the table.
            rows: the rows.
            rest: line below the table.
            names: names of the rows, to be shown instead of the names of the subjects.
        """
        labels = _Labels(self._by, self._view.origins)
        cells = []
        for number, row in enumerate(rows):
            of_row = list(labels.of(row.subject))
            if names:
                of_row[0] = names[number]
            cells.append((*self.of(row), *of_row))
        return Table(title, [*self.figures, *labels.columns], cells, rest)

    def of(self, row: Row) -> Iterable[str]:
        """Yield the cells with the figures of a row."""
        shown, other = ((row.total, row.own) if self._is_total
                        else (row.own, row.total))
        for kind in self._kinds:
            if kind == "bytes":
                yield self._bytes(shown, None)
            elif kind == "%":
                yield self._share(shown.bytes()) if shown.sum().samples else ""
            elif kind == "objects":
                yield self._objects(shown)
            elif kind == "other":
                yield (format_bytes(other.bytes().value) if other.sum().samples
                       else "-")
            else:
                yield self._bytes(shown, STILL_ALIVE if kind == "alive"
                                  else DIED_YOUNG)

    def _bytes(self, figures: Figures, state: str | None) -> str:
        if not figures.sum(state).samples:
            return "-"
        return self._estimate(figures.bytes(state), True)

    def _objects(self, figures: Figures) -> str:
        if not figures.sum().samples:
            return "-"
        return self._estimate(figures.objects(), False)

    def _estimate(self, estimate: Estimate, bytes_: bool) -> str:
        if self._has_intervals:
            return format_estimate(estimate.low, estimate.value, estimate.high,
                                   bytes_)
        return (format_bytes if bytes_ else format_count)(estimate.value)

    def _share(self, estimate: Estimate) -> str:
        return "%.1f" % (100 * estimate.value / self._all)


def alive_title(profile: Profile, at: int | None) -> str:
    """Return the title of the column with the objects that count as alive.

    Args:
        profile: the profile.
        at: the moment at which the objects are alive, in nanoseconds since the start;
            None for the end of the profile.
    """
    title = alive_word(is_alive_exact(profile, at))
    return title if at is None else "%s at %s" % (title, format_moment(at))


def place_of(function: Function, line: int, origins: Origins) -> str:
    """Return the file and line of a function or executed line, as in ``app.py:12``.

    Args:
        function: the function.
        line: the executed line. If it is 0 or UNKNOWN_LINE, the text has the line of
            the definition. After UNKNOWN_LINE, " (def)" follows.
        origins: the origins of the profile's functions, which shorten the path.
    """
    if not function.file:
        return ""
    path = shortened(origins.path(function.file), _MAX_PATH)
    shown = line if line > 0 else function.line
    return (("%s:%d" % (path, shown) if shown else path)
            + _NOT_EXECUTED * (line == UNKNOWN_LINE))
