"""What grows and goes on growing: leaks, told from caches that fill and from
garbage.

A *site* is where objects of one type are allocated.  L(k) are the bytes of a site's
old objects that the k-th major collection found alive, of those that were old
before its marking ended.  So short-lived garbage is not in it, and of garbage that
lives longer as much is in L(j) as in L(k): what is left is what is held.  Two
windows are compared, from major collection a to b, and from b to c.  In a window
the sampled objects that came (they are in L at its end, and not at its start) have
weights that add up to the growth, and those that went count against it: the sum is
unbiased (estimator.py).

Whether a site grows in a window: if it holds as much as before on average, then each
sampled object that came or went is as likely to be one that came, whatever its
weight.  So of n such objects the number of those that came is binomial, with
probability 1/2 (the sign test; exact, and given n, independent of how many objects
the site has).  A site leaks if it grows in both windows, so that the larger one of
the two p-values is that of no leak (Berger, "Multiparameter hypothesis testing and
acceptance sampling", Technometrics 1982: an intersection-union test needs no
correction).  As many sites are looked at, theirs are corrected by Holm ("A simple
sequentially rejective multiple test procedure", Scandinavian Journal of Statistics
1979), after those are left out that could not become significant, as too few of
their objects came or went (Tarone, "A modified Bonferroni method for discrete
data", Biometrics 1990).  So in 95 of 100 runs without a leak none is reported, if
objects come and go one by one.

Objects that come and go together, as the items of a queue do, make a site go up and
down by more than single ones would: if three moments were independent, it would
grow twice in one of six runs.  Against this, what the collections between a and c
found has to rise as well: Kendall's tau, one-sided, exact (Kendall, "A new measure
of rank correlation", Biometrika 1938; Mann 1945), at 5 % for each site, as far as
there are enough collections for it, five.  With fewer, at least half of the sampled
objects that came in the first window have to be there at the end of the second.  With
more, a site that keeps fewer is one whose objects are replaced, by more and more: a
queue that grows, or what happened to be in use when the heap was marked.  That is
said, and those that stay are named before it.

A cache that fills grows less and less: what grows in the second window by less than
half of what it did in the first, in the same time, and not by chance, is said to
slow down.  A cache
that is larger than the run can't be told from a leak.

Processes that do the same work, as those of a server do, are looked at together: each
has its three moments, and what came and went in all of them is added up.

Of the growth, the interval is that of a sum of independent arrivals and departures
(a compound Poisson process has the sum of the squared weights as its variance; the
sampling is in it, as a Poisson process that is thinned is one).
"""
from __future__ import annotations

import array
import bisect
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vmprof_convert.errors import ProfileError
from vmprof_convert.estimator import Z, weight_live_bytes
from vmprof_convert.model import (
    ALIVE,
    FREED,
    LOST,
    Carried,
    Columns,
    Function,
    Profile,
    Row,
)
from vmprof_convert.program import IMPORT, UNCAUGHT, Program
from vmprof_convert.stack_tree import Frame
from vmprof_convert.type_names import (
    CLASS,
    INTERNAL,
    LAYOUT,
    NOT_KNOWN,
    STORAGE,
    Shown,
    TypeNames,
)
from vmprof_convert.units import format_number

#: no leak is reported in so many of the runs that have none
CONFIDENCE = 0.95
#: so much of a run is warming up, unless it has marks
WARM_UP = 0.25
#: so many collections are needed to see whether a site goes up and down; of more,
#: so many are looked at
MIN_TREND, MAX_TREND = 5, 40
#: what grows in the second window by less than this share slows down
GOES_ON = 0.5
#: what keeps this share of what came is no queue
STAYS = 0.5
#: frames of a stack that are shown
MAX_FRAMES = 3
#: in this order types are named
_KINDS = (CLASS, STORAGE, LAYOUT, INTERNAL, NOT_KNOWN)
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

    def add_object(self, key: int, type_: int, survived: int) -> None:
        pass


class Place(NamedTuple):
    """A function, and the executed line, or where that is not known its own."""

    function: Function
    line: int


class Windows(NamedTuple):
    """Three major collections, as indices of `times`."""

    first: int
    middle: int
    last: int
    #: when the marking of each ended, in nanoseconds
    times: list[int]
    #: seconds, and bytes that were allocated
    seconds: tuple[float, float]
    allocated: tuple[int, int]


class Growth(NamedTuple):
    """Of bytes, in a time."""

    value: float
    low: float
    high: float


class Site(NamedTuple):
    type: Shown
    #: the innermost frames of the program, innermost first, of the stack that
    #: most of it came from
    places: tuple[Place, ...]
    #: the innermost one of all code, of that stack
    innermost: Place
    #: in each window, in bytes; and in both
    windows: tuple[float, float]
    growth: Growth
    #: probability that a site that doesn't leak looks like this, as corrected
    p: float
    #: sampled objects that came in the first window, and those of them that were there
    #: at the end of the second
    came: int
    stayed: int


class Leak(NamedTuple):
    """The sites of one place: an object seldom comes alone."""

    #: classes first, those of the program before Python's own
    sites: list[Site]
    windows: tuple[float, float]
    growth: Growth

    @property
    def places(self) -> tuple[Place, ...]:
        """Those of the site that grew most."""
        return self.largest.places

    @property
    def stayed(self) -> float:
        """Of what came in the first window, so much was there at the end of the second;
        of sampled objects."""
        return (sum(site.stayed for site in self.sites)
                / max(1, sum(site.came for site in self.sites)))

    @property
    def largest(self) -> Site:
        """That grew most."""
        return max(self.sites, key=lambda site: site.growth.value)


class Leaks(NamedTuple):
    """What was found, by the bytes that it grew by; what stays comes first."""

    #: of each process
    windows: list[Windows]
    leaks: list[Leak]
    #: that grew in the first window, and slow down
    slowing: list[Leak]
    #: how many sites were looked at
    tested: int
    #: samples that nobody followed to the end
    lost: int
    #: of all sites together, in both windows and in each
    growth: Growth
    windows_growth: tuple[float, float]
    #: bytes a second that one site has to grow by to be seen
    limit: float

    @property
    def seconds(self) -> tuple[float, float]:
        """Of the windows; of several processes on average."""
        first, second = _seconds(self.windows)
        return first, second

    @property
    def allocated(self) -> int:
        """Bytes, in both windows."""
        return sum(sum(windows.allocated) for windows in self.windows)


class Process(NamedTuple):
    """What is looked at of one."""

    profile: Profile
    objects: OldObjects
    #: with the program's own code only (own.py): then a site is where that allocates,
    #: itself or in what it calls
    own: Profile | None = None
    #: see find_windows()
    part: tuple[int, int | None] | None = None
    #: whether objects of this stack, type and thread are looked at
    includes: Callable[[int, int, int], bool] | None = None


class _Tally:
    """Of one site."""

    def __init__(self, snapshots: int) -> None:
        #: in each window, and in both: sampled objects that came and that went
        self.came = [0, 0, 0]
        self.went = [0, 0, 0]
        self.bytes = [0.0, 0.0, 0.0]
        self.variance = [0.0, 0.0, 0.0]
        #: see Site
        self.stayed = 0
        #: what the bytes that are held changed by, at each snapshot
        self.changes = [0.0] * snapshots
        #: of each process
        self.stacks: dict[tuple[int, int], float] = {}

    def come(self, window: int, weight: float) -> None:
        self.came[window] += 1
        self.bytes[window] += weight
        self.variance[window] += weight * weight

    def go(self, window: int, weight: float) -> None:
        self.went[window] += 1
        self.bytes[window] -= weight
        self.variance[window] += weight * weight


class TooFewCollections(ProfileError):
    """`count`: so many, where three are needed."""

    def __init__(self, message: str, count: int) -> None:
        super().__init__(message)
        self.short = "%s, and three are needed" % format_number(
            count, "major collection")


def find_windows(profile: Profile,
                 part: tuple[int, int | None] | None = None) -> Windows:
    """Those between the last three marks, or the halves of what is between two
    marks or behind one; or of the run, without its beginning; or of that `part` of
    it, from and up to.  Raises ProfileError if there are too few major
    collections."""
    start, stop = part or (0, None)
    stop = profile.end + 1 if stop is None else stop
    times = [c.time for c in profile.collections
             if c.is_major and (part is None or start <= c.time < stop)]
    if not profile.has_lifetimes:
        raise ProfileError(
            "nothing in this profile says what became of the objects, which "
            "--leaks needs: it was taken without lifetimes")
    if len(times) < 3:
        raise TooFewCollections(
            "--leaks compares what three major collections found alive, and there "
            "were %d in %s: let it run longer, or have it call gc.collect()"
            % (len(times), "this run" if part is None else "that time"), len(times))
    marks = [mark.time for mark in profile.marks
             if part is None or start <= mark.time < stop]
    if marks:
        begin, *rest = marks[-3:]
        end = rest[-1] if rest else min(profile.end, stop)
        middle = rest[0] if len(rest) == 2 else (begin + end) // 2
        # the program may collect before it sets a mark, or behind it
        first, center, last = (_nearest(times, time)
                               for time in (begin, middle, end))
        if not rest:
            last = len(times) - 1
        if not first < center < last:
            raise ProfileError(
                "--leaks needs a major collection at each mark: call gc.collect() "
                "there")
    else:
        last = len(times) - 1
        # who names a part knows what warming up is
        first = 0 if part else bisect.bisect_left(times, profile.end * WARM_UP)
        if last - first < 2:
            raise TooFewCollections(
                "--leaks compares what three major collections found alive after "
                "the first quarter of the run, which is warming up, and there were "
                "%d: let it run longer, have it call gc.collect(), or name the "
                "moments with vmprof_allocation.mark()" % (last - first + 1),
                last - first + 1)
        half = (times[first] + times[last]) / 2
        center = min(range(first + 1, last),
                     key=lambda number: abs(times[number] - half))
    a, b, c = times[first], times[center], times[last]
    if not a < b < c:
        raise ProfileError("--leaks needs major collections at different times")
    allocated = [_allocated(profile, time) for time in (a, b, c)]
    return Windows(first, center, last, times, ((b - a) / 1e9, (c - b) / 1e9),
                   (allocated[1] - allocated[0], allocated[2] - allocated[1]))


def _allocated(profile: Profile, time: int) -> int:
    """Bytes up to `time`, about."""
    times = [moment.time for moment in profile.moments]
    at = bisect.bisect_right(times, time)
    if at == len(times):
        return profile.moments[-1].allocated if times else 0
    before = profile.moments[at - 1] if at else None
    after = profile.moments[at]
    start, bytes_ = (before.time, before.allocated) if before else (0, 0)
    share = (time - start) / (after.time - start) if after.time > start else 1.0
    return bytes_ + int(share * (after.allocated - bytes_))


def find(processes: Sequence[Process], *, group_storage: bool = False) -> Leaks:
    """Of one process, or of several together.  Raises ProfileError if a profile can't
    tell."""
    everything = _Tally(0)
    all_windows = [find_windows(process.profile, process.part)
                   for process in processes]
    snapshots = count_snapshots(all_windows)
    sites, tallies = [], _Tallies(snapshots)
    for number, (process, windows) in enumerate(zip(processes, all_windows)):
        profile, objects = process.profile, process.objects
        names = TypeNames(profile, group_storage=group_storage)
        sites.append(_Sites(profile, process.own or profile))
        chosen = _snapshots(windows, snapshots)
        for stack, type_, size, live_size, interval, collected, freed, thread in zip(
                objects.stack, objects.type, objects.size, objects.live_size,
                objects.interval, objects.collected, objects.freed, objects.thread):
            since = bisect.bisect_right(windows.times, collected)
            until = _NEVER if freed < 0 else _nearest(windows.times, freed)
            if since > windows.last or until <= max(windows.first, since):
                continue
            if process.includes is not None and not process.includes(
                    stack, type_, thread):
                continue
            shown = names.shown(type_)
            if shown.kind == INTERNAL:
                continue        # the JIT warms up as long as a program runs
            place = sites[-1].places(stack)[0]
            if place.function in (IMPORT, UNCAUGHT):
                continue        # what importing keeps is kept once
            tally = tallies[place, shown]
            weight = weight_live_bytes(size, live_size, interval, profile.gaps)
            _count(tally, windows, since, until, (number, stack), weight)
            _count(everything, windows, since, until, (number, stack), weight)
            # held at the snapshots from the first one on until the second
            begin = bisect.bisect_left(chosen, since)
            end = bisect.bisect_left(chosen, until)
            if begin < end:
                tally.changes[begin] += weight
                if end < len(chosen):
                    tally.changes[end] -= weight
    return _judge(processes, all_windows, sites, tallies, everything)


class _Tallies(dict[tuple[Place, Shown], _Tally]):
    def __init__(self, snapshots: int) -> None:
        super().__init__()
        self._snapshots = snapshots

    def __missing__(self, key: tuple[Place, Shown]) -> _Tally:
        tally = self[key] = _Tally(self._snapshots)
        return tally


def _seconds(windows: Sequence[Windows]) -> list[float]:
    """Of the first windows, and of the second ones, on average."""
    return [sum(of_one.seconds[number] for of_one in windows) / len(windows)
            for number in range(2)]


def _nearest(times: list[int], time: int) -> int:
    at = bisect.bisect_left(times, time)
    if at == len(times) or (at and time - times[at - 1] < times[at] - time):
        at -= 1
    return at


def _count(tally: _Tally, windows: Windows, since: int, until: int,
           stack: tuple[int, int], weight: float) -> None:
    first, middle, last, *_ = windows
    if first < since <= middle and until > last:
        tally.stayed += 1
    for number, (start, end) in enumerate((
            (first, middle), (middle, last), (first, last))):
        if start < since <= end < until:
            tally.come(number, weight)
        elif since <= start < until <= end:
            tally.go(number, weight)
    if first < since <= last < until:
        tally.stacks[stack] = tally.stacks.get(stack, 0.0) + weight


def count_snapshots(all_windows: Sequence[Windows]) -> int:
    """Major collections that show whether a site goes up and down, of the process that
    has most of them."""
    return min(MAX_TREND, max(
        windows.last - windows.first + 1 for windows in all_windows))


def _snapshots(windows: Windows, count: int) -> list[int]:
    """Major collections from the first to the last one, evenly chosen; where there are
    not so many, some more than once."""
    span = windows.last - windows.first
    return [windows.first + span * i // (count - 1) for i in range(count)]


class _Sites:
    def __init__(self, profile: Profile, own: Profile) -> None:
        self._program = Program(own)
        self._all = Program(profile)
        self._known: dict[int, tuple[Place, ...]] = {}

    def places(self, stack: int) -> tuple[Place, ...]:
        """Innermost first; at least one."""
        found = self._known.get(stack)
        if found is None:
            frames = self._program.stack(stack)[-MAX_FRAMES:]
            found = self._known[stack] = tuple(
                _place(self._program, frame) for frame in reversed(frames))
        return found

    def innermost(self, stack: int) -> Place:
        """Of all code."""
        return _place(self._all, self._all.stack(stack)[-1])


def _place(program: Program, frame: Frame) -> Place:
    function = program.function(frame)
    return Place(function, frame.line or function.line)


def _judge(processes: Sequence[Process], windows: list[Windows], sites: list[_Sites],
           tallies: _Tallies, everything: _Tally) -> Leaks:
    seconds = _seconds(windows)
    alpha = 1.0 - CONFIDENCE
    of_site = []
    for (_, shown), tally in tallies.items():
        ps = [_sign_test(tally.came[i], tally.went[i]) for i in range(2)]
        least = max(0.5 ** (tally.came[i] + tally.went[i]) for i in range(2))
        of_site.append((max(ps), least, shown, tally))
    of_site.sort(key=lambda entry: entry[0])
    # Tarone: the smallest number of tests, of which no more can get below their
    # share of alpha
    leasts = sorted(least for _, least, _, _ in of_site)
    tested = 1
    while bisect.bisect_right(leasts, alpha / tested) > tested:
        tested += 1
    leaks: list[Site] = []
    slowing: list[Site] = []
    largest, rank = 0.0, 0
    for p, least, shown, tally in of_site:
        if least <= alpha / tested:
            # Holm
            largest = max(largest, min(p * (tested - rank), 1.0))
            rank += 1
            if largest <= alpha and _goes_up(tally):
                site = _site(sites, shown, tally, largest)
                (slowing if _slows_down(tally, seconds) else leaks).append(site)
                continue
        first = _sign_test(tally.came[0], tally.went[0])
        if tally.stacks and first * len(of_site) <= alpha and _slows_down(
                tally, seconds):
            slowing.append(_site(sites, shown, tally, 1.0))
    # so many have to come in each window, and none go; by two deviations more
    needed = math.ceil(math.log2(tested / alpha))
    samples = needed + 2 * math.sqrt(needed)
    interval = max(1, *(process.profile.interval for process in processes))
    return Leaks(windows, _by_place(leaks), _by_place(slowing), bisect.bisect_right(
        leasts, alpha / tested), sum(process.objects.lost for process in processes),
                 _growth(everything), (everything.bytes[0], everything.bytes[1]),
                 samples * interval / min(seconds))


def _site(sites: list[_Sites], shown: Shown, tally: _Tally, p: float) -> Site:
    process, stack = max(tally.stacks, key=lambda key: (
        tally.stacks[key], -key[0], -key[1]))
    return Site(shown, sites[process].places(stack), sites[process].innermost(stack),
                (tally.bytes[0], tally.bytes[1]), _growth(tally), p,
                tally.came[0], tally.stayed)


def _growth(tally: _Tally) -> Growth:
    deviation = Z * math.sqrt(tally.variance[2])
    value = tally.bytes[2]
    return Growth(value, value - deviation, value + deviation)


def _by_place(sites: list[Site]) -> list[Leak]:
    of_place: dict[Place, list[Site]] = {}
    for site in sites:
        of_place.setdefault(site.places[0], []).append(site)
    leaks = []
    for together in of_place.values():
        together.sort(key=lambda site: (
            _KINDS.index(site.type.kind), "." not in site.type.name,
            -site.growth.value, site.type.name))
        first, second = (sum(site.windows[i] for site in together)
                         for i in range(2))
        value = sum(site.growth.value for site in together)
        deviation = math.sqrt(sum((site.growth.high - site.growth.value) ** 2
                                  for site in together))
        leaks.append(Leak(together, (first, second), Growth(
            value, value - deviation, value + deviation)))
    return sorted(leaks, key=lambda leak: (
        leak.stayed < STAYS, -leak.growth.value))


def _slows_down(tally: _Tally, seconds: Sequence[float]) -> bool:
    """Whether it grows by less than that share in the second window, which is not
    by chance.  What shrinks is no cache that fills."""
    first, second = (tally.bytes[i] / seconds[i] for i in range(2))
    deviation = math.sqrt(sum(tally.variance[i] / seconds[i] ** 2 for i in range(2)))
    return 0.0 <= second < min(GOES_ON * first, first - Z * deviation)


def _sign_test(came: int, went: int) -> float:
    """The probability that of so many coins as many or more show heads."""
    n = came + went
    if n > 1000:
        # with the correction for continuity
        z = (came - 0.5 - n / 2) / math.sqrt(n / 4)
        return 0.5 * math.erfc(z / math.sqrt(2))
    ways: int = sum(math.comb(n, k) for k in range(came, n + 1))
    return ways / (1 << n)


def _goes_up(tally: _Tally) -> bool:
    """Not up and down: what comes and goes together is not one by one."""
    if len(tally.changes) < MIN_TREND:
        return tally.stayed >= STAYS * tally.came[0]
    return _rises(tally.changes)


def _rises(changes: list[float]) -> bool:
    """Whether the sums of these rise more than by chance."""
    levels = []
    level = 0.0
    for change in changes:
        level += change
        levels.append(level)
    n = len(levels)
    # pairs that rise; equal ones count half
    rising = sum((levels[j] > levels[i]) + 0.5 * (levels[j] == levels[i])
                 for i in range(n) for j in range(i + 1, n))
    # number of permutations with so many pairs in order (Mahonian numbers)
    counts = [1.0]
    for size in range(1, n + 1):
        longer = [0.0] * (len(counts) + size - 1)
        for i, count in enumerate(counts):
            for j in range(size):
                longer[i + j] += count / size
        counts = longer
    return sum(counts[int(rising):]) <= 1.0 - CONFIDENCE
