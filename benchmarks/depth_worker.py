"""Allocates at some depth of the stack, sampled and not, in turn.

    depth_worker.py SECONDS PAIRS DEPTH...

Prints a line of JSON for each pair.  The depth is that of the whole stack, as
the profile has it: what allocates runs in a thread, whose stack begins with
it.
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

#: bytes; so that a run has thousands of samples, and each comes out of the
#: program's own work
INTERVAL = 16384
FILLER = b"x" * 2000
kept: list[bytes] = [b""]


def work(count: int) -> float:
    start = time.perf_counter()
    for i in range(count):
        kept[0] = FILLER[i & 7:1000 + (i & 7)]
    return time.perf_counter() - start


def cpu_time(count: int) -> float:
    start = time.process_time()
    work(count)
    return time.process_time() - start


def down(depth: int, count: int) -> float:
    return down(depth - 1, count) if depth > 1 else work(count)


def at_depth(depth: int, count: int) -> float:
    """The time that work(count) takes, `depth` frames deep."""
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
    found = readers.read(profile)
    depths = sorted(len(found.stacks[s]) for s in found.samples.stack if s >= 0)
    return depths[len(depths) // 2]


def main(arguments: list[str]) -> None:
    seconds, pairs = float(arguments[0]), int(arguments[1])
    sys.setrecursionlimit(5000)
    count = 1000
    # of the processor: on a busy machine little work can take long, and then
    # there are too few samples
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
