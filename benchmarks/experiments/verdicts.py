"""Count how often `vmprof-convert diff` draws a wrong conclusion about two runs.

The first result is the share of pairs of equal runs in which a change is reported. The
second result is the share of pairs in which a leak is found: the second run leaks 2 %
of its allocated bytes. Both come from a simulation as in `coverage`, with 1,000 pairs
of equal runs and 100 pairs with a leak. The pairs are evaluated as in `vmprof-convert
diff`: by the condition `alive growth > 0`, and by the rows of a difference.

The experiment also simulates runs that grow between two times by exactly the growth
that a condition allows, and counts the runs that fail the condition. It also runs
programs in PyPy: one keeps the same objects in each run, and one keeps 2 % more.
"""
from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json
from experiments.coverage import LARGE, Kind, MiB, Phase, simulate
from measuring import table
from vmprof_convert import readers
from vmprof_convert.analysis import thresholds
from vmprof_convert.analysis.diff import compare, of_moments, of_runs
from vmprof_convert.analysis.summary import Choice
from vmprof_convert.profile.model import (
    ALIVE,
    DIED,
    PYTHON,
    Collection,
    Function,
    Profile,
    Samples,
)
from vmprof_convert.profile.stacks import Stacks

NAME = "verdicts"
CLEAN, PLANTED = 1000, 100
#: The number of simulated runs that grow between two times.  A condition may fail in
#: one of 10,000 runs.
GROWING = 10_000
GROWTHS = (0.05, 0.5, 1.0)
#: The bytes of the leak and of the working set, as shares of all allocated bytes.
LEAK, WORKING_SET = 0.02, 0.01
LEAKY = "leaky"
#: The sampling intervals of the runs of verdict_worker.py.
REAL_INTERVALS = ("32k", "8k", "4k")

_SMALL = (Kind("big", 64, 0.7), Kind("mid", 32, 0.29), Kind("rare", 48, 0.01))
_HEAVY = (Kind("tiny", 32, 0.98), Kind("heavy", 4096, 0.02),
          Kind("huge", MiB, 0.0001))


class Scenario(NamedTuple):
    """A simulated program: its objects, bytes, and sampling interval in bytes."""

    kinds: tuple[Kind, ...]
    bytes: float
    interval: int


SIMULATED = {
    "300 MiB at 1M": Scenario(_SMALL, 300 * MiB, MiB),
    "300 MiB at 128k": Scenario(_SMALL, 300 * MiB, MiB // 8),
    "300 MiB at 64k": Scenario(_SMALL, 300 * MiB, MiB // 16),
    "heavy tail, 300 MiB at 64k": Scenario(_HEAVY, 300 * MiB, MiB // 16),
}


class Outcome(NamedTuple):
    """The result of comparing one pair of runs."""

    failed: bool
    #: The functions whose live bytes are reported as changed.
    changed: list[str]
    samples: int


def with_leak(scenario: Scenario) -> Scenario:
    """Return a scenario with a leak, which has the share LEAK of all bytes.

    The leaked objects have 64 bytes.
    """
    mean = sum(kind.size * kind.share for kind in scenario.kinds)
    # The leak is the share LEAK of an object's average bytes, with the leak included.
    share = LEAK * mean / (64 * (1 - LEAK))
    return scenario._replace(
        kinds=(*scenario.kinds, Kind(LEAKY, 64, share)),
        bytes=scenario.bytes / (1 - LEAK))


def profile_of(rng: random.Random, scenario: Scenario) -> Profile:
    """Return a simulated profile of one run."""
    return _profile(rng, scenario, [scenario.bytes])


def growing(rng: random.Random, scenario: Scenario, growth: float) -> Profile:
    """Return a simulated profile of a run that grows between the times 1 and 2.

    Args:
        rng: The source of random numbers.
        scenario: The program, which allocates its bytes until the time 1.
        growth: The bytes that it allocates from then until the time 2, as a share of
            the bytes until the time 1.
    """
    return _profile(rng, scenario, [scenario.bytes, scenario.bytes * growth])


def _profile(rng: random.Random, scenario: Scenario, steps: list[float]) -> Profile:
    """Return a simulated profile of a run with several steps.

    Args:
        rng: The source of random numbers.
        scenario: The program.
        steps: The bytes that it allocates until the time 1, then until the time 2, and
            so on.
    """
    total = sum(kind.share for kind in scenario.kinds)
    kinds = tuple(kind._replace(share=kind.share / total) for kind in scenario.kinds)
    names = [kind.function for kind in scenario.kinds]
    samples = Samples()
    for time, bytes_ in enumerate(steps, 1):
        for sample in simulate(rng, [Phase(bytes_, 0.1, kinds)], scenario.interval,
                               False):
            # Large objects do not stay alive.  Most of them are sampled, so that one
            # more large object in the second run would be a true difference.
            stays = sample.function == LEAKY or (
                sample.size < LARGE and rng.random() < WORKING_SET)
            samples.add(names.index(sample.function), time, 1, sample.size,
                        sample.interval, 0, -1, ALIVE if stays else DIED)
    samples.finish()
    stacks = Stacks()
    for number in range(len(names)):
        stacks.append(stacks.child(0, number, "interpreted"))
    return Profile(
        interpreter="pypy", period=0.0, start_time=1.0, end_time=2.0, meta={},
        settings={"interval": str(scenario.interval), "facts": "lifetimes"},
        unknown={}, functions={number: Function(name, 1, "app.py", PYTHON)
                               for number, name in enumerate(names)},
        stacks=stacks, samples=samples, moments=[], types=[],
        # A collection at the end of each step confirms the live objects.
        collections=[Collection(True, time, 0, time)
                     for time in range(1, len(steps) + 1)],
        marks=[], figures=[], misfits=0, lost_stacks=0, cut_off={})


def judge(before: Profile, after: Profile) -> Outcome:
    """Compare two runs by their live bytes."""
    difference = compare(of_runs([before], [after]), Choice(sort="alive"))
    verdict, = thresholds.of([thresholds.parse("alive growth > 0")], difference)
    return Outcome(verdict.failed, [
        change.subject.function.name for change in difference.changes
        if change.has_changed and change.subject is not None
        and change.subject.function is not None], difference.after[0].samples)


def grown_too_much(run: Profile, condition: str) -> bool:
    """Return whether a condition fails between the times 1 and 2."""
    verdict, = thresholds.of([thresholds.parse(condition)], compare(
        of_moments(run, 1, 2), Choice(sort=condition.partition(" ")[0].replace(
            thresholds.ALLOCATED, "self"))))
    return verdict.failed


def count(clean: Iterable[Outcome], planted: Iterable[Outcome]) -> Json:
    """Return the numbers of false alarms and of leaks found."""
    alike, leaking = list(clean), list(planted)
    return {
        "clean": len(alike), "planted": len(leaking),
        "samples": statistics.median(outcome.samples for outcome in alike),
        "false_alarms": sum(outcome.failed for outcome in alike),
        "found": sum(outcome.failed for outcome in leaking),
        "rows_wrong": sum(bool(outcome.changed) for outcome in alike),
        "row_found": sum(LEAKY in outcome.changed for outcome in leaking)}


def run(context: Context) -> Json:
    """Compare simulated pairs, and pairs of profiles from PyPy."""
    measuring.progress(NAME)
    clean, planted = (20, 5) if context.quick else (CLEAN, PLANTED)
    found: Json = {"simulated": {}, "real": {}, "one run": one_run(
        20 if context.quick else GROWING)}
    for name, scenario in SIMULATED.items():
        rng = random.Random(1)
        leaking = with_leak(scenario)
        found["simulated"][name] = count(
            (judge(profile_of(rng, scenario), profile_of(rng, scenario))
             for _ in range(clean)),
            (judge(profile_of(rng, scenario), profile_of(rng, leaking))
             for _ in range(planted)))
    for interval in REAL_INTERVALS:
        with tempfile.TemporaryDirectory() as folder:
            measuring.run([context.pypy, measuring.ROOT / "benchmarks" /
                           "verdict_worker.py", folder, interval, "%d" % clean,
                           "%d" % planted])
            root = Path(folder)
            found["real"][interval] = count(
                _pairs(root, "clean", clean), _pairs(root, "planted", planted))
    return found


def one_run(runs: int) -> Json:
    """Count the runs that fail a condition although they grow by the allowed growth."""
    rng = random.Random(2)
    scenario = SIMULATED["300 MiB at 1M"]
    wrong: Json = {}
    for growth in GROWTHS:
        conditions = ["%s growth > %.0f%%" % (measure, 100 * growth)
                      for measure in (thresholds.ALLOCATED, thresholds.ALIVE)]
        failed = dict.fromkeys(conditions, 0)
        for _ in range(runs):
            run = growing(rng, scenario, growth)
            for condition in conditions:
                failed[condition] += grown_too_much(run, condition)
        wrong.update(failed)
    return {"runs": runs, "failed": wrong}


def _pairs(folder: Path, name: str, number: int) -> Iterable[Outcome]:
    """Compare the pairs of profiles that verdict_worker.py recorded."""
    for i in range(number):
        yield judge(*(readers.read(folder / ("%s-%d-%s" % (name, i, side)))
                      for side in ("before", "after")))


# ____________________________________________________________
# tables and plots


def report(results: Json) -> str:
    """Return a table of the pairs of runs, and a table of the growing runs."""
    lines = [["", "samples", "false alarms", "leak found", "rows wrongly named",
              "leak's row found"]]
    for what in "simulated", "real":
        for name, tally in results[what].items():
            lines.append([
                "%s, %s" % (what, name), "%.0f" % tally["samples"],
                "%d of %d" % (tally["false_alarms"], tally["clean"]),
                "%d of %d" % (tally["found"], tally["planted"]),
                "%d of %d" % (tally["rows_wrong"], tally["clean"]),
                "%d of %d" % (tally["row_found"], tally["planted"])])
    growing = results["one run"]
    return "%s\n\nfailed by 'alive growth > 0': pairs of runs that are alike, and " \
        "pairs of which the second keeps %.0f %% of what it allocates; %.0f %% are " \
        "kept by both\n\n%s\n\nbetween two moments of one run, which grew by just " \
        "that; simulated, 300 samples at the first moment, and 3 of what is alive" % (
            table(lines), 100 * LEAK, 100 * WORKING_SET, table([
                ["", "failed"], *([name, "%d of %d" % (failed, growing["runs"])]
                                  for name, failed in growing["failed"].items())]))


def plot(results: Json, path: Path) -> None:
    """Plot the shares of false alarms and of leaks found, by number of samples."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for what, style in (("simulated", "o"), ("real", "s")):
        tallies = results[what].values()
        axes.plot([tally["samples"] for tally in tallies],
                  [100 * tally["found"] / tally["planted"] for tally in tallies],
                  style, fillstyle="none", label="leak of 2 %% found, %s" % what)
        axes.plot([tally["samples"] for tally in tallies],
                  [100 * tally["false_alarms"] / tally["clean"] for tally in tallies],
                  "x" if what == "simulated" else "+",
                  label="false alarms, %s" % what)
    axes.set_xscale("log")
    axes.set_xlabel("samples of a run, median")
    axes.set_ylabel("percent of runs")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
