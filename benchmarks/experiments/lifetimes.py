"""Measure the cost of following sampled objects until they are freed.

Sampled runs with and without lifetimes alternate in the same process.
"""
from __future__ import annotations

import json
import statistics
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json, short
from experiments.costs import with_neighbours
from measuring import NURSERIES, NURSERY, Estimate, estimate, table

NAME = "lifetimes"
PROGRAMS = ("gcbench", "churn", *("pyperformance:" + name for name in (
    "django_template", "json_loads", "deepcopy")))
QUICK_PROGRAMS = ("churn",)
#: The program that also runs with the larger nursery, in which more samples wait for a
#: minor collection.
IN_BOTH = "churn"
INTERVALS = ("1k", "8k", "128k")
WITHOUT = "fateless:"
PROCESSES, PASSES, SECONDS = 3, 12, 0.15


def run(context: Context) -> Json:
    """Run the worker for each program, in several processes."""
    programs = QUICK_PROGRAMS if context.quick else PROGRAMS
    processes, passes, seconds = (
        (1, 2, 0.01) if context.quick else (PROCESSES, PASSES, SECONDS))
    rows = {name: (name, NURSERY) for name in programs}
    rows["%s, %s" % (IN_BOTH, NURSERIES[1])] = (IN_BOTH, NURSERIES[1])
    found: dict[str, list[list[Json]]] = {row: [] for row in rows}
    for process in range(processes):
        for row, (name, nursery) in rows.items():
            measuring.progress("%s: %s, process %d of %d" % (
                NAME, row, process + 1, processes))
            out = measuring.run([
                context.pypy, measuring.ROOT / "benchmarks" / "worker.py", name,
                "%g" % seconds, "%d" % passes, "%d" % process,
                *(kind + interval for interval in INTERVALS
                  for kind in ("", WITHOUT))],
                variables={"PYPY_GC_NURSERY": nursery}).out
            found[row].append(list(map(json.loads, out.splitlines())))
    return {"programs": found}


def microseconds(processes: list[list[Json]], configuration: str) -> list[float]:
    """Return the cost of a sample in microseconds of processor time, for each run."""
    return [1e6 * (segment["cpu"] - reference) / segment["samples"]
            for segments in processes
            for segment, reference in with_neighbours(segments, "cpu")
            if segment["configuration"] == configuration and segment["samples"]]


def _ratio(processes: list[list[Json]], interval: str) -> Estimate:
    """Return the time ratio of runs with lifetimes to runs without in the same pass."""
    found = []
    for segments in processes:
        took = {(segment["pass"], segment["configuration"]): segment["cpu"]
                for segment in segments if segment["configuration"] != "plain"}
        found += [cpu / took[number, WITHOUT + interval]
                  for (number, name), cpu in took.items() if name == interval]
    return estimate(found)


def report(results: Json) -> str:
    """Return the table of the cost of a sample, and of the time ratios."""
    lines = [["program", "interval", "us/sample", "without", "more", "run / without",
              "run / plain", "samples/s"]]
    for name, processes in results["programs"].items():
        for interval in INTERVALS:
            cost, without = (statistics.median(microseconds(processes, kind + interval))
                             for kind in ("", WITHOUT))
            mine = [segment for segments in processes for segment in segments
                    if segment["configuration"] == interval]
            lines.append([
                short(name), interval, "%.3f" % cost, "%.3f" % without,
                "%+.0f %%" % (100 * (cost / without - 1)) if without > 0 else "-",
                _ratio(processes, interval).format(),
                "%.3f" % statistics.median(
                    segment["cpu"] / reference for segments in processes
                    for segment, reference in with_neighbours(segments, "cpu")
                    if segment["configuration"] == interval),
                "%.0f" % statistics.median(
                    segment["samples"] / segment["cpu"] for segment in mine)])
    return ("%s\n\nprocessor time; us/sample: with lifetimes and types, without: "
            "--no-lifetimes" % table(lines))


def plot(results: Json, path: Path) -> None:
    """Plot the time ratios against the sampling interval."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, processes in results["programs"].items():
        axes.plot(INTERVALS, [_ratio(processes, interval).median
                              for interval in INTERVALS], "o-", label=short(name))
    axes.axhline(1, color="0.6", linewidth=0.8, zorder=0)
    axes.set_xlabel("mean bytes between two samples")
    axes.set_ylabel("processor time, with lifetimes / without")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
