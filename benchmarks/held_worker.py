"""Measure the cost of finding the retainers in PyPy.

    held_worker.py THOUSANDS TIMES

The experiment `held` runs this script. It makes THOUSANDS of objects, and takes TIMES
heap snapshots with retainers. It prints, as JSON, the number of objects on the heap,
their bytes, and the resident bytes. It also prints medians over the snapshots: the
pause of the program and the processor time of the forked process, in nanoseconds, and
the memory of the forked process in bytes.
"""
from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import tempfile

import vmprof_allocation
from vmprof_convert import readers


class Node:
    """An object that consists of seven objects on the heap."""

    def __init__(self, number: int) -> None:
        """Make the node and the objects to which it refers."""
        self.name = "node%d" % number
        self.items = [number, self.name + "!"]


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def main(thousands: int, times: int) -> None:
    """Make the objects, take the snapshots, and print the result."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "held.vmprof")
        with vmprof_allocation.sample(path, "64k") as session:
            # Each Node consists of seven objects.
            nodes = {number: Node(number) for number in range(thousands * 1000 // 7)}
            gc.collect()
            for _ in range(times):
                session.retainers()
            size = resident()
        asked = readers.read_events(path).held
    assert len(nodes) == thousands * 1000 // 7
    print(json.dumps({"resident": size, **{
        name: statistics.median(getattr(held, name) for held in asked)
        for name in ("objects", "bytes", "still", "duration", "memory")}}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
