"""Count what `vmprof-convert diff` reports about equal runs of real programs.

The experiment counts the comparisons of equal runs that report an unchanged row as
changed, and the comparisons that find a planted change.

Each program runs RUNS times unchanged. In further PLANTED_RUNS runs, one function
allocates a tenth more bytes (equal_worker.py). A comparison draws one or three of these
runs per side. A run takes part in many comparisons, but only once in each.

A planted function cannot stand for the program's own functions. Therefore, another test
changes a user function: a tenth of its samples, drawn at random, counts twice.
"""
from __future__ import annotations

import dataclasses
import random
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import matplotlib.pyplot as plt

import measuring
from experiments import Context, Json, short
from measuring import table
from vmprof_convert import readers
from vmprof_convert.analysis import diff, matching, thresholds
from vmprof_convert.analysis.diff import (
    DIFFERS,
    GREW,
    SHRANK,
    Difference,
    compare,
    of_runs,
    verdict,
)
from vmprof_convert.analysis.summary import Choice, Summary, summarize
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.user_code import only_own
from vmprof_convert.profile.model import Function, Profile, Samples

NAME = "equal_runs"
RUNS, PLANTED_RUNS = 24, 12
#: The number of comparisons per program.
COMPARISONS = 100
INTERVAL = "64k"
MORE = 0.1
PLANTED = "planted"
#: The least share of all bytes and the least number of samples that a user function has
#: whose samples are changed.
SHARE, SAMPLES = 0.1, 2500
#: The number of attempts per run.  On PyPy 7.3.11, the import of SQLAlchemy fails at
#: times.
ATTEMPTS = 5
SIDES = (1, 3)


class Program(NamedTuple):
    """The length of a program's run."""

    rounds: int
    #: The number of lists that the planted function makes in a round.  They have a
    #: tenth of all bytes.
    lists: int


PROGRAMS = {
    "settings": Program(100, 9000),
    "pyperformance:sqlalchemy_declarative": Program(6, 80_000),
    "pyperformance:django_template": Program(120, 9000),
    "pyperformance:html5lib": Program(60, 11_000),
    "pyperformance:sympy": Program(8, 115_000),
}
#: The choice of rows, and the compared measure, of each view.
VIEWS = {
    "own functions": Choice(), "functions": Choice(), "types": Choice(by=("type",)),
    "own functions, alive": Choice(sort="alive"),
    "types, alive": Choice(by=("type",), sort="alive"),
}
PLANTED_VIEWS = ("own functions", "functions")
CONDITIONS = ("allocated growth > 0", "allocated growth > 2%", "allocated growth > 5%",
              "allocated growth > 10%", "alive growth > 0")


def run(context: Context) -> Json:
    """Record the profiles of each program, and compare them."""
    programs = dict(list(PROGRAMS.items())[:1]) if context.quick else PROGRAMS
    runs, planted, count = (6, 3, 2) if context.quick else (
        RUNS, PLANTED_RUNS, COMPARISONS)
    found: Json = {}
    for name, program in programs.items():
        with tempfile.TemporaryDirectory() as folder:
            profiles = _profiles(context, Path(folder), name, program, runs, 0.0)
            more = _profiles(context, Path(folder), name, program, planted, MORE)
            measuring.progress("%s: %s, comparisons" % (NAME, name))
            found[name] = compared(profiles, more, count)
    return found


def _profiles(context: Context, folder: Path, name: str, program: Program, runs: int,
              more: float) -> list[Profile]:
    """Record profiles of a program.

    Args:
        context: The interpreters.
        folder: The folder for the profiles and the program.
        name: The name of the program.
        program: The length of its run.
        runs: The number of profiles.
        more: The share by which the planted function makes more lists.
    """
    script = name
    if name.startswith("pyperformance:"):
        # Copy the script out of site-packages, so that it counts as user code.
        original = Path(measuring.run([
            context.pypy, "-c", "import programs\nprint(programs.script_of(%r))"
            % short(name)], measuring.ROOT / "benchmarks").out.strip())
        shutil.copytree(original.parent, folder / "program", dirs_exist_ok=True)
        script = str(folder / "program" / original.name)
    found = []
    for number in range(runs):
        measuring.progress("%s: %s, run %d of %d%s" % (
            NAME, name, number + 1, runs, ", planted" if more else ""))
        path = folder / "x.vmprof"
        for attempt in range(ATTEMPTS):
            try:
                # Users run programs with random hashes, which change a run's behaviour.
                measuring.run([
                    context.pypy, "-m", "vmprof", "--allocation-sampling", INTERVAL,
                    "--quiet", "-o", path,
                    measuring.ROOT / "benchmarks" / "equal_worker.py", script,
                    "%d" % program.rounds, "%d" % (program.lists * (1 + more))],
                    variables={"PYTHONHASHSEED": "random"})
                break
            except measuring.Failed:
                if attempt == ATTEMPTS - 1:
                    raise
        found.append(readers.read(path))
        path.unlink()
    return found


# ____________________________________________________________
# comparisons


class Outcome(NamedTuple):
    """The result of one comparison."""

    #: The functions and types that are reported as grown or shrunk, and as different.
    named: list[str]
    differ: list[str]
    #: The measures whose sums are reported as grown or shrunk, and as different.
    in_all: list[str]
    in_all_differ: list[str]
    #: The conditions that failed.
    failed: list[str]


def compared(profiles: list[Profile], planted: list[Profile], count: int) -> Json:
    """Compare equal, planted and changed runs of one program.

    Args:
        profiles: The profiles of equal runs.
        planted: The profiles of runs with the planted change.
        count: The number of comparisons.
    """
    rng = random.Random(1)
    found: Json = {"runs": len(profiles), "planted_runs": len(planted),
                   "comparisons": count, "equal": {}, "planted": {}, "scaled": {},
                   **_figures(profiles, planted)}
    # Each run takes part in many comparisons.  Summarize it only once.
    known = [part for profile in profiles + planted
             for part in (profile, _own_of(profile))]
    origins = {id(profile): Origins(profile) for profile in known}
    with mock.patch.object(diff, "summarize", _summed_once(known)), mock.patch.object(
            matching, "Origins",
            lambda profile: origins.get(id(profile)) or Origins(profile)):
        for runs in SIDES:
            equal: dict[str, list[Outcome]] = {view: [] for view in VIEWS}
            more = dict.fromkeys(PLANTED_VIEWS, 0)
            for _ in range(count):
                drawn = rng.sample(profiles, 2 * runs)
                for view, outcome in _outcomes(drawn[:runs], drawn[runs:]):
                    equal[view].append(outcome)
                for view, outcome in _outcomes(
                        rng.sample(profiles, runs), rng.sample(planted, runs),
                        PLANTED_VIEWS):
                    more[view] += PLANTED in outcome.named + outcome.differ
            found["equal"]["%d" % runs] = {
                view: _counts(outcomes) for view, outcomes in equal.items()}
            found["planted"]["%d" % runs] = more
        found["scaled"] = _scaled_ones(rng, profiles, count)
    _own.clear()
    return found


def _summed_once(profiles: Sequence[Profile]) -> Callable[..., Summary]:
    """Return a version of summarize() that caches its results for these profiles."""
    known: dict[tuple[int, Choice], Summary] = {}
    numbers = set(map(id, profiles))

    def summed(profile: Profile, *, choice: Choice) -> Summary:
        if id(profile) not in numbers:
            return summarize(profile, choice=choice)
        key = id(profile), choice
        if key not in known:
            known[key] = summarize(profile, choice=choice)
        return known[key]
    return summed


#: For the id() of each profile: the profile itself, its user code, and the address of
#: the innermost user function in each stack.
_own: dict[int, tuple[Profile, Profile, list[int]]] = {}


def _own_of(profile: Profile) -> Profile:
    """Return the user code of a profile."""
    if id(profile) not in _own:
        own = only_own(profile, Origins(profile))
        _own[id(profile)] = profile, own, [stack[-1].address for stack in own.stacks]
    return _own[id(profile)][1]


def _outcomes(before: Sequence[Profile], after: Sequence[Profile],
              views: Iterable[str] = VIEWS) -> Iterator[tuple[str, Outcome]]:
    """Compare two sets of runs in each view."""
    for view in views:
        sides = of_runs(before, after)
        if view.startswith("own "):
            sides = of_runs(list(map(_own_of, before)), list(map(_own_of, after)))
        yield view, _outcome(compare(sides, VIEWS[view]), view == "own functions")


def _outcome(difference: Difference, is_first: bool) -> Outcome:
    """Return the names of the changed rows, sums and conditions.

    Args:
        difference: The difference of two sets of runs.
        is_first: Whether to evaluate the sums and the conditions, too.
    """
    measure = difference.measure
    rows: dict[str, list[str]] = {}
    for change in difference.changes:
        subject = change.subject
        assert subject is not None
        name = (subject.function.name if subject.function is not None
                else subject.type.name if subject.type is not None else "")
        rows.setdefault(verdict(change, measure), []).append(name)
    in_all: dict[str, list[str]] = {}
    failed: list[str] = []
    if is_first:
        for what, change in difference.in_all.items():
            in_all.setdefault(verdict(change, what), []).append(what)
        failed = [one.condition.text for text in CONDITIONS
                  for one in thresholds.of([thresholds.parse(text)], difference)
                  if one.failed]
    return Outcome(rows.get(GREW, []) + rows.get(SHRANK, []), rows.get(DIFFERS, []),
                   in_all.get(GREW, []) + in_all.get(SHRANK, []),
                   in_all.get(DIFFERS, []), failed)


def _counts(outcomes: list[Outcome]) -> Json:
    """Return how many comparisons reported a change, by kind of change."""
    return {
        "named": sum(bool(outcome.named) for outcome in outcomes),
        "differ": sum(bool(outcome.differ) for outcome in outcomes),
        "in all": sum(bool(outcome.in_all) for outcome in outcomes),
        "in all, differ": sum(bool(outcome.in_all_differ) for outcome in outcomes),
        "anything": sum(bool(outcome.named or outcome.in_all)
                        for outcome in outcomes),
        "failed": {text: sum(text in outcome.failed for outcome in outcomes)
                   for text in CONDITIONS}}


def _figures(profiles: Sequence[Profile], planted: Sequence[Profile]) -> Json:
    """Return the samples, times and bytes of the runs, and the planted share."""
    def bytes_of(profile: Profile, name: str = "") -> float:
        if not name:
            return summarize(profile).figures.sum().value_bytes
        return sum(row.own.sum().value_bytes for row in summarize(profile).rows
                   if row.function.name == name)

    sums = list(map(bytes_of, profiles))
    return {
        "samples": statistics.median(
            summarize(profile).samples for profile in profiles),
        "seconds": statistics.median(profile.end / 1e9 for profile in profiles),
        "bytes": sums,
        "planted_share": statistics.mean(
            bytes_of(profile, PLANTED) for profile in profiles)
        / statistics.mean(sums),
        "planted_more": statistics.mean(
            bytes_of(profile, PLANTED) for profile in planted) / statistics.mean(
            bytes_of(profile, PLANTED) for profile in profiles) - 1}


# ____________________________________________________________
# a changed user function


def _scaled_ones(rng: random.Random, profiles: Sequence[Profile], count: int) -> Json:
    """Return how often comparisons find a change of each large user function.

    Each comparison has three runs per side.
    """
    functions = _large(list(map(_own_of, profiles)))
    found = {function.name: [0, 0] for function in functions}
    for number in range(count if functions else 0):
        function = functions[number % len(functions)]
        drawn = rng.sample(profiles, 6)
        after = [scaled(rng, profile, function) for profile in drawn[3:]]
        outcome = _outcome(compare(
            of_runs(list(map(_own_of, drawn[:3])), after), Choice()), False)
        found[function.name][0] += function.name in outcome.named
        found[function.name][1] += 1
    return found


def _large(own: Sequence[Profile]) -> list[Function]:
    """Return the user functions that exceed SHARE and SAMPLES in each run."""
    large: list[set[Function]] = []
    for profile in own:
        summary = summarize(profile)
        large.append({row.function for row in summary.rows
                      if row.own.sum().samples >= SAMPLES
                      and row.own.sum().value_bytes >= SHARE
                      * summary.figures.sum().value_bytes
                      and row.function.file and row.function.name != PLANTED})
    return sorted(set.intersection(*large))


def scaled(rng: random.Random, profile: Profile, function: Function) -> Profile:
    """Return the user code of a profile, with a tenth more samples of one function."""
    _, own, innermost = _own[id(profile)]
    is_chosen = [profile.functions.get(address) == function for address in innermost]
    samples = Samples()
    for row in zip(*profile.samples.columns()):
        samples.add_row(row)
        _, _, stack, size, *_ = row
        if size and stack >= 0 and is_chosen[stack] and rng.random() < MORE:
            samples.add_row(row)
    samples.finish()
    return dataclasses.replace(own, samples=samples)


# ____________________________________________________________
# tables and plots


def report(results: Json) -> str:
    """Return tables of the runs, of the comparisons, and of the changes found."""
    about = [["", "runs", "seconds", "samples", "bytes, least to most", "planted"]]
    for name, one in results.items():
        middle = statistics.median(one["bytes"])
        about.append([short(name), "%d" % one["runs"], "%.1f" % one["seconds"],
                      "%.0f" % one["samples"], "%+.1f %% to %+.1f %%" % (
                          100 * (min(one["bytes"]) / middle - 1),
                          100 * (max(one["bytes"]) / middle - 1)),
                      "%.1f %%, then %.1f %% more" % (
                          100 * one["planted_share"], 100 * one["planted_more"])])
    programs = list(results.values())
    count = programs[0]["comparisons"]
    heads = [*map(short, results), "all"]

    def line(title: str, numbers: list[int]) -> list[str]:
        return [title, *map(str, numbers),
                "%d of %d" % (sum(numbers), count * len(numbers))]

    parts = [table(about)]
    for runs in SIDES:
        equal = [one["equal"]["%d" % runs] for one in programs]
        first = [one["own functions"] for one in equal]
        lines = [["", *heads]]
        for word in "named", "differ":
            lines += [line("%s: %s" % (view, word), [one[view][word] for one in equal])
                      for view in VIEWS]
        lines += [line(title, [one[key] for one in first]) for title, key in (
            ("in all: named", "in all"), ("in all: differ", "in all, differ"),
            ("own functions, or in all: named", "anything"))]
        lines += [line("failed: " + text, [one["failed"][text] for one in first])
                  for text in CONDITIONS]
        parts.append("equal runs, %s: of %d comparisons of each program, in how many "
                     "something was said of a row\n\n%s" % (
                         _a_side(runs), count, table(lines)))
    lines = [["", *heads]]
    lines += [line("%s, %s" % (_a_side(runs), view),
                   [one["planted"]["%d" % runs][view] for one in programs])
              for runs in SIDES for view in PLANTED_VIEWS]
    parts.append("the planted function was found (with one run a side: differs)\n\n"
                 + table(lines))
    lines = [["program", "function", "found"]]
    lines += [[short(name), function, "%d of %d" % (found, tried)]
              for name, one in results.items()
              for function, (found, tried) in one["scaled"].items()]
    parts.append("a tenth more of a function of the program's own that has %d samples "
                 "or more in each run, and %.0f %% or more of all bytes: found, three "
                 "runs a side\n\n%s" % (SAMPLES, 100 * SHARE, table(lines)))
    return "\n\n".join(parts)


def _a_side(runs: int) -> str:
    return "%s a side" % ("one run" if runs == 1 else "%d runs" % runs)


def plot(results: Json, path: Path) -> None:
    """Plot the share of comparisons that reported a change."""
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    names = list(results)
    count = next(iter(results.values()))["comparisons"]
    for number, (label, values) in enumerate((
            ("equal, one run a side: differ", [
                results[name]["equal"]["1"]["own functions"]["differ"]
                for name in names]),
            ("equal, three a side: named", [
                results[name]["equal"]["3"]["own functions"]["named"]
                for name in names]),
            ("planted, three a side: found", [
                results[name]["planted"]["3"]["own functions"] for name in names]))):
        axes.bar([place + (number - 1) * 0.27 for place in range(len(names))],
                 [100 * value / count for value in values], 0.25, label=label)
    axes.set_xticks(range(len(names)), [short(name) for name in names], fontsize=7)
    axes.set_ylabel("percent of comparisons")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
