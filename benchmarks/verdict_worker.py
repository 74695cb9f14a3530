"""Pairs of profiles of one program: some alike, and some of which the second one is of
a run that keeps more.

    verdict_worker.py FOLDER INTERVAL CLEAN PLANTED

The JIT has compiled all of it before the first profile is taken.  What a run keeps is
dropped behind it: each begins with the same heap.
"""
from __future__ import annotations

import gc
import os
import sys

import vmprof_allocation

#: what is allocated is reachable from here for a while; and what stays
kept = [None] * 64
stays: list[object] = []


def work_once(i):
    kept[i & 63] = [None] * (10 + i % 90)


def leaky(i):
    stays.append([None] * 50)


def working_set(i):
    stays.append([None] * 50)


def work(leaks):
    # of 50000 lists, 55 items each on average: 500 are 1 %
    for i in range(50000):
        work_once(i)
        if i % 100 == 0:
            working_set(i)
        if leaks and i % 50 == 0:
            leaky(i)


def run(path, interval, seed, leaks):
    del stays[:]
    kept[:] = [None] * 64
    gc.collect()
    with vmprof_allocation.sample(path, interval, seed=seed):
        work(leaks)
        kept[:] = [None] * 64
        gc.collect()


def main(folder, interval, clean, planted):
    for _ in range(20):
        work(True)
    seed = 1
    for name, pairs in (("clean", clean), ("planted", planted)):
        for i in range(pairs):
            for side in "before", "after":
                path = os.path.join(folder, "%s-%d-%s" % (name, i, side))
                run(path, interval, seed, name == "planted" and side == "after")
                seed += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
