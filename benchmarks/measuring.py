"""Processes, medians, and the machine: what all experiments share."""
from __future__ import annotations

import dataclasses
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / ".build"

#: the GC's own choice depends on the CPU's caches
NURSERY = "4M"
#: the second size is what PyPy chooses on servers with a large cache
NURSERIES = (NURSERY, "240M")
#: a process that takes longer, in seconds, hangs
TIMEOUT = 600.0

#: of the bootstrap: the same times give the same intervals
SEED = 20
RESAMPLES = 2000
LEVEL = 0.95

Json = dict[str, Any]


class Failed(Exception):
    """A process did not give a result."""


# ____________________________________________________________
# processes

@dataclasses.dataclass(frozen=True)
class Process:
    """What a process took as a whole."""

    #: seconds; and those of a processor
    wall: float
    cpu: float
    #: the largest resident set, in bytes
    rss: int
    out: str


def run(command: Sequence[str | Path], folder: Path | None = None,
        variables: Mapping[str, str] | None = None) -> Process:
    """Run `command` to its end, with these environment variables besides.
    Raises Failed.

    Settings of whoever runs this don't become part of the result.  What the
    kernel knows of a process it tells of all one's children together: between
    us and `command` is a process whose only child it is.
    """
    environment = {
        **{key: value for key, value in os.environ.items()
           if not key.startswith(("PYPY", "PYTHON"))},
        "PYPY_GC_NURSERY": NURSERY, "PYTHONHASHSEED": "0",
        **(variables or {})}
    name = " ".join(map(str, command))
    try:
        done = subprocess.run(
            [sys.executable, __file__, *map(str, command)], cwd=folder,
            env=environment, text=True, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired as e:
        raise Failed("%s: no end after %.0f s" % (name, TIMEOUT)) from e
    if done.returncode:
        raise Failed("%s: exit code %d\n%s" % (
            name, done.returncode, done.stderr.strip()[-2000:]))
    line, _, out = done.stdout.partition("\n")
    figures = json.loads(line)
    return Process(figures["wall"], figures["cpu"], figures["rss"], out)


def _measure(command: Sequence[str]) -> int:
    import resource
    start = time.perf_counter()
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True,
                              check=False)
    except OSError as e:
        print("can't run %s: %s" % (command[0], e.strerror), file=sys.stderr)
        return 127
    wall = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"wall": wall, "cpu": used.ru_utime + used.ru_stime,
                      "rss": used.ru_maxrss * 1024}))
    print(done.stdout, end="")
    return done.returncode


# ____________________________________________________________
# what the figures say

@dataclasses.dataclass(frozen=True)
class Estimate:
    """A median and its bootstrap interval."""

    median: float
    low: float
    high: float

    def includes(self, value: float) -> bool:
        return self.low <= value <= self.high

    def format(self, places: int = 3) -> str:
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


def table(lines: Iterable[Sequence[str]]) -> str:
    rows = list(lines)
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip()
                     for row in rows)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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


def commit() -> str:
    """Of what is measured; "+": with changes that are in none."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=ROOT,
            text=True, capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def environment(pypy: Path | str) -> Json:
    version = run([pypy, "-c", "import sys; print(sys.version)"]).out
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(
            " ", "seconds"),
        "commit": commit(), "cpu": cpu_model(), "cpus": os.cpu_count(),
        "load_before": os.getloadavg()[0], "pypy": " ".join(version.split()),
        "python": " ".join(sys.version.split()), "nursery": NURSERY,
    }


if __name__ == "__main__":
    sys.exit(_measure(sys.argv[1:]))
