"""Stacks, as a tree: what most share is their outer frames."""
from __future__ import annotations

import array
from collections.abc import Sequence, Set
from itertools import accumulate, compress
from typing import NamedTuple, overload


class Frame(NamedTuple):
    """One frame of a stack."""

    #: address: identifies the function, see Profile.function()
    address: int
    #: "interpreted", "jit" or "native"; or LABEL, in no profile
    kind: str
    #: executed line; 0: not known
    line: int


#: for a hash of both
_OF_NODE, _OF_FRAME = 0x9e3779b1, 0x85ebca77
#: of the empty stack
NO_FRAME = Frame(0, "", 0)


class Tree(NamedTuple):
    """Stacks as what they share: of most, the outer frames."""

    #: of each node; number 0 is the empty stack, and no node comes before its parent
    parents: Sequence[int]
    frames: Sequence[Frame]
    #: the node of each stack's innermost frame
    nodes: Sequence[int]

    def path(self, node: int) -> tuple[Frame, ...]:
        """From the outermost frame on to that of `node`."""
        frames = []
        while node:
            frames.append(self.frames[node])
            node = self.parents[node]
        return tuple(reversed(frames))


class StackTable(Sequence[tuple[Frame, ...]]):
    """Distinct stacks, outermost frame first."""

    @overload
    def __getitem__(self, index: int) -> tuple[Frame, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Frame, ...]]: ...

    def __getitem__(self, index: int | slice) -> (
            tuple[Frame, ...] | list[tuple[Frame, ...]]):
        if isinstance(index, slice):
            return list(map(self.stack, range(*index.indices(len(self)))))
        return self.stack(range(len(self))[index])

    def stack(self, number: int) -> tuple[Frame, ...]:
        raise NotImplementedError

    def has_compiled(self) -> bool:
        """Whether any frame was one of compiled code."""
        return any(frame.kind == "jit" for frame in self.tree().frames)

    def tree(self) -> Tree:
        """All of them, for who looks at each node once: their frames, one stack after
        the other, are a hundred times as many."""
        tree = Stacks()
        for stack in self:
            node = 0
            for frame in stack:
                node = tree.child(node, *frame)
            tree.append(node)
        return tree.tree()


class Stacks(StackTable):
    """Distinct stacks.  Most share their outer frames with others: a stack is
    a node of a tree, and its frames are made when they are asked for."""

    def __init__(self) -> None:
        # of each node; number 0 is the empty stack
        self._parent = array.array("i", [-1])
        self._frame = array.array("i", [-1])
        # open addressing, linear probing; a dict would take six times as much
        self._table = array.array("i", bytes(4 * 2**10))
        #: each one once
        self.frames: list[Frame] = []
        self._frame_numbers: dict[tuple[int, str, int], int] = {}
        # of each stack
        self._nodes = array.array("i")
        #: node * 2 + whether it filled its record: stack
        self._numbers: dict[int, int] = {}
        #: how often each stack was sampled that filled its record: outer
        #: frames may be missing
        self.full: dict[int, int] = {}
        #: of each stack, which set of labels its samples have; 0: none
        self.labels = array.array("i")
        self._labelled: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def stack(self, number: int) -> tuple[Frame, ...]:
        node = self._nodes[number]
        frames = []
        while node:
            frames.append(self.frames[self._frame[node]])
            node = self._parent[node]
        frames.reverse()
        return tuple(frames)

    def has_compiled(self) -> bool:
        return any(frame.kind == "jit" for frame in self.frames)

    def tree(self) -> Tree:
        # not all nodes are of a stack: see pypy_stacks.child()
        used = bytearray(len(self._parent))
        used[0] = 1
        for node in self._nodes:
            while not used[node]:
                used[node] = 1
                node = self._parent[node]
        frames = [NO_FRAME, *map(self.frames.__getitem__,
                                 compress(self._frame[1:], used[1:]))]
        if all(used):
            return Tree(self._parent, frames, self._nodes)
        numbers = array.array("i", accumulate(used, initial=-1))
        return Tree(
            array.array("i", [numbers[parent + 1] if parent >= 0 else -1
                              for parent in compress(self._parent, used)]),
            frames,
            array.array("i", [numbers[node + 1] for node in self._nodes]))

    def append(self, node: int) -> None:
        """The next stack ends with `node`."""
        self._nodes.append(node)
        self.labels.append(0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def number(self, node: int, is_full: bool) -> int:
        """The number of the stack that ends with `node`; `is_full`: there was
        no room for more frames."""
        key = node << 1 | is_full
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._nodes)
            self.append(node)
            if is_full:
                self.full[number] = 0
        return number

    def labelled(self, stack: int, labels: int) -> int:
        """The same stack, as another one: its samples have labels."""
        number = self._labelled.get((stack, labels))
        if number is None:
            number = self._labelled[stack, labels] = len(self._nodes)
            self._nodes.append(self._nodes[stack])
            self.labels.append(labels)
            if stack in self.full:
                self.full[number] = 0
        return number

    def child(self, node: int, address: int, kind: str, line: int = 0) -> int:
        """The node of one frame more, inside of `node`'s."""
        key = address, kind, line
        number = self._frame_numbers.get(key)
        if number is None:
            number = self._frame_numbers[key] = len(self.frames)
            self.frames.append(Frame(address, kind, line))
        table, parents, frames = self._table, self._parent, self._frame
        mask = len(table) - 1
        place = node * _OF_NODE + number * _OF_FRAME
        place = (place ^ place >> 15) & mask
        while child := table[place]:
            if parents[child] == node and frames[child] == number:
                return child
            place = place + 1 & mask
        child = table[place] = len(parents)
        parents.append(node)
        frames.append(number)
        if 3 * child > 2 * len(table):
            self._grow()
        return child

    def _grow(self) -> None:
        table = self._table = array.array("i", bytes(8 * len(self._table)))
        mask = len(table) - 1
        for child, (node, frame) in enumerate(zip(self._parent, self._frame)):
            # as in child(), without the call, which is half of it; 0 has no parent
            if child:
                place = node * _OF_NODE + frame * _OF_FRAME
                place = (place ^ place >> 15) & mask
                while table[place]:
                    place = place + 1 & mask
                table[place] = child

    def without(self, addresses: Set[int]) -> Stacks:
        """The same ones, with the same numbers, without the frames of these."""
        result = Stacks()
        left_out = [frame.address in addresses for frame in self.frames]
        places = array.array("i", [0])
        for parent, number in zip(self._parent[1:], self._frame[1:]):
            place = places[parent]
            places.append(place if left_out[number]
                          else result.child(place, *self.frames[number]))
        for node, labels in zip(self._nodes, self.labels):
            result._nodes.append(places[node])
            result.labels.append(labels)
        result.full = self.full
        return result

    def last(self, node: int) -> tuple[int, Frame]:
        """The frame that `node`, not 0, ends with, and the node without it."""
        return self._parent[node], self.frames[self._frame[node]]

    def cut(self) -> dict[int, int]:
        """The stacks that have lost their outermost frames, and how often each
        was sampled.

        A stack that fills its record may just fit.  Then it begins where
        others do that had room left, with a function that nobody calls.
        """
        if not self.full:
            return {}
        called, entries = set(), set()
        for node in range(1, len(self._parent)):
            if self._parent[node]:
                called.add(self.frames[self._frame[node]].address)
        for stack, node in enumerate(self._nodes):
            if node and stack not in self.full:
                entries.add(self._entry(node))
        entries -= called
        return {stack: count for stack, count in self.full.items()
                if self._entry(self._nodes[stack]) not in entries}

    def _entry(self, node: int) -> int | None:
        """The address of the outermost function."""
        outermost = node
        while node:
            node, outermost = self._parent[node], node
        return self.frames[self._frame[outermost]].address if outermost else None
