"""What allocation sampling costs: sampled against plain runs, side by side.

Each program runs at each rate in pairs of fresh processes, one plain, one
sampled, one right after the other; which of them comes first alternates.
driver.py is what runs in them, and times itself.  README.rst says how to read
the result.
"""
from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")           # there need not be a screen
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
DRIVER = HERE / "driver.py"

PROGRAMS = ("gcbench", "churn")
#: the sampler was started and stopped before; it was never there
OFF, NEVER = "off", "never"
UNSAMPLED = (OFF, NEVER)
#: mean bytes between two samples
RATES = ("32k", "128k", "512k", "1M", "4M", "32M", *UNSAMPLED)
#: the GC's own choice depends on the CPU's caches
NURSERY = "4M"

PAIRS = 12
QUICK_PAIRS = 2
#: how long the timed part of a plain run should take, in seconds
SECONDS = 0.4
QUICK_SECONDS = 0.05
#: a run that takes longer, in seconds, hangs
TIMEOUT = 300.0

#: of the bootstrap: the same times give the same intervals
SEED = 20
RESAMPLES = 4000
LEVEL = 0.95
#: with fewer pairs than this the interval can't have its level: the median
#: lies outside of all the pairs with a probability of 2 ** (1 - pairs)
FEWEST_PAIRS = math.ceil(1 - math.log2(1 - LEVEL))

Json = dict[str, Any]


class Failed(Exception):
    """A run did not give a result."""


# ____________________________________________________________
# running

@dataclasses.dataclass(frozen=True)
class Pair:
    """Two runs side by side: what driver.py printed."""

    plain: Json
    sampled: Json

    def ratio(self, clock: str) -> float:
        """sampled/plain; `clock` is ``wall`` or ``cpu``."""
        return float(self.sampled[clock] / self.plain[clock])

    def difference(self, clock: str) -> float:
        """Seconds."""
        return float(self.sampled[clock] - self.plain[clock])

    @property
    def samples(self) -> int:
        return int(self.sampled.get("samples", 0))


class Runner:
    """Starts driver.py in fresh processes."""

    def __init__(self, pypy: str, baseline: str):
        self.pypy = pypy
        #: what plain runs run in
        self.baseline = baseline
        # settings of whoever runs this must not become part of the result
        self.environment = {
            **{key: value for key, value in os.environ.items()
               if not key.startswith(("PYPY", "PYTHON"))},
            "PYPY_GC_NURSERY": NURSERY}

    def run(self, program: str, rounds: int, mode: str) -> Json:
        """`mode`: ``plain``, or one of RATES."""
        what = "%s, %s" % (program, mode)
        pypy = self.baseline if mode == "plain" else self.pypy
        mode = "plain" if mode == NEVER else mode
        try:
            done = subprocess.run(
                [pypy, str(DRIVER), program, str(rounds), mode],
                env=self.environment, timeout=TIMEOUT, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, check=False)
        except OSError as e:
            raise Failed("can't run %s: %s" % (pypy, e.strerror)) from e
        except subprocess.TimeoutExpired as e:
            raise Failed("%s: no end after %.0f s" % (what, TIMEOUT)) from e
        if done.returncode:
            raise Failed("%s: exit code %d\n%s" % (
                what, done.returncode, done.stderr.rstrip()))
        result: Json = json.loads(done.stdout)
        return result

    def pair(self, program: str, rounds: int, rate: str,
             sampled_first: bool) -> Pair:
        if sampled_first:
            sampled = self.run(program, rounds, rate)
            return Pair(self.run(program, rounds, "plain"), sampled)
        plain = self.run(program, rounds, "plain")
        return Pair(plain, self.run(program, rounds, rate))

    def rounds(self, program: str, seconds: float) -> int:
        """How many rounds of `program` take about `seconds` in a plain run."""
        rounds = 1
        while True:
            took = float(self.run(program, rounds, "plain")["wall"])
            if took >= seconds / 2:
                return max(1, round(rounds * seconds / took))
            rounds *= 4


Cell = tuple[str, str]


def measure(runner: Runner, rounds: dict[str, int], pairs: int,
            ) -> dict[Cell, list[Pair]]:
    """The pairs of each program and rate.

    One pair of each after the other, then the next of each: what the machine
    does meanwhile hits all alike.
    """
    cells = [(program, rate) for program in rounds for rate in RATES]
    result: dict[Cell, list[Pair]] = {cell: [] for cell in cells}
    begin = time.monotonic()
    for i in range(pairs):
        for program, rate in cells:
            result[program, rate].append(
                runner.pair(program, rounds[program], rate, i % 2 == 1))
        passed = time.monotonic() - begin
        progress("pair %d of %d, about %.0f s left" % (
            i + 1, pairs, passed / (i + 1) * (pairs - i - 1)))
    return result


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ____________________________________________________________
# what the times say

@dataclasses.dataclass(frozen=True)
class Estimate:
    """A median and its bootstrap interval."""

    median: float
    low: float
    high: float

    def includes(self, value: float) -> bool:
        return self.low <= value <= self.high

    def format(self, places: int) -> str:
        return "%.*f (%.*f..%.*f)" % (places, self.median, places, self.low,
                                      places, self.high)


def estimate(values: Sequence[float]) -> Estimate:
    """The median of `values`, and between which medians LEVEL of those lie
    that are drawn from them again, with replacement."""
    generator = random.Random(SEED)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values)))
        for _ in range(RESAMPLES))
    outside = round(RESAMPLES * (1 - LEVEL) / 2)
    return Estimate(statistics.median(values), medians[outside],
                    medians[-1 - outside])


@dataclasses.dataclass(frozen=True)
class Row:
    """A program at a rate."""

    program: str
    rate: str
    #: mean bytes between two samples; None for ``off`` and ``never``
    interval: int | None
    wall_ratio: Estimate
    cpu_ratio: Estimate
    #: median of the runs
    samples: float
    pairs: int
    #: microseconds a sample; None if the interval of the difference in time
    #: includes 0, if there are too few pairs to tell, or if a run had no
    #: samples
    wall_per_sample: Estimate | None
    cpu_per_sample: Estimate | None
    #: the same without what ``off`` costs in the same repetition
    cpu_per_sample_above_off: Estimate | None


def per_sample(seconds: Sequence[float], samples: Sequence[int],
               ) -> Estimate | None:
    """See Row; `seconds` are differences in time."""
    if (0 in samples or len(samples) < FEWEST_PAIRS
            or estimate(seconds).includes(0)):
        return None
    return estimate([1e6 * s / n for s, n in zip(seconds, samples)])


def summarize(cell: Cell, pairs: dict[Cell, list[Pair]]) -> Row:
    program, rate = cell
    mine = pairs[cell]
    samples = [pair.samples for pair in mine]
    wall = [pair.difference("wall") for pair in mine]
    cpu = [pair.difference("cpu") for pair in mine]
    above_off = [c - off.difference("cpu")
                 for c, off in zip(cpu, pairs[program, OFF])]
    return Row(
        program=program, rate=rate,
        interval=mine[0].sampled.get("interval"),
        wall_ratio=estimate([pair.ratio("wall") for pair in mine]),
        cpu_ratio=estimate([pair.ratio("cpu") for pair in mine]),
        samples=statistics.median(samples), pairs=len(mine),
        wall_per_sample=per_sample(wall, samples),
        cpu_per_sample=per_sample(cpu, samples),
        cpu_per_sample_above_off=per_sample(above_off, samples))


# ____________________________________________________________
# where it ran

def cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    return value.strip()
    except OSError:
        pass
    return "unknown CPU"


def describe(probe: Json) -> Json:
    """The environment, before anything is measured."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(
            " ", "seconds"),
        "cpu": cpu_model(), "cpus": os.cpu_count(),
        "load_before": os.getloadavg(),
        "implementation": probe["implementation"], "version": probe["version"],
        "python": probe["python"], "nursery": probe["nursery"],
    }


def environment_line(environment: Json) -> str:
    nursery = environment["nursery"]
    return "%s; %s, %s CPUs; load %s before, %s after; %s %s; nursery %s" % (
        environment["date"], environment["cpu"], environment["cpus"],
        "%.2f" % environment["load_before"][0],
        "%.2f" % environment["load_after"][0],
        environment["implementation"], environment["version"],
        "of unknown size" if nursery is None
        else "%.0f KiB" % (nursery / 2**10))


# ____________________________________________________________
# the tables

def table(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def table_of_ratios(rows: Sequence[Row]) -> list[str]:
    return table([
        ("program", "rate", "wall ratio", "CPU ratio", "samples"),
        *((row.program, row.rate, row.wall_ratio.format(3),
           row.cpu_ratio.format(3), "%.0f" % row.samples) for row in rows)])


def table_of_costs(rows: Sequence[Row]) -> list[str]:
    return table([
        ("program", "rate", "wall us/sample", "CPU us/sample",
         "CPU us/sample above off"),
        *((row.program, row.rate, format_cost(row, row.wall_per_sample),
           format_cost(row, row.cpu_per_sample),
           format_cost(row, row.cpu_per_sample_above_off))
          for row in rows if row.rate not in UNSAMPLED)])


def format_cost(row: Row, cost: Estimate | None) -> str:
    if cost is not None:
        return cost.format(2)
    if row.pairs < FEWEST_PAIRS:
        return "too few pairs"
    return "below the noise" if row.samples else "no samples"


def verdict(row: Row) -> str:
    """On ``off`` and ``never``: the ratio should be 1; one interval in twenty
    misses it."""
    return "%s, %s: 1 is %s the interval of the wall ratio, %s that of CPU" % (
        row.program, row.rate,
        *("inside" if ratio.includes(1) else "OUTSIDE"
          for ratio in (row.wall_ratio, row.cpu_ratio)))


def median_of(pairs: Sequence[Pair], key: str, sampled: bool) -> float | None:
    """Of what driver.py printed; None where it printed none."""
    values = [value for pair in pairs if (value := (
        pair.sampled if sampled else pair.plain).get(key)) is not None]
    return statistics.median(values) if values else None


def about(program: str, rounds: int, pairs: dict[Cell, list[Pair]]) -> str:
    """What there is to sample, and what the sampler adds to the heap."""
    mine = [pair for (name, rate), some in pairs.items()
            for pair in some if name == program and rate not in UNSAMPLED]
    seconds = median_of(mine, "wall", sampled=False) or math.nan
    allocated = median_of(mine, "allocated", sampled=True) or math.nan
    heap_plain, heap_sampled = (
        (median_of(mine, "heap", sampled) or math.nan) / 2**20
        for sampled in (False, True))
    return ("%s: %d rounds; a plain run takes %.2f s and allocates %.0f MiB/s; "
            "heap before it %.1f MiB plain, %.1f MiB sampled" % (
                program, rounds, seconds, allocated / seconds / 2**20,
                heap_plain, heap_sampled))


def sum_of(pairs: dict[Cell, list[Pair]], key: str) -> int:
    return sum(int(pair.sampled.get(key, 0))
               for some in pairs.values() for pair in some)


def apart(pairs: dict[Cell, list[Pair]]) -> str:
    """What the ratios leave out."""
    sampled = [pair.sampled for (_, rate), some in pairs.items()
               for pair in some if rate not in UNSAMPLED]
    return "outside of these times: start() %.0f ms, stop() %.0f ms (medians)" % (
        1e3 * statistics.median(run["start"] for run in sampled),
        1e3 * statistics.median(run["stop"] for run in sampled))


def report(environment: Json, rounds: dict[str, int], rows: Sequence[Row],
           pairs: dict[Cell, list[Pair]]) -> list[str]:
    count = len(next(iter(pairs.values())))
    lines = [
        environment_line(environment),
        *(about(program, rounds[program], pairs) for program in rounds), "",
        *table_of_ratios(rows), "", *table_of_costs(rows), "",
        "ratio: time sampled / time plain, median of %d pairs (bootstrap "
        "%.0f %% interval of the median)" % (count, 100 * LEVEL),
        "below the noise: the interval of the difference in time includes 0",
        *(verdict(row) for row in rows
          if row.rate in UNSAMPLED and row.pairs >= FEWEST_PAIRS),
        apart(pairs)]
    if environment["load_before"][0] + 1 > (environment["cpus"] or 1):
        lines.append("the machine was not quiet: its CPUs were busy before")
    if count < FEWEST_PAIRS:
        lines.append("%d pairs are too few for an interval of %.0f %%: what is "
                     "shown is hardly more than the range" % (
                         count, 100 * LEVEL))
    for key, text in (("lost", "samples without a stack"),
                      ("surprises", "changes of the GC's state unseen")):
        if sum_of(pairs, key):
            lines.append("%s: %d" % (text, sum_of(pairs, key)))
    return lines


# ____________________________________________________________
# the plot

#: one for each program; told apart by shape too
STYLES = (("#1f77b4", "o"), ("#d95f02", "s"))


def position(row: Row, rows: Sequence[Row]) -> float:
    """Bytes; ``off`` and ``never`` have no place on the axis, and stand behind
    the rest."""
    if row.interval is not None:
        return float(row.interval)
    return (8.0 if row.rate == OFF else 64.0) * max(
        other.interval or 1 for other in rows)


def error_bars(row: Row) -> tuple[float, float]:
    ratio = row.wall_ratio
    return ratio.median - ratio.low, ratio.high - ratio.median


def plot(environment: Json, rows: Sequence[Row], pairs: int,
         path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    ticks = {position(row, rows): row.rate for row in rows}
    for i, (program, (color, marker)) in enumerate(zip(PROGRAMS, STYLES)):
        mine = [row for row in rows if row.program == program]
        # beside each other, where their bars would hide each other
        shift = 1.06 ** (2 * i - 1)
        axes.errorbar(
            [position(row, rows) * shift for row in mine],
            [row.wall_ratio.median for row in mine],
            yerr=list(zip(*map(error_bars, mine))),
            color=color, marker=marker, linestyle="none", capsize=4,
            label=program)
        between = [row for row in mine if row.interval is not None]
        axes.plot([position(row, rows) * shift for row in between],
                  [row.wall_ratio.median for row in between],
                  color=color, linewidth=1, alpha=0.5)
    axes.axhline(1.0, color="0.6", linewidth=1, zorder=0)
    axes.set_xscale("log")
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.set_xticks([], minor=True)
    axes.set_xlabel("mean bytes between two samples")
    axes.set_ylabel("wall time, sampled / plain")
    axes.set_title("%s\n%s %s, nursery %s, median of %d pairs, %s" % (
        environment["cpu"], environment["implementation"],
        environment["version"], NURSERY, pairs,
        "range" if pairs < FEWEST_PAIRS else "%.0f %% interval" % (100 * LEVEL)),
        fontsize=10)
    axes.grid(axis="y", color="0.9")
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


# ____________________________________________________________
# the command

def even(text: str) -> int:
    number = int(text)
    if number < 2 or number % 2:
        raise argparse.ArgumentTypeError(
            "%s is not an even number above 0; each order has to come equally "
            "often" % text)
    return number


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure what allocation sampling costs.")
    parser.add_argument("--pairs", type=even, metavar="N",
                        help="pairs of runs for each program and rate; even "
                        "(default: %d)" % PAIRS)
    parser.add_argument("--quick", action="store_true",
                        help="few and short runs, to see whether it works; "
                        "the figures mean little")
    parser.add_argument("--output", type=Path, metavar="FOLDER",
                        default=ROOT / ".build" / "overhead",
                        help="where overhead.json, overhead.txt and "
                        "overhead.png go (default: .build/overhead)")
    parser.add_argument("--pypy", metavar="PROGRAM",
                        default=str(ROOT / ".venv-pypy" / "bin" / "pypy3"),
                        help="a PyPy that has vmprof-allocation (default: "
                        ".venv-pypy/bin/pypy3)")
    parser.add_argument("--baseline", metavar="PROGRAM",
                        help="the PyPy of the plain runs, for example one "
                        "without the patch (default: the same)")
    options = parser.parse_args(arguments)
    options.baseline = options.baseline or options.pypy
    return options


def save_json(path: Path, environment: Json, rounds: dict[str, int],
              rows: Sequence[Row], pairs: dict[Cell, list[Pair]]) -> None:
    """Every single time is in it, so that it can be evaluated anew."""
    path.write_text(json.dumps({
        "environment": environment, "rounds": rounds,
        "interval": {"of": "median", "by": "bootstrap", "level": LEVEL,
                     "resamples": RESAMPLES, "seed": SEED},
        "rows": [{**dataclasses.asdict(row),
                  "runs": [dataclasses.asdict(pair)
                           for pair in pairs[row.program, row.rate]]}
                 for row in rows],
    }, indent=1) + "\n")


def benchmark(runner: Runner, count: int, seconds: float, output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    # also so that the search for the nursery, which is remembered, is over
    probe = runner.run(PROGRAMS[0], 1, RATES[0])
    environment = describe(probe)
    rounds = {program: runner.rounds(program, seconds) for program in PROGRAMS}
    pairs = measure(runner, rounds, count)
    environment["load_after"] = os.getloadavg()
    rows = [summarize(cell, pairs) for cell in pairs]
    save_json(output / "overhead.json", environment, rounds, rows, pairs)
    lines = report(environment, rounds, rows, pairs)
    (output / "overhead.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines), flush=True)
    plot(environment, rows, count, output / "overhead.png")
    progress("in %s: overhead.json, overhead.txt, overhead.png" % output)


def main() -> int:
    options = parse()
    count = options.pairs or (QUICK_PAIRS if options.quick else PAIRS)
    try:
        benchmark(Runner(options.pypy, options.baseline), count,
                  QUICK_SECONDS if options.quick else SECONDS, options.output)
    except Failed as e:
        print("overhead.py: %s" % e, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
