"""Compare this profiler and others with a run without a profiler.

The run without a profiler uses the same interpreter, PyPy or CPython. The experiment
measures the time, the memory, and the size of the profile.
"""
from __future__ import annotations

import json
import math
import random
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json, short
from measuring import estimate, table

NAME = "profilers"
PROGRAMS = ("gcbench", "pyperformance:json_dumps")
QUICK_PROGRAMS = ("pyperformance:json_dumps",)
ON_PYPY = ("off", "allocations, 32k", "allocations, 128k", "allocations, 512k",
           "allocations, 4M", "allocations, auto", "vmprof, 1000/s", "cProfile")
ON_CPYTHON = ("tracemalloc, 1 frame", "tracemalloc, 25 frames", "memray",
              "memray, python allocators", "scalene", "pyroscope, heap, 512k")
PAIRS, SECONDS, CPYTHON_SECONDS = 11, 0.25, 0.25
#: The slowdown from which a profiler is measured in only SLOW_PAIRS pairs of runs.
SLOW, SLOW_PAIRS = 20, 2


def run(context: Context) -> Json:
    """Measure all profilers on PyPy and CPython."""
    programs = QUICK_PROGRAMS if context.quick else PROGRAMS
    pairs, factor = (1, 0.05) if context.quick else (PAIRS, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        return {
            "PyPy": _measure(context.pypy, context.baseline, programs, ON_PYPY,
                             pairs, SECONDS * factor, Path(folder)),
            "CPython": _measure(
                context.cpython, context.cpython, programs,
                ON_CPYTHON, pairs, CPYTHON_SECONDS * factor, Path(folder))}


def _measure(python: Path, baseline: Path, programs: Sequence[str],
             profilers: Sequence[str], pairs: int, seconds: float,
             folder: Path) -> list[Json]:
    """Run all profilers in turn, in a random order.

    The profiler "nothing" runs in `baseline`, and all others run in `python`.
    """
    rng = random.Random(1)
    script = measuring.ROOT / "benchmarks" / "once.py"
    rounds: dict[str, int] = {}
    slow: set[tuple[str, str]] = set()
    plain = math.inf
    found = []
    for pair in range(pairs):
        measuring.progress("profilers: %s, pair %d of %d" % (
            python, pair + 1, pairs))
        for program in programs:
            todo = ["nothing", "again nothing", *profilers]
            rng.shuffle(todo)
            if not pair:
                todo.sort(key=lambda name: name != "nothing")
            for profiler in todo:
                if pair >= SLOW_PAIRS and (program, profiler) in slow:
                    continue
                start: list[str | Path] = [
                    baseline if profiler == "nothing" else python]
                if profiler == "scalene":
                    start += ["-m", "scalene", "run", "-o",
                              folder / "scalene.json"]
                process = measuring.run([
                    *start, script, program, "%g" % seconds,
                    "%d" % rounds.get(program, 0), profiler,
                    folder / "profile"], folder)
                line = next(line for line in process.out.splitlines()
                            if line.startswith("{"))
                result: Json = json.loads(line)
                if profiler == "scalene":
                    result["profile"] = (folder / "scalene.json").stat().st_size
                rounds[program] = result["rounds"]
                if profiler == "nothing":
                    plain = result["wall"]
                elif result["wall"] > SLOW * plain:
                    slow.add((program, profiler))
                found.append({**result, "program": program, "pair": pair,
                              "profiler": profiler, "rss": process.rss})
                (folder / "profile").unlink(missing_ok=True)
    return found


def ratios(rows: list[Json], program: str, profiler: str,
           key: str) -> list[float]:
    """Return the ratios of a value in a profiler's runs to runs without a profiler."""
    mine = {(row["pair"], row["profiler"]): row[key] for row in rows
            if row["program"] == program}
    return [mine[pair, profiler] / mine[pair, "nothing"]
            for pair, name in mine if name == profiler]


def profilers_of(rows: list[Json]) -> list[str]:
    """Return the names of the measured profilers, in the order of the table."""
    order = ["again nothing", *ON_PYPY, *ON_CPYTHON]
    return [name for name in order if any(r["profiler"] == name for r in rows)]


def report(results: Json) -> str:
    """Return a table for each interpreter."""
    parts = []
    for python in "PyPy", "CPython":
        rows = results[python]
        programs = list(dict.fromkeys(row["program"] for row in rows))
        lines = [[python, *(text for program in programs for text in (
            short(program) + ": time", "memory", "profile, KB"))]]
        for profiler in profilers_of(rows):
            line = [profiler]
            for program in programs:
                size = statistics.median(
                    row["profile"] for row in rows if row["program"] == program
                    and row["profiler"] == profiler)
                line += [
                    estimate(ratios(rows, program, profiler, "wall")).format(),
                    "%.3f" % statistics.median(
                        ratios(rows, program, profiler, "rss")),
                    "%.0f" % (size / 1000)]
            lines.append(line)
        parts.append(table(lines))
    parts.append("what is slower than %d times was measured in %d pairs, the "
                 "rest in %d" % (SLOW, SLOW_PAIRS, len(ratios(
                     results["PyPy"], results["PyPy"][0]["program"], "off",
                     "wall"))))
    parts.append("time and memory (the process's largest resident set): with "
                 "the profiler / without any, medians")
    return "\n\n".join(parts)


def plot(results: Json, path: Path) -> None:
    """Plot the time ratios of each profiler."""
    figure, grid = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for axes, python in zip(grid, ("PyPy", "CPython")):
        rows = results[python]
        names = profilers_of(rows)[::-1]
        programs = list(dict.fromkeys(row["program"] for row in rows))
        for i, (program, color) in enumerate(zip(
                programs, ("#1f77b4", "#d95f02", "#2ca02c"))):
            for y, name in enumerate(names):
                found = ratios(rows, program, name, "wall")
                axes.plot(found, [y + 0.2 * (1 - i)] * len(found), ".",
                          color=color, alpha=0.4, markersize=4,
                          label=short(program) if not y else None)
        axes.axvline(1, color="0.6", linewidth=0.8, zorder=0)
        axes.set_xlim(0.75, 100 if python == "CPython" else 10)
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("time with / without, %s" % python)
        axes.grid(axis="x", color="0.92")
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
