"""GCBench: build long-lived and short-lived binary trees.

John Ellis and Pete Kovac wrote the original benchmark, and Hans Boehm adapted it. This
is a new implementation in Python, which also runs on PyPy 2.7.

Usage: gcbench.py [ROUNDS]
"""
import sys

STRETCH_DEPTH = 16
LONG_LIVED_DEPTH = 14
DEPTHS = range(4, 15, 2)


class Node:
    """A node of a binary tree."""

    __slots__ = ("left", "right")

    def __init__(self, left=None, right=None):
        """Make a node with two children, or None."""
        self.left = left
        self.right = right


def bottom_up(depth):
    """Build a tree of the given depth from its leaves, and return its root."""
    if depth == 0:
        return Node()
    return Node(bottom_up(depth - 1), bottom_up(depth - 1))


def populate(node, depth):
    """Build a tree of the given depth below a root."""
    if depth > 0:
        node.left = Node()
        node.right = Node()
        populate(node.left, depth - 1)
        populate(node.right, depth - 1)


def nodes_in(depth):
    """Return the number of nodes in a tree of the given depth."""
    return 2 ** (depth + 1) - 1


def churn():
    """Build trees of all depths, with about the same number of nodes for each depth."""
    for depth in DEPTHS:
        for _ in range(2 * nodes_in(STRETCH_DEPTH) // nodes_in(depth) // 4):
            populate(Node(), depth)
            bottom_up(depth)


def count(node):
    """Return the number of nodes in a tree."""
    if node.left is None:
        return 1
    return 1 + count(node.left) + count(node.right)


def main(rounds):
    """Keep a tree and an array, and build short-lived trees in each round."""
    bottom_up(STRETCH_DEPTH)
    long_lived = Node()
    populate(long_lived, LONG_LIVED_DEPTH)
    numbers = [1.0 / (i + 1) for i in range(500000)]
    for _ in range(rounds):
        churn()
    print("%d nodes live, %.3f" % (count(long_lived), numbers[1000]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
