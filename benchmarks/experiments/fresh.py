"""Compare sampled with plain processes, both started from the command line.

In contrast to `costs`, the plain processes have never loaded the sampler. The sampled
processes keep the sampler's objects on the program's heap, and every major collection
walks these objects.

A process is compared with the plain processes that had the same number of minor
collections; see programs/rounds.py.
"""
from __future__ import annotations

import json
import random
import statistics
import tempfile
from collections import defaultdict
from pathlib import Path

import measuring
import turns
from experiments import Context, Json
from measuring import ROOT, estimate, progress, table
from vmprof_convert import readers

NAME = "fresh"
SCRIPT = ROOT / "benchmarks" / "programs" / "rounds.py"
#: The sampling rates.  At 1G, a process takes very few samples.
RATES = ("1G", "4M", "auto", "1M", "512k", "128k", "32k")
PLAIN, AGAIN = "plain", "again"
TURNS, CHURNS = 20, 12
#: The largest number of strings that a process keeps (KEPT of programs/rounds.py).
KEPT = 2500
#: The width of a class of processes, in minor collections.
ALIKE = 100
#: The least number of plain processes in a class.  Sampled processes of smaller classes
#: are left out.
FEWEST = 3


def run(context: Context) -> Json:
    """Run all rates and two plain processes per turn, in a random order."""
    rates = ("1G", "128k") if context.quick else RATES
    count, churns = (2, 1) if context.quick else (TURNS, CHURNS)
    rng = random.Random(2)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        profile = Path(name) / "out.vmprof"
        for turn in range(count):
            progress("%s: turn %d of %d" % (NAME, turn + 1, count))
            kept = rng.randrange(KEPT)
            for rate in rng.sample((PLAIN, AGAIN, *rates), len(rates) + 2):
                is_plain = rate in (PLAIN, AGAIN)
                flags: list[str | Path] = [] if is_plain else [
                    "-m", "vmprof", "--allocation-sampling", rate, "-o", profile]
                process = measuring.run([
                    context.pypy, *flags, SCRIPT, "%d" % churns, "%d" % kept])
                row: Json = {"rate": rate, "rss": process.rss,
                             **json.loads(process.out)}
                if not is_plain:
                    row["samples"] = len(readers.read(profile).samples)
                rows.append(row)
    return {"runs": rows}


def _kind(row: Json) -> int:
    """Return the class of a process, by its number of minor collections."""
    minors: int = row["minors"]
    return round(minors / ALIKE)


def matched(rows: list[Json], rate: str) -> list[float]:
    """Return the time ratios of the processes at a sampling rate.

    The processor time of each process is divided by the median of the plain processes
    in its class. The rate `AGAIN` selects plain processes, which are compared as if
    they were sampled.
    """
    plain = defaultdict(list)
    for row in rows:
        if row["rate"] == PLAIN or (row["rate"] == AGAIN and rate != AGAIN):
            plain[_kind(row)].append(row["cpu"])
    return [row["cpu"] / statistics.median(plain[_kind(row)]) for row in rows
            if row["rate"] == rate and len(plain[_kind(row)]) >= FEWEST]


def _resident(rows: list[Json], rate: str) -> float:
    return float(statistics.median(row["rss"] for row in rows if row["rate"] == rate))


def report(results: Json) -> str:
    """Return the table of time ratios by sampling rate."""
    rows = results["runs"]
    lines = [["rate", "time", "memory", "compared", "samples"]]
    for rate in (AGAIN, *RATES):
        mine = [row for row in rows if row["rate"] == rate]
        if not mine:
            continue
        ratios = matched(rows, rate)
        lines.append([
            "none" if rate == AGAIN else rate,
            estimate(ratios).format() if ratios else "-",
            "%.3f" % (_resident(rows, rate) / _resident(rows, PLAIN)),
            "%d of %d" % (len(ratios), len(mine)),
            "%d" % statistics.median(row.get("samples", 0) for row in mine)])
    return ("%s\n\ntime: of a processor, for four rounds, beside plain processes that "
            "had as\nmany minor collections; compared: processes, where there were %d "
            "such; memory:\nthe median of the largest resident set, beside that "
            "of plain ones" % (table(lines), FEWEST))


def plot(results: Json, path: Path) -> None:
    """Plot the time ratios by sampling rate."""
    turns.draw(["gcbench"], RATES, path, "processor time, sampled / plain",
               lambda _, rate: matched(results["runs"], rate))
