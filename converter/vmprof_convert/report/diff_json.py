"""Write a difference between runs as JSON."""
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TextIO

from vmprof_convert.analysis import diff
from vmprof_convert.analysis.diff import Change, Difference, verdict
from vmprof_convert.analysis.summary import Figures, Subject
from vmprof_convert.analysis.thresholds import Verdict
from vmprof_convert.meaning.visible_stacks import UNKNOWN_LINE
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats

#: name of the layout, which README.rst describes
SCHEMA = "vmprof-allocation-diff-1"

_Json = dict[str, Any]


def write(difference: Difference, verdicts: list[Verdict], out: TextIO,
          limit: int | None = None, is_own: bool = False) -> None:
    """Write the totals and the largest changes of a difference as JSON.

    Args:
        difference: the difference.
        verdicts: the results of the conditions of --fail-if.
        out: the file.
        limit: maximum number of changes; None for all changes.
        is_own: whether the difference contains only user code.
    """
    measure, sides = difference.measure, difference.sides
    json.dump({
        "schema": SCHEMA, "by": list(difference.choice.by), "measure": measure,
        "mine": is_own,
        "one_run": sides.is_one_run,
        "runs": [len(difference.before), len(difference.after)],
        "alive_is_exact": dict(zip(("before", "after"), sides.exact))
        if diff.ALIVE_BYTES in difference.in_all else None,
        "everything": _change(difference.everything, measure),
        "changes": [{**_subject(change.subject), **_change(change, measure)}
                    for change in difference.changes[:limit]],
        "changes_left_out": max(len(difference.changes) - limit, 0)
        if limit is not None else 0,
        "remarks": {"before": _remarks(sides.before), "after": _remarks(sides.after)},
        "verdicts": [{
            "condition": one.condition.text, "failed": one.failed,
            "limit": one.limit, **one.estimate._asdict(),
            "may_be_garbage": one.may_be_garbage} for one in verdicts],
    }, out, indent=1)
    out.write("\n")


def _remarks(runs: Sequence[Profile]) -> list[str]:
    """Return the notes on the runs of one side of the comparison, each note once."""
    return list(dict.fromkeys(
        line for profile in runs for line in caveats.of_run(profile)))


def _change(change: Change, measure: str) -> _Json:
    return {"is": verdict(change, measure), "p": change.p,
            "change": change.estimate(measure)._asdict(),
            "before": _figure(change.before, change.after, measure),
            "after": _figure(change.after, change.before, measure)}


def _figure(runs: Sequence[Figures], others: Sequence[Figures],
            measure: str) -> _Json:
    return diff.amount(runs, measure, others=others)._asdict()


def _subject(subject: Subject | None) -> _Json:
    result: _Json = {}
    if subject is None:
        return result
    if subject.function is not None:
        function = subject.function
        result["function"] = {"name": function.name, "file": function.file or None,
                              "line": function.line or None, "kind": function.kind}
    if subject.line:
        result["line"] = None if subject.line == UNKNOWN_LINE else subject.line
    if subject.type is not None:
        result["type"] = {"name": subject.type.name, "kind": subject.type.kind}
    if subject.file:
        result["file"] = subject.file
    if subject.module:
        result["module"] = subject.module
    if subject.label:
        result["label"] = subject.label
    return result
