"""The report for programs: the same rows, with every figure and bound."""
from __future__ import annotations

import json
from typing import Any, TextIO

from vmprof_convert import lifetimes, remarks
from vmprof_convert.estimator import Estimate
from vmprof_convert.model import Profile
from vmprof_convert.summary import Choice, Figures, Row, Tally, summarize

#: the name of this layout: what it means is in README.rst, and another one has
#: another name.  New keys may come without
SCHEMA = "vmprof-allocation-report-1"

_Json = dict[str, Any]

_STATES = {"died_young": lifetimes.DIED_YOUNG,
           "freed_later": lifetimes.FREED_LATER,
           "alive": lifetimes.STILL_ALIVE,
           "pinned": lifetimes.WAS_PINNED,
           "lost": lifetimes.WAS_LOST,
           "not_told_apart": lifetimes.NOT_TOLD}


def write(profile: Profile, out: TextIO, limit: int | None, choice: Choice, *,
          tally: Tally | None = None) -> None:
    """Write the `limit` largest rows (None: all) as one JSON object; see
    table.write()."""
    summary = summarize(profile, tally, choice)
    last = profile.moments[-1] if profile.moments else None
    figures = _Figures(profile)
    json.dump({
        "schema": SCHEMA,
        "seconds": profile.end / 1e9,
        "at": None if choice.at is None else choice.at / 1e9,
        "by": list(choice.by),
        "sort": choice.sort,
        "settings": profile.settings,
        "samples": summary.samples,
        "time_samples": summary.time_samples,
        "allocated_counted_by_gc": last.allocated if last else None,
        "minor_collections": last.collections if last else None,
        "major_collections": [c.time / 1e9 for c in profile.collections
                              if c.is_major],
        "has_types": profile.has_types,
        "has_lifetimes": profile.has_lifetimes,
        "sum": figures.of(summary.figures),
        "hidden": figures.of(summary.hidden),
        "type_not_known": figures.of(summary.untyped),
        "rows_left_out": (0 if limit is None
                          else max(len(summary.rows) - limit, 0)),
        "rows": [{**_subject(row), "self": figures.of(row.own),
                  "total": figures.of(row.total)}
                 for row in summary.rows[:limit]],
        "remarks": [*remarks.of_run(profile),
                    *remarks.of_figures(profile, summary, choice)],
    }, out, indent=1)
    out.write("\n")


def _subject(row: Row) -> _Json:
    function, line, type_ = row.subject
    result: _Json = {}
    if function is not None:
        result["function"] = {
            "name": function.name, "file": function.file or None,
            "line": function.line or None, "kind": function.kind}
    if line:
        result["line"] = line
    if type_ is not None:
        result["type"] = {"name": type_.name, "kind": type_.kind}
    return result


class _Figures:
    def __init__(self, profile: Profile) -> None:
        self._has_lifetimes = profile.has_lifetimes
        # of fixed gaps nobody knows
        self._has_bounds = profile.gaps != "fixed"

    def of(self, figures: Figures) -> _Json:
        """Of all objects, and of those in each state."""
        states: dict[str, str | None] = {"allocated": None}
        if self._has_lifetimes:
            states.update(_STATES)
        return {key: {"samples": figures.sum(state).samples,
                      "bytes": self._estimate(figures.bytes(state)),
                      "objects": self._estimate(figures.objects(state))}
                for key, state in states.items()}

    def _estimate(self, estimate: Estimate) -> _Json:
        return {"value": estimate.value,
                "low": estimate.low if self._has_bounds else None,
                "high": estimate.high if self._has_bounds else None}
