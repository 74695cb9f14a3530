"""Measure a program that was translated with this project's patches.

The program is the guest interpreter of rpython/examples, with and without the JIT. The
experiment measures whole processes.
"""
from __future__ import annotations

import tempfile
from pathlib import Path

import measuring
import turns
from experiments import Context, Json
from experiments.costs import INTERVALS
from measuring import BUILD, ROOT, estimate, table

NAME = "builtin"
BUILDS = ("guest", "guest-jit")
PROGRAMS = ROOT / "rpython" / "examples" / "programs"
#: The end of the name of a sampling rate at which samples have native frames.
NATIVE = ", native"
RATES = (*INTERVALS, "auto:1000/s", "128k" + NATIVE, "4M" + NATIVE)
#: The rounds of gcbench, and the number of lists that sites makes.  A process takes
#: about half a second.
ROUNDS = {"guest": 6, "guest-jit": 40}
LISTS = {"guest": 1000000, "guest-jit": 4000000}
#: The stack depths for the cost of a sample.
FRAMES = (5, 10, 20, 50)
FRAMES_RATES = ("16k", "16k" + NATIVE)
PAIRS = 9


def run(context: Context) -> Json:
    """Run gcbench at all rates, and sites at several stack depths.

    Raises:
        measuring.Failed: The guest interpreter was not built.
    """
    builds = [b for b in BUILDS if (BUILD / "rpython" / b).exists()]
    if not builds:
        raise measuring.Failed("there is no .build/rpython/guest: run `make "
                               "bench`, which builds it")
    pairs, fraction = (1, 100) if context.quick else (PAIRS, 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = folder / "out.vmprof"

        def guest(build: str, rate: str | None, program: str,
                  *arguments: int) -> measuring.Process:
            flags = [] if rate is None else [
                "--allocation-sampling", rate.removesuffix(NATIVE),
                *(["--native"] if rate.endswith(NATIVE) else [])]
            return measuring.run(
                [BUILD / "rpython" / build, *flags, PROGRAMS / program,
                 *map(str, arguments)], folder)

        def gcbench(build: str, rate: str | None) -> measuring.Process:
            return guest(build, rate, "gcbench.guest",
                         max(1, ROUNDS[build] // fraction))

        def depth(subject: str, rate: str | None) -> measuring.Process:
            build, frames = subject.split()
            return guest(build, rate, "sites.guest", 0,
                         LISTS[build] // fraction, int(frames))

        rates = ("128k", "auto:1000/s", "128k" + NATIVE)
        return {
            "runs": turns.take(
                builds, rates if context.quick else RATES, pairs, gcbench,
                profile, "build", NAME),
            "depths": turns.take(
                ["%s %d" % (build, frames) for build in builds
                 for frames in FRAMES], FRAMES_RATES, pairs, depth, profile,
                "frames", NAME + ", depth")}


def report(results: Json) -> str:
    """Return a table of time ratios, and a table of the cost per stack depth."""
    depths = results["depths"]
    lines = [["build, frames", *("us/sample, " + rate for rate in FRAMES_RATES)]]
    for subject in dict.fromkeys(row["frames"] for row in depths):
        lines.append([subject, *(
            estimate(turns.microseconds(depths, "frames", subject, rate)).format()
            for rate in FRAMES_RATES)])
    return "%s\n\n%s" % (turns.report(results["runs"], "build", RATES),
                         table(lines))


def plot(results: Json, path: Path) -> None:
    """Plot the time ratios of both builds, with the JIT and without."""
    turns.plot(results["runs"], "build", BUILDS, RATES, path)
