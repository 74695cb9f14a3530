"""Runs a program under one configuration of the sampler after the other, in
one PyPy process that has warmed up, and prints a line of JSON for each.

    worker.py PROGRAM SECONDS PASSES SEED CONFIGURATION...

The configurations take turns in an order that is drawn anew in each pass.
Each stands between two plain runs, or shares them with its neighbours; a full
collection puts the heap into the same state before each.  Starting and
stopping are outside of what is timed, writing the profile is inside.

    plain           nothing is sampled
    128k, auto      allocation sampling, as on the command line
    fixed:128k      with fixed gaps
    fateless:128k   without lifetimes
    time:1000       vmprof's time sampling, per second
    both:128k:1000  the two together

A program is a file in programs/ that has a main(rounds), or
``pyperformance:NAME``, or ``pystone`` from PyPy's own library.
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

#: configurations between two plain runs
NEIGHBOURS = 3
#: the program runs for so many times the length of a run before the first one
WARM_UP = 10


class Sampler:
    """Starts and stops what a configuration names."""

    def __init__(self, configuration: str, profile: str):
        self.profile = profile
        kind, _, rest = configuration.partition(":")
        self.kind = kind
        #: of time samples; 0: none
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
        """Yields what is to be told of it, complete at the end."""
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
                gaps="fixed" if self.kind == "fixed" else "exponential",
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
    with Sampler(configuration, profile).running() as result:
        result.update(timed(main, rounds))
    result["configuration"] = configuration
    return result


def order(configurations: list[str], rng: random.Random) -> list[str]:
    """One pass: the configurations in any order, plain ones between."""
    drawn = rng.sample(configurations, len(configurations))
    result = ["plain"]
    for i in range(0, len(drawn), NEIGHBOURS):
        result += [*drawn[i:i + NEIGHBOURS], "plain"]
    return result


def main(arguments: list[str]) -> None:
    program, seconds, passes, seed, *configurations = arguments
    rng = random.Random(int(seed))
    run = programs.load(program)
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "app.vmprof")
        # what the program prints is not ours to print
        with contextlib.redirect_stdout(io.StringIO()):
            rounds = rounds_for(run, float(seconds),
                                WARM_UP * float(seconds))
            for configuration in configurations:        # each one once before
                segment(run, max(1, rounds // 4), configuration, profile)
        for number in range(int(passes)):
            for configuration in order(configurations, rng):
                with contextlib.redirect_stdout(io.StringIO()):
                    result = segment(run, rounds, configuration, profile)
                result.update({"pass": number, "rounds": rounds})
                print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
