"""Make the JSON content of a report, with all figures and their error bounds.

The input is the same as in tables.py. README.rst describes the keys.
"""
from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from vmprof_convert.analysis import process_memory
from vmprof_convert.analysis.call_tree import Branch
from vmprof_convert.analysis.callers import Focus
from vmprof_convert.analysis.selection import Selection
from vmprof_convert.analysis.summary import PARTS, Figures, Row, Subject
from vmprof_convert.meaning import lifetimes
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.meaning.visible_stacks import UNKNOWN_LINE
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats
from vmprof_convert.report.tables import AmountsView, View

#: Names of the layouts that README.rst describes: of a report on allocations, and of a
#: report on CPU samples or resident memory. A layout keeps its name if a key is added,
#: but gets another name if the meaning of a key changes.
SCHEMA = "vmprof-allocation-report-1"
AMOUNTS = "vmprof-allocation-amounts-1"

_Json = dict[str, Any]

_STATES = {"died_young": lifetimes.DIED_YOUNG,
           "freed_later": lifetimes.FREED_LATER,
           "alive": lifetimes.STILL_ALIVE,
           "lost": lifetimes.WAS_LOST,
           "not_told_apart": lifetimes.NOT_TOLD}


def write(content: _Json, out: TextIO) -> None:
    """Write the content to a file as JSON."""
    json.dump(content, out, indent=1)
    out.write("\n")


def write_rows(content: _Json, out: TextIO) -> None:
    """Write the rows of a report to a file as CSV.

    The name of a column consists of the keys that lead to its value, such as
    function.name and self.alive.bytes.value.
    """
    rows = [dict(_cells(row)) for row in content["rows"]]
    table = csv.DictWriter(out, dict.fromkeys(
        name for row in rows for name in row), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)


def _cells(value: object, *keys: str) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each cell in a part of a row."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _cells(part, *keys, key)
    else:
        yield ".".join(keys), value


def of_rows(view: View) -> _Json:
    """Return the content of a report with the `view.limit` largest rows."""
    rows = view.summary.rows
    figures = _Figures(view)
    return {**_head(view),
            "rows_left_out": _left_out(rows, view.limit),
            "rows": [figures.row(row) for row in rows[:view.limit]]}


def of_focus(view: View, focus: Focus) -> _Json:
    """Return the content of a report on one function, its callers and its callees."""
    figures = _Figures(view)

    def parts(rows: list[Row]) -> list[_Json]:
        return [{**_subject(row.subject), "total": figures.of(row.total)}
                for row in rows]

    return {**_head(view),
            "functions": list(map(figures.row, focus.functions)),
            "self": figures.of(focus.row.own), "total": figures.of(focus.row.total),
            "callers": parts(focus.callers), "callees": parts(focus.callees),
            "lines": parts(focus.lines), "types": parts(focus.types)}


def of_tree(view: View, branches: Sequence[Branch], left_out: int) -> _Json:
    """Return the content of a report on the call tree, as a list of branches.

    Each branch comes after its parent and contains the index of its parent. The list is
    flat because nested objects may be too deep for a JSON parser.
    """
    figures = _Figures(view)
    return {**_head(view), "branches_left_out": left_out,
            "branches": [{
                "depth": branch.depth,
                "parent": None if branch.parent < 0 else branch.parent,
                "chain": list(map(_subject, branch.chain)),
                "self": figures.of(branch.row.own),
                "total": figures.of(branch.row.total)} for branch in branches]}


def of_amounts(view: AmountsView) -> _Json:
    """Return the content of a report on CPU samples or resident memory."""
    amounts = view.amounts
    return {
        "schema": AMOUNTS, "of": amounts.of, "unit": amounts.unit, "sum": amounts.sum,
        "by": list(view.choice.by), "sort": view.choice.sort,
        **_only(view.selection), "settings": view.profile.settings,
        "rows_left_out": max(0, len(amounts.rows) - (view.limit or len(amounts.rows))),
        "rows": [{**_subject(row.subject), "self": row.own, "total": row.total}
                 for row in amounts.rows[:view.limit]],
        "remarks": [amounts.title, *caveats.of_run(view.profile),
                    *caveats.of_labels(view.profile), *amounts.notes]}


def _left_out(rows: list[Row], limit: int | None) -> int:
    return 0 if limit is None else max(len(rows) - limit, 0)


def _head(view: View) -> _Json:
    profile, summary, choice = view.profile, view.summary, view.choice
    last = profile.moments[-1] if profile.moments else None
    figures = _Figures(view)
    return {
        "schema": SCHEMA,
        "seconds": profile.end / 1e9,
        "at": None if choice.at is None else choice.at / 1e9,
        "by": list(choice.by),
        "sort": choice.sort,
        **_only(view.selection),
        "settings": profile.settings,
        "samples": summary.samples,
        "time_samples": summary.time_samples,
        "allocated_counted_by_gc": _counted(profile),
        "minor_collections": last.collections if last and not profile.is_raw else None,
        "major_collections": [c.time / 1e9 for c in profile.collections
                              if c.is_major],
        "snapshots": [{"time": s.time / 1e9, "objects": s.objects, "bytes": s.bytes,
                       "pause": s.pause / 1e9, "examined": s.examined}
                      for s in profile.snapshots],
        "has_types": profile.has_types,
        "has_lifetimes": profile.has_lifetimes,
        "alive_is_exact": lifetimes.is_alive_exact(profile, choice.at)
        if profile.has_lifetimes else None,
        "bookkeeping": caveats.bookkeeping_of(profile),
        "memory": process_memory.in_numbers(profile),
        "processes": [{
            "pid": process.profile.pid or None,
            "parent": process.profile.parent or None,
            "source": process.source, "command": process.profile.command,
            "begin": process.begin / 1e9, "seconds": process.profile.end / 1e9,
            "bookkeeping": caveats.bookkeeping_of(process.profile),
            "memory": process_memory.in_numbers(process.profile),
            "allocated_counted_by_gc": _counted(process.profile),
            "sum": figures.of(of_process)}
            for process, of_process in zip(profile.processes, view.of_processes)],
        "sum": figures.of(summary.figures),
        "hidden": figures.of(summary.hidden),
        "type_not_known": figures.of(summary.untyped),
        "remarks": [*caveats.of_run(profile), *caveats.of_labels(profile),
                    *caveats.of_figures(profile, summary, choice)],
    }


def _only(chosen: Selection) -> _Json:
    return {"mine": chosen.mine, "only": {
        "time": None if chosen.time is None else [
            None if time is None else time / 1e9 for time in chosen.time],
        "process": list(chosen.processes), "thread": list(chosen.threads),
        "function": list(chosen.functions), "file": list(chosen.files),
        "type": list(chosen.types), "fate": list(chosen.fates),
        "label": list(chosen.labels)}}


def _counted(profile: Profile) -> int | None:
    return (profile.moments[-1].allocated if profile.moments and not profile.is_raw
            else None)


def _subject(subject: Subject, by: tuple[str, ...] = ()) -> _Json:
    function, line, type_, file, module, label = subject
    result: _Json = {}
    if function is not None:
        result["function"] = {
            "name": function.name, "file": function.file or None,
            "line": function.line or None, "kind": function.kind}
    if line:
        result["line"] = None if line == UNKNOWN_LINE else line
    if type_ is not None:
        result["type"] = {"name": type_.name, "kind": type_.kind}
    if file:
        result["file"] = file
    if module:
        result["module"] = module
    if label:
        result[by[0] if by and by[0] in PARTS else "label"] = label
    return result


class _Figures:
    def __init__(self, view: View) -> None:
        self._has_lifetimes = view.profile.has_lifetimes
        self._by = view.choice.by
        # fixed gaps have no error bounds (see tables.py)
        self._has_bounds = view.profile.gaps != "fixed"

    def row(self, row: Row) -> _Json:
        """Return the subject of a row, and its figures without and with callees."""
        return {**_subject(row.subject, self._by), "self": self.of(row.own),
                "total": self.of(row.total)}

    def of(self, figures: Figures) -> _Json:
        """Return the figures of all objects, and of the objects with each outcome."""
        states: dict[str, str | None] = {"allocated": None}
        if self._has_lifetimes:
            states.update(_STATES)
        return {
            key: {"samples": figures.sum(state).samples,
                  "bytes": self._estimate(figures.bytes(state)),
                  "objects": self._estimate(figures.objects(state))}
            for key, state in states.items()}

    def _estimate(self, estimate: Estimate) -> _Json:
        return {"value": estimate.value,
                "low": estimate.low if self._has_bounds else None,
                "high": estimate.high if self._has_bounds else None}
