"""Count how often the report's 95 % confidence intervals contain the true value.

A simulation knows the true values. Its programs allocate slowly and fast, objects of
one size and of sizes with a heavy tail. They are sampled at fixed sampling intervals,
from many samples to few, and under a limit with the algorithm of native/shared/pace.c.
The experiment also runs a program in PyPy that allocates the same in each run.

The confidence intervals are computed as in the report. For comparison, the experiment
also computes the intervals of an earlier version, which followed Fay and Feuer, with
the largest weight among the function's own samples. That version used a gamma
distribution for the whole sum, and not only for the part that was not observed.
"""
from __future__ import annotations

import collections
import math
import random
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from measuring import table
from vmprof_convert import readers
from vmprof_convert.meaning.estimator import Sum, Z
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.probability import probability

NAME = "coverage"
RUNS = 1000
#: The wanted share of 95 % confidence intervals that contain the true value, as a
#: range.
TARGET = (0.93, 0.97)
REAL_INTERVALS = ("256k", "1M", "4M", "auto")
#: The functions of coverage_worker.py that allocate.
REAL_FUNCTIONS = ("fast", "slow", "large", "rare")
ALL = "(all)"
MiB = 2**20


class Kind(NamedTuple):
    """The objects of one size that a function allocates."""

    function: str
    size: int
    #: The share of these objects among all objects of the phase.
    share: float


class Phase(NamedTuple):
    """A part of a simulated program with a constant rate of allocation."""

    bytes: float
    nanoseconds_per_byte: float
    kinds: tuple[Kind, ...]


class Sample(NamedTuple):
    """A sampled object, with its size and the sampling interval in bytes."""

    function: str
    size: int
    interval: int


#: The size in bytes from which objects are simulated one by one, at regular places.
#: Smaller objects are a continuous stream.
LARGE = 1024

_SMALL = (Kind("big", 64, 0.7), Kind("mid", 32, 0.29), Kind("rare", 48, 0.01))
_HEAVY = (Kind("tiny", 32, 0.98), Kind("heavy", 4096, 0.02),
          Kind("huge", MiB, 0.0001))
_LATE = (Kind("late", 64, 0.99), Kind("rare", 48, 0.01))

#: The phases of each simulated program, its first sampling interval in bytes, and
#: whether the number of samples per second has a limit.
SIMULATED: dict[str, tuple[tuple[Phase, ...], int, bool]] = {
    "1M, 300 samples": ((Phase(300 * MiB, 0.1, _SMALL),), MiB, False),
    "8M, 37 samples": ((Phase(300 * MiB, 0.1, _SMALL),), 8 * MiB, False),
    "32M, 9 samples": ((Phase(300 * MiB, 0.1, _SMALL),), 32 * MiB, False),
    "128M, 2 samples": ((Phase(300 * MiB, 0.1, _SMALL),), 128 * MiB, False),
    "heavy tail, 128k": ((Phase(100 * MiB, 0.2, _HEAVY),), MiB // 8, False),
    "heavy tail, 1M": ((Phase(300 * MiB, 0.2, _HEAVY),), MiB, False),
    "heavy tail, 32M": ((Phase(300 * MiB, 0.2, _HEAVY),), 32 * MiB, False),
    "auto, 30 MiB": ((Phase(30 * MiB, 0.1, _SMALL),), 65536, True),
    "auto, 300 MiB": ((Phase(300 * MiB, 0.1, _SMALL),), 65536, True),
    "auto, heavy tail": ((Phase(300 * MiB, 0.2, _HEAVY),), 65536, True),
    "auto, slow then fast": ((Phase(10 * MiB, 20, _SMALL),
                              Phase(300 * MiB, 0.1, _LATE)), 65536, True),
    "auto, fast then slow": ((Phase(300 * MiB, 0.1, _SMALL),
                              Phase(20 * MiB, 20, _LATE)), 65536, True),
}


class Pace:
    """The algorithm of native/shared/pace.c with a limit of 0.5 % of the run time."""

    def __init__(self) -> None:
        """Start without samples."""
        self.since = self.owed = 0.0
        self.cost = 1000.0
        self.samples = 0

    def sample(self, now: float, cost: float, interval: int) -> int:
        """Account for a sample, and return the next sampling interval in bytes.

        Args:
            now: The time in nanoseconds.
            cost: The cost of the sample in nanoseconds.
            interval: The current sampling interval in bytes.
        """
        self.samples += 1
        self.cost += (cost - self.cost) / 16
        wanted = (self.cost + 300) * 200
        elapsed = now - self.since
        if self.samples < 16 and elapsed < 16 * wanted:
            return interval
        wanted *= self.samples
        self.owed = min(max(self.owed + wanted - elapsed, 0.0), 1e9)
        ratio = wanted / min(max(elapsed, 1.0), 1e9)
        ratio *= 1 + min(self.owed / 1e8, 1.0)
        self.since = now
        self.samples = 0
        if 0.8 < ratio < 1.25:
            return interval
        number = int(interval * min(max(ratio, 1 / 16), 64.0))
        step = 1
        while number // step >= 16:
            step *= 2
        return min(max((number + step - 1) // step * step, 64), 2**40)


def simulate(rng: random.Random, phases: Iterable[Phase], interval: int,
             is_limited: bool) -> Iterator[Sample]:
    """Yield the samples of one run, as native/sampler/sampler.h draws them.

    Args:
        rng: The source of random numbers.
        phases: The phases of the program.
        interval: The first sampling interval in bytes.
        is_limited: Whether the limit of Pace changes the sampling interval.
    """
    now, pace = 0.0, Pace()

    def sampled(kind: Kind) -> Sample:
        nonlocal now, interval
        sample = Sample(kind.function, kind.size, interval)
        if is_limited:
            cost = 600 + rng.expovariate(1 / 400)
            now += cost
            interval = pace.sample(now, cost, interval)
        return sample

    for phase in phases:
        mean = sum(kind.size * kind.share for kind in phase.kinds)
        time = mean * phase.nanoseconds_per_byte
        count = int(phase.bytes / mean)
        stream = [kind for kind in phase.kinds if kind.size < LARGE]
        places: list[tuple[int, Kind | None]] = [
            (place, kind) for kind in phase.kinds if kind.size >= LARGE
            for place in range(_every(kind), count + 1, _every(kind))]
        places.sort(key=lambda pair: pair[0])
        places.append((count, None))
        at = 0
        for place, large in places:
            while True:
                p = [kind.share * probability(kind.size, interval, "exponential")
                     for kind in stream]
                gap = int(math.log(1 - rng.random()) / math.log1p(-sum(p)))
                if at + gap >= place:
                    break
                at += gap + 1
                now += (gap + 1) * time
                (kind,) = rng.choices(stream, p)
                yield sampled(kind)
            now += (place - at) * time
            at = place
            if large is not None and rng.random() < probability(
                    large.size, interval, "exponential"):
                yield sampled(large)


def _every(kind: Kind) -> int:
    """Return the number of objects from one large object of this kind to the next."""
    return max(1, round(1 / kind.share))


Truth = dict[str, tuple[float, float]]


def truth(phases: Iterable[Phase]) -> Truth:
    """Return the true bytes and objects of each function, and of all functions."""
    found: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for phase in phases:
        mean = sum(kind.size * kind.share for kind in phase.kinds)
        count = int(phase.bytes / mean)
        for kind in phase.kinds:
            objects = (count * kind.share if kind.size < LARGE
                       else count // _every(kind))
            for name in (kind.function, ALL):
                found[name][0] += objects * kind.size
                found[name][1] += objects
    return {name: (bytes_, objects) for name, (bytes_, objects) in found.items()}


# ____________________________________________________________
# confidence intervals

Interval = tuple[float, float]


def before(samples: list[Sample]) -> tuple[Interval, Interval]:
    """Return the earlier version's confidence intervals of bytes and of objects."""
    def interval(weights: list[float], p: list[float]) -> Interval:
        value = sum(weights)
        variance = sum((1 - p_) * w * w for p_, w in zip(p, weights))
        if not variance:
            return value, value
        largest = max(weights)
        return (min(value, quantile(value, variance, -Z)),
                max(value, quantile(value + largest, variance + largest**2, Z)))

    def quantile(mean: float, variance: float, z: float) -> float:
        shape = mean * mean / variance
        root = 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))
        return mean * max(root, 0.0)**3

    p = [probability(s.size, s.interval, "exponential") for s in samples]
    return (interval([s.size / p_ for s, p_ in zip(samples, p)], p),
            interval([1 / p_ for p_ in p], p))


def after(samples: list[Sample], largest: int) -> tuple[Interval, Interval]:
    """Return the report's confidence intervals of bytes and of objects.

    Args:
        samples: The samples of one function.
        largest: The largest sampling interval of the run, in bytes.
    """
    sum_ = Sum()
    for s in samples:
        sum_.add(s.size, probability(s.size, s.interval, "exponential"))
    return sum_.bytes(largest)[1:], sum_.objects(largest)[1:]


class Tally:
    """The number of runs, and of confidence intervals that missed the true value."""

    def __init__(self) -> None:
        """Start without runs."""
        self.samples: list[int] = []
        self.missed = {key: [0, 0] for key in (
            "bytes before", "bytes", "objects before", "objects")}

    def add(self, samples: list[Sample], largest: int,
            true: tuple[float, float]) -> None:
        """Count a run, and its confidence intervals that miss the true value."""
        self.samples.append(len(samples))
        intervals = (*before(samples), *after(samples, largest))
        for key, i in (("bytes before", 0), ("objects before", 1),
                       ("bytes", 2), ("objects", 3)):
            low, high = intervals[i]
            slack = 1e-6 * true[i % 2]
            self.missed[key][0] += true[i % 2] < low - slack
            self.missed[key][1] += true[i % 2] > high + slack

    def json(self) -> Json:
        """Return the counts as JSON."""
        return {"runs": len(self.samples), "missed": self.missed,
                "samples": statistics.median(self.samples)}


def count(runs: Iterable[list[Sample]], true: Truth) -> Json:
    """Return the Tally of each function over several runs, as JSON."""
    tallies = {name: Tally() for name in true}
    for samples in runs:
        if not samples:
            continue
        largest = max(sample.interval for sample in samples)
        for name, tally in tallies.items():
            own = [s for s in samples if name in (ALL, s.function)]
            # The report omits a function without samples.
            if own:
                tally.add(own, largest, true[name])
    return {name: tally.json() for name, tally in tallies.items()
            if tally.samples}


def run(context: Context) -> Json:
    """Simulate all programs, and run the worker in PyPy at each sampling interval."""
    measuring.progress("coverage")
    runs = 20 if context.quick else RUNS
    found: Json = {"simulated": {}, "real": {}, "runs": runs}
    for name, (phases, interval, is_limited) in SIMULATED.items():
        rng = random.Random(1)
        found["simulated"][name] = count(
            (list(simulate(rng, phases, interval, is_limited))
             for _ in range(runs)), truth(phases))
    for interval_ in REAL_INTERVALS:
        with tempfile.TemporaryDirectory() as folder:
            measuring.run([
                context.pypy, measuring.ROOT / "benchmarks" /
                "coverage_worker.py", folder, "%d" % runs, "1", interval_])
            paths = set(Path(folder).glob(interval_ + "-*"))
            everything = _samples(Path(folder) / "1-0")
            found["real"][interval_] = count(
                map(_samples, sorted(paths)), {
                    name: (sum(s.size for s in own), len(own))
                    for name in (ALL, *REAL_FUNCTIONS)
                    for own in [[s for s in everything
                                 if name in (ALL, s.function)]]})
    return found


def _samples(path: Path) -> list[Sample]:
    """Return a profile's samples in the program's own functions."""
    profile = readers.read(path)
    program = Program(profile)
    functions = [program.functions(number)[-1].name
                 for number in range(len(profile.stacks))]
    rows = zip(profile.samples.stack, profile.samples.size,
               profile.samples.interval)
    return [Sample(functions[stack], size, interval)
            for stack, size, interval in rows
            if size and stack >= 0 and functions[stack] in REAL_FUNCTIONS]


# ____________________________________________________________
# tables and plots

KEYS = ("bytes before", "bytes", "objects before", "objects")


def _cell(tally: Json, key: str) -> str:
    below, above = tally["missed"][key]
    runs = tally["runs"]
    return "%.1f (%.1f, %.1f)" % (
        100 - 100 * (below + above) / runs, 100 * below / runs,
        100 * above / runs)


def report(results: Json) -> str:
    """Return a table of the simulated programs and a table of the real one."""
    parts = []
    for what in ("simulated", "real"):
        lines = [[what, "function", "runs", "samples", *KEYS]]
        for name, tallies in results[what].items():
            for function, tally in tallies.items():
                lines.append([
                    name, function, "%d" % tally["runs"],
                    "%.0f" % tally["samples"],
                    *(_cell(tally, key) for key in KEYS)])
        parts.append(table(lines))
    return "\n\n".join(parts) + (
        "\n\nhow many of 100 intervals held the truth (it was below, above "
        "it); of %d runs those in which the function was sampled at all, and "
        "the median of its samples in these" % results["runs"])


def plot(results: Json, path: Path) -> None:
    """Plot how many confidence intervals contain the truth, by number of samples."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for key, style in (("bytes before", "x"), ("bytes", "o"),
                       ("objects before", "+"), ("objects", "s")):
        points = [(tally["samples"], 100 - 100 * sum(tally["missed"][key]) /
                   tally["runs"])
                  for what in ("simulated", "real")
                  for tallies in results[what].values()
                  for tally in tallies.values()]
        axes.plot(*zip(*points), style, markersize=4, fillstyle="none",
                  label=key)
    axes.axhspan(*(100 * share for share in TARGET), color="0.92")
    axes.set_xscale("log")
    axes.set_xlabel("samples of the function, median")
    axes.set_ylabel("percent of intervals that hold the truth")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
