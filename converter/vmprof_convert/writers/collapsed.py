"""Stacks in a line each, as flamegraph.pl, inferno and speedscope read them:
`outer;inner;type 123`."""
from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from vmprof_convert.analysis import by_stack
from vmprof_convert.analysis.by_stack import Place, Places, Value, values
from vmprof_convert.analysis.holder_tree import Tree
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.profile.model import Profile

#: what the number is
BYTES, OBJECTS, TIME = WEIGHTS = ("bytes", "objects", "time")


def write(profile: Profile, out: BinaryIO, weight: str = "") -> list[str]:
    """`weight`: one of WEIGHTS; empty: bytes, or time samples if there are no
    others.  Returns what is left out.  Raises ProfileError."""
    by_stack.check_samples(profile)
    weight = weight or (BYTES if any(profile.samples.size) else TIME)
    lines = _Lines(1)
    lines.add(profile, weight)
    if not lines.numbers:
        raise ProfileError("has no %s samples: leave out --weight %s" % (
            "time" if weight == TIME else "allocation", weight))
    lines.write(out)
    lacking = {by_stack.THREADS, by_stack.PROCESSES, by_stack.FATES,
               by_stack.LINES, by_stack.LABELS}
    if weight != TIME:
        lacking.add(by_stack.TICKS)
    return by_stack.left_out(profile, *lacking)


def write_diff(before: Profile, after: Profile, out: BinaryIO,
               weight: str = BYTES) -> list[str]:
    """Two numbers a line, as difffolded.pl writes them: flamegraph.pl colours what
    grew, and what shrank.  Returns what is left out."""
    lines = _Lines(2)
    lines.add(before, weight)
    lines.add(after, weight, 1)
    lines.write(out)
    return by_stack.left_out(
        after, by_stack.THREADS, by_stack.PROCESSES, by_stack.FATES,
        by_stack.TICKS, by_stack.LINES, by_stack.LABELS)


def write_held(tree: Tree, out: BinaryIO) -> list[str]:
    """Bytes that were alive, below who held them.  Returns what is left out."""
    lines = _Lines(1)
    for stack in tree.stacks:
        lines.add_places([place.text for place in stack.places], stack.bytes)
    lines.write(out)
    return tree.left_out


class _Lines:
    """As a tree, of which a line is a path: most of each is that of others, too."""

    def __init__(self, sides: int) -> None:
        """`sides`: so many numbers each."""
        self._sides = sides
        #: of each node, callers first; node 0 is above all
        self._parent, self._name = [-1], [""]
        self._children: dict[tuple[int, str], int] = {}
        #: of the nodes that end a line
        self.numbers: dict[int, list[float]] = {}

    def add(self, profile: Profile, weight: str, side: int = 0) -> None:
        places, type_names = Places(profile), TypeNames(profile)
        nodes: dict[int, int] = {}
        names: dict[Place, str] = {}
        for part, value in values(profile, types=profile.has_types).items():
            number = _weight(value, weight)
            if not number:
                continue
            node = nodes.get(part.stack)
            if node is None:
                node = 0
                for place in places.of(part.stack):
                    name = names.get(place)
                    if name is None:
                        name = names[place] = _escaped(place.text)
                    node = self._child(node, name)
                nodes[part.stack] = node
            if profile.has_types and part.type != by_stack.NONE:
                node = self._child(node, _escaped(type_names.shown(part.type).name))
            numbers = self.numbers.get(node)
            if numbers is None:
                numbers = self.numbers[node] = [0.0] * self._sides
            numbers[side] += number

    def add_places(self, names: Iterable[str], number: float) -> None:
        """Outermost first."""
        node = 0
        for name in names:
            node = self._child(node, _escaped(name))
        self.numbers.setdefault(node, [0.0])[0] += number

    def _child(self, node: int, name: str) -> int:
        key = node, name
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = len(self._parent)
            self._parent.append(node)
            self._name.append(name)
        return child

    def write(self, out: BinaryIO) -> None:
        columns = [by_stack.whole(column) for column in zip(*self.numbers.values())]
        for node, *counts in zip(self.numbers, *columns):
            if any(counts):
                out.write(("%s %s\n" % (self._text(node), " ".join(
                    map(str, counts)))).encode("utf-8"))

    def _text(self, node: int) -> str:
        names = []
        while node:
            names.append(self._name[node])
            node = self._parent[node]
        names.reverse()
        return ";".join(names)


def _weight(value: Value, weight: str) -> float:
    return {BYTES: value.bytes, OBJECTS: value.objects, TIME: value.ticks}[weight]


def _escaped(name: str) -> str:
    """What is between two semicolons; flamegraph.pl has no way to quote one."""
    return name.replace(";", ":").strip() or "?"
