"""The text of a failure: by how much a test exceeds its limit, and a table."""
from __future__ import annotations

import io

from vmprof_convert.analysis import holders
from vmprof_convert.analysis.summary import Choice, summarize
from vmprof_convert.analysis.thresholds import CONFIDENCE, Verdict
from vmprof_convert.profile.model import ALIVE, Profile
from vmprof_convert.report import tables, terminal_table
from vmprof_convert.report.held import holders_of
from vmprof_convert.report.tables import FIGURE, Table
from vmprof_convert.text.terminal import Terminal
from vmprof_convert.text.units import format_bytes, format_ends

#: Maximum sizes of a table: its rows, its lines including the head, and the characters
#: of a line.
_ROWS, _LINES, _WIDTH = 8, 20, 100


def exceeded(verdict: Verdict, what: str, profile: Profile, choice: Choice,
             note: str = "") -> str:
    """Return the text of a failure by objects in the GC's heap, with a table.

    Args:
        verdict: the estimate, and the limit that it exceeds.
        what: the beginning of the text, up to the estimate.
        profile: the samples of the table.
        choice: the choice of the table's rows.
        note: a sentence between the text and the table.
    """
    estimate = verdict.estimate
    return table("%s %s (%s .. %s, %.4g %%); its limit is %s" % (
        what, *format_ends(estimate.low, estimate.value, estimate.high),
        100 * CONFIDENCE, format_bytes(verdict.limit)), profile, choice, note)


def exceeded_natively(what: str, bytes_: int, limit: float) -> str:
    """Return the text of a failure by native memory, without a table.

    Args:
        what: the beginning of the text, up to the number of bytes.
        bytes_: the growth of the native memory.
        limit: the limit that it exceeds, in bytes.
    """
    return (
        "%s %s outside of the GC's heap, by malloc's count; their limit is %s. The "
        "same number of calls once more left at least as much." % (
            what, format_bytes(bytes_), format_bytes(limit)))


def retainers(profile: Profile, gained: Profile) -> list[str]:
    """Return a line with the retainers of the live objects in `gained`.

    Args:
        profile: the profile with the retainers.
        gained: the leaked samples of this profile.

    Returns:
        A list of one line, or an empty list if the retainers are unknown.
    """
    samples = gained.samples
    line = holders_of(holders.of_chosen(profile, {
        (stack, type_) for stack, type_, fate in zip(
            samples.stack, samples.type, samples.fate) if fate == ALIVE}))
    return [line] if line else []


def table(head: str, profile: Profile, choice: Choice, note: str = "") -> str:
    """Return the head, the note and the table of the largest rows."""
    state = "alive" if choice.sort == "alive" else None
    sums = [row.own.sum(state).value_bytes
            for row in summarize(profile, choice=choice).rows]
    # rows with less than a hundredth of all bytes would not help
    page = tables.of(profile, choice, min(_ROWS, sum(
        bytes_ > sum(sums) / 100 for bytes_ in sums)))
    if state is not None:
        page = page._replace(tables=[_without_allocated(one) for one in page.tables])
    text = io.StringIO()
    terminal_table.write(page._replace(
        head=[head, note] if note else [head], notes=[]), text, Terminal(_WIDTH))
    return "\n".join(text.getvalue().splitlines()[:_LINES])


def _without_allocated(table_: Table) -> Table:
    """Return a table without its columns about dead objects.

    The column "survived" becomes "alive", because the plugin has collected the garbage.
    """
    kept = [number for number, column in enumerate(table_.columns)
            if column.kind != FIGURE or column.title in ("alive", "survived")]
    return table_._replace(
        columns=[column if column.kind != FIGURE else column._replace(title="alive")
                 for column in (table_.columns[number] for number in kept)],
        rows=[tuple(row[number] for number in kept) for row in table_.rows])
