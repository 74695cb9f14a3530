"""Record many profiles of one program, each with another seed.

    coverage_worker.py FOLDER RUNS INTERVAL...

The experiment `coverage` runs this script. The program has phases that allocate slowly
and fast, and a function that allocates from time to time in each phase. The JIT has
compiled the whole program before the first profile begins. The JIT cannot remove any
object. Therefore, every run allocates the same bytes. At a sampling interval of 1, the
script samples every object once, which gives the true values.
"""
from __future__ import annotations

import os
import sys

import vmprof_allocation

#: The most recent objects, so that the JIT has to allocate them.
kept = [None] * 64


def rare(i):
    """Allocate a list that few iterations allocate."""
    kept[i & 63] = [None] * (20 + i % 50)


def slow(i):
    """Compute, then allocate a small list."""
    value = i
    for _ in range(600):
        value = value * 1103515245 + 12345 & 0x7FFFFFFF
    kept[value & 63] = [value] * 12


def fast(i):
    """Allocate a list of varying size."""
    kept[i & 63] = [None] * (10 + i % 90)


def large(i):
    """Allocate a list of 3000 items."""
    kept[i & 63] = [None] * 3000


def work():
    """Run the phases of the program once."""
    for i in range(6000):
        slow(i)
        if i % 100 == 0:
            rare(i)
    for i in range(120000):
        fast(i)
        if i % 100 == 0:
            rare(i)
        if i % 400 == 0:
            large(i)
    for i in range(3000):
        slow(i)


def main(folder: str, runs: int, intervals: list[str]) -> None:
    """Warm up, then record all profiles into the folder."""
    for _ in range(20):
        work()
    for interval in intervals:
        for seed in range(1 if interval == "1" else runs):
            name = "%s-%d" % (interval.replace(":", "-").replace("/", "-"), seed)
            with vmprof_allocation.sample(os.path.join(folder, name), interval,
                                          seed=seed):
                work()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
