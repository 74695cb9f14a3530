"""Whole processes that take turns: what is sampled, against the mean of two
plain ones of the same turn.  What the experiments with such have in common."""
from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from measuring import Json, Process, estimate, progress, table
from vmprof_convert import readers

#: runs a subject at a rate; None: plain
Start = Callable[[str, "str | None"], Process]


def take(subjects: Sequence[str], rates: Sequence[str], pairs: int,
         start: Start, profile: Path, key: str, what: str) -> list[Json]:
    """`start` leaves its profile in the file `profile`.  A row for each
    process has its subject as `key`; `what` is for the progress."""
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
    """Of "wall" or "rss", in each turn; "again" is a plain run that is taken
    for a sampled one."""
    mine = {(row["pair"], row["rate"]): row[figure] for row in rows
            if row[key] == subject}
    return [(mine[pair, rate],
             mine[pair, "plain"] if rate == "again" else statistics.fmean(
                 [mine[pair, "plain"], mine[pair, "again"]]))
            for pair, name in mine if name == rate]


def ratios(rows: list[Json], key: str, subject: str, rate: str,
           figure: str) -> list[float]:
    return [sampled / plain for sampled, plain in sampled_and_plain(
        rows, key, subject, rate, figure)]


def microseconds(rows: list[Json], key: str, subject: str,
                 rate: str) -> list[float]:
    """What a sample takes, in each turn."""
    samples = [row["samples"] for row in rows
               if row[key] == subject and row["rate"] == rate]
    return [1e6 * (sampled - plain) / count
            for count, (sampled, plain) in zip(samples, sampled_and_plain(
                rows, key, subject, rate, "wall"))]


def report(rows: list[Json], key: str, rates: Sequence[str]) -> str:
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
    draw(subjects, rates, path, "time, sampled / plain",
         lambda subject, rate: ratios(rows, key, subject, rate, "wall"))


def draw(subjects: Iterable[str], rates: Sequence[str], path: Path, label: str,
         found_of: Callable[[str, str], list[float]]) -> None:
    """Each of the ratios, and their median; `found_of` a subject and a rate."""
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
