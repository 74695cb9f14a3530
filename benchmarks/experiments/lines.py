"""Measure the cost of --lines, and how many functions in stacks have a line number.

The cost is measured in two phases: while the JIT compiles a program, and afterwards.
"""
from __future__ import annotations

import json
import random
import statistics
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json, short
from experiments.costs import PROGRAMS
from measuring import ROOT, estimate, progress, table
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile
from vmprof_convert.readers.pypy_stacks import LABELS

NAME = "lines"
QUICK_PROGRAMS = ("gcbench", "pyperformance:json_dumps")
INTERVAL = "128k"
WITH_LINES = INTERVAL + ",lines"
PLAIN, AGAIN = "plain", "plain,again"
CONFIGURATIONS = (PLAIN, AGAIN, INTERVAL, WITH_LINES)
#: The number of turns, and the duration of the timed rounds of a warm process in
#: seconds.
PAIRS, SECONDS = 2, 0.15
FIRST, LAST = "first", "last"
#: The title of each ratio, its numerator and its denominator.
COMPARED = (("plain / plain", AGAIN, PLAIN), ("lines / plain", WITH_LINES, PLAIN),
            ("lines / without", WITH_LINES, INTERVAL))


def run(context: Context) -> Json:
    """Run each program in all configurations, in a random order."""
    names, pairs, seconds = (
        (QUICK_PROGRAMS, 1, 0.02) if context.quick else (PROGRAMS, PAIRS, SECONDS))
    rng = random.Random(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "out.vmprof"

        def worker(program: str, rounds: int, configuration: str) -> Json:
            found: Json = json.loads(measuring.run([
                context.pypy, ROOT / "benchmarks" / "lines_worker.py", program,
                "%g" % seconds, "%d" % rounds, configuration, profile]).out)
            return found

        rounds = {name: worker(name, 0, PLAIN)["rounds"] for name in names}
        for pair in range(pairs):
            progress("%s: pair %d of %d" % (NAME, pair + 1, pairs))
            for name in names:
                for configuration in rng.sample(CONFIGURATIONS, len(CONFIGURATIONS)):
                    row = {"program": name, "pair": pair, "with": configuration,
                           **worker(name, rounds[name], configuration)}
                    if configuration == WITH_LINES:
                        row["known"] = known(readers.read(profile))
                    rows.append(row)
    return {"runs": rows}


def known(profile: Profile) -> Json:
    """Count the functions with a line number in a profile.

    The result has the number of samples, without samples of the JIT's memory, and the
    number of samples whose innermost Python function has a line. It also has the number
    of Python functions in the stacks of these samples, and how many have a line.
    """
    tree = profile.stacks.tree()
    # For each node: the number of functions from the root, the number of these with a
    # line, and whether the last function has a line.
    functions, lines, last = [0], [0], [0]
    for parent, frame in zip(tree.parents[1:], tree.frames[1:]):
        is_python = frame.kind in ("interpreted", "jit")
        functions.append(functions[parent] + is_python)
        lines.append(lines[parent] + (is_python and frame.line > 0))
        last.append((frame.line > 0) if is_python else last[parent])
    found = {"samples": 0, "innermost": 0, "functions": 0, "lines": 0}
    for size, stack in zip(profile.samples.size, profile.samples.stack):
        node = tree.nodes[stack] if size and stack >= 0 else 0
        if functions[node] and tree.frames[node] not in LABELS:
            found["samples"] += 1
            found["innermost"] += last[node]
            found["functions"] += functions[node]
            found["lines"] += lines[node]
    return found


def ratios(rows: list[Json], program: str, which: str, configuration: str,
           beside: str) -> list[float]:
    """Return the ratios of the processor times of two configurations in each turn.

    Args:
        rows: The results of all runs.
        program: The program to select.
        which: FIRST or LAST.
        configuration: The configuration in the numerator.
        beside: The configuration in the denominator.
    """
    took = {(row["pair"], row["with"]): row[which]["cpu"] for row in rows
            if row["program"] == program}
    return [took[pair, configuration] / took[pair, beside]
            for pair, name in took if name == configuration]


def _names(rows: list[Json]) -> list[str]:
    return list(dict.fromkeys(row["program"] for row in rows))


def _percent(rows: list[Json], part: str, whole: str) -> str:
    return "%.1f" % (100 * sum(row["known"][part] for row in rows)
                     / max(1, sum(row["known"][whole] for row in rows)))


def report(results: Json) -> str:
    """Return the table of time ratios, and of the share of functions with a line."""
    rows = results["runs"]
    columns = {"%s: %s" % (which, title): (which, configuration, beside)
               for which in (FIRST, LAST) for title, configuration, beside in COMPARED}
    lines = [["program", *columns, "functions with a line, %", "innermost ones, %",
              "samples"]]
    medians: dict[str, list[float]] = {title: [] for title in columns}
    for name in _names(rows):
        line = [short(name)]
        for title, column in columns.items():
            found = estimate(ratios(rows, name, *column))
            medians[title].append(found.median)
            line.append(found.format())
        mine = [row for row in rows if row["program"] == name and "known" in row]
        lines.append([*line, _percent(mine, "lines", "functions"),
                      _percent(mine, "innermost", "samples"),
                      "%d" % statistics.median(
                          row["known"]["samples"] for row in mine)])
    lines.append(["geometric mean", *("%.3f" % statistics.geometric_mean(found)
                                      for found in medians.values()), "", "", ""])
    return ("%s\n\nprocessor time of as many rounds, %s with and without --lines: "
            "the first ones of a\nprocess, while the JIT compiles, and the last ones, "
            "of four times as many" % (table(lines), INTERVAL))


def plot(results: Json, path: Path) -> None:
    """Plot the median ratio of each program."""
    rows = results["runs"]
    names = _names(rows)
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for which, style in ((FIRST, "o"), (LAST, "s")):
        axes.plot(range(len(names)), [
            statistics.median(ratios(rows, name, which, WITH_LINES, INTERVAL))
            for name in names], style, label="the %s rounds" % which)
    axes.axhline(1, color="0.6", linewidth=0.8, zorder=0)
    axes.set_xticks(range(len(names)), map(short, names), rotation=60, ha="right")
    axes.set_ylabel("processor time, with lines / without")
    axes.grid(axis="y", color="0.92")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
