"""Measure the costs of allocation sampling and the errors of its estimates.

This command runs the experiments in experiments/, and writes their results as JSON,
tables and plots. README.rst describes the experiments and the method.
"""
from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")           # The machine may have no screen.

import measuring
from experiments import (
    Context,
    accuracy,
    builtin,
    costs,
    coverage,
    depth,
    equal_runs,
    formats,
    fresh,
    held,
    lifetimes,
    lines,
    liveness,
    memory,
    profilers,
    raw_memory,
    service,
    toolchain,
    verdicts,
)

EXPERIMENTS = {module.NAME: module for module in (
    depth, fresh, toolchain, costs, profilers, lifetimes, lines, builtin, held,
    memory, raw_memory, formats, service, accuracy, coverage, verdicts, equal_runs,
    liveness)}

#: The experiments that take half an hour each, and run only if the command names them.
LONG = (service.NAME, equal_runs.NAME, liveness.NAME)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line, and choose the default experiments."""
    parser = argparse.ArgumentParser(
        description="Measure what allocation sampling costs.")
    parser.add_argument(
        "experiments", nargs="*", metavar="EXPERIMENT",
        help="one or more of %s (default: all but %s, which take half an hour each)"
        % (", ".join(EXPERIMENTS), " and ".join(LONG)))
    parser.add_argument(
        "--quick", action="store_true",
        help="few and short runs, to see whether it works; the figures mean "
        "nothing")
    parser.add_argument(
        "--again", action="store_true",
        help="measure nothing; tables and plots from the JSON that is there")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER",
        default=measuring.BUILD / "study",
        help="where the results go (default: .build/study)")
    parser.add_argument(
        "--pypy", type=Path, metavar="PROGRAM",
        default=measuring.BUILD / "bench-pypy" / "bin" / "pypy3",
        help="a PyPy with what `make bench` installs (default: "
        ".build/bench-pypy/bin/pypy3)")
    parser.add_argument(
        "--baseline", type=Path, metavar="PROGRAM",
        help="in the experiment profilers, the PyPy of the plain runs, for "
        "example one with the hook engine (default: the same)")
    parser.add_argument(
        "--cpython", type=Path, metavar="PROGRAM",
        default=measuring.BUILD / "bench-cpython" / "bin" / "python",
        help="a CPython with other profilers (default: "
        ".build/bench-cpython/bin/python)")
    options = parser.parse_args(arguments)
    for name in options.experiments:
        if name not in EXPERIMENTS:
            parser.error("the experiment %r is not known; there are %s"
                         % (name, ", ".join(EXPERIMENTS)))
    if not options.experiments:
        options.experiments = [name for name in EXPERIMENTS if name not in LONG]
    return options


def main() -> int:
    """Run the experiments, and return the exit code.

    The exit code is 1 if an experiment failed, and 2 if --again found no results.
    """
    options = parse()
    context = Context(options.pypy, options.baseline or options.pypy,
                      options.cpython, options.quick)
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        for name in options.experiments:
            experiment = EXPERIMENTS[name]
            path = options.output / (name + ".json")
            if options.again:
                kept = json.loads(path.read_text())
            else:
                environment = measuring.environment(options.pypy)
                begun = time.monotonic()
                results = experiment.run(context)
                environment["load_after"] = os.getloadavg()[0]
                environment["minutes"] = (time.monotonic() - begun) / 60
                kept = {"environment": environment, "quick": options.quick,
                        "results": results}
                path.write_text(json.dumps(kept) + "\n")
            text = "%s\n\n%s\n" % (describe(kept["environment"]),
                                   experiment.report(kept["results"]))
            path.with_suffix(".txt").write_text(text)
            experiment.plot(kept["results"], path.with_suffix(".png"))
            print(text, flush=True)
    except measuring.Failed as e:
        print("study.py: %s" % e, file=sys.stderr)
        return 1
    except FileNotFoundError as e:
        print("study.py: %s is not there; without --again it would be made"
              % e.filename, file=sys.stderr)
        return 2
    return 0


def describe(environment: measuring.Json) -> str:
    """Return a line with the date, the commit and the machine of a result."""
    return (
        "%s, %.1f minutes; commit %s; %s, %s CPUs, load %.2f before, %.2f after; PyPy "
        "%s; nursery %s" % (
            environment["date"], environment["minutes"], environment["commit"],
            environment["cpu"], environment["cpus"], environment["load_before"],
            environment["load_after"], environment["pypy"], environment["nursery"]))


if __name__ == "__main__":
    sys.exit(main())
