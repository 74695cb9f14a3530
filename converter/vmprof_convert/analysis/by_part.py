"""Make the rows of the reports --by thread and --by process."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vmprof_convert.analysis.summary import (
    TYPE,
    Choice,
    Figures,
    Row,
    Subject,
    Summary,
    Tally,
    sort,
    summarize,
)
from vmprof_convert.meaning.compiled_code import CompiledCode
from vmprof_convert.meaning.missing_callers import Missing
from vmprof_convert.profile.model import Profile

#: the shown name of the thread of inherited objects, and of samples in old profiles
#: that do not record threads
NO_THREAD = "[thread not known]"


class Group(NamedTuple):
    """A thread or a process, with the sums of its samples."""

    name: str
    #: the sums; its stacks and types are indices in the profile of all groups
    tally: Tally


def summarize_parts(profile: Profile, parts: Sequence[Group], choice: Choice,
                    code: CompiledCode) -> Summary:
    """Make a row for each thread or process, or for each of its types of objects.

    Args:
        profile: the profile of all threads or processes.
        parts: the threads or processes; two with equal names share a row.
        choice: the kind of rows; with TYPE in `choice.by`, each type has a row.
        code: the compiled code of the whole profile.

    Raises:
        ProfileError: The profile does not record the information that `choice` needs.
    """
    by = (TYPE,) if TYPE in choice.by else ()
    # Missing callers are not reported, because no row shows a function.
    code = code._replace(missing=Missing(set(), []))
    of_each = [summarize(profile, part.tally, choice._replace(by=by), code=code)
               for part in parts]
    interval = max((one.figures.interval for one in of_each), default=profile.interval)
    figures, hidden, untyped = (Figures(interval) for _ in range(3))
    rows: dict[Subject, Row] = {}
    for part, summary in zip(parts, of_each):
        figures.add_figures(summary.figures)
        hidden.add_figures(summary.hidden)
        untyped.add_figures(summary.untyped)
        for row in summary.rows:
            subject = row.subject._replace(label=part.name)
            # Parts with equal names share a row.
            if subject in rows:
                rows[subject].own.add_figures(row.own)
                rows[subject].total.add_figures(row.total)
            else:
                rows[subject] = row._replace(subject=subject)
    ordered = list(rows.values())
    sort(ordered, choice.sort)
    intervals = {edge for part in parts for edge in (
        part.tally.smallest_interval, part.tally.largest_interval) if edge}
    return Summary(ordered, figures, sum(one.time_samples for one in of_each),
                   len(intervals) > 1, hidden, untyped, False, [], 0.0,
                   sum(one.not_known_bytes for one in of_each),
                   sum(one.log_bytes for one in of_each),
                   sum(one.compiled_bytes for one in of_each), 0.0)
