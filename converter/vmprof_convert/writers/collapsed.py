"""The writer of collapsed stacks for flamegraph.pl, inferno and speedscope.

Each line is a stack and a number: `outer;inner;type 123`.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO

from vmprof_convert.analysis import by_stack
from vmprof_convert.analysis.by_stack import Place, Places, Value, values
from vmprof_convert.analysis.holder_tree import Tree
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.profile.model import Profile

#: possible meanings of the number in a line
BYTES, OBJECTS, TIME = WEIGHTS = ("bytes", "objects", "time")


def write(profile: Profile, out: BinaryIO, weight: str = "") -> list[str]:
    """Write the stacks of a profile.

    Args:
        profile: The profile.
        out: The file.
        weight: One of WEIGHTS. The default is BYTES, or TIME without allocation
            samples.

    Returns:
        A line that lists the omitted data, if there are any.

    Raises:
        ProfileError: The profile has no samples of the kind that `weight` counts.
    """
    by_stack.check_samples(profile)
    weight = weight or (BYTES if any(profile.samples.size) else TIME)
    lines = _Lines(1)
    lines.add(profile, weight)
    if not lines.numbers:
        raise ProfileError("has no %s samples: leave out --weight %s" % (
            "CPU" if weight == TIME else "allocation", weight))
    lines.write(out)
    lacking = {by_stack.THREADS, by_stack.PROCESSES, by_stack.FATES,
               by_stack.LINES, by_stack.LABELS}
    if weight != TIME:
        lacking.add(by_stack.TICKS)
    return by_stack.left_out(profile, *lacking)


def write_diff(before: Profile, after: Profile, out: BinaryIO,
               weight: str = BYTES) -> list[str]:
    """Write the stacks of two profiles, with two numbers in each line.

    difffolded.pl writes the same format, and flamegraph.pl colours the increases and
    decreases.

    Args:
        before: The first profile.
        after: The second profile.
        out: The file.
        weight: One of WEIGHTS.

    Returns:
        A line that lists the omitted data, if there are any.
    """
    lines = _Lines(2)
    lines.add(before, weight)
    lines.add(after, weight, 1)
    lines.write(out)
    return by_stack.left_out(
        after, by_stack.THREADS, by_stack.PROCESSES, by_stack.FATES,
        by_stack.TICKS, by_stack.LINES, by_stack.LABELS)


def write_held(tree: Tree, out: BinaryIO) -> list[str]:
    """Write the live bytes below their retainers; return the notes on omitted data."""
    lines = _Lines(1)
    for stack in tree.stacks:
        lines.add_places([place.text for place in stack.places], stack.bytes)
    lines.write(out)
    return tree.left_out


class _Lines:
    """The lines as a tree of names, because most stacks share their outer frames."""

    def __init__(self, sides: int) -> None:
        """Create an empty tree.

        Args:
            sides: The number of numbers in each line.
        """
        self._sides = sides
        #: parent and name of each node, callers first; node 0 is the root
        self._parent, self._name = [-1], [""]
        self._children: dict[tuple[int, str], int] = {}
        #: numbers of each line, by the last node of its stack
        self.numbers: dict[int, list[float]] = {}

    def add(self, profile: Profile, weight: str, side: int = 0) -> None:
        """Add the samples of a profile to one of the numbers of each line.

        Args:
            profile: The profile.
            weight: One of WEIGHTS.
            side: The index of the number in the line.
        """
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
        """Add a number to a stack; `names` begin with the outermost frame."""
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
        """Write all lines with a number other than 0."""
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
    """Return a name without semicolons, which flamegraph.pl cannot escape."""
    return name.replace(";", ":").strip() or "?"
