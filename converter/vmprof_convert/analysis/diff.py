"""What is different between two profiles, or between two moments of one run: what
grew and what shrank, and whether that is more than chance.

What was sampled in one run says nothing of the other: so the interval of a difference
is made of those of its two sides (Zou and Donner, "Construction of confidence limits
about effect measures", Statistics in Medicine 2008).  Inside one run, what was there
at both moments is no difference, however uncertain it is: there, the two sides are
what came and what went.

Equal runs of a program differ by more than sampling: compiled code decides in which
function an object is born, and whether it is born at all.  With several runs a side,
how much equal runs differ is measured (spread.py), a side's figure is the mean of its
runs, and a row has changed that differs by more.  With one run a side, nobody knows
how much of a difference is the program's: if there is compiled code, nothing can be
judged but what is alive, in all and by type, and of types not the JIT's own
(Sides.is_spread_unknown).

What is alive is not known by sampling alone: of what became old since the last major
collection, or is young, nobody knows what is garbage.  So a side's bytes are between
those that were judged (lifetimes.JUDGED) and all that count as alive.  That is no
matter of chance: the interval of a difference reaches from the least that it can be to
the most, with what sampling adds to each.  Otherwise, of runs that are alike but end at
different points behind a collection, most would differ.

What was judged, the program may have dropped since.  Of the end of a run, nobody knows;
of a moment inside of one, the next collection does: what that found dead was not judged
(_Dropped).

Of many rows, some differ by chance.  A row has changed where Holm's correction says so:
of 100 comparisons of equal runs, in 95 no row has; and in 95, nothing in all.  With
several runs a side, a row's share of all bytes is its weight there: large rows, which
are found with few runs, do not pay for hundreds of small ones.
"""
from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
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
from vmprof_convert.meaning.estimator import (
    Estimate,
    Z,
    weight_bytes,
    weight_live_bytes,
)
from vmprof_convert.meaning.lifetimes import (
    JUDGED,
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
    FREED,
    PENDING,
    Profile,
)
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
    def is_one_run(self) -> bool:
        return self.gained is not self.after

    @property
    def runs(self) -> tuple[Profile, ...]:
        return self.before + self.after

    @property
    def alive(self) -> str:
        """The word for the objects that count as alive, or one word for each side."""
        before, after = (alive_word(all(map(is_alive_exact, side)))
                         for side in (self.before, self.after))
        return before if before == after else "%s, then %s" % (before, after)

    @property
    def is_mixed(self) -> bool:
        """Whether only some of the runs have a heap snapshot at their end."""
        return len(set(map(is_alive_exact, self.runs))) > 1

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
    dropped = _Dropped(profile, at)
    for row, (size, thread, fate, collected, ended) in enumerate(zip(
            samples.size, samples.thread, samples.fate, samples.collected,
            samples.ended)):
        # (what is PENDING is not known to be met by a collection, ever)
        if size and fate != PENDING and state(
                fate, collected, ended, at) == STILL_ALIVE:
            samples.fate[row] = ALIVE
            if dropped.includes(fate, ended, thread):
                samples.collected[row] = max(collected, at)
    for carried in old.carried:
        stack, size, interval, type_, fate, collected, ended, live_size = carried
        # it was made before the first moment
        if chosen((stack, -1, 0, size, interval, 0, type_, fate, collected, ended,
                   live_size)):
            if fate != PENDING and state(fate, collected, ended, at) == STILL_ALIVE:
                carried = carried._replace(fate=ALIVE, collected=max(
                    collected, at) if dropped.includes(fate, ended) else collected)
            samples.carry(carried)
    return dataclasses.replace(
        _ended(profile, at), samples=samples,
        processes=[process._replace(profile=_ended(
            process.profile, at - process.begin)) for process in profile.processes])


def _ended(profile: Profile, at: int) -> Profile:
    """Return the profile without the records after a moment.

    The first totals after the moment stay, as an upper bound of the bytes that were
    allocated until then.
    """
    last = bisect.bisect_left([one.time for one in profile.moments], at)
    return dataclasses.replace(
        profile, collections=[one for one in profile.collections if one.time <= at],
        snapshots=[one for one in profile.snapshots if one.time <= at],
        moments=profile.moments[:last + 1])


#: who allocates less than this share of what is alive, drops hardly anything meanwhile
_HARDLY = 0.01


class _Dropped:
    """The objects that count as alive at a moment and were found dead after it.

    The first major collection or heap snapshot after the moment found them dead, and
    the program may have dropped them before the moment.  There are none if the program
    hardly ran between the last major collection or heap snapshot and the moment.
    """

    def __init__(self, profile: Profile, at: int) -> None:
        majors = [sorted(time + begin for time in [
                      *(one.time for one in part.collections if one.is_major),
                      *(one.time for one in part.snapshots)])
                  for part, begin in [
                      (process.profile, process.begin)
                      for process in profile.processes] or [(profile, 0)]]
        process_of = {thread: number for number, process in enumerate(profile.processes)
                      for thread in process.threads}
        numbers = [bisect.bisect_right(times, at) for times in majors]
        hardly_ran = _hardly_ran(profile, at, process_of, [
            times[number - 1] if number else -1
            for times, number in zip(majors, numbers)])
        #: when that collection was, of each process; -1: there is none
        self._next = [-1 if number == len(times) or hardly else times[number]
                      for times, number, hardly in zip(majors, numbers, hardly_ran)]
        self._of_thread = {thread: self._next[number]
                           for thread, number in process_of.items()}

    def includes(self, fate: int, ended: int, thread: int | None = None) -> bool:
        """An object that is alive at the moment: columns of model.Samples; without its
        thread, if that is not known."""
        next_ = (max(self._next) if thread is None or not self._of_thread
                 else self._of_thread[thread])
        return fate == FREED and ended <= next_


def _hardly_ran(profile: Profile, at: int, process_of: Mapping[int, int],
                last: Sequence[int]) -> list[bool]:
    """Of each process, from a moment of its own up to `at`; `process_of`: which one a
    thread is of, if there are several."""
    since, alive = [0.0] * len(last), [0.0] * len(last)
    samples = profile.samples
    for time, thread, size, live_size, interval, fate, collected, ended in zip(
            samples.time, samples.thread, samples.size, samples.live_size,
            samples.interval,
            samples.fate, samples.collected, samples.ended):
        if size and time <= at:
            process = process_of[thread] if process_of else 0
            since[process] += (time > last[process]) * weight_bytes(
                size, interval, profile.gaps)
            alive[process] += (
                state(fate, collected, ended, at) == STILL_ALIVE
            ) * weight_live_bytes(size, live_size, interval, profile.gaps)
    return [allocated <= _HARDLY * left for allocated, left in zip(since, alive)]


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
    #: to 1.0; and if what was not judged were no garbage
    p: float = 1.0
    p_if_alive: float = 1.0
    #: see Sides
    is_spread_unknown: bool = False

    def estimate(self, measure: str, z: float = Z) -> Estimate:
        """What it grew by, perhaps less than nothing."""
        return difference(amount(self.gained, measure, z, self.lost),
                          amount(self.lost, measure, z, self.gained))

    @property
    def has_changed(self) -> bool:
        """Or differs, if the spread of equal runs is not known."""
        return self.p <= 1.0 - CONFIDENCE

    @property
    def may_be_garbage(self) -> bool:
        """It would have changed."""
        return not self.has_changed and self.p_if_alive <= 1.0 - CONFIDENCE


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
    return UNCLEAR if change.may_be_garbage else NOISE


class Amount(NamedTuple):
    """What is compared, of one side."""

    #: all that counts
    most: Estimate
    #: what of it is known to count; of what is alive, what was judged
    least: Estimate

    @property
    def estimate(self) -> Estimate:
        """The interval holds what garbage may make of it."""
        return Estimate(self.most.value, self.least.low, self.most.high)

    @property
    def garbage(self) -> float:
        """How much of it may be."""
        return self.most.value - self.least.value

    @property
    def if_alive(self) -> Amount:
        """If nothing of it were garbage."""
        return Amount(self.most, self.most)


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


def difference(gained: Amount, lost: Amount) -> Estimate:
    """`gained` without `lost`."""
    below = math.hypot(gained.least.value - gained.least.low,
                       lost.most.high - lost.most.value)
    above = math.hypot(gained.most.high - gained.most.value,
                       lost.least.value - lost.least.low)
    return Estimate(gained.most.value - lost.most.value,
                    gained.least.value - lost.most.value - below,
                    gained.most.value - lost.least.value + above)


def amount(runs: Sequence[Figures], measure: str, z: float = Z,
           others: Sequence[Figures] = ()) -> Amount:
    """What is compared, on average over the runs of a side; `runs`: figures of
    summary.Choice.judged; `others`: those of the other side, whose spread is looked at,
    too."""
    if len(runs) == 1 and len(others) <= 1:
        figures, = runs
        if measure == ALIVE_BYTES:
            return Amount(figures.bytes(STILL_ALIVE, z), figures.bytes(JUDGED, z))
        one = figures.objects(None, z) if measure == OBJECTS else figures.bytes(None, z)
        return Amount(one, one)
    t = spread.quantile(z, spread.degrees(len(runs), len(others)))
    if measure == ALIVE_BYTES:
        return Amount(_mean(runs, others, STILL_ALIVE, False, t),
                      _mean(runs, others, JUDGED, False, t))
    one = _mean(runs, others, None, measure == OBJECTS, t)
    return Amount(one, one)


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


def chance(change: Change, measure: str, *, if_alive: bool = False) -> float:
    """The probability of a difference that is as large or larger, in either
    direction, if there is none; `if_alive`: and no garbage."""
    def estimate(z: float) -> Estimate:
        sides = (amount(change.gained, measure, z, change.lost),
                 amount(change.lost, measure, z, change.gained))
        return difference(*(side.if_alive if if_alive else side for side in sides))

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


def judged(change: Change, measure: str) -> Change:
    """With its probabilities, by itself."""
    p = chance(change, measure)
    return change._replace(p=p, p_if_alive=(
        chance(change, measure, if_alive=True) if measure == ALIVE_BYTES else p))


def compare(sides: Sides, choice: Choice) -> Difference:
    """`choice.sort` says what is compared.  Raises ProfileError if a profile can't
    tell."""
    for profile in sides.runs:
        if profile.gaps == "fixed":
            raise ProfileError(
                "was taken with --allocation-gaps fixed: nobody knows how sure its "
                "figures are, nor whether two of them differ")
    choice = choice._replace(judged=True)
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
    is_mixed = sides.is_mixed

    def change_of(subject: Subject | None, what: str, is_spread_unknown: bool,
                  *figures: tuple[Figures, ...]) -> Change:
        old, new, came, went = figures
        # inside one run, nothing is allocated less often than before
        if sides.is_one_run and what != ALIVE_BYTES:
            went = (nothing,)
        if is_mixed and what == ALIVE_BYTES:
            came, went = _unjudged(came, sides.after), _unjudged(went, sides.before)
        return judged(Change(subject, old, new, came, went,
                             is_spread_unknown=is_spread_unknown), what)

    changes = []
    for subject in {subject: None for _, rows in before + after for subject in rows}:
        of_row = [tuple(rows.get(subject, nothing) for _, rows in side)
                  for side in (before, after, gained, lost)]
        if any(figures.sum().samples for side in of_row for figures in side):
            changes.append(change_of(subject, measure, sides.is_spread_unknown(
                measure, choice.by, subject.type), *of_row))
    weights = None
    if len(sides.runs) > 2:
        weights = [max(sum(amount([figures], measure).most.value
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


def _unjudged(figures: tuple[Figures, ...], runs: Sequence[Profile]
              ) -> tuple[Figures, ...]:
    """Return the runs' figures for a comparison with a heap snapshot.

    The objects that a major collection found alive may be garbage when the run ends.
    So all objects of a run without a snapshot may be garbage.
    """
    return tuple(one if is_alive_exact(run) else one.without(JUDGED)
                 for one, run in zip(figures, runs))


def _corrected(changes: list[Change],
               weights: Sequence[float] | None = None) -> list[Change]:
    return [change._replace(p=p, p_if_alive=p_if_alive)
            for change, p, p_if_alive in zip(
                changes, spread.holm([change.p for change in changes], weights),
                spread.holm([change.p_if_alive for change in changes], weights))]
