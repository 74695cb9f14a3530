"""What it takes to write a profile of a million samples in each format: processor time
and the largest resident memory of the whole command, reading included.

The profile is the harder kind: importing sympy makes stacks of a hundred frames, of
which there are tens of thousands.
"""
from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from measuring import table
from vmprof_convert import readers
from vmprof_convert.formats import FORMATS

NAME = "formats"
#: of formats_worker.py
INTERVAL, ROUNDS = "1k", "5"
QUICK_INTERVAL, QUICK_ROUNDS = "512k", "1"
RUNS = 3


def run(context: Context) -> Json:
    measuring.progress(NAME)
    runs = 1 if context.quick else RUNS
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "app.vmprof"
        measuring.run([
            context.pypy, measuring.ROOT / "benchmarks" / "formats_worker.py", profile,
            *((QUICK_INTERVAL, QUICK_ROUNDS) if context.quick else (INTERVAL, ROUNDS))])
        read = readers.read(profile)
        found: Json = {"samples": len(read.samples), "stacks": len(read.stacks),
                       "profile": profile.stat().st_size, "formats": {}}
        del read
        for name in FORMATS:
            out = Path(folder) / "out"
            done = [measuring.run([sys.executable, "-m", "vmprof_convert", profile,
                                   "--to", name, "-o", out]) for _ in range(runs)]
            found["formats"][name] = {
                "cpu": [process.cpu for process in done],
                "rss": max(process.rss for process in done),
                "size": out.stat().st_size}
    return found


# ____________________________________________________________


def report(results: Json) -> str:
    lines = [["", "seconds", "memory (MiB)", "file (MiB)"]]
    for name, row in results["formats"].items():
        lines.append([name, "%.1f" % statistics.median(row["cpu"]),
                      "%.0f" % (row["rss"] / 2**20), "%.1f" % (row["size"] / 2**20)])
    return "%d samples of %d stacks, in %.1f MiB; processor time of the command, " \
        "median, and its largest resident memory; files are not compressed\n\n%s" % (
            results["samples"], results["stacks"], results["profile"] / 2**20,
            table(lines))


def plot(results: Json, path: Path) -> None:
    rows = results["formats"]
    figure, (seconds, memory) = plt.subplots(1, 2, figsize=(8, 4), sharey=True,
                                             layout="constrained")
    seconds.barh(list(rows), [statistics.median(row["cpu"]) for row in rows.values()])
    seconds.set_xlabel("seconds")
    memory.barh(list(rows), [row["rss"] / 2**20 for row in rows.values()])
    memory.set_xlabel("MiB")
    seconds.invert_yaxis()
    figure.savefig(path, dpi=110)
    plt.close(figure)
