"""What the page's script gets: a tree of functions, and for its nodes what was
allocated there, of which type, and when."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from vmprof_convert import remarks
from vmprof_convert.model import Profile
from vmprof_convert.printable import printable, shortened
from vmprof_convert.stack_values import NONE, Place, Places, values, whole
from vmprof_convert.summary import BY_FUNCTION, summarize, tally_of
from vmprof_convert.type_names import Shown, TypeNames

#: what is a smaller share of bytes, of objects and of what is alive, counts for who
#: calls it: nobody would see it
SMALLEST = 0.0002
#: steps of time; fewer if these would be more rows than that
STEPS, MAX_ROWS = (120, 60, 30, 12, 1), 150_000

#: node, type, step: bytes, objects and bytes that are alive
_Rows = dict[tuple[int, int, int], list[float]]


def make(profile: Profile, progress: Callable[[int, int], None] | None = None
         ) -> dict[str, Any]:
    tree = _Tree(profile)
    groups = _groups(profile)
    for number, (stack, *_, value) in enumerate(groups):
        if progress is not None and number % 20_000 == 0:
            progress(number, len(groups))
        tree.add(stack, value)
    tree.cut()
    type_names = TypeNames(profile)
    types: dict[int, int] = {}
    shown: dict[Shown, int] = {}
    for _, type_, _, _ in groups:
        if type_ not in types:
            types[type_] = shown.setdefault(type_names.shown(type_), len(shown))
    for steps in STEPS:
        rows = _rows(groups, tree, types, steps)
        if len(rows) <= MAX_ROWS:
            break
    summary = summarize(profile, tally_of(profile, None))
    ordered = sorted(rows)
    columns = [whole(rows[key][number] for key in ordered) for number in range(3)]
    return {
        "title": shortened(profile.command) or "allocations",
        "head": printable(remarks.title(profile, summary, BY_FUNCTION)),
        "sums": printable(remarks.sums(profile, summary, BY_FUNCTION)),
        "remarks": [printable(line) for line in (
            *remarks.of_run(profile),
            *remarks.of_figures(profile, summary, BY_FUNCTION))],
        "seconds": profile.end / 1e9, "steps": steps,
        "has": {"types": profile.has_types, "lifetimes": profile.has_lifetimes},
        "smallest": SMALLEST,
        "marks": [[mark.time / 1e9, shortened(mark.name)] for mark in profile.marks],
        "types": [list(pair) for pair in shown],
        "frames": tree.frames,
        "parent": tree.parent, "frame": tree.frame,
        "node": [node for node, _, _ in ordered],
        "type": [type_ for _, type_, _ in ordered],
        "step": [step for _, _, step in ordered],
        "bytes": columns[0], "objects": columns[1], "alive": columns[2],
    }


def _groups(profile: Profile) -> list[tuple[int, int, int, list[float]]]:
    """Stack, type, the finest step, and values."""
    samples = profile.samples
    end = max(profile.end, max(samples.time, default=0)) + 1
    finest = STEPS[0]
    steps = [max(time, 0) * finest // end for time in samples.time]
    return [(part.stack, part.type, part.step,
             [value.bytes, value.objects, value.alive_bytes])
            for part, value in values(profile, types=True, steps=steps).items()
            if part.type != NONE]


def _rows(groups: Sequence[tuple[int, int, int, list[float]]], tree: _Tree,
          types: dict[int, int], steps: int) -> _Rows:
    rows: _Rows = {}
    for stack, type_, step, value in groups:
        key = tree.node(stack), types[type_], step * steps // STEPS[0]
        row = rows.get(key)
        if row is None:
            rows[key] = list(value)
        else:
            for number, part in enumerate(value):
                row[number] += part
    return rows


class _Tree:
    """Functions below their callers; node 0 is above all."""

    def __init__(self, profile: Profile) -> None:
        self._places = Places(profile)
        self._number: dict[Place, int] = {}
        #: name, path, line of the definition, and whose code it is
        self.frames: list[list[Any]] = [["all", "", 0, "nowhere"]]
        #: of each node, callers first
        self.parent, self.frame = [-1], [0]
        self._children: dict[tuple[int, int], int] = {}
        #: of stacks
        self._nodes: dict[int, int] = {}
        self._sums: list[list[float]] = [[0.0, 0.0, 0.0]]

    def add(self, stack: int, value: list[float]) -> None:
        node = self._nodes.get(stack)
        if node is None:
            node = 0
            for place in self._places.of(stack):
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
                    self._sums.append([0.0, 0.0, 0.0])
                node = child
            self._nodes[stack] = node
        for number, part in enumerate(value):
            self._sums[node][number] += part

    def cut(self) -> None:
        """Leave out what is too small to be seen: it counts for who calls it."""
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
        self._nodes = {stack: new[node] for stack, node in self._nodes.items()}
        used = sorted(set(frame))
        numbers = {old: number for number, old in enumerate(used)}
        self.frames = [self.frames[old] for old in used]
        self.frame = [numbers[old] for old in frame]

    def node(self, stack: int) -> int:
        return self._nodes[stack]
