"""Many profiles of one program, each with another seed.

    coverage_worker.py FOLDER RUNS INTERVAL...

The program has phases that allocate slowly and fast, and a function that
allocates now and then in each of them.  The JIT has compiled all of it before
the first profile is taken, and no object can be left out: so every run
allocates the same.  Interval 1 takes every object once: what is true.
"""
from __future__ import annotations

import os
import sys

import vmprof_allocation

#: what is allocated is reachable from here for a while
kept = [None] * 64


def rare(i):
    kept[i & 63] = [None] * (20 + i % 50)


def slow(i):
    value = i
    for _ in range(600):
        value = value * 1103515245 + 12345 & 0x7FFFFFFF
    kept[value & 63] = [value] * 12


def fast(i):
    kept[i & 63] = [None] * (10 + i % 90)


def large(i):
    kept[i & 63] = [None] * 3000


def work():
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
