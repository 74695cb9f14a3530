"""Count the live objects that appeared and disappeared at each allocation site.

A *place* is the innermost function of user code on the stack of an allocation. A *site*
is a place together with a type. search.py fills a `Tally` for each site, and tests
whether the site leaks. An object *appeared* in a window if it was live at the end and
not at the start. It *disappeared* if it was live at the start and not at the end.
"""
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

#: a site slows down if it grows in the second window by less than this share of its
#: growth in the first one
GOES_ON = 0.5
#: a site of which at least this share of the new objects stays is no queue
STAYS = 0.5
#: the largest number of frames that are shown of a stack
MAX_FRAMES = 3
#: functions that run as part of an expression in their caller
_PARTS = ("__init__", "__new__", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")
#: the type of a site that combines objects of several types
_SEVERAL = Shown("[several types]", NOT_KNOWN)


class Place(NamedTuple):
    """A function and a line.

    The line is Program.line(), or the line of the definition if the former is 0.
    """

    function: Function
    line: int


class Places:
    """Finds the places of the stacks of one process."""

    def __init__(self, profile: Profile, own: Profile) -> None:
        """Prepare the search for places.

        Args:
            profile: the profile with the stacks of all code.
            own: `profile` reduced to user code, or `profile` itself.
        """
        self._program = Program(own)
        self._all = Program(profile)
        self._known: dict[int, tuple[Place, ...]] = {}

    def of(self, stack: int) -> tuple[Place, ...]:
        """Return the place where a stack allocates, and the places of its callers.

        The result has at most `MAX_FRAMES` places, innermost first. An allocation in a
        constructor or a comprehension is attributed to the calling function.
        """
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
        """Return the innermost place of a stack, which may be in a library."""
        return _place(self._all, self._all.stack(stack)[-1])


def _place(program: Program, frame: Frame) -> Place:
    function = program.function(frame)
    return Place(function, program.line(frame) or function.line)


class Tally:
    """The objects of one or several types that appeared and disappeared at a place."""

    def __init__(self, snapshots: int) -> None:
        """Start with no objects.

        Args:
            snapshots: the number of moments at which changes of the live bytes are
                recorded (see hold()); 0 for no moments.
        """
        #: the number of sampled objects that appeared, and that disappeared, in each
        #: window
        self.came = [0, 0]
        self.went = [0, 0]
        #: the growth in bytes in each window, and its variance (the sum of the squared
        #: weights)
        self.bytes = [0.0, 0.0]
        self.variance = [0.0, 0.0]
        #: the number of sampled objects that appeared in the first window and were
        #: still live at the end of the second
        self.stayed = 0
        #: the estimated numbers of objects that appeared and disappeared over both
        #: windows
        self.objects = [0.0, 0.0]
        #: the appeared and disappeared objects over both windows, by process
        self.changes: dict[int, Change] = {}
        #: the change of the live bytes at each snapshot, and the sampling variance of
        #: this change
        self.steps = [0.0] * snapshots
        self.step_variance = [0.0] * snapshots
        #: the bytes of the largest sampled object that appeared over both windows
        self.largest = 0
        #: the bytes that appeared over both windows, by process and stack
        self.stacks: dict[tuple[int, int], float] = {}

    def add(self, windows: Windows, since: int, until: int, stack: tuple[int, int],
            size: int, p: float) -> None:
        """Add a sampled object that was live at some of the compared moments.

        Args:
            windows: the windows of the process.
            since: the index of the first moment at which the object was live.
            until: the index of the first moment at which it was not live any more.
            stack: the number of the process and the index of the stack.
            size: the bytes of the object.
            p: the probability with which it was sampled.
        """
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
        """Add a sampled object to the changes of the live bytes at snapshots.

        Args:
            begin: the index of the first snapshot at which the object was live.
            end: the index of the first snapshot at which it was not live any more.
            size: the bytes of the object.
            p: the probability with which it was sampled.
        """
        if begin >= end:
            return
        weight = size / p
        for at, change in (begin, weight), (end, -weight):
            if at < len(self.steps):
                self.steps[at] += change
                self.step_variance[at] += (1.0 - p) * weight * weight

    def add_tally(self, other: Tally) -> None:
        """Add all objects of another tally.

        A tally without snapshots ignores the changes at the other's snapshots.
        """
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
        """Return the numbers of appeared and disappeared objects in each window."""
        return Counts((self.came[0], self.came[1]), (self.went[0], self.went[1]))

    @property
    def change(self) -> Change:
        """Return the appeared and disappeared objects of all processes together.

        The start of the first window is compared with the end of the second.
        """
        result = Change()
        for change in self.changes.values():
            result.add_change(change)
        return result

    def growth(self, interval: int) -> Estimate:
        """Estimate the lasting growth over both windows, in bytes.

        The live bytes at a single moment differ from their trend. The estimate contains
        this deviation twice, for the first and for the last moment. Therefore the 95 %
        interval is wider than sampling alone would make it.

        Args:
            interval: the largest sampling interval in force, in bytes.
        """
        return self.change.growth(interval).widened(
            math.sqrt(2) * scatter(self.steps, self.step_variance))

    def goes_up(self) -> bool:
        """Return whether the live bytes rise rather than go up and down.

        The test of single objects does not suffice, because some objects come and go
        together, such as the items of a queue. With fewer than `MIN_TREND` moments, it
        is enough that at least half of the new objects stay.
        """
        if len(self.steps) < MIN_TREND:
            return self.stayed >= STAYS * self.came[0] or rises(self.steps)
        return rises(self.steps)

    def slows_down(self, lengths: Sequence[Sequence[float]], tests: int = 1) -> bool:
        """Return whether the growth in the second window is smaller than in the first.

        It has to be less than `GOES_ON` of the growth in the first window, and the
        decrease has to be significant. A site that shrinks does not slow down, because
        it is not a cache that fills.

        Args:
            lengths: the lengths of both windows in several measures, such as seconds
                and allocated bytes. All measures have to agree, because the program may
                do more or less work in the same time.
            tests: the number of tests that are made, for the Bonferroni correction.
        """
        return all(self._slows_down(of_both, tests) for of_both in lengths)

    def _slows_down(self, lengths: Sequence[float], tests: int) -> bool:
        first, second = (self.bytes[i] / lengths[i] for i in range(2))
        deviation = math.sqrt(sum(
            self.variance[i] / lengths[i] ** 2 for i in range(2)))
        return (0.0 <= second < GOES_ON * first and tests * math.erfc(
            (first - second) / deviation / math.sqrt(2)) <= ALPHA)


class Site:
    """The objects of one type, or of several types, at one place."""

    def __init__(self, type_: Shown, tally: Tally) -> None:
        """Create a site that was not found to grow yet."""
        self.type = type_
        self.tally = tally
        #: the probability that a site without a leak looks like this one, corrected for
        #: the number of tests. It is 1.0 if the site was not found to grow
        self.p = 1.0

    @property
    def may_leak(self) -> bool:
        """Return whether the site is tested, and can be reported as a leak.

        Internal objects of the interpreter belong to objects of the program, and are
        part of the memory of these objects.
        """
        return self.type.kind != INTERNAL

    @property
    def stays(self) -> bool:
        """Return whether most objects that appeared in the first window stay.

        They stay if they are live at the end of the second window. Objects of a queue
        come and go, and do not stay. Enlarged storage counts as staying.
        """
        return self.is_enlarged or self.tally.stayed >= STAYS * self.tally.came[0]

    @property
    def is_enlarged(self) -> bool:
        """Return whether the site is storage that became larger, not more numerous.

        For example, a growing list replaces its storage by larger storage.
        """
        if self.type.kind != STORAGE:
            return False
        change = self.tally.change
        came, went = change.came.value, change.went.value
        if not came > went > 0.0:
            return False
        more, fewer = self.tally.objects
        # For n objects of size s, the product n * s grows by n * ds and by s * dn.
        return (more + fewer) / 2 * (came / more - went / fewer) >= (came - went) / 2


def all_that_stays(sites: Sequence[Site], lengths: Sequence[Sequence[float]],
                   snapshots: int) -> Site | None:
    """Combine the sites of one place whose objects stay, for a common test.

    Returns:
        The combined site, or None if fewer than two sites qualify.
    """
    chosen = [site.tally for site in sites
              if site.may_leak and site.stays
              and not (site.is_enlarged or site.tally.slows_down(lengths))]
    if len(chosen) < 2:
        return None
    result = Tally(snapshots)
    for tally in chosen:
        result.add_tally(tally)
    return Site(_SEVERAL, result)
