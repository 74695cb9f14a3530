"""Measure the cost of sampling native memory, and the errors of its estimates."""
from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from measuring import ROOT, estimate, table
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile

NAME = "raw_memory"
PROGRAMS = ("malloc_and_free", "malloc_large", "ffi_new", "ctypes_buffers", "arrays",
            "compress", "queries", "text")
INTERVAL = "512k"
#: The number of processes per program, of turns in a process, and the seconds of a run.
PROCESSES, TURNS, SECONDS = 4, 12, 0.1


def run(context: Context) -> Json:
    """Run the worker for each program, in several processes."""
    rows = []
    processes, turns, seconds = (1, 2, 0.1) if context.quick else (
        PROCESSES, TURNS, SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(processes):
            for program in PROGRAMS[:2] if context.quick else PROGRAMS:
                measuring.progress("%s: %s, process %d of %d" % (
                    NAME, program, number + 1, processes))
                found: Json = json.loads(measuring.run([
                    context.pypy, ROOT / "benchmarks" / "raw_worker.py", program,
                    "%g" % seconds, "%d" % turns, INTERVAL, folder + "/"]).out)
                profile = readers.read(folder + "/raw", raw=True)
                rows.append({"program": program, **found,
                             "samples": len(profile.samples), **_sum(profile)})
    return {"runs": rows}


def _sum(profile: Profile) -> Json:
    """Return the estimated bytes of native memory in the last turn.

    "deviation" is the standard deviation of "estimate", in bytes.
    """
    value = variance = 0.0
    for size, interval in zip(profile.samples.size, profile.samples.interval):
        p = -math.expm1(-size / interval)
        value += size / p
        variance += size * size * (1 - p) / (p * p)
    return {"estimate": value, "deviation": math.sqrt(variance)}


def _ratios(rows: list[Json], program: str, above: str) -> list[float]:
    """Return the time ratios of one kind of run to the plain run of the same turn."""
    return [turn[above] / turn["plain"] for row in rows if row["program"] == program
            for turn in row["turns"]]


def report(results: Json) -> str:
    """Return the table of time ratios, and of the errors of the estimates."""
    rows = results["runs"]
    lines = [["program", "with / without", "without / without", "samples a turn",
              "estimate - truth"]]
    for program in dict.fromkeys(row["program"] for row in rows):
        own = [row for row in rows if row["program"] == program]
        off = [(row["estimate"] - row["bytes"]) / row["deviation"] for row in own
               if row["bytes"] and row["deviation"]]
        lines.append([
            program, estimate(_ratios(rows, program, "raw")).format(),
            estimate(_ratios(rows, program, "again")).format(),
            "%.0f" % (sum(row["samples"] for row in own) / len(own)),
            " ".join("%+.1f" % one for one in off) if off else "-"])
    return (
        "%s\n\nprocessor time of a turn, allocation samples (128k) in all of them, "
        "with raw memory at %s\nand without; estimate - truth: of the last turn of "
        "each process, in standard deviations\n(what cffi itself asks for is in the "
        "estimate, and not in the truth)" % (table(lines), INTERVAL))


def plot(results: Json, path: Path) -> None:
    """Plot the time ratios of each program."""
    rows = results["runs"]
    programs = list(dict.fromkeys(row["program"] for row in rows))
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for offset, (above, title) in enumerate((("raw", "with raw memory"),
                                             ("again", "without, again"))):
        found = [estimate(_ratios(rows, program, above)) for program in programs]
        axes.errorbar([one.median for one in found],
                      [number + 0.2 * offset for number in range(len(programs))],
                      xerr=[[one.median - one.low for one in found],
                            [one.high - one.median for one in found]],
                      fmt="o", label=title)
    axes.set_yticks(range(len(programs)), programs)
    axes.axvline(1.0, color="grey", linewidth=0.5)
    axes.set_xlabel("processor time / without raw memory")
    axes.invert_yaxis()
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    plt.close(figure)
