"""Measure the microseconds per sample against the depth of the stack."""
from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from measuring import estimate, table

NAME = "depth"
DEPTHS = (5, 10, 20, 50, 100, 200, 500)
PAIRS, SECONDS = 20, 0.1


def run(context: Context) -> Json:
    """Run depth_worker.py with the JIT and without."""
    pairs, seconds = (2, 0.01) if context.quick else (PAIRS, SECONDS)
    found: Json = {}
    for jit in "on", "off":
        measuring.progress("depth: JIT %s" % jit)
        out = measuring.run([
            context.pypy, *(["--jit", "off"] if jit == "off" else []),
            measuring.ROOT / "benchmarks" / "depth_worker.py",
            "%g" % seconds, "%d" % pairs, *map(str, DEPTHS)]).out
        found[jit] = list(map(json.loads, out.splitlines()))
    return found


def costs(rows: list[Json], depth: int) -> list[float]:
    """Return the cost of a sample in microseconds at a depth, for each pair of runs."""
    return [1e6 * (row["sampled"] - row["plain"]) / row["samples"]
            for row in rows if row["depth"] == depth]


def report(results: Json) -> str:
    """Return the table of the cost of a sample by stack depth."""
    return table([
        ["frames", "us/sample, JIT", "us/sample, JIT off", "samples in a run"],
        *(["%d" % depth, *(estimate(costs(results[jit], depth)).format(3)
                           for jit in ("on", "off")),
           "%d" % min(row["samples"] for jit in results
                      for row in results[jit] if row["depth"] == depth)]
          for depth in DEPTHS)])


def plot(results: Json, path: Path) -> None:
    """Plot the costs against the depth."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for jit, color in (("on", "#1f77b4"), ("off", "#d95f02")):
        for depth in DEPTHS:
            found = costs(results[jit], depth)
            axes.plot([depth] * len(found), found, ".", color=color, alpha=0.35)
        axes.plot(DEPTHS, [estimate(costs(results[jit], d)).median
                           for d in DEPTHS], color=color, label="JIT " + jit)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(DEPTHS, list(map(str, DEPTHS)))
    axes.set_xticks([], minor=True)
    axes.set_xlabel("frames on the stack")
    axes.set_ylabel("microseconds a sample")
    axes.grid(color="0.92")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
