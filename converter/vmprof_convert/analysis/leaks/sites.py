"""Where objects are allocated that become old, and what came and went there:
`report --leaks` looks at each type of each place.  search.py says why."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from vmprof_convert.analysis.growth import Change
from vmprof_convert.analysis.leaks.statistics import (
    ALPHA,
    MIN_TREND,
    Counts,
    rises,
    scatter,
)
from vmprof_convert.analysis.leaks.windows import Windows
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.meaning.type_names import INTERNAL, NOT_KNOWN, STORAGE, Shown
from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile.model import Function, Profile
from vmprof_convert.profile.stacks import Frame

#: what grows in the second window by less than this share slows down
GOES_ON = 0.5
#: what keeps this share of what came is no queue
STAYS = 0.5
#: frames of a stack that are shown
MAX_FRAMES = 3
#: functions that run as part of an expression of their caller's
_PARTS = ("__init__", "__new__", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
#: the type of objects of several types
_SEVERAL = Shown("[several types]", NOT_KNOWN)


class Place(NamedTuple):
    """A function; and Program.line(), or that of its definition."""

    function: Function
    line: int


class Places:
    """Those of one process."""

    def __init__(self, profile: Profile, own: Profile) -> None:
        """`own`: `profile` with the program's own code only, or itself."""
        self._program = Program(own)
        self._all = Program(profile)
        self._known: dict[int, tuple[Place, ...]] = {}

    def of(self, stack: int) -> tuple[Place, ...]:
        """The place where objects of this stack are allocated, and its callers; at most
        `MAX_FRAMES` in all.  What a constructor or a comprehension allocates counts for
        the function that it is called in."""
        found = self._known.get(stack)
        if found is None:
            frames = list(self._program.stack(stack))
            while len(frames) > 1 and self._program.function(
                    frames[-1]).name in _PARTS:
                frames.pop()
            found = self._known[stack] = tuple(
                _place(self._program, frame)
                for frame in reversed(frames[-MAX_FRAMES:]))
        return found

    def innermost(self, stack: int) -> Place:
        """Of all code."""
        return _place(self._all, self._all.stack(stack)[-1])


def _place(program: Program, frame: Frame) -> Place:
    function = program.function(frame)
    return Place(function, program.line(frame) or function.line)


class Tally:
    """What came and went at one place, of one type or of several."""

    def __init__(self, snapshots: int) -> None:
        #: in each window, sampled objects
        self.came = [0, 0]
        self.went = [0, 0]
        #: what they add up to, as weights, and what the squares of these do
        self.bytes = [0.0, 0.0]
        self.variance = [0.0, 0.0]
        #: sampled objects that came in the first window, and were there at the end of
        #: the second
        self.stayed = 0
        #: how many objects came, and went, in both windows
        self.objects = [0.0, 0.0]
        #: of each process, in both windows
        self.changes: dict[int, Change] = {}
        #: what the bytes that are held changed by, at each snapshot; and the variance
        #: of that as an estimate
        self.steps = [0.0] * snapshots
        self.step_variance = [0.0] * snapshots
        #: bytes of the largest sampled object that came, in both windows
        self.largest = 0
        #: bytes that came in both windows, by process and stack
        self.stacks: dict[tuple[int, int], float] = {}

    def add(self, windows: Windows, since: int, until: int, stack: tuple[int, int],
            size: int, p: float) -> None:
        """A sampled object that was there from the major collection `since` on until
        before `until`."""
        first, middle, last, *_ = windows
        weight = size / p
        for number, (start, end) in enumerate(((first, middle), (middle, last))):
            if start < since <= end < until:
                self.came[number] += 1
                self.bytes[number] += weight
                self.variance[number] += weight * weight
            elif since <= start < until <= end:
                self.went[number] += 1
                self.bytes[number] -= weight
                self.variance[number] += weight * weight
        if first < since <= last < until:
            self._change(stack[0]).came.add(size, p)
            self.objects[0] += 1.0 / p
            self.largest = max(self.largest, size)
            self.stayed += since <= middle
            self.stacks[stack] = self.stacks.get(stack, 0.0) + weight
        elif since <= first < until <= last:
            self._change(stack[0]).went.add(size, p)
            self.objects[1] += 1.0 / p

    def hold(self, begin: int, end: int, size: int, p: float) -> None:
        """A sampled object that was there at the snapshots from `begin` on until before
        `end`."""
        if begin >= end:
            return
        weight = size / p
        for at, change in (begin, weight), (end, -weight):
            if at < len(self.steps):
                self.steps[at] += change
                self.step_variance[at] += (1.0 - p) * weight * weight

    def add_tally(self, other: Tally) -> None:
        for mine, others in ((self.came, other.came), (self.went, other.went)):
            mine[:] = map(sum, zip(mine, others))
        for sums, added in ((self.bytes, other.bytes), (self.steps, other.steps),
                            (self.variance, other.variance),
                            (self.step_variance, other.step_variance),
                            (self.objects, other.objects)):
            sums[:] = map(sum, zip(sums, added))
        self.stayed += other.stayed
        self.largest = max(self.largest, other.largest)
        for process, change in other.changes.items():
            self._change(process).add_change(change)
        for stack, bytes_ in other.stacks.items():
            self.stacks[stack] = self.stacks.get(stack, 0.0) + bytes_

    def _change(self, process: int) -> Change:
        found = self.changes.get(process)
        if found is None:
            found = self.changes[process] = Change()
        return found

    @property
    def counts(self) -> Counts:
        return Counts((self.came[0], self.came[1]), (self.went[0], self.went[1]))

    @property
    def change(self) -> Change:
        """Of all processes, in both windows."""
        result = Change()
        for change in self.changes.values():
            result.add_change(change)
        return result

    def growth(self, interval: int) -> Estimate:
        """In both windows: what the program goes on holding grew by.  Its interval is
        wider than sampling alone makes it where what the collections found goes up and
        down: two of them say what is held no better than that."""
        return self.change.growth(interval).widened(
            math.sqrt(2) * scatter(self.steps, self.step_variance))

    def goes_up(self) -> bool:
        """Not up and down: what comes and goes together is not one by one."""
        if len(self.steps) < MIN_TREND:
            return self.stayed >= STAYS * self.came[0] or rises(self.steps)
        return rises(self.steps)

    def slows_down(self, lengths: Sequence[Sequence[float]], tests: int = 1) -> bool:
        """Whether it grows by less than `GOES_ON` in the second window, which is not by
        chance, though it is one of so many `tests`.  What shrinks is no cache that
        fills.

        `lengths`: of both windows, in each of several measures, all of which have to
        say so: a program may work less in the same time, or more."""
        return all(self._slows_down(of_both, tests) for of_both in lengths)

    def _slows_down(self, lengths: Sequence[float], tests: int) -> bool:
        first, second = (self.bytes[i] / lengths[i] for i in range(2))
        deviation = math.sqrt(sum(
            self.variance[i] / lengths[i] ** 2 for i in range(2)))
        return (0.0 <= second < GOES_ON * first and tests * math.erfc(
            (first - second) / deviation / math.sqrt(2)) <= ALPHA)


class Site:
    """The objects of one type at one place, or of several types."""

    def __init__(self, type_: Shown, tally: Tally) -> None:
        self.type = type_
        self.tally = tally
        #: probability that a site that doesn't leak looks like this one, as corrected
        #: for the number of tests; 1.0: it was not found to grow
        self.p = 1.0

    @property
    def may_leak(self) -> bool:
        """Whether it is told by itself.  What only the interpreter knows belongs to
        objects of the program, and is part of what they take."""
        return self.type.kind != INTERNAL

    @property
    def stays(self) -> bool:
        """Whether what came in the first window is still there at the end of the
        second; not so of objects that come and go."""
        return self.is_enlarged or self.tally.stayed >= STAYS * self.tally.came[0]

    @property
    def is_enlarged(self) -> bool:
        """Whether it is storage of which the pieces became larger, rather than more:
        then that of a list, for example, was replaced when the list grew."""
        if self.type.kind != STORAGE:
            return False
        change = self.tally.change
        came, went = change.came.value, change.went.value
        if not came > went > 0.0:
            return False
        more, fewer = self.tally.objects
        # where n objects have a size of s, n * s grows by n * ds and by s * dn
        return (more + fewer) / 2 * (came / more - went / fewer) >= (came - went) / 2


def all_that_stays(sites: Sequence[Site], lengths: Sequence[Sequence[float]],
                   snapshots: int) -> Site | None:
    """Of these, of one place, together; None: they are fewer than two."""
    chosen = [site.tally for site in sites
              if site.may_leak and site.stays
              and not (site.is_enlarged or site.tally.slows_down(lengths))]
    if len(chosen) < 2:
        return None
    result = Tally(snapshots)
    for tally in chosen:
        result.add_tally(tally)
    return Site(_SEVERAL, result)
