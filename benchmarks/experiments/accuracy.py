"""Measure the errors of the estimates at several sampling intervals.

gcbench runs once with every object sampled, which gives the true values, and then with
many seeds at each sampling interval. The JIT is off, because two runs with the JIT do
not allocate the same bytes.
"""
from __future__ import annotations

import math
import statistics
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from measuring import table
from vmprof_allocation.settings.parsing import parse_interval
from vmprof_convert import readers
from vmprof_convert.analysis import summary

NAME = "accuracy"
INTERVALS = ("1k", "4k", "16k", "64k", "256k", "1M", "4M")
SEEDS = 20


def run(context: Context) -> Json:
    """Record the profiles, and return their estimates."""
    measuring.progress("accuracy")
    intervals = ("64k",) if context.quick else INTERVALS
    seeds = 2 if context.quick else SEEDS
    found: Json = {}
    with tempfile.TemporaryDirectory() as folder:
        measuring.run([
            context.pypy, "--jit", "off",
            measuring.ROOT / "benchmarks" / "accuracy_worker.py", folder,
            "%d" % seeds, "1", *intervals])
        for interval in "1", *intervals:
            found[interval] = [_functions(path) for path in sorted(
                Path(folder).glob(interval + "-*"))]
    return found


def _functions(path: Path) -> Json:
    """Return the numbers of samples, bytes and objects, in all and of each function."""
    profile = readers.read(path)
    result = summary.summarize(profile)
    return {
        "samples": result.samples, "bytes": result.bytes.value,
        "objects": result.objects.value,
        "functions": {row.function.name: [row.own.bytes().value,
                                          row.own.objects().value]
                      for row in result.rows if row.own.bytes().value}}


def rms(values: list[float]) -> float:
    """Return the root mean square of the values."""
    return math.sqrt(statistics.fmean(value**2 for value in values))


def errors(results: Json, interval: str) -> Json:
    """Return the relative errors of a sampling interval.

    The errors of functions and of the total are root mean squares over the seeds.
    "share" is the largest error among the functions that allocate 1 % of the bytes or
    more.
    """
    truth = results["1"][0]
    runs = results[interval]
    shares = {name: bytes_ / truth["bytes"]
              for name, (bytes_, _) in truth["functions"].items()}
    large = [name for name, share in shares.items() if share >= 0.01]

    def of(name: str, run: Json) -> float:
        bytes_ = run["functions"].get(name, [0.0, 0.0])[0]
        return float(bytes_ / run["bytes"] / shares[name] - 1)

    return {
        "samples": statistics.median(run["samples"] for run in runs),
        "total": rms([run["bytes"] / truth["bytes"] - 1 for run in runs]),
        "objects": rms([run["objects"] / truth["objects"] - 1 for run in runs]),
        "share": max(rms([of(name, run) for run in runs]) for name in large),
        "theory": math.sqrt(parse_interval(interval) / truth["bytes"])}


def report(results: Json) -> str:
    """Return the table of the estimates' errors by sampling interval."""
    lines = [["interval", "samples", "total bytes", "sqrt(interval / bytes)",
              "objects", "worst share"]]
    for interval in results:
        if interval != "1":
            e = errors(results, interval)
            lines.append([interval, "%.0f" % e["samples"], *(
                "%.2f %%" % (100 * e[key])
                for key in ("total", "theory", "objects", "share"))])
    return table(lines) + (
        "\n\nrelative errors against a run in which every object was sampled "
        "(%.0f MB), root mean square over %d seeds; worst share: of the "
        "functions with 1 %% of the bytes or more" % (
            results["1"][0]["bytes"] / 1e6,
            len(next(runs for key, runs in results.items() if key != "1"))))


def plot(results: Json, path: Path) -> None:
    """Plot the errors against the sampling interval."""
    intervals = [interval for interval in results if interval != "1"]
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    x = [parse_interval(interval) for interval in intervals]
    for key, label in (("total", "total bytes"), ("objects", "objects"),
                       ("share", "worst share of a function"),
                       ("theory", "sqrt(interval / bytes)")):
        axes.plot(x, [100 * errors(results, i)[key] for i in intervals],
                  "--" if key == "theory" else "o-", markersize=4,
                  linewidth=1, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(x, intervals)
    axes.set_xlabel("mean bytes between two samples")
    axes.set_ylabel("error, percent (root mean square)")
    axes.grid(color="0.92")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
