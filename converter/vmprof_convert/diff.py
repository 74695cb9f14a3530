"""What is different between two profiles, or between two moments of one run: what
grew and what shrank, and whether that is more than chance.

What was sampled in one run says nothing of the other: so the interval of a difference
is made of those of its two sides (Zou and Donner, "Construction of confidence limits
about effect measures", Statistics in Medicine 2008).  Inside one run, what was there
at both moments is no difference, however uncertain it is: there, the two sides are
what came and what went.

What is alive is not known by sampling alone: of what became old since the last major
collection, or is young, nobody knows what is garbage.  So a side's bytes are between
those that were judged (lifetimes.JUDGED) and all that count as alive.  That is no
matter of chance: the interval of a difference reaches from the least that it can be to
the most, with what sampling adds to each.  Otherwise, of runs that are alike but end at
different points behind a collection, most would differ.

What was judged, the program may have dropped since.  Of the end of a run, nobody knows;
of a moment inside of one, the next collection does: what that found dead was not judged
(_Dropped).

Of many rows, some differ by chance.  A row has changed where Holm's correction
(Scandinavian Journal of Statistics 1979) says so: of 100 comparisons of runs that are
alike, in 95 no row has.  All this is about sampling, and garbage: what a program does
differently each time, is a difference.
"""
from __future__ import annotations

import bisect
import collections
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vmprof_convert.errors import ProfileError
from vmprof_convert.estimator import Estimate, Z, weight_bytes, weight_live_bytes
from vmprof_convert.lifetimes import JUDGED, STILL_ALIVE, state
from vmprof_convert.model import (
    ALIVE,
    FREED,
    LABEL,
    PENDING,
    Collection,
    Function,
    Profile,
    Samples,
)
from vmprof_convert.origins import Origins
from vmprof_convert.own import has_own_code, only_own
from vmprof_convert.printable import shortened
from vmprof_convert.summary import (
    Choice,
    Figures,
    Row,
    Subject,
    Summary,
    summarize,
)
from vmprof_convert.type_names import INTERNAL, TypeNames

#: no row has changed in so many of the comparisons of runs that are alike
CONFIDENCE = 0.95
#: quantiles are not looked for any further
_FAR = 12.0

#: what is compared
ALLOCATED, TOTAL, OBJECTS, ALIVE_BYTES = "self", "total", "objects", "alive"


class Sides(NamedTuple):
    """What a difference is of."""

    before: Profile
    after: Profile
    #: what came and what went, with what of it is alive; the same as `after` and
    #: `before`, if these are two runs
    gained: Profile
    lost: Profile

    @property
    def is_one_run(self) -> bool:
        return self.gained is not self.after


def of_runs(before: Profile, after: Profile) -> Sides:
    return Sides(before, after, after, before)


def of_moments(profile: Profile, first: int, second: int) -> Sides:
    """Of one run, at two times in nanoseconds."""
    def alive(row: _Row, at: int) -> bool:
        _, time, _, size, _, _, _, fate, collected, ended, _ = row
        return size > 0 and time <= at and state(
            fate, collected, ended, at) == STILL_ALIVE

    return Sides(
        moment(profile, first), moment(profile, second),
        _part(profile, second, lambda row: first < row[1] <= second),
        _part(profile, first, lambda row: alive(row, first)
              and not alive(row, second)))


def aligned(sides: Sides) -> Sides:
    """With one name for what is the same in both, for who compares stacks."""
    if sides.is_one_run:
        return sides
    names = _Names(sides)
    return of_runs(names.aligned(sides.before, 0), names.aligned(sides.after, 1))


def only_own_code(sides: Sides) -> Sides | None:
    """The program's own code, with what it calls of libraries; None: one of the two
    has none."""
    if not all(has_own_code(profile, Origins(profile)) for profile in sides[:2]):
        return None
    own = {id(profile): only_own(profile, Origins(profile)) for profile in sides}
    return Sides(*(own[id(profile)] for profile in sides))


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
    samples = Samples(old.store)
    dropped = _Dropped(profile, at)
    for row in zip(old.stack, old.time, old.thread, old.size, old.interval,
                   old.memory, old.type, old.fate, old.collected, old.ended,
                   old.live_size):
        if chosen(row):
            (stack, time, thread, size, interval, memory, type_, fate, collected,
             ended, live_size) = row
            # (what is PENDING is not known to be met by a collection, ever)
            if size and fate != PENDING and state(
                    fate, collected, ended, at) == STILL_ALIVE:
                if dropped.includes(fate, ended, thread):
                    collected = max(collected, at)
                fate = ALIVE
            samples.add(stack, time, thread, size, interval, memory, type_, fate,
                        collected, ended, live_size)
    for carried in old.carried:
        stack, size, interval, type_, fate, collected, ended, live_size = carried
        # it was made before the first moment
        if chosen((stack, -1, 0, size, interval, 0, type_, fate, collected, ended,
                   live_size)):
            if fate != PENDING and state(fate, collected, ended, at) == STILL_ALIVE:
                carried = carried._replace(fate=ALIVE, collected=max(
                    collected, at) if dropped.includes(fate, ended) else collected)
            samples.carry(carried)
    samples.finish()
    return dataclasses.replace(
        profile, samples=samples, collections=_until(at, profile.collections),
        processes=[process._replace(profile=dataclasses.replace(
            process.profile, collections=_until(
                at - process.begin, process.profile.collections)))
            for process in profile.processes])


#: who allocates less than this share of what is alive, drops hardly anything meanwhile
_HARDLY = 0.01


class _Dropped:
    """Which of the objects that count as alive at a moment the first major collection
    behind it found dead: the program may have dropped them before.  None, if it hardly
    ran between the last major collection and this moment."""

    def __init__(self, profile: Profile, at: int) -> None:
        majors = [sorted(one.time + begin for one in collections if one.is_major)
                  for collections, begin in [
                      (process.profile.collections, process.begin)
                      for process in profile.processes] or [(profile.collections, 0)]]
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


def _until(at: int, collections: list[Collection]) -> list[Collection]:
    return [collection for collection in collections if collection.time <= at]


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
    before: Figures
    after: Figures
    gained: Figures
    lost: Figures
    #: the probability that chance alone makes such a difference, as corrected; 0.0
    #: to 1.0; and if what was not judged were no garbage
    p: float = 1.0
    p_if_alive: float = 1.0

    def estimate(self, measure: str, z: float = Z) -> Estimate:
        """What it grew by, perhaps less than nothing."""
        return difference(amount(self.gained, measure, z),
                          amount(self.lost, measure, z))

    @property
    def has_changed(self) -> bool:
        return self.p <= 1.0 - CONFIDENCE

    @property
    def may_be_garbage(self) -> bool:
        """It would have changed."""
        return not self.has_changed and self.p_if_alive <= 1.0 - CONFIDENCE


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
    #: all together, of each measure
    everything: Change
    before: Summary
    after: Summary
    lost: Summary


def difference(gained: Amount, lost: Amount) -> Estimate:
    """`gained` without `lost`."""
    below = math.hypot(gained.least.value - gained.least.low,
                       lost.most.high - lost.most.value)
    above = math.hypot(gained.most.high - gained.most.value,
                       lost.least.value - lost.least.low)
    return Estimate(gained.most.value - lost.most.value,
                    gained.least.value - lost.most.value - below,
                    gained.most.value - lost.least.value + above)


def amount(figures: Figures, measure: str, z: float = Z) -> Amount:
    """What is compared; `figures` of summary.Choice.judged."""
    if measure == ALIVE_BYTES:
        return Amount(figures.bytes(STILL_ALIVE, z), figures.bytes(JUDGED, z))
    one = figures.objects(None, z) if measure == OBJECTS else figures.bytes(None, z)
    return Amount(one, one)


def figure(figures: Figures, measure: str, z: float = Z) -> Estimate:
    """With its interval."""
    return amount(figures, measure, z).estimate


def chance(change: Change, measure: str, *, if_alive: bool = False) -> float:
    """The probability of a difference that is as large or larger, in either
    direction, if there is none; `if_alive`: and no garbage."""
    def estimate(z: float) -> Estimate:
        sides = (amount(side, measure, z) for side in (change.gained, change.lost))
        return difference(*(side.if_alive if if_alive else side for side in sides))

    value = estimate(Z).value
    if not value:
        return 1.0
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
    for profile in sides:
        if profile.gaps == "fixed":
            raise ProfileError(
                "was taken with --allocation-gaps fixed: nobody knows how sure its "
                "figures are, nor whether two of them differ")
    choice = choice._replace(judged=True)
    before, after = (summarize(profile, choice=choice)
                     for profile in (sides.before, sides.after))
    gained, lost = (summarize(profile, choice=choice)
                    for profile in (sides.gained, sides.lost)
                    ) if sides.is_one_run else (after, before)
    summaries = before, after, gained, lost
    if not (before.samples or after.samples):
        raise ProfileError("there are no allocation samples to compare")
    measure = choice.sort
    is_total = measure == TOTAL
    names = _Names(sides)
    rows = [names.rows(summary, number in (1, 2), is_total)
            for number, summary in enumerate(summaries)]
    nothing = Figures(max(summary.figures.interval for summary in summaries))
    counts_lost = not sides.is_one_run or measure == ALIVE_BYTES
    changes = []
    for subject in {**rows[0], **rows[1]}:
        figures = [of_side.get(subject, nothing) for of_side in rows]
        if not any(one.sum().samples for one in figures):
            continue
        old, new, came, went = figures
        change = Change(subject, old, new, came, went if counts_lost else nothing)
        changes.append(judged(change, measure))
    everything = Change(None, before.figures, after.figures, gained.figures,
                        lost.figures if counts_lost else nothing)
    changes = _corrected(changes)
    changes.sort(key=lambda change: (
        not change.has_changed, -abs(change.estimate(measure).value),
        change.subject or ()))
    return Difference(sides, measure, choice, changes, judged(everything, measure),
                      before, after, lost)


def _corrected(changes: list[Change]) -> list[Change]:
    return [change._replace(p=p, p_if_alive=p_if_alive)
            for change, p, p_if_alive in zip(
                changes, _holm([change.p for change in changes]),
                _holm([change.p_if_alive for change in changes]))]


def _holm(ps: Sequence[float]) -> list[float]:
    """His step-down method."""
    result, largest = [0.0] * len(ps), 0.0
    for rank, number in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(ps[number] * (len(ps) - rank), 1.0))
        result[number] = largest
    return result


class _Names:
    """What is the same in two profiles: files may be elsewhere, and functions some
    lines further down."""

    def __init__(self, sides: Sides) -> None:
        self._origins = Origins(sides.before), Origins(sides.after)
        #: of both: the lines of the definitions of each name in each file
        lines: dict[tuple[str, str, str], tuple[set[int], set[int]]] = (
            collections.defaultdict(lambda: (set(), set())))
        #: as the second one has them
        self._files: dict[tuple[str, str, str], str] = {}
        for number, profile in enumerate((sides.before, sides.after)):
            for function in profile.functions.values():
                key = self._key(function, number)
                lines[key][number].add(function.line)
                if number:
                    self._files[key] = function.file
        #: of the first, where that is another: its line in the second; 0: it may be
        #: one or the other
        self._moved: dict[tuple[tuple[str, str, str], int], int] = {}
        self._unclear: set[tuple[tuple[str, str, str], int]] = set()
        for key, (old, new) in lines.items():
            gone, come = sorted(old - new), sorted(new - old)
            if len(gone) == len(come):
                # their order stays
                self._moved.update(((key, line), other)
                                   for line, other in zip(gone, come))
            elif gone and come:
                self._unclear.update((key, line) for line in gone + come)

    def _key(self, function: Function, number: int) -> tuple[str, str, str]:
        path = self._origins[number].path(function.file) if function.file else ""
        return function.name, path, function.kind

    def rows(self, summary: Summary, is_after: bool,
             is_total: bool) -> dict[Subject, Figures]:
        """What is compared, of each."""
        result: dict[Subject, Figures] = {}
        for row in summary.rows:
            figures = row.total if is_total else row.own
            if not figures.sum().samples:
                continue
            subject = self._subject(row, int(is_after))
            found = result.get(subject)
            if found is None:
                result[subject] = found = Figures(figures.interval)
            found.add_figures(figures)
        return result

    def aligned(self, profile: Profile, number: int) -> Profile:
        """With functions as they are called in the second one."""
        files = self._files
        functions = {}
        for address, function in profile.functions.items():
            if function.kind != LABEL:
                key = self._key(function, number)
                function = function._replace(
                    line=self._line(key, function.line, number),
                    file=files.get(key, function.file))
            functions[address] = function
        return dataclasses.replace(profile, functions=functions)

    def _line(self, key: tuple[str, str, str], line: int, number: int) -> int:
        """Of the definition, as it is in the second one; 0: not known."""
        if (key, line) in self._unclear:
            return 0
        return self._moved.get((key, line), line) if number == 0 else line

    def _subject(self, row: Row, number: int) -> Subject:
        subject = row.subject
        function = subject.function
        if function is None:
            path = self._origins[number].path(subject.file) if subject.file else ""
            return subject._replace(file=path)
        if function.kind == LABEL:
            return subject
        key = self._key(function, number)
        line = self._line(key, function.line, number)
        executed = subject.line
        if executed and function.line and line:
            executed += line - function.line
        return subject._replace(
            function=Function(function.name, line, key[1], function.kind),
            line=executed if line or not function.line else 0)
