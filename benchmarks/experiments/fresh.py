"""Fresh processes, from the command line: what is sampled against what never
knew of it.  Unlike `costs`, this has what stays on the program's heap because
it is sampled at all, and is walked by every major collection.

A process is compared with those that had as many minor collections: see
programs/rounds.py.
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
#: 1G: hardly a sample is taken
RATES = ("1G", "4M", "auto", "1M", "512k", "128k", "32k")
PLAIN, AGAIN = "plain", "again"
TURNS, CHURNS = 20, 12
#: strings kept, at most
KEPT = 2500
#: minor collections that count as the same number
ALIKE = 100
#: plain processes of a kind, without which others of it are left out
FEWEST = 3


def run(context: Context) -> Json:
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
    minors: int = row["minors"]
    return round(minors / ALIKE)


def matched(rows: list[Json], rate: str) -> list[float]:
    """Processor time of each such process / the median of the plain ones that had as
    many minor collections; `AGAIN` is plain ones, taken for sampled ones."""
    plain = defaultdict(list)
    for row in rows:
        if row["rate"] == PLAIN or (row["rate"] == AGAIN and rate != AGAIN):
            plain[_kind(row)].append(row["cpu"])
    return [row["cpu"] / statistics.median(plain[_kind(row)]) for row in rows
            if row["rate"] == rate and len(plain[_kind(row)]) >= FEWEST]


def _resident(rows: list[Json], rate: str) -> float:
    return float(statistics.median(row["rss"] for row in rows if row["rate"] == rate))


def report(results: Json) -> str:
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
    turns.draw(["gcbench"], RATES, path, "processor time, sampled / plain",
               lambda _, rate: matched(results["runs"], rate))
