"""Record pairs of profiles of one program, with and without a leak in the second run.

    verdict_worker.py FOLDER INTERVAL CLEAN PLANTED

The experiment `verdicts` runs this script. It records CLEAN pairs of equal runs, and
PLANTED pairs whose second run keeps more objects. The JIT has compiled the whole
program before the first profile begins. At its end, each run drops the objects that it
has kept, so that all runs begin with the same heap.
"""
from __future__ import annotations

import gc
import os
import sys

import vmprof_allocation

#: The most recent objects, so that the JIT has to allocate them; and the objects that
#: the run keeps.
kept = [None] * 64
stays: list[object] = []


def work_once(i):
    """Allocate a list that is dropped soon."""
    kept[i & 63] = [None] * (10 + i % 90)


def leaky(i):
    """Keep a list; only runs with a leak call this function."""
    stays.append([None] * 50)


def working_set(i):
    """Keep a list in every run."""
    stays.append([None] * 50)


def work(leaks):
    """Allocate the lists of one run."""
    # The run makes 50000 lists of 55 items on average.  The 500 lists of working_set()
    # are 1 % of the bytes.
    for i in range(50000):
        work_once(i)
        if i % 100 == 0:
            working_set(i)
        if leaks and i % 50 == 0:
            leaky(i)


def run(path, interval, seed, leaks):
    """Record a profile of one run."""
    del stays[:]
    kept[:] = [None] * 64
    gc.collect()
    with vmprof_allocation.sample(path, interval, seed=seed):
        work(leaks)
        kept[:] = [None] * 64
        gc.collect()


def main(folder, interval, clean, planted):
    """Warm up, then record all pairs into the folder."""
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
