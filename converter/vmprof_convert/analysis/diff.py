"""Compare the profiles of two groups of runs, or two moments of one run.

The samples of different runs are independent. So the 95 % interval of a difference is
calculated from the intervals of both sides (Zou and Donner, "Construction of confidence
limits about effect measures", Statistics in Medicine 2008). Within one run, objects
that exist at both moments cancel out, however uncertain their number is. Then the two
sides are the objects that appeared and the objects that disappeared.

Equal runs (runs of the same program with the same input) differ by more than sampling.
Compiled code may allocate an object in another function, or not at all. With several
runs per side, the spread of equal runs is measured (spread.py). Then the metric of a
side is the mean of its runs, and a row has changed if it differs by more than the
spread. With one run per side, the spread is unknown. Then a program with compiled code
can have changes only of live objects, in total and by type, except the JIT's own types
(Sides.is_spread_unknown).

Sampling alone does not show which objects are alive. If neither a heap snapshot nor a
full major collection determined the live objects (lifetimes.is_alive_exact()), the
surviving objects include an unknown amount of garbage. If the larger side may contain
garbage, the verdict is "unclear" instead of a change.

If there are many rows, some differ by chance. Holm's correction bounds their number: in
95 of 100 comparisons of equal runs, no row has changed, and in 95 no total has changed.
With several runs per side, the weight of a row is its share of all bytes. So large rows
need few runs, although there may be hundreds of small ones.
"""
from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vmprof_convert.analysis import spread
from vmprof_convert.analysis.matching import Matching
from vmprof_convert.analysis.summary import (
    TYPE,
    Choice,
    Figures,
    Subject,
    Summary,
    summarize,
)
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.estimator import Estimate, Z
from vmprof_convert.meaning.lifetimes import (
    STILL_ALIVE,
    alive_word,
    is_alive_exact,
    state,
)
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import (
    INTERNAL,
    Shown,
    TypeNames,
    is_the_jits,
)
from vmprof_convert.meaning.user_code import has_own_code, only_own
from vmprof_convert.profile import columns
from vmprof_convert.profile.model import (
    ALIVE,
    PENDING,
    Profile,
)
from vmprof_convert.profile.model import ALLOCATED as ALLOCATED_AT
from vmprof_convert.text.escape import shortened

#: the share of the comparisons of equal runs that report no changed row
CONFIDENCE = 0.95
#: the largest quantile of the normal distribution that chance() tries
_FAR = 12.0

#: the verdicts on a row (see verdict())
GREW, SHRANK, DIFFERS = "grew", "shrank", "differs"
UNCLEAR, NOISE, SAME = "unclear", "noise", "same"
#: the compared metrics
ALLOCATED, TOTAL, OBJECTS, ALIVE_BYTES = "self", "total", "objects", "alive"


class Sides(NamedTuple):
    """The two sides of a comparison: groups of runs, or two moments of one run."""

    #: the profile of each run
    before: tuple[Profile, ...]
    after: tuple[Profile, ...]
    #: for runs, the same as `after` and `before`. For two moments of one run, `gained`
    #: has the objects that were allocated between the moments, with their outcomes at
    #: the second one. `lost` has the objects that were alive only at the first one
    gained: tuple[Profile, ...]
    lost: tuple[Profile, ...]
    #: whether the samples were selected by the function or file that allocated them
    is_of_places: bool = False

    @property
    def exact(self) -> tuple[bool, bool]:
        """Return whether the live objects of each side certainly include no garbage."""
        return (all(map(is_alive_exact, self.before)),
                all(map(is_alive_exact, self.after)))

    @property
    def is_one_run(self) -> bool:
        """Return whether the sides are two moments of one run."""
        return self.gained is not self.after

    @property
    def runs(self) -> tuple[Profile, ...]:
        """Return the profiles of both sides."""
        return self.before + self.after

    @property
    def alive(self) -> str:
        """The report's word for live objects, or the word of each side if they differ.

        The words differ if the live objects of only one side may contain garbage.
        """
        before, after = map(alive_word, self.exact)
        return before if before == after else "%s, then %s" % (before, after)

    def is_spread_unknown(self, measure: str, by: tuple[str, ...] = (),
                          type_: Shown | None = None) -> bool:
        """Return whether equal runs may differ in a metric by an unknown amount.

        If the program has compiled code, sampling is not the only reason why equal runs
        differ. With one run per side, their spread cannot be measured.

        Args:
            measure: the compared metric.
            by: the kind of rows (summary.Choice).
            type_: the type of the row; None if the row has no type.
        """
        if self.is_one_run or len(self.runs) > 2 or not any(
                profile.stacks.has_compiled() for profile in self.runs):
            return False
        # The live objects at the end do not depend on the place of their allocation, or
        # on objects that compiled code never allocated. The JIT's own objects depend on
        # the time of compilation.
        return (measure != ALIVE_BYTES or self.is_of_places
                or by not in ((), (TYPE,))
                or (type_ is not None and is_the_jits(type_)))


def of_runs(before: Sequence[Profile], after: Sequence[Profile],
            is_of_places: bool = False) -> Sides:
    """Return the sides of a comparison of runs."""
    old, new = tuple(before), tuple(after)
    return Sides(old, new, new, old, is_of_places)


def of_moments(profile: Profile, first: int, second: int) -> Sides:
    """Return the sides of a comparison of two times of one run, in nanoseconds."""
    def alive(row: _Row, at: int) -> bool:
        _, time, _, size, _, _, _, fate, collected, ended, _ = row
        return size > 0 and time <= at and state(
            fate, collected, ended, at) == STILL_ALIVE

    return Sides(
        (moment(profile, first),), (moment(profile, second),),
        (_part(profile, second, lambda row: first < row[1] <= second),),
        (_part(profile, first, lambda row: alive(row, first)
               and not alive(row, second)),))


def aligned(sides: Sides) -> Sides:
    """Return the sides with the same names for matching functions in all runs.

    Writers of stacks need the same names to compare the stacks of two runs.
    """
    if sides.is_one_run:
        return sides
    names = Matching(sides.before, sides.after)
    return of_runs([names.aligned(profile, False) for profile in sides.before],
                   [names.aligned(profile, True) for profile in sides.after],
                   sides.is_of_places)


def only_own_code(sides: Sides) -> Sides | None:
    """Return the sides with user code only; None if one of the runs has no user code.

    The allocations of libraries belong to the calling user function.
    """
    if not all(has_own_code(profile, Origins(profile)) for profile in sides.runs):
        return None
    before, after, gained, lost = (
        tuple(only_own(profile, Origins(profile)) for profile in side)
        for side in sides[:4])
    if sides.is_one_run:
        return Sides(before, after, gained, lost)
    return of_runs(before, after, sides.is_of_places)


#: a time after all others
_NEVER = 2**63
#: a sample: stack, time, thread, size, interval, memory, type, fate, collected, ended,
#: live_size
_Row = tuple[int, int, int, int, int, int, int, int, int, int, int]


def moment(profile: Profile, at: int) -> Profile:
    """Return the profile as though it had ended at `at`, in nanoseconds."""
    return _part(profile, at, lambda row: row[1] <= at)


def without_interpreter(profile: Profile) -> Profile:
    """Return the profile without the internal objects of the interpreter.

    Their number grows as long as a program runs, because the JIT keeps compiled code.
    """
    names = TypeNames(profile)
    return _part(profile, _NEVER, lambda row: names.shown(row[6]).kind != INTERNAL)


def _part(profile: Profile, at: int, chosen: Callable[[_Row], bool]) -> Profile:
    """Return the profile with some of its samples, and their outcomes at one time.

    Args:
        profile: the profile.
        at: the time in nanoseconds.
        chosen: a function that returns whether a sample is kept.
    """
    old = profile.samples
    which = [chosen(row) for row in zip(
        old.stack, old.time, old.thread, old.size, old.interval, old.memory, old.type,
        old.fate, old.collected, old.ended, old.live_size)]
    samples = old.mapped(lambda column: columns.chosen(column, which))
    for row, (size, fate, collected, ended) in enumerate(zip(
            samples.size, samples.fate, samples.collected, samples.ended)):
        # A PENDING object was in the nursery at the end, so that no collection examined
        # it.
        if size and fate != PENDING and state(
                fate, collected, ended, at) == STILL_ALIVE:
            samples.fate[row] = ALIVE
    for carried in old.carried:
        stack, size, interval, type_, fate, collected, ended, live_size = carried
        # The object was allocated before the start.
        if chosen((stack, -1, 0, size, interval, 0, type_, fate, collected, ended,
                   live_size)):
            if fate != PENDING and state(fate, collected, ended, at) == STILL_ALIVE:
                carried = carried._replace(fate=ALIVE)
            samples.carry(carried)
    return dataclasses.replace(
        _ended(profile, at), samples=samples,
        processes=[process._replace(profile=_ended(
            process.profile, at - process.begin)) for process in profile.processes])


def _ended(profile: Profile, at: int) -> Profile:
    """Return the profile without the records after the time `at`.

    If no mark records the bytes that were allocated until `at`, the first totals after
    `at` stay, as an upper bound.
    """
    is_marked = any(one.kind == ALLOCATED_AT and one.time == at
                    for one in profile.figures)
    last = (bisect.bisect_right if is_marked else bisect.bisect_left)(
        [one.time for one in profile.moments], at)
    return dataclasses.replace(
        profile, collections=[one for one in profile.collections if one.time <= at],
        snapshots=[one for one in profile.snapshots if one.time <= at],
        figures=[one for one in profile.figures
                 if one.kind != ALLOCATED_AT or one.time <= at],
        moments=profile.moments[:last + (not is_marked)])


def find_moment(profile: Profile, text: str, *, is_last: bool = False) -> int:
    """Convert the name of a mark, or a number of seconds, to nanoseconds.

    Args:
        profile: the profile with the marks.
        text: the name of a mark, or a number of seconds.
        is_last: whether the last mark with this name counts, and not the first one.

    Raises:
        ProfileError: The run has neither such a mark nor such a time.
    """
    found = [mark.time for mark in profile.marks if mark.name == text]
    if found:
        return found[-1 if is_last else 0]
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 <= seconds <= profile.end / 1e9:
        return round(seconds * 1e9)
    names = list(dict.fromkeys(mark.name for mark in profile.marks))
    raise ProfileError(
        "there is no mark '%s', and no such time in the %.9g seconds of the run%s" % (
            shortened(text), profile.end / 1e9, "; the marks are: %s" % ", ".join(
                shortened(name) for name in names[:10]) if names else ""))


class Change(NamedTuple):
    """The difference of one row, or of the total."""

    #: the subject of the row, with the names in the second side; None for the total
    subject: Subject | None
    #: the row's sums in each run of the first side, and in each run of the second side
    before: tuple[Figures, ...]
    after: tuple[Figures, ...]
    #: the row's sums in each profile of Sides.gained and Sides.lost
    gained: tuple[Figures, ...]
    lost: tuple[Figures, ...]
    #: the corrected probability that chance alone causes such a difference
    p: float = 1.0
    #: whether the spread of equal runs is unknown (see Sides)
    is_spread_unknown: bool = False
    #: whether the larger side may contain garbage, which could explain the difference
    may_be_garbage: bool = False

    def estimate(self, measure: str, z: float = Z) -> Estimate:
        """Estimate the growth, which is negative if the row shrank."""
        return difference(amount(self.gained, measure, z, self.lost),
                          amount(self.lost, measure, z, self.gained))

    @property
    def has_changed(self) -> bool:
        """Return whether the row has changed.

        If the spread of equal runs is unknown, True only means that these two runs
        differ.
        """
        return self.is_beyond_chance and not self.may_be_garbage

    @property
    def is_beyond_chance(self) -> bool:
        """Return whether chance alone does not explain the difference."""
        return self.p <= 1.0 - CONFIDENCE


def verdict(change: Change, measure: str) -> str:
    """Return the verdict on a row.

    Returns:
        GREW or SHRANK for a change. DIFFERS means that the difference exceeds sampling,
        and that the spread of equal runs is unknown. UNCLEAR means that garbage may
        explain the difference. NOISE means that chance may explain it. SAME means that
        there is no difference.
    """
    value = change.estimate(measure).value
    if not value:
        return SAME
    if change.has_changed:
        return (DIFFERS if change.is_spread_unknown
                else GREW if value > 0 else SHRANK)
    return UNCLEAR if change.is_beyond_chance else NOISE


class Difference(NamedTuple):
    """The result of a comparison."""

    sides: Sides
    measure: str
    choice: Choice
    #: the rows: first the changed rows, with the largest difference first, then the
    #: others
    changes: list[Change]
    #: the changes of the total: ALLOCATED, OBJECTS and, if it is known, ALIVE_BYTES
    in_all: dict[str, Change]
    #: the summary of each run
    before: list[Summary]
    after: list[Summary]

    @property
    def everything(self) -> Change:
        """Return the change of the total in the compared metric."""
        return self.in_all[ALLOCATED if self.measure == TOTAL else self.measure]


def difference(gained: Estimate, lost: Estimate) -> Estimate:
    """Return the estimate of `gained` minus `lost`, two independent estimates."""
    value = gained.value - lost.value
    return Estimate(
        value,
        value - math.hypot(gained.value - gained.low, lost.high - lost.value),
        value + math.hypot(gained.high - gained.value, lost.value - lost.low))


def amount(runs: Sequence[Figures], measure: str, z: float = Z,
           others: Sequence[Figures] = ()) -> Estimate:
    """Return the compared metric, on average over the runs of a side.

    Args:
        runs: the sums of each run of this side.
        measure: ALLOCATED, TOTAL, OBJECTS or ALIVE_BYTES.
        z: half the width of the interval, in standard deviations.
        others: the sums of the other side's runs, which also serve to measure the
            spread of equal runs.
    """
    state = STILL_ALIVE if measure == ALIVE_BYTES else None
    if len(runs) == 1 and len(others) <= 1:
        figures, = runs
        return (figures.objects(state, z) if measure == OBJECTS
                else figures.bytes(state, z))
    t = spread.quantile(z, spread.degrees(len(runs), len(others)))
    return _mean(runs, others, state, measure == OBJECTS, t)


def _mean(runs: Sequence[Figures], others: Sequence[Figures], state: str | None,
          is_objects: bool, t: float) -> Estimate:
    """Return the mean of a metric over `runs`, plus and minus `t` standard errors."""
    values, sampling = _sampled(runs, state, is_objects)
    other_values, other_sampling = _sampled(others, state, is_objects)
    count = len(values) + len(other_values)
    of_both = (len(values) * sampling + len(other_values) * other_sampling) / count
    beside = spread.variance(values, other_values, of_both) - of_both
    value = sum(values) / len(values)
    off = t * math.sqrt((sampling + beside) / len(values))
    return Estimate(value, value - off, value + off)


def _sampled(runs: Sequence[Figures], state: str | None,
             is_objects: bool) -> tuple[list[float], float]:
    """Return the metric of each run, and the variance that sampling gives to one run.

    The variance includes half of an additional sample, as in estimator.interval_of().
    """
    parts = [figures.sampled(state, is_objects) for figures in runs]
    if not parts:
        return [], 0.0
    missed = max(part.extra for part in parts) ** 2 / 2
    return [part.value for part in parts], (
        sum(part.variance for part in parts) + missed) / len(parts)


def chance(change: Change, measure: str) -> float:
    """Return the probability that equal runs differ at least as much as `change`.

    The difference may have either sign.
    """
    def estimate(z: float) -> Estimate:
        return change.estimate(measure, z)

    value, low, high = estimate(Z)
    if not value:
        return 1.0
    if len(change.gained) + len(change.lost) > 2:
        degrees = spread.degrees(len(change.gained), len(change.lost))
        middle = estimate(0.0)
        nearest, end = (middle.low, low) if value > 0 else (-middle.high, -high)
        # The width of the interval is proportional to the quantile of Student's t.
        return 1.0 if nearest <= 0 else 0.0 if nearest == end else spread.tail(
            spread.quantile(Z, degrees) * nearest / (nearest - end), degrees)
    near, far = 0.0, _FAR
    while far - near > 1e-3:
        z = (near + far) / 2
        low, high = estimate(z)[1:]
        if low > 0 if value > 0 else high < 0:
            near = z
        else:
            far = z
    return math.erfc(near / math.sqrt(2))


def compare(sides: Sides, choice: Choice) -> Difference:
    """Compare the two sides in the metric `choice.sort`.

    Raises:
        ProfileError: A profile does not record the information that `choice` needs, has
            no known accuracy (--allocation-distribution fixed), or has no allocation
            samples.
    """
    for profile in sides.runs:
        if profile.gaps == "fixed":
            raise ProfileError(
                "was taken with --allocation-distribution fixed, so the errors of its "
                "figures are unknown, which a comparison needs")
    measure = choice.sort
    names = Matching(sides.before, sides.after)

    def summed(profile: Profile, is_after: bool
               ) -> tuple[Summary, dict[Subject, Figures]]:
        summary = summarize(profile, choice=choice)
        return summary, names.rows(profile, summary, is_after, measure == TOTAL)

    before = [summed(profile, False) for profile in sides.before]
    after = [summed(profile, True) for profile in sides.after]
    gained, lost = after, before
    if sides.is_one_run:
        gained, lost = ([summed(profile, True) for profile in side]
                        for side in (sides.gained, sides.lost))
    if not (sides.runs[0].is_raw  # a program may not use native memory
            or any(summary.samples for summary, _ in before + after)):
        raise ProfileError("there are no allocation samples to compare")
    nothing = Figures(max(summary.figures.interval
                          for summary, _ in before + after + gained + lost))
    exact_before, exact_after = sides.exact

    def change_of(subject: Subject | None, what: str, is_spread_unknown: bool,
                  *figures: tuple[Figures, ...]) -> Change:
        old, new, came, went = figures
        # Within one run, the number of allocated bytes cannot shrink.
        counts_lost = not sides.is_one_run or what == ALIVE_BYTES
        change = Change(
            subject, old, new, came, went if counts_lost else (nothing,),
            is_spread_unknown=is_spread_unknown)
        return change._replace(
            p=chance(change, what),
            may_be_garbage=what == ALIVE_BYTES and not (
                exact_after if change.estimate(what).value > 0 else exact_before))

    changes = []
    for subject in {subject: None for _, rows in before + after for subject in rows}:
        of_row = [tuple(rows.get(subject, nothing) for _, rows in side)
                  for side in (before, after, gained, lost)]
        if any(figures.sum().samples for side in of_row for figures in side):
            changes.append(change_of(subject, measure, sides.is_spread_unknown(
                measure, choice.by, subject.type), *of_row))
    weights = None
    if len(sides.runs) > 2:
        weights = [max(sum(amount([figures], measure).value
                           for figures in change.before + change.after), 1.0)
                   for change in changes]
    changes = _corrected(changes, weights)
    changes.sort(key=lambda change: (
        not change.has_changed, change.has_changed and change.is_spread_unknown,
        -abs(change.estimate(measure).value), change.subject or ()))
    measures = [ALLOCATED, OBJECTS]
    if all(profile.has_lifetimes for profile in sides.runs):
        measures.append(ALIVE_BYTES)
    of_all = [tuple(summary.figures for summary, _ in side)
              for side in (before, after, gained, lost)]
    in_all = _corrected([
        change_of(None, what, sides.is_spread_unknown(what), *of_all)
        for what in measures])
    return Difference(sides, measure, choice, changes, dict(zip(measures, in_all)),
                      [summary for summary, _ in before],
                      [summary for summary, _ in after])


def _corrected(changes: list[Change],
               weights: Sequence[float] | None = None) -> list[Change]:
    """Return the changes with p-values that are corrected for the number of changes."""
    return [change._replace(p=p) for change, p in zip(
        changes, spread.holm([change.p for change in changes], weights))]
