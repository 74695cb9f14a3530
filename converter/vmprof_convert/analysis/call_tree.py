"""Find the largest branches of the call tree, for the command tree."""
from __future__ import annotations

import heapq
from typing import NamedTuple

from vmprof_convert.analysis.summary import (
    ALIVE,
    OBJECTS,
    Choice,
    Figures,
    Places,
    Row,
    Subject,
    Tally,
    interval_of,
)
from vmprof_convert.meaning.lifetimes import CARRIED, STILL_ALIVE
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.profile.model import Profile


class Branch(NamedTuple):
    """A chain of functions in the call tree, each of which calls only the next one.

    Only the last function has own allocations or several callees. With another choice
    of rows (summary.Choice.by), the chain consists of files, lines or modules.
    """

    #: the functions, outermost first; a direct recursion is one element
    chain: list[Subject]
    #: the sums of the last function in this chain: its own allocations without and with
    #: its callees' allocations
    row: Row
    #: the number of branches between this one and the root
    depth: int
    #: the index of the parent branch in the list of branches(); -1 for a branch at the
    #: root
    parent: int


class _Node:
    """A node of the call tree of all stacks."""

    __slots__ = ("chain", "children", "figures", "is_end", "own", "parent", "subject",
                 "weight")

    def __init__(self, subject: Subject | None, parent: _Node | None) -> None:
        self.subject = subject
        self.parent = parent
        self.children: dict[Subject, _Node] = {}
        self.weight = 0.0
        #: whether some samples have this node as their innermost function
        self.is_end = False
        #: the functions that are shown together with this node; empty if the node is
        #: not shown
        self.chain: list[Subject] = []
        self.figures: Figures | None = None
        self.own: Figures | None = None


def branches(profile: Profile, tally: Tally, choice: Choice, origins: Origins,
             limit: int | None) -> tuple[list[Branch], int]:
    """Return the largest branches of the call tree.

    Args:
        profile: the profile.
        tally: the sums of its samples.
        choice: the kind of rows, and the measure by which branches are compared.
        origins: the origins of the profile's functions.
        limit: the largest number of branches; None for all.

    Returns:
        The branches, each after its parent, and the number of omitted branches directly
        below them.
    """
    places = Places(profile, choice.by, origins)
    root = _Node(None, None)
    #: the innermost node of each stack
    ends: dict[int, _Node] = {}
    for (stack, _, then), sum_ in tally.sums().items():
        node = ends.get(stack)
        if node is None:
            node = root
            for subject in places.of(stack):
                if subject == node.subject:
                    continue
                child = node.children.get(subject)
                if child is None:
                    child = node.children[subject] = _Node(subject, node)
                node = child
            ends[stack] = node
            node.is_end = True
        if choice.sort == ALIVE:
            weight = (sum_.live.value_bytes if then in (STILL_ALIVE, CARRIED)
                      else 0.0)
        else:
            weight = (sum_.value_objects if choice.sort == OBJECTS
                      else sum_.value_bytes)
        while node is not None:
            node.weight += weight
            node = node.parent
    beside = _largest(root, limit, interval_of(profile, tally))
    _add_up(tally, ends)
    return _listed(root), beside


def _largest(root: _Node, limit: int | None, interval: int) -> int:
    """Select the largest branches, and return the number of omitted ones below them.

    A selected node gets its chain and empty sums.
    """
    number = 0
    waiting: list[tuple[float, int, _Node]] = []

    def offer(node: _Node) -> None:
        nonlocal number
        for child in node.children.values():
            number += 1
            heapq.heappush(waiting, (-child.weight, number, child))

    offer(root)
    shown = 0
    while waiting and (limit is None or shown < limit):
        _, _, node = heapq.heappop(waiting)
        chain = [node]
        while len(node.children) == 1 and not node.is_end:
            (node,) = node.children.values()
            chain.append(node)
        node.chain = [link.subject for link in chain if link.subject]
        node.figures, node.own = Figures(interval), Figures(interval)
        shown += 1
        offer(node)
    return len(waiting)


def _add_up(tally: Tally, ends: dict[int, _Node]) -> None:
    """Add the samples to the sums of the selected nodes.

    Args:
        tally: the samples.
        ends: the innermost node of each stack.
    """
    for (stack, _, then), sum_ in tally.sums().items():
        node: _Node | None = ends[stack]
        if node is not None and node.own is not None:
            node.own.add(then, sum_)
        while node is not None:
            if node.figures is not None:
                node.figures.add(then, sum_)
            node = node.parent


def _listed(root: _Node) -> list[Branch]:
    """Return the branches in the order of the report, each after its parent."""
    found: list[Branch] = []
    #: the nodes that are not yet in `found`, each with its depth and its parent's index
    waiting: list[tuple[_Node, int, int]] = []

    def push(node: _Node, depth: int, parent: int) -> None:
        ends = []
        for child in node.children.values():
            while child.figures is None and len(child.children) == 1 and (
                    not child.is_end):
                (child,) = child.children.values()
            if child.figures is not None:
                ends.append(child)
        ends.sort(key=lambda child: (child.weight, child.chain))
        waiting.extend((child, depth, parent) for child in ends)

    push(root, 0, -1)
    while waiting:
        node, depth, parent = waiting.pop()
        assert node.figures is not None and node.own is not None
        found.append(Branch(node.chain, Row(node.chain[-1], node.own, node.figures),
                            depth, parent))
        push(node, depth + 1, len(found) - 1)
    return found
