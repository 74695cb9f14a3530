"""Allocate small objects as fast as the JIT can, without keeping any.

This is the worst case for an allocation sampler, because the program does almost
nothing between two allocations.

Usage: churn.py [ROUNDS]
"""
from __future__ import annotations

import sys

#: The number of passes through the hot loop in one round.
PASSES = 100000

#: The slots that hold each object until the next pass replaces it.  The JIT does not
#: allocate an object that is stored nowhere, but keeps its fields in registers.  Each
#: kind of object has its own slot, because the JIT also drops a store that the same
#: pass overwrites.
SLOTS: list[object] = [None] * 4


class Item:
    """An object with three fields."""

    __slots__ = ("left", "right", "value")

    def __init__(self, value: int) -> None:
        """Store the value."""
        self.left = None
        self.right = None
        self.value = value


def churn(passes: int, slots: list[object]) -> None:
    """Allocate four objects of different kinds and sizes in each pass."""
    number = 0.0
    for i in range(passes):
        number += 1.0
        slots[0] = number
        slots[1] = (i, i)
        slots[2] = Item(i)
        slots[3] = [None] * 8


def main(rounds: int) -> None:
    """Allocate objects in the given number of rounds, and print their number."""
    for _ in range(rounds):
        churn(PASSES, SLOTS)
    print("%d objects" % (rounds * PASSES * len(SLOTS)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
