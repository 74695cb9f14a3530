"""Check conditions that fail a run in continuous integration, such as `alive > 10M`.

A condition fails only if the whole interval of the metric is above the limit. The
interval is one-sided, at CONFIDENCE for all conditions together. So sampling fails a
run within its limits at most once in ten thousand times.
benchmarks/experiments/verdicts.py measures this rate, and the excess that is detected.
Live objects that may be garbage fail no run (lifetimes.is_alive_exact()).

The memory of the process is read without an error, so that its limits need no interval
(of_readings()).

The native memory in use (`raw growth > 10M`) is known at every moment. Memory that
garbage holds is in use until the GC frees the garbage. If the sampler missed that
blocks were freed, no condition is decided (check_raw()).

With several runs per side, the interval includes the spread of equal runs. With one run
per side, the growth of allocated bytes compares only these two runs. The text of a
failure says so, and a condition about the growth within some functions is refused.

`vmprof-convert check`, `diff --fail-if` and the pytest plugin use this module.
"""
from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

from vmprof_convert.analysis import diff, spread
from vmprof_convert.analysis.diff import Difference, Sides, amount, difference
from vmprof_convert.analysis.process_memory import (
    missed_frees,
    missed_requests,
    peak,
    readings,
)
from vmprof_convert.analysis.summary import Figures, summarize
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.meaning.lifetimes import (
    STILL_ALIVE,
    alive_word,
    is_alive_exact,
)
from vmprof_convert.profile import model
from vmprof_convert.profile.model import Profile
from vmprof_convert.text.escape import similar
from vmprof_convert.text.units import format_bytes, format_ends

#: the confidence level of all conditions together
CONFIDENCE = 0.9999

#: the command line for a comparison of several runs
SEVERAL = "diff A1 A2 A3 --against B1 B2 B3"

ALLOCATED, ALIVE, OBJECTS = "allocated", "alive", "objects"
#: the metrics as users write them, with the metrics of diff.py
_MEASURES = {ALLOCATED: diff.ALLOCATED, ALIVE: diff.ALIVE_BYTES, OBJECTS: diff.OBJECTS}
#: metrics that were read and are exact: the kind of model.Figure, whose largest value
#: counts, and its description
_READ = {"peak": (model.HEAP, "the use of the GC's heap"),
         "rss": (model.RESIDENT, "resident memory"),
         "private": (model.PRIVATE, "private memory (USS)")}

#: the first word of a condition about native memory
_RAW = "raw"

_CONDITION = re.compile(
    r"\s*(%s\b)?\s*((?:%s)\b)?\s*(growth\b)?\s*>"
    r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kKMGT]?)(i?[bB])?(%%)?\s*"
    % (_RAW, "|".join([*_MEASURES, *_READ])), re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


class Condition(NamedTuple):
    """A limit for a metric of a run, or for its growth."""

    measure: str
    #: whether the limit is for the growth from the first side to the second
    is_growth: bool
    #: the limit in bytes or objects, or as a share of the first side's value
    limit: float
    is_share: bool
    text: str
    #: whether the condition is about native memory, and not about the GC's heap
    is_raw: bool = False

    @property
    def is_read(self) -> bool:
        """Return whether the metric was read, and is exact rather than estimated."""
        return self.measure in _READ


class Verdict(NamedTuple):
    """The result of one condition: the metric's value, and whether it fails the run."""

    condition: Condition
    #: the value of the metric with its interval, in bytes or objects
    estimate: Estimate
    limit: float
    #: whether an unknown part of the value may be garbage; then the condition does not
    #: fail
    may_be_garbage: bool = False
    #: whether the spread of equal runs is unknown (see diff.Sides)
    is_spread_unknown: bool = False

    @property
    def failed(self) -> bool:
        """Return whether the condition failed."""
        return self._is_above and not self.may_be_garbage

    @property
    def _is_above(self) -> bool:
        return self.estimate.low > self.limit

    def __str__(self) -> str:
        """Return one line for the report."""
        condition, (value, low, high) = self.condition, self.estimate
        what = " ".join([_RAW] * condition.is_raw + [condition.measure]
                        + ["growth"] * condition.is_growth)
        if self.may_be_garbage:
            what = "growth of " * condition.is_growth + "objects that %s" % (
                alive_word(False))
        number, *ends = format_ends(low, value, high, condition.measure != OBJECTS)
        text = "%s: %s: %s is %s" % (
            "failed" if self.failed else "passed", condition.text, what, number)
        if low < high:
            text += ", %s to %s" % (*ends,)
        elif condition.is_read and not condition.is_growth:
            text += ", the largest reading"
        if not self.failed and high > self.limit:
            text += "; it is not certain that this is less than the limit"
            if self._is_above:
                text += (", because it may contain garbage: neither a heap snapshot "
                         "nor a major collection ended the run; call gc.collect() at "
                         "the end of the program")
        if self.failed and condition.is_raw and condition.measure == ALIVE:
            text += ("; memory of garbage is in use until the GC frees the garbage: "
                     "call gc.collect() at the end of the program, or at a mark")
        if self.failed and self.is_spread_unknown:
            text += ("; with one run per side, this may be a difference between equal "
                     "runs: compare several runs per side (%s)" % SEVERAL)
        return text


def parse(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ValueError: The text is not a valid condition. The message describes valid
            conditions.
    """
    match = _CONDITION.fullmatch(text)
    raw, measure, growth, number, unit, byte, percent = (
        match.groups("") if match else ("",) * 7)
    measure = measure or (ALIVE if raw else "")
    if not measure or (raw and measure in _READ) or (
            percent and (unit or byte or not growth)) or (byte and measure == OBJECTS):
        raise ValueError(
            "invalid condition %r: write allocated, alive, objects (for native memory: "
            "raw before them), peak, rss or private, optionally growth, and a limit, "
            "such as 'alive > 10M', 'raw growth > 1M' or 'allocated growth > 5%%'%s" % (
                text, similar(text.split(">")[0].split("growth")[0].strip(),
                              [*_MEASURES, *_READ, _RAW])))
    # Bytes are counted in powers of 1024, and objects in powers of 1000, as in reports.
    base = 1000.0 if measure == OBJECTS else 1024.0
    scale = 0.01 if percent else base ** _POWERS[unit.upper()]
    return Condition(measure, bool(growth), float(number) * scale, bool(percent),
                     " ".join(text.split()), bool(raw))


def check(conditions: Sequence[Condition], profile: Profile,
          has_other: bool) -> None:
    """Check that a profile records the information that the conditions need.

    Args:
        conditions: the conditions.
        profile: the profile.
        has_other: whether `profile` is compared with another profile.

    Raises:
        ProfileError: The profile does not record the information, or a condition about
            growth lacks the other profile.
    """
    for condition in conditions:
        if condition.is_growth and not has_other:
            raise ProfileError("'%s' is about two profiles, or two moments: write "
                               "vmprof-convert diff" % condition.text)
        if condition.is_read:
            most(condition, profile)
            continue
        if profile.gaps == "fixed":
            raise ProfileError(
                "was taken with --allocation-distribution fixed, so the errors of its "
                "figures are unknown, which --fail-if needs")
        if not profile.settings and not profile.moments:
            raise ProfileError("has no allocation samples, which --fail-if needs: it "
                               "was taken without --allocation-sampling")
        if condition.measure == ALIVE and not profile.has_lifetimes:
            raise ProfileError(
                "this profile has no outcomes of objects, which "
                "'%s' needs: it was taken without lifetimes" % condition.text)


def check_frees(what: str, profile: Profile, conditions: int = 1) -> Estimate:
    """Estimate the native memory in use, and check the estimate by malloc's count.

    Args:
        what: the condition, or the result, that the message names.
        profile: the samples of native memory.
        conditions: the number of conditions, which determines the interval.

    Raises:
        ProfileError: The estimate exceeds malloc's own count, because the sampler
            missed that blocks were freed.
    """
    alive = summarize(profile).figures.bytes(STILL_ALIVE, quantile(conditions))
    if missed := missed_frees(profile, alive):
        raise ProfileError(
            "cannot evaluate %s: the samples count %s more as alive than malloc itself "
            "has in use, because the program called free() through a pointer that it "
            "looked up before the sampling began: start the program with "
            "--native-memory" % (what, format_bytes(missed)))
    return alive


def check_raw(conditions: Sequence[Condition], profile: Profile) -> None:
    """Check that the sampler saw all native memory, if a condition is about its use.

    Raises:
        ProfileError: The estimate differs from malloc's own count, because the sampler
            missed that blocks were allocated or freed. Or malloc's count is missing, so
            that the difference is unknown.
    """
    asked = [condition.text for condition in conditions
             if condition.is_raw and condition.measure == ALIVE]
    if not asked:
        return
    alive = check_frees("'%s'" % asked[0], profile, len(conditions))
    missed = missed_requests(profile, alive)
    if missed is None:
        raise ProfileError(
            "cannot evaluate '%s': malloc's own count is missing, so that calls of "
            "malloc and free may have been missed; a process reads the count when it "
            "ends normally, and not when it is killed" % asked[0])
    if missed:
        raise ProfileError(
            "cannot evaluate '%s': malloc's own count grew by %s more than the "
            "samples, because the program called malloc through a pointer that it "
            "looked up before the sampling began: start the program with "
            "--native-memory" % (asked[0], format_bytes(missed)))


def check_processes(conditions: Sequence[Condition], is_everything: bool,
                    is_one_run: bool) -> None:
    """Check that conditions about whole processes get whole processes.

    Args:
        conditions: the conditions.
        is_everything: whether all samples of each process are selected.
        is_one_run: whether two moments of one run are compared.

    Raises:
        ProfileError: A condition is about readings, but samples or two moments are
            selected.
    """
    for condition in conditions:
        if condition.is_read and not is_everything:
            raise ProfileError(
                "'%s' is about whole processes: of the filters, it supports only "
                "--process and --user-code" % condition.text)
        if condition.is_read and is_one_run:
            raise ProfileError("'%s' is about whole runs, and does not support "
                               "--between: write vmprof-convert check, or name two "
                               "profiles"
                               % condition.text)


def most(condition: Condition, profile: Profile) -> float:
    """Return the largest reading of the condition's metric.

    With several processes, the result is the largest reading of any process.

    Raises:
        ProfileError: The metric was not read in each process.
    """
    kind, what = _READ[condition.measure]
    found = []
    for process in [one.profile for one in profile.processes] or [profile]:
        read = readings(process, kind)
        if not read:
            raise ProfileError(
                "cannot evaluate '%s': %s was not read%s" % (
                    condition.text, what, " in process %s: choose others with --process"
                    % process.pid if profile.processes else " in this run"))
        found.append(peak(read).value)
    return max(found)


def check_places(conditions: Sequence[Condition], sides: Sides) -> None:
    """Check that conditions about the growth within selected functions can be decided.

    Raises:
        ProfileError: The samples are selected by the place of allocation, and the
            spread of equal runs is unknown.
    """
    for condition in conditions:
        if condition.measure in _MEASURES and condition.is_growth and (
                sides.is_of_places) and sides.is_spread_unknown(
                _MEASURES[condition.measure]):
            raise ProfileError(
                "cannot evaluate '%s' for --function or --file with one run per side: "
                "compiled code allocates objects in one function in this run, and in "
                "another function in the next run. Compare several runs per side (%s)"
                % (
                    condition.text, SEVERAL))


def of_run(conditions: Sequence[Condition], profiles: Mapping[bool, Profile],
           figures: Mapping[bool, Figures]) -> list[Verdict]:
    """Decide the conditions for one run, and return the verdicts.

    Args:
        conditions: the conditions to decide.
        profiles: the heap's profile at False, and the profile of native memory at True.
        figures: the sums of the samples, with the same keys.
    """
    return [of_readings(condition, [profiles[condition.is_raw]]) if condition.is_read
            else judge([condition], [figures[condition.is_raw]],
                       count=len(conditions))[0]._replace(
                may_be_garbage=condition.measure == ALIVE
                and not is_alive_exact(profiles[condition.is_raw]))
            for condition in conditions]


def of(conditions: Sequence[Condition], shown: Difference,
       raw: Difference | None = None) -> list[Verdict]:
    """Decide the conditions for a comparison, and return the verdicts.

    Args:
        conditions: the conditions to decide.
        shown: the comparison that the report shows.
        raw: the comparison of native memory, if `shown` is about the heap.
    """
    verdicts = []
    for condition in conditions:
        difference = raw if condition.is_raw and raw is not None else shown
        if condition.is_read:
            verdicts.append(of_readings(
                condition, difference.sides.after, difference.sides.before,
                len(conditions)))
            continue
        change = difference.in_all[_MEASURES[condition.measure]]
        verdict, = judge([condition], change.after, change.gained, change.lost,
                         change.before, len(conditions))
        verdicts.append(verdict._replace(
            is_spread_unknown=condition.is_growth and change.is_spread_unknown,
            # garbage on the first side only makes growth smaller
            may_be_garbage=condition.measure == ALIVE
            and not difference.sides.exact[1]))
    return verdicts


def judge(conditions: Sequence[Condition], after: Sequence[Figures],
          gained: Sequence[Figures] = (), lost: Sequence[Figures] = (),
          before: Sequence[Figures] = (), count: int = 0) -> list[Verdict]:
    """Decide conditions by sums of samples, as though these contained no garbage.

    Args:
        conditions: the conditions to decide.
        after: the sums of each run.
        gained: the sums of the objects that appeared, if this is a comparison.
        lost: the sums of the objects that disappeared.
        before: the sums of the first side's runs.
        count: the number of all conditions, which may be more than `conditions`.
    """
    z = quantile(count or len(conditions))
    verdicts = []
    for condition in conditions:
        measure = _MEASURES[condition.measure]
        estimate, limit = amount(after, measure, z, before), condition.limit
        if condition.is_growth:
            came = amount(gained, measure, z, lost)
            went = amount(lost, measure, z, gained)
            estimate = difference(came, went)
            if condition.is_share:
                old = amount(before, measure, z, after)
                limit *= old.value
                # The limit is a share of an estimate, and has the same relative error.
                above = _above_share(came, went, old, condition.limit)
                estimate = Estimate(estimate.value, limit + above.low,
                                    limit + above.high)
        verdicts.append(Verdict(condition, estimate, limit))
    return verdicts


def of_readings(condition: Condition, after: Sequence[Profile],
                before: Sequence[Profile] = (), count: int = 1) -> Verdict:
    """Decide a condition about a metric that was read, and return the verdict.

    A limit applies to each run of `after`, so that the largest reading decides. Growth
    is the difference between the means of the sides. Its interval is calculated with
    Student's t from the spread of each side's runs. With one run per side, there is no
    interval.

    Args:
        condition: the condition to decide.
        after: the runs, or the runs of the second side.
        before: the runs of the first side.
        count: the number of all conditions.
    """
    new = [most(condition, profile) for profile in after]
    if not condition.is_growth:
        value = max(new)
        return Verdict(condition, Estimate(value, value, value), condition.limit)
    old = [most(condition, profile) for profile in before]
    share = condition.limit if condition.is_share else 0.0
    mean = sum(old) / len(old)
    value, off = sum(new) / len(new) - mean, 0.0
    is_several = len(old) + len(new) > 2
    if is_several:
        # The limit is a share of the first side's mean, and has the same relative
        # error.
        off = spread.quantile(quantile(count), spread.degrees(
            len(old), len(new), 0)) * math.sqrt(
                spread.variance(old, new, 0.0, 0)
                * (1 / len(new) + (1 + share) ** 2 / len(old)))
    return Verdict(condition, Estimate(value, value - off, value + off),
                   share * mean if condition.is_share else condition.limit,
                   is_spread_unknown=not is_several)


def _above_share(came: Estimate, went: Estimate, old: Estimate,
                 share: float) -> Estimate:
    """Estimate the growth (`came` minus `went`) minus a share of the old value."""
    def error(of_went: float, of_old: float) -> float:
        # The disappeared objects are a part of the old objects (all of the latter for
        # two runs). Therefore their covariance is the variance of the disappeared
        # objects.
        return math.sqrt((1 + 2 * share) * of_went**2 + (share * of_old)**2)

    value = came.value - went.value - share * old.value
    below = math.hypot(came.value - came.low,
                       error(went.high - went.value, old.high - old.value))
    above = math.hypot(came.high - came.value,
                       error(went.value - went.low, old.value - old.low))
    return Estimate(value, value - below, value + above)


def quantile(conditions: int) -> float:
    """Return the normal quantile for one condition.

    Args:
        conditions: the number of all conditions, which together have the confidence
            level CONFIDENCE.
    """
    return NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / max(conditions, 1))
