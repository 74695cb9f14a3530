"""Compare sampled processes with plain ones in the same turn.

In each turn, all rates run once, in a random order, between two plain processes. The
experiments `builtin` and `toolchain` use this module, and `fresh` uses its plot.
"""
from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from measuring import Json, Process, estimate, progress, table
from vmprof_convert import readers

#: A function that runs a subject (a program or a build) at a sampling rate, or without
#: sampling if the rate is None.
Start = Callable[[str, "str | None"], Process]


def take(subjects: Sequence[str], rates: Sequence[str], pairs: int,
         start: Start, profile: Path, key: str, what: str) -> list[Json]:
    """Run all subjects at all rates, several times.

    Args:
        subjects: The programs or builds to run.
        rates: The sampling rates.
        pairs: The number of turns.
        start: Runs a process, which writes its profile to the path `profile`.
        profile: The path of the profile.
        key: The key of the subject in each row.
        what: The name of the experiment in progress messages.

    Returns:
        A row for each process, with its time in seconds and its memory in bytes. The
        row of a sampled process also has the number of samples and the size of the
        profile.
    """
    rng = random.Random(1)
    found = []
    for pair in range(pairs):
        progress("%s: pair %d of %d" % (what, pair + 1, pairs))
        for subject in subjects:
            for rate in ("plain", *rng.sample(rates, len(rates)), "again"):
                is_plain = rate in ("plain", "again")
                process = start(subject, None if is_plain else rate)
                row: Json = {"pair": pair, key: subject, "rate": rate,
                             "wall": process.wall, "rss": process.rss}
                if not is_plain:
                    row["samples"] = len(readers.read(profile).samples)
                    row["profile"] = profile.stat().st_size
                found.append(row)
    return found


def sampled_and_plain(rows: list[Json], key: str, subject: str, rate: str,
                      figure: str) -> list[tuple[float, float]]:
    """Return the sampled and the plain value of each turn.

    The plain value is the mean of the turn's two plain processes. The rate "again"
    selects the second plain process, which is compared with the first one.

    Args:
        rows: The rows of take().
        key: The key of the subject in each row.
        subject: The subject to select.
        rate: The rate to select.
        figure: The value to compare: "wall" or "rss".
    """
    mine = {(row["pair"], row["rate"]): row[figure] for row in rows
            if row[key] == subject}
    return [(mine[pair, rate],
             mine[pair, "plain"] if rate == "again" else statistics.fmean(
                 [mine[pair, "plain"], mine[pair, "again"]]))
            for pair, name in mine if name == rate]


def ratios(rows: list[Json], key: str, subject: str, rate: str,
           figure: str) -> list[float]:
    """Return sampled / plain for each turn; see sampled_and_plain()."""
    return [sampled / plain for sampled, plain in sampled_and_plain(
        rows, key, subject, rate, figure)]


def microseconds(rows: list[Json], key: str, subject: str,
                 rate: str) -> list[float]:
    """Return the cost of a sample in microseconds, for each turn."""
    samples = [row["samples"] for row in rows
               if row[key] == subject and row["rate"] == rate]
    return [1e6 * (sampled - plain) / count
            for count, (sampled, plain) in zip(samples, sampled_and_plain(
                rows, key, subject, rate, "wall"))]


def report(rows: list[Json], key: str, rates: Sequence[str]) -> str:
    """Return a table of the rows: times, memory, samples and profile sizes."""
    lines = [[key, "rate", "time", "memory", "samples", "bytes/sample"]]
    for subject in dict.fromkeys(row[key] for row in rows):
        for rate in "again", *rates:
            mine = [row for row in rows
                    if row[key] == subject and row["rate"] == rate]
            if not mine:
                continue
            samples = mine[0].get("samples", 0)
            lines.append([
                subject, "none" if rate == "again" else rate,
                estimate(ratios(rows, key, subject, rate, "wall")).format(),
                "%.3f" % statistics.median(
                    ratios(rows, key, subject, rate, "rss")),
                "%d" % samples,
                "%.1f" % (mine[0]["profile"] / samples) if samples else ""])
    return table(lines)


def plot(rows: list[Json], key: str, subjects: Sequence[str],
         rates: Sequence[str], path: Path) -> None:
    """Plot the wall times of sampled processes, divided by the plain wall times."""
    draw(subjects, rates, path, "time, sampled / plain",
         lambda subject, rate: ratios(rows, key, subject, rate, "wall"))


def draw(subjects: Iterable[str], rates: Sequence[str], path: Path, label: str,
         found_of: Callable[[str, str], list[float]]) -> None:
    """Plot the ratios of each subject and rate, and their medians.

    Args:
        subjects: The subjects, at most two.
        rates: The rates on the horizontal axis.
        path: The file to write.
        label: The label of the vertical axis.
        found_of: Returns the ratios of a subject and a rate.
    """
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    names = ["again", *rates]
    for subject, color in zip(subjects, ("#1f77b4", "#d95f02")):
        axes.plot([], [], "_", color=color, markersize=14, label=subject)
        for x, rate in enumerate(names):
            found = found_of(subject, rate)
            axes.plot([x] * len(found), found, ".", color=color, alpha=0.35)
            if found:
                axes.plot(x, statistics.median(found), "_", color=color,
                          markersize=14)
    axes.set_xticks(range(len(names)), ["none", *rates], rotation=60)
    axes.set_ylabel(label)
    axes.grid(axis="y", color="0.92")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
