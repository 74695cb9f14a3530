"""What it takes to look who holds what, in PyPy: by hand,

    PYPY_GC_NURSERY=4M .venv-pypy/bin/pypy3 benchmarks/held_worker.py THOUSANDS TIMES

makes so many thousand objects, and asks so many times.  Prints the heap and what is
resident, how long the program stood still (the median, and the least), and the medians
of the processor time of the process that looked, and of what it took."""
from __future__ import annotations

import gc
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


def resident() -> float:
    """In MiB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


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
    middle = {name: statistics.median(getattr(held, name) for held in asked)
              for name in ("objects", "bytes", "still", "duration", "memory")}
    millions, mebibytes = middle["objects"] / 1e6, middle["memory"] / 2**20
    print("%.2f million objects, %.0f MB, %.0f MiB resident" % (
        millions, middle["bytes"] / 1e6, size))
    print("stands still for %.1f ms, %.1f at least" % (
        middle["still"] / 1e6, min(held.still for held in asked) / 1e6))
    print("%.0f ms of a processor, %.1f MiB; for a million objects %.0f, %.1f" % (
        middle["duration"] / 1e6, mebibytes, middle["duration"] / 1e6 / millions,
        mebibytes / millions))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
