"""How often verdicts are wrong: of runs that are alike, how often one fails; and how
often one in which 2 % of what is allocated stays is found.

By simulation, as in `coverage`: 1,000 clean pairs of runs and 100 with a leak in the
second, judged as `vmprof-convert diff` does it: by `alive growth > 0`, and by the rows
of a difference.  Runs that grow by just what a condition grants, between two moments:
how often one fails.  And in PyPy: a program that keeps the same each time, and one
that keeps 2 % more.
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
#: of one run each; of 10000, one may fail
GROWING = 10_000
GROWTHS = (0.05, 0.5, 1.0)
#: of all bytes that are allocated
LEAK, WORKING_SET = 0.02, 0.01
LEAKY = "leaky"
#: of verdict_worker.py
REAL_INTERVALS = ("32k", "8k", "4k")

_SMALL = (Kind("big", 64, 0.7), Kind("mid", 32, 0.29), Kind("rare", 48, 0.01))
_HEAVY = (Kind("tiny", 32, 0.98), Kind("heavy", 4096, 0.02),
          Kind("huge", MiB, 0.0001))


class Scenario(NamedTuple):
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
    """Of one pair."""

    failed: bool
    #: functions that have changed, in what is alive; or in PyPy, that differ
    changed: list[str]
    samples: int


def with_leak(scenario: Scenario) -> Scenario:
    """Objects of 64 bytes, which are that share of all bytes."""
    mean = sum(kind.size * kind.share for kind in scenario.kinds)
    # of the bytes of one object on average, with the leak
    share = LEAK * mean / (64 * (1 - LEAK))
    return scenario._replace(
        kinds=(*scenario.kinds, Kind(LEAKY, 64, share)),
        bytes=scenario.bytes / (1 - LEAK))


def profile_of(rng: random.Random, scenario: Scenario) -> Profile:
    """What is sampled of one run."""
    return _profile(rng, scenario, [scenario.bytes])


def growing(rng: random.Random, scenario: Scenario, growth: float) -> Profile:
    """A run that has allocated its bytes at the time 1, and this share more at 2."""
    return _profile(rng, scenario, [scenario.bytes, scenario.bytes * growth])


def _profile(rng: random.Random, scenario: Scenario, steps: list[float]) -> Profile:
    """`steps`: the bytes until the time 1, and so on."""
    total = sum(kind.share for kind in scenario.kinds)
    kinds = tuple(kind._replace(share=kind.share / total) for kind in scenario.kinds)
    names = [kind.function for kind in scenario.kinds]
    samples = Samples()
    for time, bytes_ in enumerate(steps, 1):
        for sample in simulate(rng, [Phase(bytes_, 0.1, kinds)], scenario.interval,
                               False):
            # of large objects, as most are sampled, one more would be a difference
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
        # what is alive was judged at the end of each step
        collections=[Collection(True, time, 0, time)
                     for time in range(1, len(steps) + 1)],
        marks=[], figures=[], misfits=0, lost_stacks=0, cut_off={})


def judge(before: Profile, after: Profile) -> Outcome:
    difference = compare(of_runs([before], [after]), Choice(sort="alive"))
    verdict, = thresholds.of([thresholds.parse("alive growth > 0")], difference)
    return Outcome(verdict.failed, [
        change.subject.function.name for change in difference.changes
        if change.has_changed and change.subject is not None
        and change.subject.function is not None], difference.after[0].samples)


def grown_too_much(run: Profile, condition: str) -> bool:
    """Which it is said to have, between the times 1 and 2."""
    verdict, = thresholds.of([thresholds.parse(condition)], compare(
        of_moments(run, 1, 2), Choice(sort=condition.partition(" ")[0].replace(
            thresholds.ALLOCATED, "self"))))
    return verdict.failed


def count(clean: Iterable[Outcome], planted: Iterable[Outcome]) -> Json:
    alike, leaking = list(clean), list(planted)
    return {
        "clean": len(alike), "planted": len(leaking),
        "samples": statistics.median(outcome.samples for outcome in alike),
        "false_alarms": sum(outcome.failed for outcome in alike),
        "found": sum(outcome.failed for outcome in leaking),
        "rows_wrong": sum(bool(outcome.changed) for outcome in alike),
        "row_found": sum(LEAKY in outcome.changed for outcome in leaking)}


def run(context: Context) -> Json:
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
    """How often a run fails that grows by what is granted."""
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
    for i in range(number):
        yield judge(*(readers.read(folder / ("%s-%d-%s" % (name, i, side)))
                      for side in ("before", "after")))


# ____________________________________________________________


def report(results: Json) -> str:
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
