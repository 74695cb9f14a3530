"""Measure the run time of programs with sampling, divided by the time without.

Each of many programs runs in several processes. Each process runs the program several
times in all configurations of the sampler (worker.py). The processes of the programs
alternate.
"""
from __future__ import annotations

import bisect
import collections
import itertools
import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json, short
from measuring import Estimate, estimate, table
from vmprof_allocation.settings.parsing import parse_interval

NAME = "costs"

#: The programs to run.  The last program serves requests over loopback.
PROGRAMS = (
    "churn", "gcbench", "pystone", *("pyperformance:" + name for name in (
        "richards", "deltablue", "json_dumps", "json_loads", "regex_effbot",
        "genshi", "django_template", "html5lib", "pyflate", "sympy",
        "deepcopy", "telco", "logging", "tornado_http")))
QUICK_PROGRAMS = ("churn", "pyperformance:json_dumps")
INTERVALS = ("32k", "128k", "512k", "1M", "4M", "32M")
CONFIGURATIONS = (*INTERVALS, "auto", "fixed:128k", "time:1000", "both:128k:1000")
QUICK_CONFIGURATIONS = ("32k", "1M", "auto", "fixed:128k", "time:1000",
                        "both:128k:1000")
PROCESSES, PASSES, SECONDS = 5, 2, 0.15


def run(context: Context) -> Json:
    """Run the worker for each program, in several processes."""
    programs = QUICK_PROGRAMS if context.quick else PROGRAMS
    configurations = (QUICK_CONFIGURATIONS if context.quick
                      else CONFIGURATIONS)
    processes, passes, seconds = (
        (1, 1, 0.01) if context.quick else (PROCESSES, PASSES, SECONDS))
    found: dict[str, list[list[Json]]] = {name: [] for name in programs}
    for process in range(processes):
        for name in programs:
            measuring.progress("costs: %s, process %d of %d" % (
                name, process + 1, processes))
            out = measuring.run([
                context.pypy, measuring.ROOT / "benchmarks" / "worker.py", name,
                "%g" % seconds, "%d" % passes, "%d" % process,
                *configurations]).out
            found[name].append(list(map(json.loads, out.splitlines())))
    return {"programs": found, "seconds": seconds}


# ____________________________________________________________
# ratios

Ratios = dict[str, list[float]]


def with_neighbours(segments: list[Json],
                    clock: str = "wall") -> Iterator[tuple[Json, float]]:
    """Yield each run that lies between two plain runs of its pass.

    Plain runs can lie between two plain runs, too.

    Args:
        segments: The runs of one process.
        clock: "wall" or "cpu".

    Yields:
        The run, and the mean time of the two plain runs in seconds.
    """
    for _, group in itertools.groupby(segments, key=lambda s: s["pass"]):
        inside = list(group)
        plain = [i for i, s in enumerate(inside)
                 if s["configuration"] == "plain"]
        for i in range(plain[0] + 1, plain[-1]):
            before = plain[bisect.bisect_left(plain, i) - 1]
            after = plain[bisect.bisect_right(plain, i)]
            yield inside[i], (inside[before][clock]
                              + inside[after][clock]) / 2


def ratios(processes: list[list[Json]]) -> Ratios:
    """Return the time ratios of the runs in each configuration.

    Each run is compared with the plain runs around it. The configuration "off" consists
    of plain runs, which are compared in the same way. They show the noise.
    """
    result: Ratios = collections.defaultdict(list)
    for segments in processes:
        for segment, reference in with_neighbours(segments):
            name = segment["configuration"]
            result["off" if name == "plain" else name].append(
                segment["wall"] / reference)
    return result


def median_of(processes: list[list[Json]], configuration: str,
              key: str) -> float:
    """Return the median of a value over all runs in a configuration."""
    values: list[float] = [
        segment[key] for segments in processes for segment in segments
        if segment["configuration"] == configuration]
    return statistics.median(values)


def rate(processes: list[list[Json]]) -> float:
    """Return the bytes per second that the program allocates in a plain run."""
    return (_least(processes, "allocated")
            / median_of(processes, "plain", "wall"))


def microseconds(processes: list[list[Json]], configuration: str,
                 ) -> Estimate | None:
    """Return the cost of a sample in microseconds, or None if it is below the noise."""
    costs = [1e6 * (segment["wall"] - reference) / segment["samples"]
             for segments in processes
             for segment, reference in with_neighbours(segments)
             if segment["configuration"] == configuration
             and segment["samples"]]
    if len(costs) < 6:
        return None
    result = estimate(costs)
    return None if result.includes(0) else result


def _least(processes: list[list[Json]], key: str) -> float:
    """Return the median of a value at the largest sampling interval."""
    return median_of(processes, _largest_interval(processes), key)


def _largest_interval(processes: list[list[Json]]) -> str:
    """Return the largest sampling interval of the study."""
    there = {segment["configuration"] for segment in processes[0]}
    return [c for c in INTERVALS if c in there][-1]


def bytes_a_sample(processes: list[list[Json]]) -> float:
    """Return the bytes by which the profile grows per sample.

    The result excludes the names of functions, which are in the profile before the
    first sample.
    """
    return ((median_of(processes, "32k", "profile")
             - _least(processes, "profile"))
            / (median_of(processes, "32k", "samples")
               - _least(processes, "samples")))


def geometric_mean(values: list[float]) -> float:
    """Return the geometric mean of the values."""
    return math.exp(statistics.fmean(map(math.log, values)))


def report(results: Json) -> str:
    """Return tables of time ratios, their 95 % intervals, and the cost of a sample."""
    programs = results["programs"]
    found = {name: ratios(processes) for name, processes in programs.items()}
    columns = [name for name in ("off", *CONFIGURATIONS)
               if any(name in r for r in found.values())]
    medians = {name: {c: statistics.median(r[c]) for c in columns}
               for name, r in found.items()}
    lines = [["wall time, sampled / plain", "GB/s", *columns]]
    for name, processes in programs.items():
        lines.append([short(name), "%.1f" % (rate(processes) / 1e9),
                      *("%.3f" % medians[name][c] for c in columns)])
    lines.append(["geometric mean", "", *(
        "%.3f" % geometric_mean([m[c] for m in medians.values()])
        for c in columns)])
    parts = [table(lines)]
    lines = [["95 % interval", *columns]]
    for name in programs:
        lines.append([short(name), *(
            "%.3f..%.3f" % (e.low, e.high) for e in (
                estimate(found[name][c]) for c in columns))])
    parts.append(table(lines))
    sampled = [c for c in columns if c in ("32k", "128k", "1M")]
    lines = [["program", *("us/sample, " + c for c in sampled),
              *("samples/s, " + c for c in sampled), "bytes/sample",
              "names, KB"]]
    for name, processes in programs.items():
        costs = [microseconds(processes, c) for c in sampled]
        lines.append([
            short(name),
            *("below the noise" if e is None else e.format(2) for e in costs),
            *("%.0f" % (median_of(processes, c, "samples")
                        / median_of(processes, c, "wall")) for c in sampled),
            "%.1f" % bytes_a_sample(processes),
            "%.0f" % (_least(processes, "profile") / 1000)])
    parts.append(table(lines))
    pairs = len(found[next(iter(programs))]["32k"])
    parts.append("medians of %d runs each, between plain ones in the same "
                 "process; off: a plain run between plain ones" % pairs)
    return "\n\n".join(parts)


# ____________________________________________________________
# plots

def plot(results: Json, path: Path) -> None:
    """Plot the time ratios, and into a second file, the samples per second."""
    _plot_overhead(results, path)
    _plot_rates(results, path.with_name(path.stem + "-rate.png"))


def _plot_overhead(results: Json, path: Path) -> None:
    """Plot the time ratios of each program against the sampling interval."""
    programs = results["programs"]
    columns = min(6, len(programs))
    rows = -(-len(programs) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(2.6 * columns, 2.3 * rows), sharex=True,
        sharey=True, layout="constrained", squeeze=False)
    for axes in grid.flat[len(programs):]:
        axes.axis("off")
    for axes, (name, processes) in zip(grid.flat, programs.items()):
        found = ratios(processes)
        mine = [c for c in INTERVALS if c in found]
        for c in mine:
            axes.plot([parse_interval(c)] * len(found[c]), found[c], ".",
                      color="#1f77b4", alpha=0.35, markersize=4)
        axes.plot([parse_interval(c) for c in mine],
                  [statistics.median(found[c]) for c in mine],
                  color="#d95f02", linewidth=1.2)
        axes.axhline(1, color="0.6", linewidth=0.8, zorder=0)
        axes.set_title("%s, %.1f GB/s" % (short(name), rate(processes) / 1e9),
                       fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_xticks([2**15, 2**20, 2**25], ["32k", "1M", "32M"])
        axes.set_ylim(0.93, 1.3)
        axes.grid(axis="y", color="0.92")
    figure.supxlabel("mean bytes between two samples", fontsize=9)
    figure.supylabel("wall time, sampled / plain", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_rates(results: Json, path: Path) -> None:
    """Plot the samples per second, and the cost of sampling.

    The samples are plotted against the sampling interval, and the cost against the
    number of bytes that the program allocates per second.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2),
                                         layout="constrained")
    found = {name: ratios(processes)
             for name, processes in results["programs"].items()}
    for name, processes in results["programs"].items():
        mine = [c for c in INTERVALS if c in found[name]]
        left.plot([parse_interval(c) for c in mine], [
            median_of(processes, c, "samples") / median_of(processes, c, "wall")
            for c in mine], marker=".", linewidth=0.8, label=short(name))
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    left.set_xticks([2**15, 2**20, 2**25], ["32k", "1M", "32M"])
    left.set_xlabel("mean bytes between two samples")
    left.set_ylabel("samples a second")
    left.legend(frameon=False, fontsize=6, ncols=2)
    for configuration, color in (("32k", "#d95f02"), ("128k", "#1f77b4"),
                                 ("1M", "#2ca02c")):
        points = [(rate(results["programs"][name]) / 1e9,
                   100 * (statistics.median(r[configuration]) - 1))
                  for name, r in found.items() if configuration in r]
        right.plot(*zip(*points) if points else ([], []), "o", markersize=4,
                   color=color, label=configuration)
    right.axhline(0, color="0.6", linewidth=0.8, zorder=0)
    right.set_xscale("log")
    right.set_xlabel("GB that the program allocates a second")
    right.set_ylabel("cost, percent of the time")
    right.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
