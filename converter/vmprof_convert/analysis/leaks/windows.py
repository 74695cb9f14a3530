"""Choose the moments that `vmprof-convert leaks` compares.

Three heap snapshots of a process divide its run into two windows of similar length. All
snapshots between the first and the last one show whether the live bytes go up and down.

A profile with fewer than three snapshots is compared at major collections instead.
Objects that died while a collection marked count as alive at this collection.

Native memory is compared after major collections, because finalizers free much of it
then. Between two collections, the memory of garbage grows as a leak does. A profile
with fewer than three major collections is compared at times of the clock. Then it is
unknown whether the growth is a leak.
"""
from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

from vmprof_convert.analysis.leaks.statistics import MIN_TREND
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.lifetimes import is_alive_exact
from vmprof_convert.profile.model import Profile

#: the share of a run that counts as warm-up if the run has no marks
WARM_UP = 0.25
#: the share of the warm-up if fewer than three heap snapshots follow the longer warm-up
_SHORT_WARM_UP = 0.1
#: The last snapshot lacks the program's local variables if its live bytes are less than
#: this share of the previous snapshot's live bytes.
_SHRUNK = 0.9
#: the largest number of heap snapshots or major collections in the trend of the live
#: bytes
MAX_TREND = 40
#: Two major collections are separate if the bytes allocated between them are at least
#: this share of the bytes allocated between their neighbours.
AT_ONCE = 0.12
#: the number of gaps before, and after, with which a gap is compared
MOST_AT_ONCE = 2
#: the share of the time until the next major collection, or until the end of the
#: profile, in which finalizers free native memory
_FINALIZING = 0.02
#: the number of allocated bytes that counts as nothing if a mark's distances from two
#: collections are compared
_NOTHING = 4096
#: the number of compared moments
_LEAST = 3


class Windows(NamedTuple):
    """The two windows between three heap snapshots or major collections.

    `first`, `middle` and `last` are indices into `times`.
    """

    first: int
    middle: int
    last: int
    #: the times in nanoseconds at which the snapshots were taken, or the marking of the
    #: major collections ended
    times: list[int]
    #: the length of each window in seconds, and the bytes that were allocated in it
    seconds: tuple[float, float]
    allocated: tuple[int, int]
    #: the indices of the moments that show whether the live bytes go up and down. They
    #: are all moments from `first` to `last`, or the moments at marks if these are more
    #: or at least MIN_TREND
    trend: Sequence[int]
    #: whether each of the three moments is at a mark, so that the windows contain equal
    #: work
    are_marked: bool
    #: whether the moments are at marks, and one of the three collections does not
    #: directly follow another collection. Then objects that wait for their finalizers
    #: count as alive at this collection
    is_single: bool
    #: whether the three moments are heap snapshots
    are_snapshots: bool = False
    #: for native memory, the number of major collections in the run; None if the memory
    #: is compared at three marks of the program
    frees: int | None = None
    #: for native memory, the time at which the finalizers of each collection had run;
    #: empty if `times` has no collections
    freed_by: Sequence[int] = ()
    #: whether the growth shows leaks; False if finalizers may still free what grew,
    #: because the moments are not three major collections
    shows_leaks: bool = True


class TooFewCollections(ProfileError):
    """The error that a profile has fewer than three usable moments."""

    def __init__(self, message: str, count: int) -> None:
        """Store the message and its short form, which contains the number of moments.

        Args:
            message: the reason and the remedy.
            count: the number of heap snapshots or major collections that were found.
        """
        super().__init__(message)
        self.short = ("heap snapshots or major collections: %d, and three are needed"
                      % count)


def find_windows(profile: Profile,
                 part: tuple[int, int | None] | None = None) -> Windows:
    """Return the two windows in which a profile is compared.

    The last three marks bound the windows. With two marks, the windows are the halves
    of the time between them. With one mark, they are the halves of the time after it.
    Without marks, they are the halves of `part`, or of the run after its warm-up.

    Args:
        profile: the profile of one process.
        part: the start of the examined time and its end, in nanoseconds; the end is
            None for the end of the run.

    Raises:
        ProfileError: The profile has too few heap snapshots or major collections, or
            does not record lifetimes.
    """
    if profile.is_raw:
        return _of_native_memory(profile, part)
    for warm_up in WARM_UP, _SHORT_WARM_UP:
        times = _snapshots(profile, part, warm_up)
        if times:
            return _find(profile, times, part, warm_up)
    times = profile.looks
    if (not profile.marks and part is None and is_alive_exact(profile)
            and times and times[-1] in (one.time for one in profile.snapshots)):
        times = _without_end(profile, times, WARM_UP)
    try:
        return _find(profile, _last_of_each(times, _allocated_at(profile, times)), part)
    except TooFewCollections as few:
        # With fewer than three separate collections, it is unknown which collections
        # directly follow each other.
        found = _find(profile, times, part)
        if min(found.seconds) < AT_ONCE * max(found.seconds):
            raise few from None
        return found


def _of_native_memory(profile: Profile,
                      part: tuple[int, int | None] | None) -> Windows:
    start, stop = part or (0, None)
    stop = profile.end + 1 if stop is None else stop
    if sum(start <= mark.time < stop for mark in profile.marks) >= _LEAST:
        # The program has chosen the moments, and can collect there.
        return _find(profile, profile.looks, part)
    times, freed_by = _after_finalizers(profile)
    try:
        return _find(profile, times, part)._replace(
            frees=len(times), freed_by=freed_by)
    except ProfileError:
        return _find(profile, profile.looks, part)._replace(
            frees=len(times), shows_leaks=False)


def _after_finalizers(profile: Profile) -> tuple[list[int], list[int]]:
    """Return the times of major collections, and when their finalizers had run.

    Collections that directly follow each other count as one. A collection's time is the
    end of its marking.
    """
    if not profile.frees:
        return [], []
    swept = dict(profile.frees)
    times = _last_of_each([*swept], [*swept])
    following = [*times[1:], profile.end]
    return times, [swept[time] + int(_FINALIZING * max(after - swept[time], 0))
                   for time, after in zip(times, following)]


def _snapshots(profile: Profile, part: tuple[int, int | None] | None,
               warm_up: float) -> list[int]:
    """Return the times of the heap snapshots, or an empty list for fewer than three.

    The list is also empty if the program has marks. The program may call the GC at a
    mark, and no snapshot is taken there.
    """
    start, stop = part or (int(profile.end * warm_up), None)
    times = [one.time for one in profile.snapshots]
    count = sum(start <= time < (profile.end + 1 if stop is None else stop)
                for time in times)
    if count < _LEAST or profile.marks:
        return []
    if part is None:
        times = _without_end(profile, times, warm_up)
    return times if len(times) >= _LEAST else []


def _without_end(profile: Profile, times: list[int], warm_up: float) -> list[int]:
    """Return the times without the last heap snapshot, if it can be omitted.

    The last snapshot is taken after the end of the program. It lacks the objects of
    local variables, which the other snapshots contain.

    Args:
        profile: the profile.
        times: the times of heap snapshots or major collections. The last one is a
            snapshot.
        warm_up: the share of the run whose moments are not compared.
    """
    count = len(times) - bisect.bisect_left(times, profile.end * warm_up)
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
            "this profile has no outcomes of objects, which the command leaks needs: "
            "it was taken without lifetimes")
    if end - begin < _LEAST:
        raise TooFewCollections(
            "the command leaks compares three heap snapshots or major collections, and "
            "there were %d in %s: %s" % (
                end - begin, "this run" if part is None else "that time",
                "let the program run longer" if len(profile.snapshots) > 1 else
                "start the program with --leaks, which takes snapshots, or let it run "
                "longer"), end - begin)
    marks = [mark.time for mark in profile.marks if start <= mark.time < stop]
    if marks:
        first_mark, *rest = marks[-3:]
        last_mark = rest[-1] if rest else min(profile.end, stop)
        middle = rest[0] if len(rest) == 2 else (first_mark + last_mark) // 2
        # The program may call the GC before or after it sets a mark, and hardly
        # allocates between the two. A collection that the GC itself started may be
        # nearer in time.
        allocated = _allocated_at(profile, times)

        def at_mark(there: int) -> int:
            # the last one of the equally near collections
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
                "the command leaks needs a major collection at each mark, and "
                "something that is allocated between them: call gc.collect() there")
    else:
        marked = []
        # With `part`, the user has excluded the warm-up.
        first = begin if part else bisect.bisect_left(times, profile.end * warm_up)
        last = end - 1
        if last - first < 2:
            count = max(last - first + 1, 0)
            raise TooFewCollections(
                "the command leaks compares three heap snapshots or major collections "
                "after the first quarter of the run, which is its warm-up, and there "
                "were %d: %s"
                % (count, _remedy(profile)), count)
        half = (times[first] + times[last]) / 2
        center = min(range(first + 1, last),
                     key=lambda number: abs(times[number] - half))
    a, b, c = times[first], times[center], times[last]
    if not a < b < c:
        raise ProfileError(
            "the command leaks needs heap snapshots or major collections at different "
            "times")
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
    """Return the advice for a profile with too few moments after the warm-up."""
    if len(profile.snapshots) < 2:
        return ("start the program with --leaks, which takes snapshots, let it run "
                "longer, or name the moments with vmprof_allocation.mark()")
    return ("let the program run longer, or include the warm-up with --time ..%.2f"
            % (profile.snapshots[-1].time / 1e9 - 0.01))


def _follows_none(all_times: list[int], times: list[int], number: int) -> bool:
    """Return whether no collection is between times[number - 1] and times[number].

    Args:
        all_times: the times of all collections.
        times: the times without collections that another one directly follows.
        number: an index in `times`.
    """
    before = times[number - 1] if number else -1
    return (bisect.bisect_right(all_times, times[number])
            - bisect.bisect_right(all_times, before)) < 2


def _last_of_each(times: list[int], allocated: list[int]) -> list[int]:
    """Return the times without collections that another one directly follows.

    gc.collect() first finishes a collection that has begun. That collection counts
    objects that died after they were marked as alive. Then gc.collect() makes another
    collection. A program that calls gc.collect() twice means the collection by the
    second call. This collection finds the objects dead that waited for their finalizers
    in the collection before.

    Collections directly follow each other if hardly anything is allocated between them,
    compared with the bytes allocated between their neighbours. Their times do not show
    this, because a collection may take as long as the time between two collections.

    Args:
        times: the times of the collections.
        allocated: the number of bytes that the program had allocated at each of these
            times.
    """
    gaps = [after - before for before, after in zip(allocated, allocated[1:])]
    return [time for number, (time, gap) in enumerate(zip(times, gaps))
            if gap >= AT_ONCE * max(gaps[max(number - MOST_AT_ONCE, 0):
                                         number + MOST_AT_ONCE + 1])] + times[-1:]


def _allocated_at(profile: Profile, times: list[int]) -> list[int]:
    """Return the bytes that were allocated until each major collection in `times`.

    A major collection begins with a minor one, for which the exact number is known.
    """
    counted = [c for c in profile.collections if not c.is_major]
    at = [c.time for c in counted]
    numbers = [bisect.bisect_right(at, time) for time in times]
    return [counted[number - 1].number if number else about
            for number, about in zip(numbers, _allocated(profile, times))]


def _allocated(profile: Profile, times: Sequence[int]) -> list[int]:
    """Return the approximate bytes that were allocated until each of these times."""
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
    """Return the mean lengths of the first and of the second windows, in seconds."""
    return [sum(of_one.seconds[number] for of_one in windows) / len(windows)
            for number in range(2)]


def nearest(times: list[int], time: int, begin: int = 0,
            end: int | None = None) -> int:
    """Return the index of the time nearest to `time`, from `begin` to before `end`."""
    end = len(times) if end is None else end
    at = bisect.bisect_left(times, time, begin, end)
    if at == end or (at > begin and time - times[at - 1] < times[at] - time):
        at -= 1
    return at


def count_snapshots(all_windows: Sequence[Windows]) -> int:
    """Return the number of moments at which the trend of the live bytes is tested.

    The process with the most heap snapshots or major collections determines the number,
    which is at most `MAX_TREND`.
    """
    return min(MAX_TREND, max(len(windows.trend) for windows in all_windows))


def snapshots(windows: Windows, count: int) -> list[int]:
    """Return the indices of `count` evenly chosen moments of the trend.

    If the trend has fewer moments, some moments occur more than once.
    """
    span = len(windows.trend) - 1
    return [windows.trend[span * i // (count - 1)] for i in range(count)]
