"""Run a program under several configurations of the sampler in one PyPy process.

    worker.py PROGRAM SECONDS PASSES SEED CONFIGURATION...

The experiments `costs` and `lifetimes` run this script. The process warms up first. In
each pass, the program then runs once in every configuration, in a random order. A plain
run precedes and follows each group of three configurations. A full collection before
each run frees the garbage of the previous run. The time includes writing the profile,
but not the start and the stop of the sampler.

The script prints a line of JSON for each run: its times in seconds, the sampler's
counts, and the size of the profile in bytes.

    plain           no sampling
    128k, auto      allocation sampling, as on the command line
    fixed:128k      allocation sampling with fixed gaps
    fateless:128k   allocation sampling without lifetimes
    time:1000       vmprof's CPU samples, 1000 per second
    both:128k:1000  allocation samples and CPU samples

A program is a file in programs/ that has a main(rounds), or ``pyperformance:NAME``, or
``pystone`` from PyPy's own library.
"""
from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator

import programs
from timing import Json, Main, rounds_for, timed, vmprof_time

#: The number of configurations between two plain runs.
NEIGHBOURS = 3
#: The least duration of the warm-up, as a multiple of the duration of a run.
WARM_UP = 10


class Sampler:
    """A configuration of the sampler, and the file that it writes."""

    def __init__(self, configuration: str, profile: str):
        """Parse the configuration.

        Args:
            configuration: One of the texts in this module's description.
            profile: The path of the profile.
        """
        self.profile = profile
        kind, _, rest = configuration.partition(":")
        self.kind = kind
        #: The rate of CPU samples per second, or 0 without CPU samples.
        self.per_second = 0
        self.interval = configuration
        if kind == "time":
            self.per_second = int(rest)
        elif kind == "both":
            self.interval, _, per_second = rest.partition(":")
            self.per_second = int(per_second)
        elif kind in ("fixed", "fateless"):
            self.interval = rest

    @contextlib.contextmanager
    def running(self) -> Iterator[Json]:
        """Sample within this context.

        Yields:
            A dict that receives the sampler's metrics when the context ends.
        """
        result: Json = {}
        if self.kind == "plain":
            yield result
            return
        if self.kind == "time":
            with vmprof_time(self.profile, self.per_second):
                yield result
        else:
            import vmprof_allocation
            session = vmprof_allocation.sample(
                self.profile, self.interval,
                period=1 / self.per_second if self.per_second else None,
                distribution="fixed" if self.kind == "fixed" else "exponential",
                lifetimes=self.kind != "fateless")
            with session:
                before = session.statistics()
                yield result
                after = session.statistics()
            for name in "allocated", "samples", "time_samples", "lost":
                result[name] = getattr(after, name) - getattr(before, name)
        result["profile"] = os.path.getsize(self.profile)


def segment(main: Main, rounds: int, configuration: str,
            profile: str) -> Json:
    """Run the program once in a configuration, and return its times and metrics."""
    with Sampler(configuration, profile).running() as result:
        result.update(timed(main, rounds))
    result["configuration"] = configuration
    return result


def order(configurations: list[str], rng: random.Random) -> list[str]:
    """Return the order of one pass: random configurations between plain runs."""
    drawn = rng.sample(configurations, len(configurations))
    result = ["plain"]
    for i in range(0, len(drawn), NEIGHBOURS):
        result += [*drawn[i:i + NEIGHBOURS], "plain"]
    return result


def main(arguments: list[str]) -> None:
    """Warm up, then run all passes and print each result."""
    program, seconds, passes, seed, *configurations = arguments
    rng = random.Random(int(seed))
    run = programs.load(program)
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "app.vmprof")
        # The program's own output must not mix with the results.
        with contextlib.redirect_stdout(io.StringIO()):
            rounds = rounds_for(run, float(seconds),
                                WARM_UP * float(seconds))
            # Warm up each configuration, too.
            for configuration in configurations:
                segment(run, max(1, rounds // 4), configuration, profile)
        for number in range(int(passes)):
            for configuration in order(configurations, rng):
                with contextlib.redirect_stdout(io.StringIO()):
                    result = segment(run, rounds, configuration, profile)
                result.update({"pass": number, "rounds": rounds})
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
