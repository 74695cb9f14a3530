"""Compare two profiles, or two moments of one run.

Samples of one run do not depend on those of another one. So the interval of a
difference is computed from the intervals of both sides (Zou and Donner, "Construction
of confidence limits about effect measures", Statistics in Medicine 2008). Within one
run, objects that exist at both moments are no difference, however uncertain their
number is: the two sides are then the objects that came and the objects that went.

Equal runs of a program differ by more than sampling: compiled code decides in which
function it allocates an object, and whether it allocates it at all. With several runs
per side, the spread of equal runs is measured (spread.py). Then the figure of a side is
the mean of its runs, and a row has changed if it differs by more than the spread. With
one run per side, the spread is not known. If the program has compiled code, only live
objects, in all and by type, can change then, without the JIT's own types
(Sides.is_spread_unknown).

Sampling alone does not tell which objects are alive. Where no heap snapshot and no full
major collection found out (lifetimes.is_alive_exact()), the objects that no collection
has freed contain an unknown amount of garbage. If the larger side may contain garbage,
a difference is "unclear" that would be a change otherwise.

Of many rows, some differ by chance. Holm's correction bounds that: in 95 of 100
comparisons of equal runs, no row has changed, and in 95 no total. With several runs per
side, the weight of a row is its share of all bytes. So large rows need few runs,
although there may be hundreds of small ones.
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

#: no row has changed in so many of the comparisons of runs that are alike
CONFIDENCE = 0.95
#: quantiles are not looked for any further
_FAR = 12.0

#: what is said of a row
GREW, SHRANK, DIFFERS = "grew", "shrank", "differs"
UNCLEAR, NOISE, SAME = "unclear", "noise", "same"
#: what is compared
ALLOCATED, TOTAL, OBJECTS, ALIVE_BYTES = "self", "total", "objects", "alive"


class Sides(NamedTuple):
    """What a difference is of: runs of a program, or two moments of one run."""

    #: of each run
    before: tuple[Profile, ...]
    after: tuple[Profile, ...]
    #: what came between two moments of one run, and what went, with what of it is
    #: alive; the same as `after` and `before`, if these are runs
    gained: tuple[Profile, ...]
    lost: tuple[Profile, ...]
    #: samples are chosen by where the objects were born
    is_of_places: bool = False

    @property
    def exact(self) -> tuple[bool, bool]:
        """Whether the objects that count as alive contain no garbage, of each side."""
        return (all(map(is_alive_exact, self.before)),
                all(map(is_alive_exact, self.after)))

    @property
    def is_one_run(self) -> bool:
        return self.gained is not self.after

    @property
    def runs(self) -> tuple[Profile, ...]:
        return self.before + self.after

    @property
    def alive(self) -> str:
        """The word for the objects that count as alive, or one word for each side."""
        before, after = map(alive_word, self.exact)
        return before if before == after else "%s, then %s" % (before, after)

    def is_spread_unknown(self, measure: str, by: tuple[str, ...] = (),
                          type_: Shown | None = None) -> bool:
        """Whether equal runs may differ by more than sampling, and nobody knows by how
        much, as there is one of each; `by`: what a row is of (summary.Choice);
        `type_`: the row's, if it is of one."""
        if self.is_one_run or len(self.runs) > 2 or not any(
                profile.stacks.has_compiled() for profile in self.runs):
            return False
        # what is alive in the end does not depend on where it was born, or on what was
        # never born in compiled code; what the JIT keeps depends on when it compiles
        return (measure != ALIVE_BYTES or self.is_of_places
                or by not in ((), (TYPE,))
                or (type_ is not None and is_the_jits(type_)))


def of_runs(before: Sequence[Profile], after: Sequence[Profile],
            is_of_places: bool = False) -> Sides:
    old, new = tuple(before), tuple(after)
    return Sides(old, new, new, old, is_of_places)


def of_moments(profile: Profile, first: int, second: int) -> Sides:
    """Of one run, at two times in nanoseconds."""
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
    """With one name for what is the same in all runs, for who compares stacks."""
    if sides.is_one_run:
        return sides
    names = Matching(sides.before, sides.after)
    return of_runs([names.aligned(profile, False) for profile in sides.before],
                   [names.aligned(profile, True) for profile in sides.after],
                   sides.is_of_places)


def only_own_code(sides: Sides) -> Sides | None:
    """The program's own code, with what it calls of libraries; None: one of the runs
    has none."""
    if not all(has_own_code(profile, Origins(profile)) for profile in sides.runs):
        return None
    before, after, gained, lost = (
        tuple(only_own(profile, Origins(profile)) for profile in side)
        for side in sides[:4])
    if sides.is_one_run:
        return Sides(before, after, gained, lost)
    return of_runs(before, after, sides.is_of_places)


#: behind all times
_NEVER = 2**63
#: stack, time, thread, size, interval, memory, type, fate, collected, ended, live_size
_Row = tuple[int, int, int, int, int, int, int, int, int, int, int]


def moment(profile: Profile, at: int) -> Profile:
    """As though it ended there."""
    return _part(profile, at, lambda row: row[1] <= at)


def without_interpreter(profile: Profile) -> Profile:
    """Without what only the interpreter knows of: the JIT keeps what it compiles, and
    compiles as long as a program runs."""
    names = TypeNames(profile)
    return _part(profile, _NEVER, lambda row: names.shown(row[6]).kind != INTERNAL)


def _part(profile: Profile, at: int, chosen: Callable[[_Row], bool]) -> Profile:
    """Some of the samples, as they were at that time."""
    old = profile.samples
    which = [chosen(row) for row in zip(
        old.stack, old.time, old.thread, old.size, old.interval, old.memory, old.type,
        old.fate, old.collected, old.ended, old.live_size)]
    samples = old.mapped(lambda column: columns.chosen(column, which))
    for row, (size, fate, collected, ended) in enumerate(zip(
            samples.size, samples.fate, samples.collected, samples.ended)):
        # (what is PENDING is not known to be met by a collection, ever)
        if size and fate != PENDING and state(
                fate, collected, ended, at) == STILL_ALIVE:
            samples.fate[row] = ALIVE
    for carried in old.carried:
        stack, size, interval, type_, fate, collected, ended, live_size = carried
        # it was made before the first moment
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
    """Return the profile without the records after a moment.

    If no mark has the bytes that were allocated until the moment, the first totals
    after the moment stay, as an upper bound.
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
    """That of a mark of this name, the first or the last one, or of so many seconds.
    Raises ProfileError."""
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
    """Of a row, or of everything."""

    #: as it is called in the second profile; None: everything
    subject: Subject | None
    #: of each run
    before: tuple[Figures, ...]
    after: tuple[Figures, ...]
    #: the same as `after` and `before`, if these are runs
    gained: tuple[Figures, ...]
    lost: tuple[Figures, ...]
    #: the probability that chance alone makes such a difference, as corrected; 0.0
    #: to 1.0
    p: float = 1.0
    #: see Sides
    is_spread_unknown: bool = False
    #: whether garbage may explain it: the larger side may contain garbage
    may_be_garbage: bool = False

    def estimate(self, measure: str, z: float = Z) -> Estimate:
        """What it grew by, perhaps less than nothing."""
        return difference(amount(self.gained, measure, z, self.lost),
                          amount(self.lost, measure, z, self.gained))

    @property
    def has_changed(self) -> bool:
        """Or differs, if the spread of equal runs is not known."""
        return self.is_beyond_chance and not self.may_be_garbage

    @property
    def is_beyond_chance(self) -> bool:
        return self.p <= 1.0 - CONFIDENCE


def verdict(change: Change, measure: str) -> str:
    """GREW, SHRANK; DIFFERS: by more than sampling, but equal runs do, too, and nobody
    knows by how much; UNCLEAR: garbage may be why; NOISE: it may be chance; SAME: it is
    no difference."""
    value = change.estimate(measure).value
    if not value:
        return SAME
    if change.has_changed:
        return (DIFFERS if change.is_spread_unknown
                else GREW if value > 0 else SHRANK)
    return UNCLEAR if change.is_beyond_chance else NOISE


class Difference(NamedTuple):
    sides: Sides
    measure: str
    choice: Choice
    #: those that have changed, the largest difference first; then the others
    changes: list[Change]
    #: of all together: ALLOCATED, OBJECTS and, if that is known, ALIVE_BYTES
    in_all: dict[str, Change]
    #: of each run
    before: list[Summary]
    after: list[Summary]

    @property
    def everything(self) -> Change:
        """All together, of the measure."""
        return self.in_all[ALLOCATED if self.measure == TOTAL else self.measure]


def difference(gained: Estimate, lost: Estimate) -> Estimate:
    """`gained` without `lost`."""
    value = gained.value - lost.value
    return Estimate(
        value,
        value - math.hypot(gained.value - gained.low, lost.high - lost.value),
        value + math.hypot(gained.high - gained.value, lost.value - lost.low))


def amount(runs: Sequence[Figures], measure: str, z: float = Z,
           others: Sequence[Figures] = ()) -> Estimate:
    """Return the compared figure, on average over the runs of a side.

    Args:
        runs: figures of this side.
        measure: ALLOCATED, TOTAL, OBJECTS or ALIVE_BYTES.
        z: half of the interval, in standard deviations.
        others: figures of the other side; the spread of both sides counts.
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
    """`t` standard errors around the mean of the runs."""
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
    """The figures of the runs, and the variance that sampling gives to one of them:
    with half a sample that was not made, as in estimator.interval_of()."""
    parts = [figures.sampled(state, is_objects) for figures in runs]
    if not parts:
        return [], 0.0
    missed = max(part.extra for part in parts) ** 2 / 2
    return [part.value for part in parts], (
        sum(part.variance for part in parts) + missed) / len(parts)


def chance(change: Change, measure: str) -> float:
    """Return the probability of at least such a difference between equal runs.

    Both directions count.
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
        # the interval grows in proportion to the quantile
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
    """`choice.sort` says what is compared.  Raises ProfileError if a profile can't
    tell."""
    for profile in sides.runs:
        if profile.gaps == "fixed":
            raise ProfileError(
                "was taken with --allocation-gaps fixed: nobody knows how sure its "
                "figures are, nor whether two of them differ")
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
    if not (sides.runs[0].is_raw  # which a program may hardly have
            or any(summary.samples for summary, _ in before + after)):
        raise ProfileError("there are no allocation samples to compare")
    nothing = Figures(max(summary.figures.interval
                          for summary, _ in before + after + gained + lost))
    exact_before, exact_after = sides.exact

    def change_of(subject: Subject | None, what: str, is_spread_unknown: bool,
                  *figures: tuple[Figures, ...]) -> Change:
        old, new, came, went = figures
        # inside one run, nothing is allocated less often than before
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
    return [change._replace(p=p) for change, p in zip(
        changes, spread.holm([change.p for change in changes], weights))]
