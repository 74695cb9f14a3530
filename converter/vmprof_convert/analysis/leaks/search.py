"""Find leaks: allocation sites whose live memory grows in two successive time windows.

find_leaks() gets the sampled objects of one or several processes that survived their
first minor collection (`OldObjects`). It returns the leaks, the caches that fill, and
the growth of all other code, in bytes with 95 % intervals. report/leaks/ writes the
result.

Live bytes. L(k) are the bytes of old objects that the k-th major collection or heap
snapshot found alive. Only objects that were old before its marking ended are in L(k),
so short-lived garbage is not. Longer-lived garbage is in L(j) as much as in L(k), and
cancels out in the difference. The growth in the first window, from moment a to b, is
compared with the growth in the second window, from b to c. An object appeared in a
window if it is in L at the end of the window, and not at its start. It disappeared if
it is in L only at the start. The weights of the sampled objects that appeared, minus
the weights of the objects that disappeared, are an unbiased estimate of the growth
(estimator.py).

Sites. A *place* is the innermost function of user code on the stack. A *site* is a
place and a type.

Test of growth. Assume that a site holds the same number of bytes on average. Then each
sampled object that appeared or disappeared is as likely to have appeared as to have
disappeared, whatever its weight. Among n such objects, the number that appeared has a
binomial distribution with probability 1/2. This sign test is exact. Given n, it does
not depend on the number of objects that the site has. A site is found to grow if it
grows in both windows. Therefore its p-value is the larger one of the two windows'
p-values. This intersection-union test needs no correction (Berger, "Multiparameter
hypothesis testing and acceptance sampling", Technometrics 1982). A place may have
several types of which at least half of the new objects stay. These types are also
tested together, because each may have too few samples.

Correction for many tests. First, tests are omitted that could not become significant,
because too few objects of the site appeared or disappeared (Tarone, "A modified
Bonferroni method for discrete data", Biometrics 1990). Then the p-values are corrected
by Holm ("A simple sequentially rejective multiple test procedure", Scandinavian Journal
of Statistics 1979). So in 95 of 100 runs without a leak, no leak is reported if objects
come and go independently.

Test of the trend. Objects that come and go together, such as the items of a queue, make
the live bytes of a site go up and down more than single objects would. If the live
bytes at three moments were independent, such a site would grow in both windows in one
of six runs. Therefore the live bytes at the moments between a and c have to rise, too.
The test is Kendall's tau, one-sided and exact, at 5 % for each site (Kendall, "A new
measure of rank correlation", Biometrika 1938; Mann 1945). It needs five moments. With
fewer moments, at least half of the sampled objects that appeared in the first window
have to stay until the end of the second.

Replaced objects. With five moments or more, a site may pass both tests although fewer
than half of its objects stay. More and more objects are then in use, and replace each
other. Such a site is a growing queue, or was in use by chance when the heap was marked.
The report says so, and lists the sites whose objects stay first. A growing list also
replaces its storage. Storage that became larger rather than more numerous is therefore
no queue.

Size of a leak. A *leak* is a place where one of the tests finds growth, and whose
interval of the growth in bytes does not include 0. Its size includes all objects that
were allocated there, also the types that were not significant or not tested. Without
these types, the size would be too small. growth.py estimates the size. Places that
neither leak nor slow down are the *rest*. Leaks, caches and the rest add up to the
whole growth.

Caches. A cache that fills grows less and less. A site slows down if it grows in the
second window by less than half of its growth in the first window, and if this is not
chance. This has to be true per second, per allocated byte, and per mark. A cache that
does not fill up within the run cannot be distinguished from a leak.

Several processes. Processes that do the same work, such as the workers of a server, are
analysed together. Each process has its own three moments, and the numbers of objects
are added.
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

#: the smallest share of the new bytes of a caller that is shown as the only caller
_SAME = 0.9
#: the order in which types are listed
_KINDS = (CLASS, STORAGE, LAYOUT, INTERNAL, NOT_KNOWN)
#: innermost functions that represent the interpreter. The interpreter keeps the objects
#: of imports once, and the objects of the JIT while it compiles
_NOT_THE_PROGRAMS = IMPORT, UNCAUGHT, COMPILER, LOG
#: the number of standard deviations by which a true sum may exceed its estimate
_SURE = 4.0
#: an index after all major collections, for an object that no collection freed
_NEVER = 2**62


class OldObjects:
    """The sampled objects that survived a minor collection, in columns of equal length.

    It implements model.Rows, so that a reader fills it and other samples need no
    memory.
    """

    def __init__(self) -> None:
        """Start with no objects."""
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        """Discard all objects."""
        self.stack = array.array("i")
        self.type = array.array("i")
        self.size = array.array("q")
        self.interval = array.array("q")
        #: the columns `live_size` and `collected` of model.Samples
        self.live_size = array.array("q")
        self.collected = array.array("q")
        #: the time in nanoseconds at which the object was found dead; -1 if it was not
        #: freed
        self.freed = array.array("q")
        self.thread = array.array("q")
        #: the number of objects whose outcome is unknown
        self.lost = 0

    def extend(self, rows: Columns) -> None:
        """Add the objects that became old, and count the objects that were lost."""
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
        """Add an object that was sampled in an earlier segment and is inherited."""
        self.extend(Columns(*((value,) for value in Row(
            time=0, thread=0, memory=0, **object_._asdict()))))


class OfType(NamedTuple):
    """The growth of one type of objects that one place allocated."""

    type: Shown
    #: the growth in each window, and over both windows, in bytes
    windows: tuple[float, float]
    growth: Estimate
    #: the corrected p-value (Site.p)
    p: float

    @property
    def is_clear(self) -> bool:
        """Return whether the type grew more than by chance."""
        return self.p < 1.0 or self.growth.low > 0.0


class Leak(NamedTuple):
    """The growth of one place, which need not be a leak."""

    #: the types. Types that clearly grew come first, ordered by kind, starting with
    #: classes. Types of modules come before Python's own types, and larger growth
    #: before smaller growth
    types: list[OfType]
    #: the place and its callers, innermost first; a caller is included if a share of
    #: `_SAME` of the new bytes came through it
    places: tuple[Place, ...]
    #: the callers with their shares of the new bytes, if `places` includes no caller
    callers: list[tuple[Place, float]]
    #: the innermost place of all code, including libraries, on the stack that allocated
    #: most of the growth
    innermost: Place
    #: the growth in each window, and over both windows, in bytes
    windows: tuple[float, float]
    growth: Estimate
    #: the growth of each process
    processes: list[Estimate]
    #: the smallest p-value of the types, or of all types together; 1.0 if the place was
    #: not found to grow
    p: float
    #: among the sampled objects that appeared in the first window, the share that was
    #: live at the end of the second. None if the place was not found to grow, or if its
    #: objects are storage that larger storage replaces
    stayed: float | None
    #: the bytes of the largest object; one buffer that is in use at the last moment,
    #: and not at the first, looks like growth
    largest: int

    @property
    def is_replaced(self) -> bool:
        """Return whether objects replace each other, and more and more are in use."""
        return self.stayed is not None and self.stayed < STAYS


class Rest(NamedTuple):
    """The growth of all places that neither leak nor slow down."""

    growth: Estimate
    windows: tuple[float, float]
    #: the places, with the largest growth first
    places: list[Leak]

    @property
    def shrank(self) -> bool:
        """Return whether the rest shrank by more than chance."""
        return self.growth.high < 0.0

    @property
    def largest(self) -> list[Leak]:
        """Return the places that clearly grew most, or shrank most if the rest shrank.

        A Bonferroni correction considers that they were selected from many places.
        """
        sign = -1 if self.shrank else 1
        return [leak for leak in self.places[::sign] if _z(leak.growth, sign) > 0.0
                and math.erfc(_z(leak.growth, sign) / math.sqrt(2)) / 2 * len(
                    self.places) <= ALPHA / 2]


class Leaks(NamedTuple):
    """The result of find_leaks().

    The leaks are ordered by their growth, with replaced objects at the end.
    """

    #: the windows of each process
    windows: list[Windows]
    leaks: list[Leak]
    #: the places that grew in the first window, and slow down
    slowing: list[Leak]
    rest: Rest
    #: the number of places that had enough samples for a significant result
    tested: int
    #: the number of samples whose outcome is unknown
    lost: int
    #: the growth of all objects, over both windows and in each window, in bytes
    growth: Estimate
    windows_growth: tuple[float, float]
    #: the bytes of the largest object that appeared
    largest: int
    #: the growth that is not examined: objects of the JIT itself, and objects that
    #: imports keep once
    apart: Estimate
    #: the bytes per second by which a place has to grow to be found
    limit: float
    #: the memory of the processes between the first and the last moment; None if the
    #: memory of one process was not read
    memory: Memory | None
    #: the growth of malloc's own count in the whole run that the sampled blocks do not
    #: explain, in bytes; None if malloc's count is unknown
    unseen: float | None = 0.0
    #: the bytes by which the estimated growth exceeds the exact growth of all live
    #: objects, because new objects replaced objects without samples. It is 0.0 if the
    #: excess is within the error
    replaced: float = 0.0

    @property
    def seconds(self) -> tuple[float, float]:
        """Return the mean length of the first and of the second window, in seconds."""
        first, second = mean_seconds(self.windows)
        return first, second

    @property
    def unsure(self) -> list[int]:
        """Return the number of major collections of each process with uncertain growth.

        The growth of such a process may be garbage (see Windows.shows_leaks).
        """
        return [windows.frees or 0 for windows in self.windows
                if not windows.shows_leaks]

    @property
    def allocated(self) -> int:
        """Return the bytes allocated in both windows; 0 if the number is unknown."""
        return sum(sum(windows.allocated) for windows in self.windows)


class Process(NamedTuple):
    """The profile of one process, and the objects that are examined."""

    profile: Profile
    objects: OldObjects
    #: the profile reduced to user code (user_code.py), so that allocations of libraries
    #: belong to the calling user function; None to use all code
    own: Profile | None = None
    #: the examined time (see find_windows())
    part: tuple[int, int | None] | None = None
    #: a function that returns whether objects of a stack, a type and a thread are
    #: examined; None to examine all
    includes: Callable[[int, int, int], bool] | None = None


def find_leaks(processes: Sequence[Process], *, group_storage: bool = False) -> Leaks:
    """Find the leaks of one process, or of several processes together.

    Args:
        processes: the profiles with their objects.
        group_storage: whether the storage of a list, dict etc. counts as that type.

    Raises:
        ProfileError: A profile has too few heap snapshots or major collections, or does
            not record lifetimes.
    """
    all_windows = [find_windows(process.profile, process.part)
                   for process in processes]
    if processes[0].profile.is_raw:     # the GC's count lacks native memory
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
            # The collection that found the object dead may not be one of the compared
            # moments. Then the object is missing at the next compared moment.
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
            # The probability of a sample depends on the size that was allocated.
            p = probability(size, mean, profile.gaps)
            size = live_size or size
            if is_the_jits(shown) or place.function in _NOT_THE_PROGRAMS:
                apart.add(windows, since, until, (number, stack), size, p)
                continue
            tally = tallies.get((place, shown))
            if tally is None:
                tally = tallies[place, shown] = Tally(count)
            # the first snapshot that contains the object, and the first one without it
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
    """Decides which places leak, which slow down, and which belong to the rest."""

    def __init__(self, processes: Sequence[Process], windows: list[Windows],
                 places: list[Places], snapshots: int, interval: int) -> None:
        self._processes = processes
        self._windows = windows
        self._seconds = mean_seconds(windows)
        #: the lengths of the windows: in seconds, in allocated bytes, and in turns of
        #: the work that the program does between its marks
        self._lengths: list[Sequence[float]] = [self._seconds]
        allocated = [sum(of_one.allocated[number] for of_one in windows)
                     for number in range(2)]
        if all(allocated):
            self._lengths.append(allocated)
        if all(of_one.are_marked for of_one in windows):
            self._lengths.append((1.0, 1.0))
        self._places = places
        self._snapshots = snapshots
        #: the largest sampling interval in bytes that was in force for the examined
        #: objects
        self._interval = interval
        #: the largest uncorrected p-value of a site that is found to grow
        self._limit = ALPHA
        self._leaks: list[Leak] = []
        self._slowing: list[Leak] = []
        self._others: list[Leak] = []

    def judge(self, sites: dict[Place, list[Site]], everything: Tally,
              apart: Tally) -> Leaks:
        """Test all sites, and sort the places into leaks, caches and the rest.

        Args:
            sites: the sites of each place.
            everything: the sum of all sites.
            apart: the objects of the interpreter, which are not examined.
        """
        # Test each type of a place alone, and the types whose objects stay together.
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
            # with a margin of two standard deviations
            (samples + 2 * math.sqrt(samples)) * interval / min(self._seconds),
            memory_of_all([memory_of(process.profile, windows)
                                for process, windows in zip(
                                    self._processes, self._windows)]),
            self._unseen(), self._replaced(growth))

    def _replaced(self, growth: Estimate) -> float:
        """Return the excess of the estimated over the exact growth (Leaks.replaced).

        The result is 0.0 without heap snapshots, or if only some objects are examined.
        """
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
        """Return Leaks.unseen, summed over all processes; None if one is unknown."""
        found = [_unseen(process) for process in self._processes]
        known = [bytes_ for bytes_ in found if bytes_ is not None]
        return sum(known) if len(known) == len(found) else None

    def _put(self, place: Place, sites: list[Site], together: Site | None,
             tests: int) -> list[Site]:
        """Classify a place, and return the sites that belong to the rest.

        Args:
            place: the place.
            sites: the sites of the place.
            together: the combined site of all types whose objects stay; None if there
                are fewer than two such types.
            tests: the number of tests that are made.
        """
        slow = [site for site in sites if site.may_leak and site.stays
                and site.tally.slows_down(self._lengths)]
        leaks = [site for site in (*sites, together)
                 if site is not None and site.p < 1.0 and site not in slow]
        # A place with more objects and fewer bytes does not grow.
        grows = sum(sum(site.tally.bytes) for site in sites if site not in slow) > 0.0
        if leaks and grows:
            # The sites that were not found to grow belong to the leak. They have too
            # few samples, or are slower by chance.
            slow = [site for site in slow if site.p < 1.0
                    and site.tally.slows_down(self._lengths, tests)]
            leak = self._leak(
                place, [site for site in sites if site not in slow], together)
            if leak.growth.low <= 0.0:
                # More objects appeared than disappeared, but perhaps not more bytes.
                for site in leaks:
                    site.p = 1.0
                self._others.append(self._leak(place, sites, None))
                return sites
            self._leaks.append(leak)
            if slow:
                self._slowing.append(self._leak(place, slow, None))
            return []
        if any(site.p < 1.0 or (site.tally.stacks and sign_test(
                site.tally.came[0], site.tally.went[0]) * tests <= ALPHA)
               for site in slow):
            # One type may slow down at a place that still grows.
            whole = Tally(0)
            for site in sites:
                whole.add_tally(site.tally)
            if whole.slows_down(self._lengths):
                slow = sites
            elif self._processes[0].profile.is_raw:
                # The types of native memory are callers of malloc. The JIT replaces one
                # caller by another, so that the first one seems to slow down.
                slow = []
            if slow:
                self._slowing.append(self._leak(place, slow, None))
            sites = [site for site in sites if site not in slow]
            if not sites:
                return []
        self._others.append(self._leak(place, sites, None))
        return sites

    def _leak(self, place: Place, sites: list[Site], together: Site | None) -> Leak:
        """Return a Leak with the growth of some sites of a place.

        Args:
            place: the place.
            sites: the sites of the place that are included.
            together: the combined site (see _put()); None if these sites are no leak.
        """
        tally = Tally(0)
        for site in sites:
            tally.add_tally(site.tally)
        found = [site for site in (*sites, together)
                 if site is not None and site.p < 1.0]
        growth = tally.change.growth(self._interval, named(
            [site.tally.counts for site in sites],
            together.tally.counts if together else None, self._limit)
            if found else None)
        # Sites whose objects stay say more about the leak than sites whose objects are
        # replaced.
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
        """Return the growth of each site, in the order of Leak.types.

        Args:
            sites: the sites.
            luck: the bytes that growth.py subtracted from the growth of the place,
                because a reported place seems to grow faster than it does. They are
                subtracted from the sites that were found to grow, in proportion.
        """
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
        """Return the growth of the places that are neither leaks nor caches.

        Args:
            growth: the whole growth.
            named_ones: the leaks and caches, whose growth is subtracted. So the result
                contains the bytes that growth.py subtracted from the leaks.
            rest: the sum of the sites of the other places.
        """
        value = _whole(growth.value - sum(leak.growth.value for leak in named_ones))
        own = rest.growth(self._interval)
        return Estimate(value, own.low + min(value - own.value, 0.0),
                      own.high + max(value - own.value, 0.0))

    def _innermost(self, tally: Tally) -> Place | None:
        """Return Leak.innermost: the innermost place of the stack with most new bytes.

        Returns None if no objects appeared.
        """
        if not tally.stacks:
            return None
        process, stack = max(tally.stacks, key=lambda key: (
            tally.stacks[key], -key[0], -key[1]))
        return self._places[process].innermost(stack)

    def _callers(self, place: Place, tally: Tally,
                 ) -> tuple[tuple[Place, ...], list[tuple[Place, float]]]:
        """Return the place with its callers (see Leak.places and Leak.callers)."""
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
    """Return the sum of the growth in the first window, and in the second window."""
    first, second = map(sum, zip((0.0, 0.0), *rows))
    return first, second


def _z(growth: Estimate, sign: int) -> float:
    """Return the distance of the growth from 0, in standard deviations.

    Args:
        growth: the growth.
        sign: 1 to count positive growth as positive; -1 to count negative growth as
            positive.
    """
    value = sign * growth.value
    off = value - sign * (growth.low if sign > 0 else growth.high)
    return Z * value / off if off > 0.0 else math.copysign(math.inf, value)


def _difference(windows: Sequence[float],
                parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the growth in each window, minus the growth of `parts` in this window."""
    first, second = (_whole(windows[number] - sum(part[number] for part in parts))
                     for number in range(2))
    return first, second


def _whole(bytes_: float) -> float:
    """Return `bytes_`, or 0.0 for a rounding error of less than one byte."""
    return bytes_ if abs(bytes_) >= 1.0 else 0.0


def _largest_first(leaks: list[Leak]) -> list[Leak]:
    """Sort by growth, with the places whose objects are replaced at the end."""
    return sorted(leaks, key=lambda leak: (leak.is_replaced, -leak.growth.value))
