"""What grows and goes on growing: leaks, told from caches that fill and from
garbage.

L(k) are the bytes of old objects that the k-th major collection found alive, of those
that were old before its marking ended.  So short-lived garbage is not in it, and of
garbage that lives longer as much is in L(j) as in L(k): what is left is what is held.
Two windows are compared, from major collection a to b, and from b to c.  In a window
the sampled objects that came (they are in L at its end, and not at its start) have
weights that add up to the growth, and those that went count against it: the sum is
unbiased (estimator.py).

Objects are told apart by their *place*, the innermost function of the program's own
code on the stack, and by their type: that is a *site*.  Whether a site grows in a
window: if it holds as much as before on average, then each sampled object that came or
went is as likely to be one that came, whatever its weight.  So of n such objects the
number of those that came is binomial, with probability 1/2 (the sign test; exact, and
given n, independent of how many objects the site has).  A site is found to grow if it
grows in both windows, so that the larger one of the two p-values is that of no growth
(Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics
1982: an intersection-union test needs no correction).  Where a place has several types
of which at least half of what came stays, these are also tested together: each may be
too little.  As many tests are made, their p-values are corrected by Holm ("A simple
sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
1979), after those are left out that could not become significant, as too few of their
objects came or went (Tarone, "A modified Bonferroni method for discrete data",
Biometrics 1990).  So in 95 of 100 runs without a leak none is reported, if objects come
and go one by one.

Objects that come and go together, as the items of a queue do, make a site go up and
down by more than single ones would: if three moments were independent, it would
grow twice in one of six runs.  Against this, what the collections between a and c
found has to rise as well: Kendall's tau, one-sided, exact (Kendall, "A new measure
of rank correlation", Biometrika 1938; Mann 1945), at 5 % for each test, as far as
there are enough collections for it, five.  With fewer, at least half of the sampled
objects that came in the first window have to be there at the end of the second.  With
more, a site that keeps fewer is one whose objects are replaced, by more and more: a
queue that grows, or what happened to be in use when the heap was marked.  That is
said, and those that stay are named before it.  Storage of lists and dicts is replaced
when these grow, too: where its pieces became larger rather than more, it is no queue.

A *leak* is a place where one of these tests finds growth.  Its figure is about all
objects that were allocated there, also those of types that are too few to be tested, or
were not significant: with these left out, it would be too small.  growth.py estimates
it.  What is at no such place is the rest; leaks, caches and the rest add up to all
growth.

A cache that fills grows less and less: what grows in the second window by less than
half of what it did in the first, in the same time, while as much is allocated, and
between two marks, and not by chance, is said to slow down.  A cache that is larger than
the run can't be told from a leak.

Processes that do the same work, as those of a server do, are looked at together: each
has its three moments, and what came and went in all of them is added up.
"""
from __future__ import annotations

import array
import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vmprof_convert.analysis.growth import Change
from vmprof_convert.analysis.leaks.memory import Memory, memory_of, memory_of_all
from vmprof_convert.analysis.leaks.sites import (
    MAX_FRAMES,
    STAYS,
    Place,
    Places,
    Site,
    Tally,
    all_that_stays,
)
from vmprof_convert.analysis.leaks.statistics import (
    ALPHA,
    find_significant,
    named,
    samples_needed,
    sign_test,
)
from vmprof_convert.analysis.leaks.windows import (
    Windows,
    count_snapshots,
    find_windows,
    mean_seconds,
    nearest,
    snapshots,
)
from vmprof_convert.analysis.process_memory import missed_requests
from vmprof_convert.meaning.estimator import Estimate, Z
from vmprof_convert.meaning.type_names import (
    CLASS,
    INTERNAL,
    LAYOUT,
    NOT_KNOWN,
    STORAGE,
    Shown,
    TypeNames,
    is_the_jits,
)
from vmprof_convert.meaning.visible_stacks import IMPORT, UNCAUGHT
from vmprof_convert.profile.model import (
    ALIVE,
    FREED,
    LOST,
    Carried,
    Columns,
    Profile,
    Row,
)
from vmprof_convert.profile.probability import probability
from vmprof_convert.readers.pypy_stacks import COMPILER, LOG

#: a caller is shown as the only one if so much of what came is from there
_SAME = 0.9
#: in this order types are named
_KINDS = (CLASS, STORAGE, LAYOUT, INTERNAL, NOT_KNOWN)
#: innermost functions that stand for the interpreter: what they keep is kept once, or,
#: of the JIT, as long as it compiles
_NOT_THE_PROGRAMS = IMPORT, UNCAUGHT, COMPILER, LOG
#: standard deviations by which a sum may exceed its estimate
_SURE = 4.0
#: an object that was not freed, as a number of a major collection
_NEVER = 2**62


class OldObjects:
    """Keeps the samples that became old, while they are read (model.Rows)."""

    def __init__(self) -> None:
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        self.stack = array.array("i")
        self.type = array.array("i")
        self.size = array.array("q")
        self.interval = array.array("q")
        #: see model.Samples
        self.live_size = array.array("q")
        self.collected = array.array("q")
        #: when it was freed; -1: it was not
        self.freed = array.array("q")
        self.thread = array.array("q")
        #: those that were lost sight of
        self.lost = 0

    def extend(self, rows: Columns) -> None:
        self.lost += rows.fate.count(LOST)
        old = rows.chosen([fate in (ALIVE, FREED) for fate in rows.fate])
        self.stack.extend(old.stack)
        self.type.extend(old.type)
        self.size.extend(old.size)
        self.interval.extend(old.interval)
        self.live_size.extend(old.live_size)
        self.collected.extend(old.collected)
        self.freed.extend(old.ended)
        self.thread.extend(old.thread)

    def carry(self, object_: Carried) -> None:
        self.extend(Columns(*((value,) for value in Row(
            time=0, thread=0, memory=0, **object_._asdict()))))


class OfType(NamedTuple):
    """What grew at a place, of one type."""

    type: Shown
    #: in each window, in bytes; and in both
    windows: tuple[float, float]
    growth: Estimate
    #: see Site
    p: float

    @property
    def is_clear(self) -> bool:
        """Whether it grew more than by chance."""
        return self.p < 1.0 or self.growth.low > 0.0


class Leak(NamedTuple):
    """What grew at one place."""

    #: those that clearly grew come first, of these classes, of these those in a module
    #: before Python's own; then by growth
    types: list[OfType]
    #: the innermost frames of the program, innermost first: the place, and callers
    #: that `_SAME` of what came came through
    places: tuple[Place, ...]
    #: where there is no such caller: which there are, and the share of each
    callers: list[tuple[Place, float]]
    #: the innermost one of all code, of the stack that most of it came from
    innermost: Place
    #: in each window, in bytes; and in both
    windows: tuple[float, float]
    growth: Estimate
    #: of each process
    processes: list[Estimate]
    #: the least one of its types, or of all of them together; 1.0: it was not found
    p: float
    #: of the sampled objects that came in the first window, the share that was there at
    #: the end of the second; None: it was not found, or it is storage that is replaced
    #: by larger one
    stayed: float | None
    #: bytes of its largest object: one buffer that is in use at the last moment, and
    #: not at the first, looks like growth
    largest: int

    @property
    def is_replaced(self) -> bool:
        """Whether its objects come and go, by more and more."""
        return self.stayed is not None and self.stayed < STAYS


class Rest(NamedTuple):
    """All that is in no leak, and does not slow down."""

    growth: Estimate
    windows: tuple[float, float]
    #: largest first
    places: list[Leak]

    @property
    def shrank(self) -> bool:
        """More than by chance."""
        return self.growth.high < 0.0

    @property
    def largest(self) -> list[Leak]:
        """The places that grew most, or if all together shrank, that shrank most; not
        by chance, though they are the largest of so many (Bonferroni)."""
        sign = -1 if self.shrank else 1
        return [leak for leak in self.places[::sign] if _z(leak.growth, sign) > 0.0
                and math.erfc(_z(leak.growth, sign) / math.sqrt(2)) / 2 * len(
                    self.places) <= ALPHA / 2]


class Leaks(NamedTuple):
    """What was found, by the bytes that it grew by; what stays comes first."""

    #: of each process
    windows: list[Windows]
    leaks: list[Leak]
    #: that grew in the first window, and slow down
    slowing: list[Leak]
    rest: Rest
    #: how many places had enough samples
    tested: int
    #: samples that nobody followed to the end
    lost: int
    #: of all together, in both windows and in each
    growth: Estimate
    windows_growth: tuple[float, float]
    #: bytes of the largest object that came
    largest: int
    #: of what is not looked at: the JIT's own, and what importing keeps, which is kept
    #: once
    apart: Estimate
    #: bytes a second that a place has to grow by to be seen
    limit: float
    #: of the whole processes, between the first moment and the last one; None: it was
    #: not read in one of them
    memory: Memory | None
    #: bytes of native memory that malloc's own count grew by in the whole run and that
    #: the sampled blocks do not explain; None if malloc's count is unknown
    unseen: float | None = 0.0
    #: bytes by which the estimated growth exceeds the exact growth of all live objects:
    #: new objects replaced objects that were not sampled; 0.0: no more than the error
    replaced: float = 0.0

    @property
    def seconds(self) -> tuple[float, float]:
        """Of the windows; of several processes on average."""
        first, second = mean_seconds(self.windows)
        return first, second

    @property
    def unsure(self) -> list[int]:
        """Return the number of major collections of each process whose growth may be
        garbage.  See Windows.shows_leaks."""
        return [windows.frees or 0 for windows in self.windows
                if not windows.shows_leaks]

    @property
    def allocated(self) -> int:
        """Bytes, in both windows; 0: not known."""
        return sum(sum(windows.allocated) for windows in self.windows)


class Process(NamedTuple):
    """What is looked at of one."""

    profile: Profile
    objects: OldObjects
    #: with the program's own code only (user_code.py): then a place is where that
    #: allocates, itself or in what it calls
    own: Profile | None = None
    #: see find_windows()
    part: tuple[int, int | None] | None = None
    #: whether objects of this stack, type and thread are looked at
    includes: Callable[[int, int, int], bool] | None = None


def find_leaks(processes: Sequence[Process], *, group_storage: bool = False) -> Leaks:
    """Of one process, or of several together.  Raises ProfileError if a profile can't
    tell."""
    all_windows = [find_windows(process.profile, process.part)
                   for process in processes]
    if processes[0].profile.is_raw:     # what is counted there is the GC's
        all_windows = [windows._replace(allocated=(0, 0)) for windows in all_windows]
    count = count_snapshots(all_windows)
    everything, apart = Tally(count), Tally(0)
    tallies: dict[tuple[Place, Shown], Tally] = {}
    places = []
    interval = 1
    for number, (process, windows) in enumerate(zip(processes, all_windows)):
        profile, objects = process.profile, process.objects
        names = TypeNames(profile, group_storage=group_storage)
        places.append(Places(profile, process.own or profile))
        chosen = snapshots(windows, count)
        ends = profile.looks
        for stack, type_, size, live_size, mean, collected, freed, thread in zip(
                objects.stack, objects.type, objects.size, objects.live_size,
                objects.interval, objects.collected, objects.freed, objects.thread):
            since = bisect.bisect_right(windows.times, collected)
            # a collection that found it dead may be none of those that are looked at:
            # then it is not there at the next one
            until = _NEVER
            if freed >= 0:
                until = (bisect.bisect_left(windows.freed_by or windows.times, freed)
                         if profile.is_raw else
                         bisect.bisect_left(windows.times, ends[nearest(ends, freed)]))
            if since > windows.last or until <= max(
                    min(windows.first, chosen[0]), since):
                continue
            if process.includes is not None and not process.includes(
                    stack, type_, thread):
                continue
            interval = max(interval, mean)
            shown = names.shown(type_)
            place = places[-1].of(stack)[0]
            # it was sampled with the size that it had when it was allocated
            p = probability(size, mean, profile.gaps)
            size = live_size or size
            if is_the_jits(shown) or place.function in _NOT_THE_PROGRAMS:
                apart.add(windows, since, until, (number, stack), size, p)
                continue
            tally = tallies.get((place, shown))
            if tally is None:
                tally = tallies[place, shown] = Tally(count)
            # held at the snapshots from the first one on until the second
            begin = bisect.bisect_left(chosen, since)
            end = bisect.bisect_left(chosen, until)
            for one in tally, everything:
                one.add(windows, since, until, (number, stack), size, p)
                one.hold(begin, end, size, p)
    sites: dict[Place, list[Site]] = {}
    for (place, shown), tally in tallies.items():
        if any(tally.came) or any(tally.went):
            sites.setdefault(place, []).append(Site(shown, tally))
    return _Judge(processes, all_windows, places, count, interval).judge(
        sites, everything, apart)


class _Judge:
    def __init__(self, processes: Sequence[Process], windows: list[Windows],
                 places: list[Places], snapshots: int, interval: int) -> None:
        self._processes = processes
        self._windows = windows
        self._seconds = mean_seconds(windows)
        #: of the windows: in seconds, in bytes that were allocated, and in turns of
        #: what the program does between its marks
        self._lengths: list[Sequence[float]] = [self._seconds]
        allocated = [sum(of_one.allocated[number] for of_one in windows)
                     for number in range(2)]
        if all(allocated):
            self._lengths.append(allocated)
        if all(of_one.are_marked for of_one in windows):
            self._lengths.append((1.0, 1.0))
        self._places = places
        self._snapshots = snapshots
        #: the largest one that was in force for what is looked at
        self._interval = interval
        #: sites are found with a p up to this one
        self._limit = ALPHA
        self._leaks: list[Leak] = []
        self._slowing: list[Leak] = []
        self._others: list[Leak] = []

    def judge(self, sites: dict[Place, list[Site]], everything: Tally,
              apart: Tally) -> Leaks:
        # each type of a place by itself, and all of them
        together = {
            place: all_that_stays(of_place, self._lengths, self._snapshots)
            for place, of_place in sites.items()}
        tests = [(place, site) for place, of_place in sites.items()
                 for site in (*of_place, together[place])
                 if site is not None and site.may_leak]
        significant = find_significant([site.tally.counts for _, site in tests])
        self._limit = significant.limit
        for (_, site), p in zip(tests, significant.ps):
            if p < 1.0 and site.tally.goes_up():
                site.p = p
        rest = Tally(self._snapshots)
        for place, of_place in sites.items():
            for site in self._put(place, of_place, together[place], len(tests)):
                rest.add_tally(site.tally)
        growth = everything.growth(self._interval)
        samples = samples_needed(significant.tests)
        interval = max(1, *(process.profile.interval for process in self._processes))
        named_ones = self._leaks + self._slowing
        return Leaks(
            self._windows, _largest_first(self._leaks), _largest_first(self._slowing),
            Rest(self._rest(growth, named_ones, rest), _difference(
                everything.bytes, [leak.windows for leak in named_ones]),
                 _largest_first(self._others)),
            len({place for place, site in tests
                 if site.tally.counts.least_p <= ALPHA / significant.tests}),
            sum(process.objects.lost for process in self._processes),
            growth, (everything.bytes[0], everything.bytes[1]), everything.largest,
            apart.change.growth(self._interval),
            # by two deviations more
            (samples + 2 * math.sqrt(samples)) * interval / min(self._seconds),
            memory_of_all([memory_of(process.profile, windows)
                                for process, windows in zip(
                                    self._processes, self._windows)]),
            self._unseen(), self._replaced(growth))

    def _replaced(self, growth: Estimate) -> float:
        """Return the bytes of replaced objects.  See Leaks.replaced."""
        if not all(windows.are_snapshots for windows in self._windows) or any(
                process.includes is not None for process in self._processes):
            return 0.0
        exact = 0
        for process, windows in zip(self._processes, self._windows):
            bytes_ = {one.time: one.bytes for one in process.profile.snapshots}
            exact += (bytes_[windows.times[windows.last]]
                      - bytes_[windows.times[windows.first]])
        return max(growth.low - exact, 0.0)

    def _unseen(self) -> float | None:
        """Return the unexplained bytes of all processes; None if one is unknown."""
        found = [_unseen(process) for process in self._processes]
        known = [bytes_ for bytes_ in found if bytes_ is not None]
        return sum(known) if len(known) == len(found) else None

    def _put(self, place: Place, sites: list[Site], together: Site | None,
             tests: int) -> list[Site]:
        """Put what is found at a place where it belongs, and return what is not.
        `together`: all that stays of it."""
        slow = [site for site in sites if site.may_leak and site.stays
                and site.tally.slows_down(self._lengths)]
        leaks = [site for site in (*sites, together)
                 if site is not None and site.p < 1.0 and site not in slow]
        # more objects, and fewer bytes: whatever that is, it does not grow
        grows = sum(sum(site.tally.bytes) for site in sites if site not in slow) > 0.0
        if leaks and grows:
            # what was not found to grow is part of what was: too little to be told, or
            # slower by chance
            slow = [site for site in slow if site.p < 1.0
                    and site.tally.slows_down(self._lengths, tests)]
            self._leaks.append(self._leak(
                place, [site for site in sites if site not in slow], together))
            if slow:
                self._slowing.append(self._leak(place, slow, None))
            return []
        if any(site.p < 1.0 or (site.tally.stacks and sign_test(
                site.tally.came[0], site.tally.went[0]) * tests <= ALPHA)
               for site in slow):
            # (one type may slow down at a place that goes on growing)
            whole = Tally(0)
            for site in sites:
                whole.add_tally(site.tally)
            if whole.slows_down(self._lengths):
                slow = sites
            elif self._processes[0].profile.is_raw:
                # the types are callers of malloc, and the JIT replaces one by another
                slow = []
            if slow:
                self._slowing.append(self._leak(place, slow, None))
            sites = [site for site in sites if site not in slow]
            if not sites:
                return []
        self._others.append(self._leak(place, sites, None))
        return sites

    def _leak(self, place: Place, sites: list[Site], together: Site | None) -> Leak:
        """`together`: see _put(); None: these sites are no leak."""
        tally = Tally(0)
        for site in sites:
            tally.add_tally(site.tally)
        found = [site for site in (*sites, together)
                 if site is not None and site.p < 1.0]
        growth = tally.change.growth(self._interval, named(
            [site.tally.counts for site in sites],
            together.tally.counts if together else None, self._limit)
            if found else None)
        # what stays tells more than what comes and goes beside it
        judged = [site.tally for site in [site for site in found if site.stays] or found
                  if not site.is_enlarged]
        came = sum(one.came[0] for one in judged)
        types = self._types(sites, sum(tally.bytes) - growth.value)
        places, callers = self._callers(place, tally)
        return Leak(
            types, places, callers, self._innermost(tally) or place,
            _sum(one.windows for one in types), growth,
            [tally.changes.get(number, Change()).growth(self._interval)
             for number in range(len(self._processes))],
            min([site.p for site in found], default=1.0),
            sum(one.stayed for one in judged) / came if came else None, tally.largest)

    def _types(self, sites: list[Site], luck: float) -> list[OfType]:
        """As in a Leak.  `luck`: so many bytes are taken off what was found, as off the
        whole (growth.py)."""
        were_found = [site.p < 1.0 for site in sites]
        growing = sum(max(sum(site.tally.bytes), 0.0) for site in sites
                      if site.p < 1.0 or not any(were_found))
        result = []
        for site, was_found in zip(sites, were_found):
            share = 1.0
            if luck and (was_found or not any(were_found)) and sum(
                    site.tally.bytes) > 0.0:
                share -= luck / growing
            result.append(OfType(site.type, _sum(
                [[share * bytes_ for bytes_ in site.tally.bytes]]), Estimate(*(
                    share * value
                    for value in site.tally.change.growth(self._interval))), site.p))
        return sorted(result, key=lambda one: (
            not one.is_clear, one.is_clear and _KINDS.index(one.type.kind),
            one.is_clear and "." not in one.type.name, -one.growth.value,
            one.type.name))

    def _rest(self, growth: Estimate, named_ones: list[Leak], rest: Tally) -> Estimate:
        """With what is named it adds up to all growth: what was taken off as luck is
        in it."""
        value = _whole(growth.value - sum(leak.growth.value for leak in named_ones))
        own = rest.growth(self._interval)
        return Estimate(value, own.low + min(value - own.value, 0.0),
                      own.high + max(value - own.value, 0.0))

    def _innermost(self, tally: Tally) -> Place | None:
        """Of all code, of the stack that most came from."""
        if not tally.stacks:
            return None
        process, stack = max(tally.stacks, key=lambda key: (
            tally.stacks[key], -key[0], -key[1]))
        return self._places[process].innermost(stack)

    def _callers(self, place: Place, tally: Tally,
                 ) -> tuple[tuple[Place, ...], list[tuple[Place, float]]]:
        """The place with its callers: see Leak."""
        places = [place]
        paths = [(self._places[process].of(stack), bytes_)
                 for (process, stack), bytes_ in tally.stacks.items()]
        for depth in range(1, MAX_FRAMES):
            bytes_of: dict[Place, float] = {}
            for path, bytes_ in paths:
                for caller in path[depth:depth + 1]:
                    bytes_of[caller] = bytes_of.get(caller, 0.0) + bytes_
            total = sum(bytes_ for _, bytes_ in paths)
            callers = sorted(((caller, bytes_ / total)
                              for caller, bytes_ in bytes_of.items()),
                             key=lambda of: -of[1])
            if not callers:
                break
            caller, share = callers[0]
            if share < _SAME:
                return tuple(places), callers if depth == 1 else []
            places.append(caller)
            paths = [of for of in paths if of[0][depth:depth + 1] == (caller,)]
        return tuple(places), []


def _unseen(process: Process) -> float | None:
    """Return the growth of malloc's own count that no sampled block explains.

    Returns:
        Bytes; 0.0 for objects of the heap; None if malloc's count is unknown.
    """
    profile, objects = process.profile, process.objects
    if not profile.is_raw:
        return 0.0
    value = variance = 0.0
    for size, live_size, mean, freed in zip(objects.size, objects.live_size,
                                            objects.interval, objects.freed):
        if freed < 0:
            p = probability(size, mean, profile.gaps)
            weight = (live_size or size) / p
            value += weight
            variance += weight * weight * (1.0 - p)
    return missed_requests(profile, Estimate(
        value, value, value + _SURE * math.sqrt(variance)))


def _sum(rows: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Of both windows."""
    first, second = map(sum, zip((0.0, 0.0), *rows))
    return first, second


def _z(growth: Estimate, sign: int) -> float:
    """By how many standard deviations it is above 0, or below if `sign` is -1."""
    value = sign * growth.value
    off = value - sign * (growth.low if sign > 0 else growth.high)
    return Z * value / off if off > 0.0 else math.copysign(math.inf, value)


def _difference(windows: Sequence[float],
                parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    first, second = (_whole(windows[number] - sum(part[number] for part in parts))
                     for number in range(2))
    return first, second


def _whole(bytes_: float) -> float:
    """Nothing, where less than a byte is left of a difference of floating numbers."""
    return bytes_ if abs(bytes_) >= 1.0 else 0.0


def _largest_first(leaks: list[Leak]) -> list[Leak]:
    """What is replaced stands behind what stays."""
    return sorted(leaks, key=lambda leak: (leak.is_replaced, -leak.growth.value))
