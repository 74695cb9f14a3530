"""Stacks as a tree, in which stacks with common outer frames share nodes.

The readers build a Stacks object (readers/contents.py, readers/pypy_stacks.py). All
other code reads it as a StackTable: a sequence of stacks, or a Tree.
"""
from __future__ import annotations

import array
from collections.abc import Sequence, Set
from itertools import accumulate, compress
from typing import NamedTuple, overload


class Frame(NamedTuple):
    """One frame of a stack."""

    #: address of the function, the key of Profile.functions
    address: int
    #: "interpreted", "jit" or "native"; model.LABEL in frames that no profile contains
    kind: str
    #: executed line, 0 if unknown
    line: int


#: odd factors for the node and the frame in the hash of Stacks.child()
_OF_NODE, _OF_FRAME = 0x9e3779b1, 0x85ebca77
#: the frame of the empty stack
NO_FRAME = Frame(0, "", 0)


class Tree(NamedTuple):
    """Stacks as a tree; most stacks share their outer frames with other stacks."""

    #: Parent and frame of each node. Node 0 is the empty stack, with parent -1. Each
    #: node comes after its parent.
    parents: Sequence[int]
    frames: Sequence[Frame]
    #: the node of each stack's innermost frame
    nodes: Sequence[int]

    def path(self, node: int) -> tuple[Frame, ...]:
        """Return the frames of a node's stack, outermost frame first."""
        frames = []
        while node:
            frames.append(self.frames[node])
            node = self.parents[node]
        return tuple(reversed(frames))


class StackTable(Sequence[tuple[Frame, ...]]):
    """A sequence of distinct stacks, each a tuple of frames, outermost frame first."""

    @overload
    def __getitem__(self, index: int) -> tuple[Frame, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Frame, ...]]: ...

    def __getitem__(self, index: int | slice) -> (
            tuple[Frame, ...] | list[tuple[Frame, ...]]):
        """Return the stack with this number, or a list of stacks for a slice."""
        if isinstance(index, slice):
            return list(map(self.stack, range(*index.indices(len(self)))))
        return self.stack(range(len(self))[index])

    def stack(self, number: int) -> tuple[Frame, ...]:
        """Return the frames of a stack, outermost frame first."""
        raise NotImplementedError

    def has_compiled(self) -> bool:
        """Return whether any stack contains a frame of compiled code."""
        return any(frame.kind == "jit" for frame in self.tree().frames)

    def tree(self) -> Tree:
        """Return all stacks as a tree.

        The stacks have about a hundred times as many frames as the tree has nodes. So
        code that needs each frame once should visit the nodes.
        """
        tree = Stacks()
        for stack in self:
            node = 0
            for frame in stack:
                node = tree.child(node, *frame)
            tree.append(node)
        return tree.tree()


class Stacks(StackTable):
    """A growing table of distinct stacks that stores each stack as a node of a tree.

    Most stacks share their outer frames with others. The frames of a stack are created
    only on access.
    """

    def __init__(self) -> None:
        """Create a table without stacks."""
        # parent and frame number of each node; node 0 is the empty stack
        self._parent = array.array("i", [-1])
        self._frame = array.array("i", [-1])
        # Hash table of the nodes: open addressing, linear probing. A dict would take
        # six times as much memory.
        self._table = array.array("i", bytes(4 * 2**10))
        #: the distinct frames
        self.frames: list[Frame] = []
        self._frame_numbers: dict[tuple[int, str, int], int] = {}
        # the node of each stack
        self._nodes = array.array("i")
        #: number of each stack, by node * 2 + (1 if the stack filled vmprof's record)
        self._numbers: dict[int, int] = {}
        #: number of samples of each stack that filled vmprof's record, by the number of
        #: the stack; outer frames of such a stack may be missing
        self.full: dict[int, int] = {}
        #: index in Profile.labels for each stack, 0 if its samples have no labels
        self.labels = array.array("i")
        self._labelled: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        """Return the number of stacks."""
        return len(self._nodes)

    def stack(self, number: int) -> tuple[Frame, ...]:
        """Return the frames of a stack, outermost frame first."""
        node = self._nodes[number]
        frames = []
        while node:
            frames.append(self.frames[self._frame[node]])
            node = self._parent[node]
        frames.reverse()
        return tuple(frames)

    def has_compiled(self) -> bool:
        """Return whether any stack contains a frame of compiled code."""
        return any(frame.kind == "jit" for frame in self.frames)

    def tree(self) -> Tree:
        """Return all stacks as a tree, without the nodes that belong to no stack."""
        # pypy_stacks.child() replaces nodes, and the replaced nodes may have no stack
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
        """Add a stack that ends with `node`."""
        self._nodes.append(node)
        self.labels.append(0)

    def __eq__(self, other: object) -> bool:
        """Return whether another sequence contains equal stacks in the same order."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def number(self, node: int, is_full: bool) -> int:
        """Return the number of the stack that ends with `node`; add a missing stack.

        Args:
            node: Node of the innermost frame.
            is_full: Whether the stack filled vmprof's record, so that outer frames may
                be missing. The table counts the samples of such stacks in `full`.
        """
        key = node << 1 | is_full
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._nodes)
            self.append(node)
            if is_full:
                self.full[number] = 0
        return number

    def labelled(self, stack: int, labels: int) -> int:
        """Return the number of a stack with the same frames and the given labels.

        Args:
            stack: Number of the stack without labels.
            labels: Index in Profile.labels.
        """
        number = self._labelled.get((stack, labels))
        if number is None:
            number = self._labelled[stack, labels] = len(self._nodes)
            self._nodes.append(self._nodes[stack])
            self.labels.append(labels)
            if stack in self.full:
                self.full[number] = 0
        return number

    def child(self, node: int, address: int, kind: str, line: int = 0) -> int:
        """Return the node of a frame with the parent `node`; add a missing node.

        Args:
            node: The node of the calling frame, 0 for the outermost frame.
            address: See Frame.
            kind: See Frame.
            line: See Frame.
        """
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
            # The code of child() is repeated here, because the calls would take half of
            # the time. Node 0 has no parent.
            if child:
                place = node * _OF_NODE + frame * _OF_FRAME
                place = (place ^ place >> 15) & mask
                while table[place]:
                    place = place + 1 & mask
                table[place] = child

    def without(self, addresses: Set[int]) -> Stacks:
        """Return a copy of the table without the frames of some functions.

        The stacks keep their numbers.

        Args:
            addresses: Addresses of the functions.
        """
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
        """Return the parent and the frame of a node other than 0."""
        return self._parent[node], self.frames[self._frame[node]]

    def cut(self) -> dict[int, int]:
        """Return the stacks that lack their outermost frames, with numbers of samples.

        A stack that fills vmprof's record may be complete by chance. In that case its
        outermost function is also the outermost function of stacks that do not fill
        the record, and no other function calls this function.

        Returns:
            The number of samples, by the number of the stack.
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
        """Return the address of a stack's outermost function, None without frames."""
        outermost = node
        while node:
            node, outermost = self._parent[node], node
        return self.frames[self._frame[outermost]].address if outermost else None
