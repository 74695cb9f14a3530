"""Small objects, as fast as the JIT makes them, none of them kept.

The worst case for an allocation sampler: next to nothing happens between two
allocations.  Usage: churn.py [ROUNDS]
"""
from __future__ import annotations

import sys

#: passes through the hot loop in one round
PASSES = 100000

#: Where each object lives until the next one takes its place.  An object that
#: is stored nowhere is not allocated at all: the JIT keeps its fields in
#: registers.  One slot for each kind, as the JIT also drops a store that the
#: same pass overwrites.
SLOTS: list[object] = [None] * 4


class Item:
    __slots__ = ("left", "right", "value")

    def __init__(self, value: int) -> None:
        self.left = None
        self.right = None
        self.value = value


def churn(passes: int, slots: list[object]) -> None:
    """Objects of four kinds, each of another size, in each pass."""
    number = 0.0
    for i in range(passes):
        number += 1.0
        slots[0] = number
        slots[1] = (i, i)
        slots[2] = Item(i)
        slots[3] = [None] * 8


def main(rounds: int) -> None:
    for _ in range(rounds):
        churn(PASSES, SLOTS)
    print("%d objects" % (rounds * PASSES * len(SLOTS)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
