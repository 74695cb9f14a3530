"""The data of the HTML page: a tree of functions, and a table of allocations.

The table contains the allocated bytes and objects for each node of the tree, type and
step in time. sums.js reads the data.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

from vmprof_convert.analysis import spread
from vmprof_convert.analysis.by_stack import NONE, Place, Places, Value, values, whole
from vmprof_convert.analysis.diff import CONFIDENCE, Difference, Sides, aligned
from vmprof_convert.analysis.holders import find
from vmprof_convert.analysis.summary import (
    ALIVE,
    BY_FUNCTION,
    FUNCTION,
    OBJECTS,
    SELF,
    TOTAL,
    TYPE,
    summarize,
    tally_of,
)
from vmprof_convert.meaning.lifetimes import alive_word, is_alive_exact
from vmprof_convert.meaning.type_names import Shown, TypeNames
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import caveats, held
from vmprof_convert.report.diff_tables import (
    WHAT_DIFFERS,
    Names,
    in_all,
    not_exact,
    of_runs,
    title,
)
from vmprof_convert.text.escape import printable, shortened

#: A function with a smaller share of the bytes, of the objects and of the live bytes is
#: added to its caller.
SMALLEST = 0.0002
#: Possible numbers of steps in time, and largest number of rows in the table. The page
#: has the largest number of steps with which the table does not exceed MAX_ROWS.
STEPS, MAX_ROWS = (120, 60, 30, 12, 1), 150_000

#: largest number of rows in a table of retainers
HELD_ROWS = 25

#: names of the columns in the page, and of the attributes of a Value
MEASURES = ("bytes", "objects", "alive")
_NAMES = ("bytes", "objects", "alive_bytes")

#: rows of the table: a number for each column, by node of the tree, type and step
_Rows = dict[tuple[int, int, int], list[float]]


class _Group(NamedTuple):
    """Samples with the same stack, type and step in time."""

    places: Places
    stack: int
    #: displayed name and kind of the type
    type: Shown
    #: step in time, from 0 to STEPS[0] - 1
    step: int
    #: sums of the samples, one for each column of the table
    values: list[float]


def make(profile: Profile, progress: Callable[[int, int], None] | None = None
         ) -> dict[str, Any]:
    """Return the data of the page for one profile."""
    end = max(profile.end, max(profile.samples.time, default=0)) + 1
    steps = [max(time, 0) * STEPS[0] // end for time in profile.samples.time]
    summary = summarize(profile, tally_of(profile, None))
    return {
        "title": shortened(profile.command) or "allocations",
        "head": printable(caveats.title(profile, summary, BY_FUNCTION)),
        "sums": printable(caveats.sums(profile, summary, BY_FUNCTION)),
        "remarks": [printable(line) for line in (
            *caveats.of_run(profile),
            *caveats.of_figures(profile, summary, BY_FUNCTION))],
        "seconds": profile.end / 1e9,
        "has": {"types": profile.has_types, "lifetimes": profile.has_lifetimes},
        "alive_word": alive_word(is_alive_exact(profile)),
        "marks": [[mark.time / 1e9, shortened(mark.name)] for mark in profile.marks],
        "held": _held(profile),
        **_table(_groups(profile, _estimates, steps), progress),
    }


def _held(profile: Profile) -> list[dict[str, Any]]:
    """Return the report on retainers for each process with a heap snapshot."""
    each = [process.profile for process in profile.processes] or [profile]
    asked = [(process, process.last_held) for process in each]
    sheets = [held.of(process, find(process, last), HELD_ROWS,
                      is_one_of_several=len(asked) > 1)
              for process, last in asked if last is not None]
    return [{"head": sheet.head, "notes": sheet.notes, "tables": [{
        "columns": [[column.title, column.kind] for column in table.columns],
        "rows": table.rows, "rest": table.rest} for table in sheet.tables]}
        for sheet in sheets]


def make_diff(difference: Difference, names: Names) -> dict[str, Any]:
    """Return the data of the page for a difference.

    The columns of the table contain the numbers of the second side, on average over its
    runs. "diff" has these items:

    - "before": the columns of the first side
    - "variance": the variance of the change by sampling
    - "z": the number of standard errors of a significant change
    - "exact": for each side, whether its live objects contain no garbage
    - "unknown": whether the spread between runs is unknown
    - "runs": the columns of each run, if a side has several runs
    - "counts": in this case, the number of runs of each side
    - "prior": in this case, the degrees of freedom of the variance by sampling
    """
    sides, choice = aligned(difference.sides), difference.choice
    is_several = len(sides.runs) > 2
    table = _table(_compared(sides, choice.group_storage), None)
    columns = table.pop("more")
    # Bonferroni's correction for all changes that the page can show
    shown = len(MEASURES) * (
        len(table["parent"]) + len(table["frames"]) + len(table["types"])
        + len(set(zip(table["node"], table["type"]))))
    z = NormalDist().inv_cdf(1.0 - (1.0 - CONFIDENCE) / 2 / shown)
    of_each: dict[str, Any] = {}
    if is_several:
        degrees = spread.degrees(len(sides.before), len(sides.after))
        z = spread.quantile(z, degrees)
        of_each = {"prior": spread.PRIOR,
                   "counts": [len(sides.before), len(sides.after)],
                   "runs": [dict(zip(MEASURES, columns[first:first + 3]))
                            for first in range(_RUNS - 3, len(columns), 3)]}
    is_spread_unknown = sides.is_spread_unknown(choice.sort, choice.by)
    notes = [*of_runs(difference, names), *not_exact(difference, names)]
    if is_spread_unknown:
        notes.append(WHAT_DIFFERS)
    return {
        "title": printable(title(names)),
        "head": "changes%s in total%s:" % (
            " in the run" if sides.is_one_run else "",
            ", on average" if is_several else ""),
        "sums": in_all(difference), "remarks": list(map(printable, notes)), "marks": [],
        "begin": {"measure": {OBJECTS: "objects", ALIVE: "alive"}.get(
                      choice.sort, "bytes"),
                  "sort": TOTAL if choice.sort == TOTAL else "self",
                  **({"table": "types", "stacks": "by type"}
                     if choice.by == (TYPE,) else {})},
        "seconds": sides.after[-1].end / 1e9,
        "has": {"types": any(profile.has_types for profile in sides.runs),
                "lifetimes": all(profile.has_lifetimes for profile in sides.runs)},
        "alive_word": sides.alive,
        "diff": {"before": dict(zip(MEASURES, columns[:3])),
                 "variance": dict(zip(MEASURES, columns[3:6])),
                 "exact": sides.exact,
                 "z": z, "unknown": sides.is_spread_unknown(SELF, (FUNCTION,)),
                 **of_each},
        **table,
    }


#: Index of the first of three columns in a difference, one for each of MEASURES: the
#: second side, the first side, the variances, and the first run. Other runs follow.
_AFTER, _BEFORE, _VARIANCE, _RUNS = 0, 3, 6, 9


def _compared(sides: Sides, group_storage: bool) -> list[_Group]:
    is_several = len(sides.runs) > 2
    width = _RUNS + 3 * len(sides.runs) * is_several
    groups: list[_Group] = []

    def add(profile: Profile, numbers: Callable[[Value], dict[int, Sequence[float]]]
            ) -> None:
        """Add the groups of a profile.

        Args:
            profile: The profile.
            numbers: Returns adjacent columns of a group, by the index of the first one.
        """
        def columns(value: Value) -> list[float]:
            row = [0.0] * width
            for first, part in numbers(value).items():
                row[first:first + len(part)] = part
            return row
        groups.extend(_groups(profile, columns, group_storage=group_storage))

    if sides.is_one_run:
        (before,), (after,), (gained,), (lost,) = sides[:4]
        add(after, lambda value: {_AFTER: _estimates(value)})
        add(before, lambda value: {_BEFORE: _estimates(value)})
        add(gained, lambda value: {_VARIANCE: _variances(value)})
        # within a run, only live bytes can decrease
        add(lost, lambda value: {
            _VARIANCE + 2: [value.alive_bytes_variance]})
        return groups
    number = 0
    # The second side comes first, because its runs determine the order of functions.
    for first, runs in ((_AFTER, sides.after), (_BEFORE, sides.before)):
        for profile in runs:
            def numbers(value: Value, count: int = len(runs), first: int = first,
                        own: int = _RUNS + 3 * number) -> dict[int, Sequence[float]]:
                estimates = _estimates(value)
                return {first: [part / count for part in estimates],
                        _VARIANCE: [part / count**2 for part in _variances(value)],
                        **({own: estimates} if is_several else {})}
            add(profile, numbers)
            number += 1
    return groups


def _estimates(value: Value) -> list[float]:
    return [float(getattr(value, name)) for name in _NAMES]


def _variances(value: Value) -> list[float]:
    return [float(getattr(value, "%s_variance" % name)) for name in _NAMES]


def _groups(profile: Profile, numbers: Callable[[Value], list[float]],
            steps: Sequence[int] | None = None, *,
            group_storage: bool = False) -> list[_Group]:
    places = Places(profile)
    type_names = TypeNames(profile, group_storage=group_storage)
    if steps is None:
        steps = bytes(len(profile.samples))
    return [_Group(places, part.stack, type_names.shown(part.type), part.step,
                   numbers(value))
            for part, value in values(profile, types=True, steps=steps).items()
            if part.type != NONE]


def _table(groups: Sequence[_Group],
           progress: Callable[[int, int], None] | None) -> dict[str, Any]:
    tree = _Tree()
    nodes = []
    types: dict[Shown, int] = {}
    for number, group in enumerate(groups):
        if progress is not None and number % 20_000 == 0:
            progress(number, len(groups))
        nodes.append(tree.add(group))
        types.setdefault(group.type, len(types))
    new = tree.cut()
    for steps in STEPS:
        rows: _Rows = {}
        for group, node in zip(groups, nodes):
            key = new[node], types[group.type], group.step * steps // STEPS[0]
            row = rows.get(key)
            if row is None:
                rows[key] = list(group.values)
            else:
                for number, part in enumerate(group.values):
                    row[number] += part
        if len(rows) <= MAX_ROWS:
            break
    ordered = sorted(rows)
    columns = [whole(rows[key][number] for key in ordered)
               for number in range(len(groups[0].values))]
    table: dict[str, Any] = {
        "smallest": SMALLEST, "steps": steps, "types": [list(pair) for pair in types],
        "frames": tree.frames, "parent": tree.parent, "frame": tree.frame,
        "node": [node for node, _, _ in ordered],
        "type": [type_ for _, type_, _ in ordered],
        "step": [step for _, _, step in ordered], **dict(zip(MEASURES, columns)),
    }
    if len(columns) > len(MEASURES):
        table["more"] = columns[len(MEASURES):]
    return table


class _Tree:
    """A tree of functions with their callers as parents; node 0 is the root."""

    def __init__(self) -> None:
        self._number: dict[Place, int] = {}
        #: name, path, line of the definition, and origin of each function
        self.frames: list[list[Any]] = [["all", "", 0, "nowhere"]]
        #: parent and function of each node, callers first
        self.parent, self.frame = [-1], [0]
        self._children: dict[tuple[int, int], int] = {}
        #: node of each stack of each profile
        self._nodes: dict[tuple[Places, int], int] = {}
        #: sums of each node, by which cut() decides whether the node is visible
        self._sums: list[list[float]] = [[0.0] * 6]

    def add(self, group: _Group) -> int:
        """Add a group of samples to the tree; return its node."""
        node = self._nodes.get((group.places, group.stack))
        if node is None:
            node = 0
            for place in group.places.of(group.stack):
                frame = self._number.get(place)
                if frame is None:
                    frame = self._number[place] = len(self.frames)
                    self.frames.append([place.name, place.path, place.line,
                                        place.origin])
                child = self._children.get((node, frame))
                if child is None:
                    child = self._children[node, frame] = len(self.parent)
                    self.parent.append(node)
                    self.frame.append(frame)
                    self._sums.append([0.0] * 6)
                node = child
            self._nodes[group.places, group.stack] = node
        for number, part in enumerate(group.values[:6]):
            self._sums[node][number] += part
        return node

    def cut(self) -> list[int]:
        """Remove nodes that are too small to be visible; their parents replace them.

        Returns:
            The new number of each node.
        """
        for node in range(len(self.parent) - 1, 0, -1):
            for number, part in enumerate(self._sums[node]):
                self._sums[self.parent[node]][number] += part
        least = [SMALLEST * part for part in self._sums[0]]
        new = [0]
        parent, frame = [-1], [0]
        for node in range(1, len(self.parent)):
            above = new[self.parent[node]]
            is_seen = any(part > limit for part, limit in zip(self._sums[node], least))
            if is_seen:
                new.append(len(parent))
                parent.append(above)
                frame.append(self.frame[node])
            else:
                new.append(above)
        self.parent, self.frame = parent, frame
        used = sorted(set(frame))
        numbers = {old: number for number, old in enumerate(used)}
        self.frames = [self.frames[old] for old in used]
        self.frame = [numbers[old] for old in frame]
        return new
