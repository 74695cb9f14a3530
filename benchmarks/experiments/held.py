"""Measure the cost and the errors of finding the retainers.

The cost is the pause of the program during a heap snapshot, and the time and memory of
the forked process that reads the heap.
"""
from __future__ import annotations

import collections
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from measuring import NURSERIES, NURSERY, ROOT, table

NAME = "held"
#: Thousands of objects that the program keeps, and the number of heap snapshots.
THOUSANDS, TIMES = (600, 3000, 7000), 11
QUICK_THOUSANDS, QUICK_TIMES = (10, 20), 1
#: The number of runs of held_truth.py with each nursery.
RUNS, QUICK_RUNS = {"sums": 75, "paths": 200}, {"sums": 1, "paths": 2}


def run(context: Context) -> Json:
    """Measure heaps of several sizes, and check retained sizes and reference paths."""
    thousands, times, runs = (
        (QUICK_THOUSANDS, QUICK_TIMES, QUICK_RUNS) if context.quick
        else (THOUSANDS, TIMES, RUNS))

    def worker(nursery: str, name: str, *arguments: object) -> Any:
        measuring.progress("%s: %s %s, nursery %s" % (
            NAME, name, " ".join(map(str, arguments)), nursery))
        return json.loads(measuring.run(
            [context.pypy, ROOT / "benchmarks" / name, *map(str, arguments)],
            variables={"PYPY_GC_NURSERY": nursery}).out)

    sizes: list[Json] = []
    sums: list[Json] = []
    paths: collections.Counter[str] = collections.Counter()
    for nursery in NURSERIES:
        sizes += [{"nursery": nursery, **worker(nursery, "held_worker.py", size, times)}
                  for size in thousands]
        sums += worker(nursery, "held_truth.py", "sums", runs["sums"])
        paths.update(worker(nursery, "held_truth.py", "paths", runs["paths"]))
    return {"sizes": sizes, "sums": sums, "paths": dict(paths)}


def report(results: Json) -> str:
    """Return the table of costs, and how many retained sizes and paths are right."""
    lines = [["nursery", "objects (million)", "MB", "resident (MiB)",
              "stands still (ms)", "looks (ms)", "for a million", "its memory (MiB)"]]
    for row in results["sizes"]:
        looks, millions = row["duration"] / 1e6, row["objects"] / 1e6
        lines.append([
            # Older results have only one nursery, and their rows do not name it.
            row.get("nursery", NURSERY), "%.2f" % millions,
            "%.0f" % (row["bytes"] / 1e6),
            "%.0f" % (row["resident"] / 2**20), "%.1f" % (row["still"] / 1e6),
            "%.0f" % looks, "%.0f" % (looks / millions),
            "%.1f" % (row["memory"] / 2**20)])
    zs = [z for z, _ in results["sums"]]
    paths = results["paths"]
    return (
        "%s\n\n%d estimates beside exact sums: z has a mean of %.2f and a standard "
        "deviation of %.2f,\nand %d of the 95 %% intervals hold the sum\n\n%d paths of "
        "%d in random structures are expressions: each was evaluated, and %d led\n"
        "elsewhere" % (
            table(lines), len(zs), statistics.mean(zs), statistics.stdev(zs),
            sum(is_within for _, is_within in results["sums"]),
            paths["right"] + paths["wrong"], sum(paths.values()), paths["wrong"]))


def plot(results: Json, path: Path) -> None:
    """Plot the pause and the processor time against the number of objects."""
    figure, (still, looks) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
    for axes, key, label in ((still, "still", "ms that the program stands still"),
                             (looks, "duration", "ms of a processor, to look")):
        for nursery in NURSERIES:
            rows = [row for row in results["sizes"]
                    if row.get("nursery", NURSERY) == nursery]
            axes.plot([row["objects"] / 1e6 for row in rows],
                      [row[key] / 1e6 for row in rows], "o-",
                      label="nursery " + nursery)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("million objects")
        axes.set_ylabel(label)
        axes.grid(axis="y", color="0.92")
    still.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
