"""A program that was translated with the patch: the guest interpreter of
rpython/examples, without and with the JIT.  Whole processes."""
from __future__ import annotations

import random
import statistics
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from experiments.costs import INTERVALS
from measuring import BUILD, ROOT, estimate, table
from vmprof_allocation import reader

NAME = "patched"
BUILDS = ("guest", "guest-jit")
PROGRAM = ROOT / "rpython" / "examples" / "programs" / "gcbench.guest"
RATES = (*INTERVALS, "auto:1000/s")
#: rounds of the program, about half a second each
ROUNDS = {"guest": 6, "guest-jit": 40}
PAIRS = 15


def run(context: Context) -> Json:
    builds = [b for b in BUILDS if (BUILD / "rpython" / b).exists()]
    if not builds:
        raise measuring.Failed("there is no .build/rpython/guest: run `make "
                               "bench`, which builds it")
    pairs = 1 if context.quick else PAIRS
    rates = ("128k", "auto:1000/s") if context.quick else RATES
    rng = random.Random(1)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(pairs):
            measuring.progress("patched: pair %d of %d" % (pair + 1, pairs))
            for build in builds:
                rounds = 1 if context.quick else ROUNDS[build]
                for rate in ("plain", *rng.sample(rates, len(rates)), "again"):
                    flags = [] if rate in ("plain", "again") else [
                        "--allocation-sampling", rate]
                    process = measuring.run(
                        [BUILD / "rpython" / build, *flags, PROGRAM,
                         "%d" % rounds], Path(folder))
                    row: Json = {"pair": pair, "build": build, "rate": rate,
                                 "wall": process.wall, "rss": process.rss}
                    if flags and not pair:
                        path = Path(folder) / "out.vmprof"
                        row["samples"] = len(reader.read(path).samples)
                        row["profile"] = path.stat().st_size
                    found.append(row)
    return {"runs": found}


def ratios(results: Json, build: str, rate: str, key: str) -> list[float]:
    mine = {(row["pair"], row["rate"]): row[key] for row in results["runs"]
            if row["build"] == build}
    return [mine[pair, rate] / (
        mine[pair, "plain"] if rate == "again" else statistics.fmean(
            [mine[pair, "plain"], mine[pair, "again"]]))
        for pair, name in mine if name == rate]


def report(results: Json) -> str:
    lines = [["build", "rate", "time", "memory", "samples", "bytes/sample"]]
    for build in dict.fromkeys(row["build"] for row in results["runs"]):
        for rate in "again", *RATES:
            rows = [row for row in results["runs"]
                    if row["build"] == build and row["rate"] == rate]
            if not rows:
                continue
            samples = rows[0].get("samples", 0)
            lines.append([
                build, "none" if rate == "again" else rate,
                estimate(ratios(results, build, rate, "wall")).format(),
                "%.3f" % statistics.median(ratios(results, build, rate, "rss")),
                "%d" % samples,
                "%.1f" % (rows[0]["profile"] / samples) if samples else ""])
    return table(lines)


def plot(results: Json, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    names = ["again", *RATES]
    for build, color in zip(BUILDS, ("#1f77b4", "#d95f02")):
        for x, rate in enumerate(names):
            found = ratios(results, build, rate, "wall")
            axes.plot([x] * len(found), found, ".", color=color, alpha=0.35)
            if found:
                axes.plot(x, statistics.median(found), "_", color=color,
                          markersize=14, label=build if rate == "again" else None)
    axes.set_xticks(range(len(names)), ["none", *RATES], rotation=60)
    axes.set_ylabel("time, sampled / plain")
    axes.grid(axis="y", color="0.92")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
