"""Measure a loop that allocates at a given stack depth, sampled and plain in turn.

    depth_worker.py SECONDS PAIRS DEPTH...

The experiment `depth` runs this script, which prints a line of JSON for each pair of
runs. DEPTH is the number of frames of the whole stack, as in the profile. The loop runs
in a new thread, because a thread's stack begins with the thread.
"""
from __future__ import annotations

import _thread
import json
import os
import sys
import tempfile
import time

import vmprof_allocation
from vmprof_convert import readers

#: The sampling interval in bytes.  With it, a run has thousands of samples, but the
#: program works between two samples.
INTERVAL = 16384
FILLER = b"x" * 2000
kept: list[bytes] = [b""]


def work(count: int) -> float:
    """Allocate strings, and return the elapsed seconds."""
    start = time.perf_counter()
    for i in range(count):
        kept[0] = FILLER[i & 7:1000 + (i & 7)]
    return time.perf_counter() - start


def cpu_time(count: int) -> float:
    """Return the processor time of work(), in seconds."""
    start = time.process_time()
    work(count)
    return time.process_time() - start


def down(depth: int, count: int) -> float:
    """Call work() below `depth` further frames, and return its result."""
    return down(depth - 1, count) if depth > 1 else work(count)


def at_depth(depth: int, count: int) -> float:
    """Return the seconds that work(count) takes, `depth` frames deep."""
    done = _thread.allocate_lock()
    done.acquire()
    result = []

    def bottom() -> None:
        result.append(down(depth - 2, count))
        done.release()

    _thread.start_new_thread(bottom, ())
    done.acquire()
    return result[0]


def median_depth(profile: str) -> int:
    """Return the median stack depth of a profile's samples."""
    found = readers.read(profile)
    depths = sorted(len(found.stacks[s]) for s in found.samples.stack if s >= 0)
    return depths[len(depths) // 2]


def main(arguments: list[str]) -> None:
    """Measure pairs of a sampled and a plain run at each depth, and print the times."""
    seconds, pairs = float(arguments[0]), int(arguments[1])
    sys.setrecursionlimit(5000)
    count = 1000
    # Choose the amount of work by its processor time.  On a busy machine, a little work
    # can take long by the wall clock, and a run would have too few samples.
    while cpu_time(count) < seconds / 2:
        count *= 2
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "app.vmprof")

        def sampled(depth: int) -> tuple[float, int]:
            session = vmprof_allocation.sample(profile, INTERVAL)
            with session:
                before = session.statistics().samples
                took = at_depth(depth, count)
                samples = session.statistics().samples - before
            assert median_depth(profile) == depth
            return took, samples

        for pair in range(pairs):
            for depth in map(int, arguments[2:]):
                if pair % 2:
                    took, samples = sampled(depth)
                    plain = at_depth(depth, count)
                else:
                    plain = at_depth(depth, count)
                    took, samples = sampled(depth)
                print(json.dumps({"depth": depth, "plain": plain,
                                  "sampled": took, "samples": samples}),
                      flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
