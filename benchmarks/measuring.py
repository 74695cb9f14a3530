"""Run processes, estimate medians, and describe the machine, for all experiments.

This file is also a script. run() starts it between the study and each command, to
measure the command.
"""
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

#: The size of the nursery.  The GC's own choice depends on the CPU's caches.
NURSERY = "4M"
#: The second size is PyPy's choice on servers with a large cache.
NURSERIES = (NURSERY, "240M")
#: Seconds after which a process counts as hung.
TIMEOUT = 600.0

#: The seed of the bootstrap.  It is fixed, so that the same times give the same
#: confidence intervals.
SEED = 20
RESAMPLES = 2000
LEVEL = 0.95

Json = dict[str, Any]


class Failed(Exception):
    """A process gave no result."""


# ____________________________________________________________
# processes

@dataclasses.dataclass(frozen=True)
class Process:
    """The resources and the output of a finished process."""

    #: The elapsed time and the processor time, in seconds.
    wall: float
    cpu: float
    #: The largest resident set, in bytes.
    rss: int
    out: str


def run(command: Sequence[str | Path], folder: Path | None = None,
        variables: Mapping[str, str] | None = None) -> Process:
    """Run a command to its end, and measure it.

    The command does not inherit settings of PyPy or Python from the caller. The kernel
    reports only sums over all children of a process. Therefore, another process runs
    between this one and the command, and has the command as its only child.

    Args:
        command: The program and its arguments.
        folder: The working directory, or None for the current one.
        variables: Environment variables, in addition to the inherited ones.

    Raises:
        Failed: The exit code is not 0, or the command took longer than TIMEOUT.
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
    """Run a command, and print its resources and its output for run() as JSON."""
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
# estimates and tables

@dataclasses.dataclass(frozen=True)
class Estimate:
    """A median and its bootstrap confidence interval."""

    median: float
    low: float
    high: float

    def includes(self, value: float) -> bool:
        """Return whether the confidence interval contains a value."""
        return self.low <= value <= self.high

    def format(self, places: int = 3) -> str:
        """Return the median and the confidence interval as text."""
        return "%.*f (%.*f..%.*f)" % (places, self.median, places, self.low,
                                      places, self.high)


def estimate(values: Sequence[float]) -> Estimate:
    """Return the median of the values and its percentile bootstrap interval.

    The bootstrap draws RESAMPLES samples from the values, with replacement. The
    confidence interval contains the share LEVEL of the medians of these samples.
    """
    generator = random.Random(SEED)
    medians = sorted(
        statistics.median(generator.choices(values, k=len(values)))
        for _ in range(RESAMPLES))
    outside = round(RESAMPLES * (1 - LEVEL) / 2)
    return Estimate(statistics.median(values), medians[outside],
                    medians[-1 - outside])


def table(lines: Iterable[Sequence[str]]) -> str:
    """Return lines of cells as text, with aligned columns."""
    rows = list(lines)
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip()
                     for row in rows)


def progress(text: str) -> None:
    """Print a line about the progress to stderr."""
    print(text, file=sys.stderr, flush=True)


# ____________________________________________________________
# the machine

def cpu_model() -> str:
    """Return the name of the processor."""
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
    """Return the commit that is measured, with "+" if files were changed since."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"], cwd=ROOT,
            text=True, capture_output=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def environment(pypy: Path | str) -> Json:
    """Return the date, the commit, the machine and the interpreters, as JSON."""
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
