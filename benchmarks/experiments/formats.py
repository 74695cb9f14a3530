"""Measure the cost of writing a profile of a million samples in each format.

The cost is the processor time and the largest resident memory of the whole command,
which reads and writes. The profile is difficult: importing sympy makes tens of
thousands of stacks with a hundred frames.

A second part measures how time and memory grow with the number of samples, on profiles
of gcbench. In that program, many objects share a batched allocation, and many become
old. A third part compares the time with vmprof-firefox-converter's time, on a profile
of stock vmprof.
"""
from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import measuring
import stock_profile
from experiments import Context, Json
from measuring import Process, table
from vmprof_convert import readers
from vmprof_convert.analysis.summary import Tally
from vmprof_convert.cli.formats import FORMATS

NAME = "formats"
#: The arguments of formats_worker.py.
INTERVAL, ROUNDS = "1k", "5"
QUICK_INTERVAL, QUICK_ROUNDS = "512k", "1"
RUNS = 3
#: The rounds of gcbench, and its sampling interval, at which each round has about
#: 270,000 samples.
GROWTH, GROWTH_INTERVAL = (4, 12, 40), "280"
QUICK_GROWTH, QUICK_GROWTH_INTERVAL = (1, 2), "64k"
GROWTH_FORMATS = ("firefox", "table")
#: the arguments for each form of a report
REPORTS = {"table": ("report",), "markdown": ("report", "--markdown"),
           "json": ("report", "--json")}
STOCK_SAMPLES, QUICK_STOCK_SAMPLES = 500_000, 5_000
OTHER = ("import sys, vmprofconvert; out = vmprofconvert.convert_stats(sys.argv[1]); "
         "open(sys.argv[2], 'w').write(out)")


def run(context: Context) -> Json:
    """Measure each format, the growth with the samples, and the other converter."""
    with tempfile.TemporaryDirectory() as folder:
        return {**_formats(context, Path(folder)),
                "growth": _growth(context, Path(folder)),
                "stock": _stock(context, Path(folder))}


def _formats(context: Context, folder: Path) -> Json:
    """Return the time, memory and file size of each format."""
    measuring.progress(NAME)
    profile = folder / "app.vmprof"
    _record(context, profile, *(
        (QUICK_INTERVAL, QUICK_ROUNDS) if context.quick else (INTERVAL, ROUNDS)))
    read = readers.read(profile)
    found: Json = {"samples": len(read.samples), "stacks": len(read.stacks),
                   "profile": profile.stat().st_size, "formats": {}}
    del read
    for name in (*FORMATS, *REPORTS):
        out = folder / ("out.%s.txt" % name)
        options = ("--samples", "0") if name in FORMATS else ()
        done = [_convert(profile, name, out, *options) for _ in range(_runs(context))]
        found["formats"][name] = {**_taken(done), "size": out.stat().st_size}
    return found


def _growth(context: Context, folder: Path) -> list[Json]:
    """Return the time and memory of each format for three sizes of the profile."""
    found = []
    for rounds in QUICK_GROWTH if context.quick else GROWTH:
        measuring.progress("%s: %d rounds" % (NAME, rounds))
        profile = folder / "gcbench.vmprof"
        _record(context, profile, QUICK_GROWTH_INTERVAL if context.quick
                else GROWTH_INTERVAL, str(rounds), "gcbench")
        tally = Tally()
        readers.read_into(profile, tally)
        found.append({
            "objects": tally.figures().sum().samples,
            "formats": {name: _taken([
                _convert(profile, name, folder / ("out.%s.txt" % name))
                for _ in range(_runs(context))]) for name in GROWTH_FORMATS}})
    return found


def _stock(context: Context, folder: Path) -> Json:
    """Return the times of this project's converter and of vmprof-firefox-converter."""
    measuring.progress("%s: beside vmprof-firefox-converter" % NAME)
    profile, out = folder / "stock.vmprof", folder / "out.json"
    samples = QUICK_STOCK_SAMPLES if context.quick else STOCK_SAMPLES
    stock_profile.write(profile, samples)
    ours, others = [], []
    # The two converters alternate, so that other load on the machine affects both.
    for _ in range(_runs(context)):
        ours.append(_convert(profile, "firefox", out))
        others.append(measuring.run([context.cpython, "-c", OTHER, profile, out]))
    return {"samples": samples, "depth": stock_profile.DEPTH, "ours": _taken(ours),
            "other": _taken(others)}


def _runs(context: Context) -> int:
    """Return the number of runs of each command."""
    return 1 if context.quick else RUNS


def _record(context: Context, profile: Path, *arguments: str) -> None:
    """Record a profile with formats_worker.py."""
    measuring.run([context.pypy, measuring.ROOT / "benchmarks" / "formats_worker.py",
                   profile, *arguments])


def _convert(profile: Path, name: str, out: Path, *options: str) -> Process:
    """Convert a profile to a format."""
    return measuring.run([sys.executable, "-m", "vmprof_convert", *(
        REPORTS.get(name) or ("export", "--format", name)), profile, "-o", out,
        *options])


def _taken(done: list[Process]) -> Json:
    """Return the processor times and the largest memory of several runs."""
    return {"cpu": [process.cpu for process in done],
            "rss": max(process.rss for process in done)}


# ____________________________________________________________
# tables and plots


def report(results: Json) -> str:
    """Return tables of the formats, the growth, and the comparison of converters."""
    lines = [["", "seconds", "memory (MiB)", "file (MiB)"]]
    for name, row in results["formats"].items():
        lines.append([name, *_shown(row), "%.1f" % (row["size"] / 2**20)])
    text = "%d samples of %d stacks, in %.1f MiB; processor time of the command, " \
        "median, and its largest resident memory; files are not compressed\n\n%s" % (
            results["samples"], results["stacks"], results["profile"] / 2**20,
            table(lines))
    # Results of earlier studies have neither growth nor comparison.
    if "growth" in results:
        text += "\n\ngcbench, with types and lifetimes\n\n" + _report_growth(
            results["growth"])
    if "stock" in results:
        text += "\n\n" + _report_stock(results["stock"])
    return text


def _report_growth(rows: list[Json]) -> str:
    lines = [["objects", "", "seconds", "memory (MiB)", "microseconds each",
              "bytes each"]]
    first = rows[0]
    for row in rows:
        for name, taken in row["formats"].items():
            more = row["objects"] - first["objects"]
            lines.append([
                "%d" % row["objects"], name, *_shown(taken),
                "%.1f" % (_median(taken) / row["objects"] * 1e6),
                # Subtract the memory of the smallest profile.
                "%.0f" % ((taken["rss"] - first["formats"][name]["rss"]) / more)
                if more else ""])
    return table(lines)


def _report_stock(found: Json) -> str:
    ours, other = found["ours"], found["other"]
    return "%d samples of stock vmprof's, of depth %d, for the Firefox Profiler\n\n" \
        "%s\n\nthe other takes %.0f times as long, and %.1f times the memory" % (
            found["samples"], found["depth"], table([
                ["", "seconds", "memory (MiB)"], ["vmprof-convert", *_shown(ours)],
                ["vmprof-firefox-converter", *_shown(other)]]),
            _median(other) / _median(ours), other["rss"] / ours["rss"])


def _shown(taken: Json) -> list[str]:
    return ["%.1f" % _median(taken), "%.0f" % (taken["rss"] / 2**20)]


def _median(taken: Json) -> float:
    return float(statistics.median(taken["cpu"]))


def plot(results: Json, path: Path) -> None:
    """Plot the time and memory of each format."""
    rows = results["formats"]
    figure, (seconds, memory) = plt.subplots(1, 2, figsize=(8, 4), sharey=True,
                                             layout="constrained")
    seconds.barh(list(rows), [_median(row) for row in rows.values()])
    seconds.set_xlabel("seconds")
    memory.barh(list(rows), [row["rss"] / 2**20 for row in rows.values()])
    memory.set_xlabel("MiB")
    seconds.invert_yaxis()
    figure.savefig(path, dpi=110)
    plt.close(figure)
