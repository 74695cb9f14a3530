"""Which moments `report --leaks` compares: three heap snapshots of a process, and the
snapshots in between, which show whether the live bytes go up and down.

A profile with fewer than three snapshots has major collections instead, which tell the
same, but count what died while they were marking as alive.

Native memory is compared after major collections, because finalizers free much of it
then.  Between two collections, the memory of garbage grows as a leak does.  A profile
with fewer than three major collections is compared at times of the clock.  Then it is
unknown whether what grew is a leak.
"""
from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from vmprof_convert.analysis.leaks.statistics import MIN_TREND
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.lifetimes import is_alive_exact
from vmprof_convert.profile.model import Profile

#: the share of a run that is its warm-up, unless it has marks
WARM_UP = 0.25
#: the share if only then three heap snapshots follow
_SHORT_WARM_UP = 0.1
#: Below this share of the live bytes of the snapshot before, the last snapshot lacks
#: the local variables of the program.
_SHRUNK = 0.9
#: so many major collections are looked at to see whether what is held goes up and down
MAX_TREND = 40
#: of what is allocated between other major collections, the share between two with
#: which the second one does not follow at once
AT_ONCE = 0.12
#: how many gaps on either side are looked at
MOST_AT_ONCE = 2
#: of the time until the next major collection, or since the last one, the share in
#: which finalizers free native memory
_FINALIZING = 0.02
#: bytes: so few are none
_NOTHING = 4096
#: moments that are compared
_LEAST = 3


class Windows(NamedTuple):
    """Three heap snapshots or major collections, as indices of `times`."""

    first: int
    middle: int
    last: int
    #: when the snapshots were taken, or the marking of the major collections ended, in
    #: nanoseconds
    times: list[int]
    #: seconds, and bytes that were allocated
    seconds: tuple[float, float]
    allocated: tuple[int, int]
    #: those that show whether what is held goes up and down: from the first to the last
    #: one, or if more have marks, or enough have, these
    trend: Sequence[int]
    #: each is at a mark: then each window is as much work as the other
    are_marked: bool
    #: and one of the three is no second one, which finds what waited for its finalizer
    #: at the first dead
    is_single: bool
    #: the moments are heap snapshots
    are_snapshots: bool = False
    #: of native memory: the number of major collections in the run; None if it is
    #: compared at three marks of the program
    frees: int | None = None
    #: of native memory: for each collection, the time at which its finalizers had run;
    #: empty if `times` has no collections
    freed_by: Sequence[int] = ()
    #: False if finalizers may still free what grew: it was not compared after three
    #: major collections
    shows_leaks: bool = True


class TooFewCollections(ProfileError):
    """`count`: so many, where three are needed."""

    def __init__(self, message: str, count: int) -> None:
        super().__init__(message)
        self.short = ("heap snapshots or major collections: %d, and three are needed"
                      % count)


def find_windows(profile: Profile,
                 part: tuple[int, int | None] | None = None) -> Windows:
    """Those between the last three marks, or the halves of what is between two
    marks or behind one; or of the run, without its beginning; or of that `part` of
    it, from and up to.  Raises ProfileError if there are too few major
    collections."""
    if profile.is_raw:
        return _of_native_memory(profile, part)
    for warm_up in WARM_UP, _SHORT_WARM_UP:
        times = _snapshots(profile, part, warm_up)
        if times:
            return _find(profile, times, part, warm_up)
    times = profile.looks
    if (not profile.marks and part is None and is_alive_exact(profile)
            and times and times[-1] in (one.time for one in profile.snapshots)):
        times = _without_end(profile, times, len(times))
    try:
        return _find(profile, _last_of_each(times, _allocated_at(profile, times)), part)
    except TooFewCollections as few:
        # where there are so few, it is not told which follow each other at once
        found = _find(profile, times, part)
        if min(found.seconds) < AT_ONCE * max(found.seconds):
            raise few from None
        return found


def _of_native_memory(profile: Profile,
                      part: tuple[int, int | None] | None) -> Windows:
    start, stop = part or (0, None)
    stop = profile.end + 1 if stop is None else stop
    if sum(start <= mark.time < stop for mark in profile.marks) >= _LEAST:
        # The program has chosen the moments, and may collect there.
        return _find(profile, profile.looks, part)
    times, freed_by = _after_finalizers(profile)
    try:
        return _find(profile, times, part)._replace(
            frees=len(times), freed_by=freed_by)
    except ProfileError:
        return _find(profile, profile.looks, part)._replace(
            frees=len(times), shows_leaks=False)


def _after_finalizers(profile: Profile) -> tuple[list[int], list[int]]:
    """Return the ends of the marking of major collections, and for each of them the
    time at which its finalizers had run.  Collections that follow each other at once
    count as one."""
    if not profile.frees:
        return [], []
    swept = dict(profile.frees)
    times = _last_of_each([*swept], [*swept])
    following = [*times[1:], profile.end]
    return times, [swept[time] + int(_FINALIZING * max(after - swept[time], 0))
                   for time, after in zip(times, following)]


def _snapshots(profile: Profile, part: tuple[int, int | None] | None,
               warm_up: float) -> list[int]:
    """Return the times of the heap snapshots, or an empty list if they are too few.

    A program with marks may collect there, and its marks have no snapshots.
    """
    start, stop = part or (int(profile.end * warm_up), None)
    times = [one.time for one in profile.snapshots]
    count = sum(start <= time < (profile.end + 1 if stop is None else stop)
                for time in times)
    if count < _LEAST or profile.marks:
        return []
    if part is None:
        times = _without_end(profile, times, count)
    return times if len(times) >= _LEAST else []


def _without_end(profile: Profile, times: list[int], count: int) -> list[int]:
    """Return the times without the last heap snapshot, if it can be left out.

    It is taken after the end of the program, and lacks the objects of local variables,
    which the others contain.

    Args:
        profile: the profile.
        times: of heap snapshots or major collections.  The last one is a snapshot.
        count: the number of times after the warm-up.
    """
    sizes = [one.bytes for one in profile.snapshots[-2:]]
    has_shrunk = len(sizes) == 2 and sizes[1] < _SHRUNK * sizes[0]
    return times[:-1] if count > _LEAST or has_shrunk else times


def _find(profile: Profile, times: list[int], part: tuple[int, int | None] | None,
          warm_up: float = WARM_UP) -> Windows:
    start, stop = part or (0, None)
    stop = profile.end + 1 if stop is None else stop
    begin, end = (bisect.bisect_left(times, time) for time in (start, stop))
    if not profile.has_lifetimes:
        raise ProfileError(
            "nothing in this profile says what became of the objects, which "
            "--leaks needs: it was taken without lifetimes")
    if end - begin < _LEAST:
        raise TooFewCollections(
            "--leaks compares three heap snapshots or major collections, and there "
            "were %d in %s: %s" % (
                end - begin, "this run" if part is None else "that time",
                "let the program run longer" if len(profile.snapshots) > 1 else
                "start the program with --leaks, which takes snapshots, or let it run "
                "longer"), end - begin)
    marks = [mark.time for mark in profile.marks if start <= mark.time < stop]
    if marks:
        first_mark, *rest = marks[-3:]
        last_mark = rest[-1] if rest else min(profile.end, stop)
        middle = rest[0] if len(rest) == 2 else (first_mark + last_mark) // 2
        # the program may collect before it sets a mark, or behind it: next to nothing
        # is allocated in between, but one of the GC's own may be nearer in time
        allocated = _allocated_at(profile, times)

        def at_mark(there: int) -> int:
            # of those that are as near, the last
            return min(range(begin, end), key=lambda number: (
                abs(allocated[number] - there) // _NOTHING, -number))

        at = {time: at_mark(there)
              for time, there in zip(marks, _allocated(profile, marks))}
        marked = sorted(set(at.values()))
        first = at[first_mark]
        center = at[middle] if len(rest) == 2 else nearest(times, middle, begin, end)
        last = at[last_mark] if rest else end - 1
        if not first < center < last:
            raise ProfileError(
                "--leaks needs a major collection at each mark, and something that is "
                "allocated between them: call gc.collect() there")
    else:
        marked = []
        # who names a part knows what warming up is
        first = begin if part else bisect.bisect_left(times, profile.end * warm_up)
        last = end - 1
        if last - first < 2:
            count = max(last - first + 1, 0)
            raise TooFewCollections(
                "--leaks compares three heap snapshots or major collections after the "
                "first quarter of the run, which is its warm-up, and there were %d: %s"
                % (count, _remedy(profile)), count)
        half = (times[first] + times[last]) / 2
        center = min(range(first + 1, last),
                     key=lambda number: abs(times[number] - half))
    a, b, c = times[first], times[center], times[last]
    if not a < b < c:
        raise ProfileError(
            "--leaks needs heap snapshots or major collections at different times")
    first_bytes, center_bytes, last_bytes = _allocated(profile, (a, b, c))
    trend: Sequence[int] = range(first, last + 1)
    if len(marked) >= MIN_TREND or len(marked) > len(trend):
        trend = marked
    return Windows(first, center, last, times, ((b - a) / 1e9, (c - b) / 1e9),
                   (center_bytes - first_bytes, last_bytes - center_bytes), trend,
                   len(marks) > 2, len(marks) > 2 and any(
                       _follows_none(profile.looks, times, number)
                       for number in (first, center, last)),
                   are_snapshots={a, b, c} <= {one.time for one in profile.snapshots})


def _remedy(profile: Profile) -> str:
    if len(profile.snapshots) < 2:
        return ("start the program with --leaks, which takes snapshots, let it run "
                "longer, or name the moments with vmprof_allocation.mark()")
    return ("let the program run longer, or include the warm-up with --time ..%.2f"
            % (profile.snapshots[-1].time / 1e9 - 0.01))


def _follows_none(all_times: list[int], times: list[int], number: int) -> bool:
    """Whether no other collection is at once before times[number]."""
    before = times[number - 1] if number else -1
    return (bisect.bisect_right(all_times, times[number])
            - bisect.bisect_right(all_times, before)) < 2


def _last_of_each(times: list[int], allocated: list[int]) -> list[int]:
    """Of major collections that follow each other at once, the last.  gc.collect()
    first ends one that is at work, which finds alive what has died since it was marked,
    and then makes another; and who calls it twice means the second one, which finds
    dead what the first one had to finalize.

    At once is when hardly anything was allocated in between, beside what was between
    the others around: not by the clock, as a collection may take as long as what it
    comes behind.
    """
    gaps = [after - before for before, after in zip(allocated, allocated[1:])]
    return [time for number, (time, gap) in enumerate(zip(times, gaps))
            if gap >= AT_ONCE * max(gaps[max(number - MOST_AT_ONCE, 0):
                                         number + MOST_AT_ONCE + 1])] + times[-1:]


def _allocated_at(profile: Profile, times: list[int]) -> list[int]:
    """Bytes up to each of these major collections, which begin with a minor one."""
    counted = [c for c in profile.collections if not c.is_major]
    at = [c.time for c in counted]
    numbers = [bisect.bisect_right(at, time) for time in times]
    return [counted[number - 1].number if number else about
            for number, about in zip(numbers, _allocated(profile, times))]


def _allocated(profile: Profile, times: Sequence[int]) -> list[int]:
    """Bytes up to each of these times, about."""
    counted = sorted([(0, 0), *((c.time, c.number) for c in profile.collections
                                if not c.is_major),
                      *((moment.time, moment.allocated) for moment in profile.moments)])
    at = [when for when, _ in counted]
    found = []
    for time in times:
        number = bisect.bisect_right(at, time)
        begin, bytes_ = counted[number - 1]
        if number < len(counted) and time > begin:
            end, more = counted[number]
            bytes_ += int((time - begin) / (end - begin) * (more - bytes_))
        found.append(bytes_)
    return found


def mean_seconds(windows: Sequence[Windows]) -> list[float]:
    """Of the first windows, and of the second ones, on average."""
    return [sum(of_one.seconds[number] for of_one in windows) / len(windows)
            for number in range(2)]


def nearest(times: list[int], time: int, begin: int = 0,
            end: int | None = None) -> int:
    """The index of what is nearest to `time`, from `begin` on and before `end`."""
    end = len(times) if end is None else end
    at = bisect.bisect_left(times, time, begin, end)
    if at == end or (at > begin and time - times[at - 1] < times[at] - time):
        at -= 1
    return at


def count_snapshots(all_windows: Sequence[Windows]) -> int:
    """Major collections that show whether a site goes up and down, of the process that
    has most of them."""
    return min(MAX_TREND, max(len(windows.trend) for windows in all_windows))


def snapshots(windows: Windows, count: int) -> list[int]:
    """So many of those of the trend, evenly chosen; where there are fewer, some more
    than once."""
    span = len(windows.trend) - 1
    return [windows.trend[span * i // (count - 1)] for i in range(count)]
