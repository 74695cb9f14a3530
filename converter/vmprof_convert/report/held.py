"""Report the retainers of live objects, as a table or as JSON.

The input is the heap snapshots of a profile (analysis/holders.py). The result of a heap
snapshot is called an answer. It contains the retainers with their retained sizes, or
the reason why they are unknown.
"""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, TextIO

from vmprof_convert.analysis.holders import (
    Found,
    Part,
    Row,
    Share,
    last_until,
    text_of,
)
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.profile.held import (
    FINALIZER,
    INCOMPLETE,
    INTERPRETER,
    NO_PATH,
    OTHERWISE,
    Held,
    Holder,
)
from vmprof_convert.profile.model import Profile
from vmprof_convert.report.tables import FIGURE, NAME, Column, Sheet, Table, place_of
from vmprof_convert.text.escape import shortened, shortened_path
from vmprof_convert.text.units import (
    format_bytes,
    format_estimate,
    format_moment,
    format_seconds,
)

#: name of the layout, which README.rst describes
SCHEMA = "vmprof-allocation-held-1"

#: a retainer is shown if it retains at least this share of all live bytes
_LEAST = 0.005
#: maximum number of parts (a type and the function that allocated it) shown per
#: retainer, and the minimum share of a part in the retainer's bytes
_PARTS, _SHARE = 2, 0.08
#: maximum number of retainers named per leak, and the minimum share of the leak's bytes
#: that a retainer keeps
_HOLDERS, _HELD = 2, 0.1
#: prefix of paths to the sampler's own objects
_OURS = "vmprof_allocation."

_NOBODY = "C code, or uncollected garbage"
_REST = {
    OTHERWISE: "held in other ways: by smaller retainers, or by several",
    INTERPRETER: "held by the interpreter alone",
    FINALIZER: "waits for its finalizer, or is held by such an object",
    NO_PATH: "no path: held by " + _NOBODY}
REST_NAMES = {OTHERWISE: "otherwise", INTERPRETER: "interpreter",
               FINALIZER: "finalizer", NO_PATH: "no_path"}
#: A problem number is 1000 plus a code of question.h, or 2000 plus the number of the
#: signal that ended the forked process (hook.h).
_OF_PROBLEM, _OF_SIGNAL = 1000, 2000
#: texts for the codes of native/held/question.h
_PROBLEMS = {
    1: "there was not enough memory for the process that examined the heap",
    2: "the process that examined the heap met an object of an unknown type",
    3: "the process that examined the heap did not find the roots, or the fields of a "
       "type",
    4: "the heap had too many objects, or more than 32 GiB of them",
    5: "the process that examined the heap was ended before it had an answer",
    INCOMPLETE - _OF_PROBLEM: "the profile ended before the answer was written"}


def problem(number: int) -> str:
    """Return the reason why a heap snapshot has no answer, from its problem number."""
    if number >= _OF_SIGNAL:
        return "signal %d ended the process that examined the heap" % (
            number - _OF_SIGNAL)
    return _PROBLEMS.get(number - _OF_PROBLEM, "problem %d" % number)


def not_known(held: Held, of_which: str = "") -> str:
    """Return the line about a heap snapshot without an answer.

    Args:
        held: the snapshot.
        of_which: text that names the process, with a blank in front, or "".
    """
    return "the retainers%s at %s are unknown: %s" % (
        of_which, format_moment(held.time), problem(held.problem))


def growth_of(holder: Holder, profile: Profile, since: int, until: int) -> str:
    """Return a text about the exact growth of a retainer's retained size.

    The growth is the difference between the first answer from `since` on and the last
    answer until `until`. The text is empty if one of the answers lacks the retainer.

    Args:
        holder: the retainer.
        profile: the profile with the answers.
        since: beginning of the period in ns since the start.
        until: end of the period in ns since the start.
    """
    last = last_until(profile, until)
    if last is None:
        return ""
    first = next((held for held in profile.held
                  if not held.problem and held.time >= since), last)
    grown = _Since(first, last).growth(holder)
    return grown and "%s: %s from %.2f s to %.2f s" % (
        shortened(holder.path), grown, first.time / 1e9, last.time / 1e9)


def holders_of(shares: Sequence[Share]) -> str:
    """Return a text that names the largest retainers, or "" if no retainer is large."""
    named = [(" and ".join(shortened_path(holder.path) for holder in one.holders)
              or shortened_path(one.path)
              or (_NOBODY if one.how == NO_PATH else ""), one.share)
             for one in shares[:_HOLDERS]]
    texts = ["%s (%.0f %%)" % (name, 100 * share)
             for name, share in named if name and share >= _HELD]
    return "held by " + ", ".join(texts) if texts else ""


def of(profile: Profile, last: Found, limit: int, *,
       is_one_of_several: bool = False) -> Sheet:
    """Return the report of the last answer in a profile.

    Args:
        profile: the profile of one process.
        last: its last answer.
        limit: maximum number of retainers.
        is_one_of_several: whether other processes are reported, too, so that the title
            names this process.
    """
    held, origins = last.held, Origins(profile)
    of_which = " in process %d" % profile.pid if is_one_of_several else ""
    if held.problem:
        return Sheet([not_known(held, of_which)], [], [])
    head = ["live objects%s at %s, by retainer: %s in %d objects" % (
        of_which, format_moment(held.time), format_bytes(held.bytes), held.objects)]
    shown = [row for row in last.rows if row.bytes >= _LEAST * held.bytes
             and not all(one.path.startswith(_OURS) for one in row.holders)]
    first = next(one for one in profile.held if not one.problem)
    since = _Since(first, held)
    rows: list[tuple[str, ...]] = []
    for row in shown[:limit]:
        rows.append((format_bytes(row.bytes), *since.cells(row), str(row.objects),
                     _estimate(row.estimate), _name(row)))
        rows += [(*since.empty, *part) for part in _parts(row.parts, origins)]
    for rest in last.rest:
        exact = sum(bytes_ for _, bytes_ in rest.paths)
        if not rest.estimate.value and exact < _LEAST * held.bytes:
            continue
        rows.append((format_bytes(exact) if rest.paths else "", *since.empty, "",
                     _estimate(rest.estimate), _REST[rest.how]))
        # the interpreter's objects are listed by purpose (rest.paths) instead
        if rest.how != INTERPRETER:
            rows += [(*since.empty, *part) for part in _parts(rest.parts, origins)]
        rows += [(*since.empty, "", "", "", "      %.0f %% %s" % (
            100 * bytes_ / exact, shortened_path(path)))
            for path, bytes_ in rest.paths if bytes_ >= _SHARE * exact]
    left_out = len(shown) - limit
    table = Table("", [
        Column("retained size", FIGURE), *since.columns, Column("objects", FIGURE),
        Column("from samples", FIGURE, 1), Column("retainer", NAME)], rows,
        "... and %d more" % left_out if left_out > 0 else "")
    notes = ["the retained size would be freed without the retainer, except for "
             "objects to which PyPy itself refers, too, as compiled code does. If one "
             "retainer is within another, the retained sizes of both include the same "
             "objects",
             "an arrow is a step that is no expression in Python. If a class has a "
             "property, a __getitem__ or the like, the expression may have another "
             "result",
             "the samples include only objects allocated since the sampling began",
             "the program paused for %s; another process examined the heap for %s, and "
             "needed %s of memory" % (
                 format_seconds(held.still / 1e9), format_seconds(held.duration / 1e9),
                 format_bytes(held.memory))]
    if since.columns:
        notes.append("since: only for retainers that were also among the largest at "
                     "that time")
    later = profile.held[-1]
    if later.problem:
        notes.append("a later heap snapshot at %s has no answer: %s" % (
            format_moment(later.time), problem(later.problem)))
    if len(profile.held) > 1:
        notes.append("the profile has %d heap snapshots with retainers; --json shows "
                     "all" % len(profile.held))
    return Sheet(head, [table], notes)


class _Since:
    """The growth of retained sizes since the first answer.

    `columns` and `cells()` have one item, or none if there is only one answer.
    """

    def __init__(self, first: Held, last: Held) -> None:
        self.columns: list[Column] = []
        #: empty cell for a row without a comparison; no cell if there is no column
        self.empty: tuple[str, ...] = ()
        self._before: dict[str, int] = {}
        if first is last:
            return
        self.columns = [Column("since %s" % format_moment(first.time), FIGURE)]
        self.empty = "",
        # paths of several threads may have the same text, and are not compared then
        then, now = (Counter(one.path for one in held.holders)
                     for held in (first, last))
        self._before = {one.path: one.bytes for one in first.holders
                        if then[one.path] == now[one.path] == 1}

    def cells(self, row: Row) -> tuple[str, ...]:
        """Return the cell with the growth of a row's retainer.

        The cell is empty if the first answer lacks the retainer. The retainer may have
        existed without being among the largest.
        """
        grown = self.growth(row.holders[0]) if len(row.holders) == 1 else ""
        return (grown,) if grown else self.empty

    def growth(self, holder: Holder) -> str:
        """Return the growth of a retainer, or "" if the first answer lacks it."""
        before = self._before.get(holder.path)
        if before is None:
            return ""
        more = holder.bytes - before
        return ("-" if more < 0 else "+") + format_bytes(abs(more))


def _estimate(estimate: Estimate) -> str:
    return format_estimate(estimate.low, estimate.value, estimate.high) if (
        estimate.value) else ""


def _name(row: Row) -> str:
    names = [shortened_path(holder.path) if holder.is_class else
             text_of(holder.path, holder.type) for holder in row.holders]
    if len(names) > 1:
        return "%s, together" % " and ".join(names)
    (holder,) = row.holders
    return names[0] + ("" if not holder.aliases else ", also %s" % ", ".join(
        map(shortened_path, holder.aliases)))


def _parts(parts: Sequence[Part], origins: Origins) -> list[tuple[str, ...]]:
    """Return rows with the types and allocating functions of a retainer's objects."""
    rows: list[tuple[str, ...]] = []
    for part in parts[:_PARTS]:
        place = place_of(part.function, part.line, origins)
        if part.share >= _SHARE:
            rows.append(("", "", "", "      %.0f %% %s from %s%s" % (
                100 * part.share, part.type.name, shortened(part.function.name),
                "  " + place if place else "")))
    return rows


# ________________________________________
# JSON

_Json = dict[str, Any]


def write_json(asked: Sequence[tuple[Profile, Sequence[Found]]], out: TextIO,
               limit: int | None) -> None:
    """Write all answers of several processes as JSON.

    Args:
        asked: the profile of each process, with its answers.
        out: the file.
        limit: maximum number of retainers per answer; None for no limit.
    """
    json.dump({"schema": SCHEMA, "processes": [{
        "pid": profile.pid or None, "command": profile.command,
        "answers": [_answer(one, limit) for one in found]}
        for profile, found in asked]}, out, indent=1)
    out.write("\n")


def _answer(found: Found, limit: int | None) -> _Json:
    held: Held = found.held
    return {
        "time": held.time / 1e9,
        "problem": problem(held.problem) if held.problem else None,
        "objects": held.objects, "bytes": held.bytes,
        "stood_still": held.still / 1e9, "looked": held.duration / 1e9,
        "memory": held.memory,
        "holders": [{
            "holders": [{"path": holder.path, "type": holder.type,
                         "address": holder.address,
                         "aliases": list(holder.aliases)} for holder in row.holders],
            "bytes": row.bytes, "objects": row.objects,
            "from_samples": row.estimate._asdict(),
            "parts": [{
                "share": part.share, "type": part.type.name,
                "function": {"name": part.function.name,
                             "file": part.function.file or None,
                             "line": part.function.line or None},
                "line": part.line if part.line > 0 else None} for part in row.parts]}
            for row in found.rows[:limit]],
        "paths": [{"path": held.path(number), "type": step.type, "bytes": step.bytes}
                  for number, step in enumerate(held.steps)],
        "rest": {REST_NAMES[rest.how]: rest.estimate._asdict()
                 for rest in found.rest}}
