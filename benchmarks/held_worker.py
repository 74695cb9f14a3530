"""What it takes to look who holds what, in PyPy.

    held_worker.py THOUSANDS TIMES

makes so many thousand objects, and asks so many times.  Prints, as JSON, what the heap
has and what is resident, and medians: how long the program stood still, the processor
time of the process that looked, and the memory that it took.  In nanoseconds, and in
bytes."""
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
    def __init__(self, number: int) -> None:
        self.name = "node%d" % number
        self.items = [number, self.name + "!"]


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def main(thousands: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "held.vmprof")
        with vmprof_allocation.sample(path, "64k") as session:
            # of seven objects each
            nodes = {number: Node(number) for number in range(thousands * 1000 // 7)}
            gc.collect()
            for _ in range(times):
                session.held()
            size = resident()
        asked = readers.read_events(path).held
    assert len(nodes) == thousands * 1000 // 7
    print(json.dumps({"resident": size, **{
        name: statistics.median(getattr(held, name) for held in asked)
        for name in ("objects", "bytes", "still", "duration", "memory")}}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
