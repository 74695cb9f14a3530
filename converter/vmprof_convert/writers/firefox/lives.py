"""The outcomes of objects in the Profiler's file, and markers of collections.

The table of allocations has two rows for each object: its allocation and its end. So
the front end can show the live memory at any time.
"""
from __future__ import annotations

import array
import bisect
import collections
import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, compress, islice
from typing import NamedTuple

from vmprof_convert.meaning import lifetimes
from vmprof_convert.profile.columns import by_key, chosen, gathered
from vmprof_convert.profile.model import (
    ALIVE,
    DIED,
    FREED,
    LOST,
    UNKNOWN,
    UNTOLD,
    Profile,
    Samples,
)
from vmprof_convert.writers.firefox.axis import Axis
from vmprof_convert.writers.firefox.format import categories
from vmprof_convert.writers.firefox.format.columns import Texts
from vmprof_convert.writers.firefox.format.encoding import PIECE, Known, text
from vmprof_convert.writers.firefox.format.markers import Marker
from vmprof_convert.writers.firefox.format.threads import Thread
from vmprof_convert.writers.firefox.stacks import MAJOR, MINOR, OUT_OF_SIGHT

_SITE_OF = {lifetimes.DIED_YOUNG: MINOR, lifetimes.FREED_LATER: MAJOR}
#: outcomes of objects that have no end in the file
_STAYS = (lifetimes.STILL_ALIVE, lifetimes.NOT_RECORDED)
#: for each outcome with an end, the function in which objects end (stacks.SITES)
_SITES = {fate: _SITE_OF.get(lifetimes.state(fate, -1, -1), OUT_OF_SIGHT)
          for fate in range(UNTOLD, UNKNOWN + 1)
          if lifetimes.state(fate, -1, -1) not in _STAYS}
#: table for bytes.translate() with 1 for each outcome of objects that became old
_IS_OLD = bytes(fate in (ALIVE, FREED, LOST) for fate in range(256))


class Ends(NamedTuple):
    """The ends of objects by time, in groups: many objects end at a collection."""

    #: indices of the objects in the table of samples, group by group
    rows: array.array[int]
    #: For each group, the place on the axis, the outcome, and the index after its last
    #: element of `rows`. Its first element follows the preceding group.
    moments: array.array[int]
    fates: array.array[int]
    until: array.array[int]

    def chosen(self, which: Sequence[int]) -> Ends:
        """Return the ends without the rows whose flag in `which` is false."""
        counts = array.array("i", accumulate(which, initial=0))
        return self._replace(
            rows=chosen(self.rows, which), until=gathered(counts, self.until))

    def counts(self) -> Iterator[int]:
        """Return the number of rows in each group."""
        return map(operator.sub, self.until, (0, *self.until))

    def sums(self, weights: array.array[int]) -> list[int]:
        """Return the sum of the weights of each group."""
        numbers = iter(gathered(weights, self.rows))
        return [sum(islice(numbers, count)) for count in self.counts()]


NO_ENDS = Ends(array.array("i"), array.array("q"), array.array("b"), array.array("i"))


@contextlib.contextmanager
def split_shrunk(samples: Samples) -> Iterator[None]:
    """Give each shrunk object a second row within the context, for the lost bytes.

    The program has shrunk these objects since their allocation. The second row follows
    the object's row and ends at the object's first minor collection. Its `live_size` is
    the negative number of lost bytes, because the row is not an object. The rows are
    added to the same table, because another table would double the memory.
    """
    shrunk = [row for row, live_size in enumerate(samples.live_size) if live_size] if (
        any(samples.live_size)) else []
    if shrunk:
        samples.change(lambda column: _repeated(column, shrunk))
    added = [row + number for number, row in enumerate(shrunk, 1)]
    for row in added:
        samples.fate[row] = DIED
        samples.ended[row] = -1
        samples.live_size[row] -= samples.size[row]
    try:
        yield
    finally:
        if added:
            samples.change(lambda column: _without(column, added))


def _repeated(column: array.array[int], rows: Iterable[int]) -> array.array[int]:
    """Return a copy of a column in which each of the given rows occurs twice."""
    result, at = array.array(column.typecode), 0
    for row in rows:
        result.extend(column[at:row + 1])
        at = row
    result.extend(column[at:])
    return result


def _without(column: array.array[int], rows: Iterable[int]) -> array.array[int]:
    """Return a copy of a column without the given rows."""
    result, at = array.array(column.typecode), 0
    for row in rows:
        result.extend(column[at:row])
        at = row + 1
    result.extend(column[at:])
    return result


def find_ends(samples: Samples, axis: Axis, weights: Sequence[int]) -> Ends:
    """Return the ends of all objects, by time.

    Objects that the sampler stopped following end at the last time when they were
    known. So all objects without an end are alive, as in the reports.
    """
    # the front end interprets a weight of 0 as an allocation
    has_weight = None if all(weights) else bytes(map(bool, weights))
    rows = array.array("i")
    #: for each group, the place on the axis, the outcome, and the begin and the end of
    #: the group in `rows`
    groups: list[tuple[int, int, int, int]] = []
    for fate in _SITES:
        goes: Sequence[int] = bytes(samples.fate).translate(
            bytes(map(fate.__eq__, range(256))))
        if has_weight:
            goes = bytes(map(operator.and_, goes, has_weight))
        if not any(goes):
            continue
        moments: Iterable[int] = compress(samples.collected, goes)
        if fate in (FREED, LOST):
            moments = (after if after >= 0 else before for before, after in zip(
                moments, compress(samples.ended, goes)))
        times = array.array("q", moments)
        order = by_key(times)
        times = gathered(times, order)
        at, before = 0, len(rows)
        rows.extend(gathered(array.array("i", compress(range(len(goes)), goes)), order))
        while at < len(times):
            after = bisect.bisect_right(times, times[at], at)
            # in a damaged profile, objects may be allocated after their end
            place = max(axis.place(times[at]), axis.samples[rows[before + after - 1]])
            groups.append((place, fate, before + at, before + after))
            at = after
    groups.sort(key=operator.itemgetter(0))
    sorted_rows = array.array("i")
    for _, _, at, after in groups:
        sorted_rows.extend(rows[at:after])
    return Ends(
        sorted_rows, array.array("q", (group[0] for group in groups)),
        array.array("b", (group[1] for group in groups)), array.array("i", accumulate(
            after - at for _, _, at, after in groups)))


def set_lives(thread: Thread, rows: Sequence[int], ends: Ends, axis: Axis,
              stacks: array.array[int], weights: array.array[int],
              sites: Mapping[str, int]) -> None:
    """Set the table of allocations with the begin and the end of each object.

    The row of an end has the negative weight and the address of the object's
    allocation.

    Args:
        thread: The thread.
        rows: The allocations of the thread by time.
        ends: The ends of these allocations.
        axis: The x axis.
        stacks: The stack of each sample.
        weights: The bytes that each sample represents.
        sites: The stack for each of stacks.SITES, in which objects end.
    """
    born, typed, allocated = (
        gathered(column, rows) for column in (axis.samples, stacks, weights))
    # for each group of ends, the allocations since the preceding group and the ends of
    # the group
    births: list[slice] = []
    deaths: list[slice] = []
    at = death = 0
    for moment, until in zip(ends.moments, ends.until):
        after = bisect.bisect_right(born, moment, at)
        births.append(slice(at, after))
        deaths.append(slice(death, until))
        at, death = after, until
    moments = axis.shown(ends.moments)
    site_of = {fate: text((sites[site],)) for fate, site in _SITES.items()}
    known = Known()

    def column(of_births: Callable[[slice], str],
               of_deaths: Callable[[slice, int], str]) -> Texts:
        """Return a column whose rows are allocations and ends, by time.

        Args:
            of_births: Returns the text of some allocations.
            of_deaths: Returns the text of some ends of a group, whose number it gets.
        """
        def make() -> Iterator[str]:
            for number, (some, others) in enumerate(zip(births, deaths)):
                yield from map(of_births, _parts(some))
                for part in _parts(others):
                    yield of_deaths(part, number)
            yield from map(of_births, _parts(slice(at, len(rows))))
        return Texts(make)

    def taken(some: slice, _: int) -> str:
        return "-%s" % "-".join(map(known.__getitem__, map(
            weights.__getitem__, ends.rows[some])))

    end, = axis.shown([max([born[-1], *ends.moments[-1:]])])
    thread.set_allocations(
        len(rows) + len(ends.rows), end,
        column(lambda some: text(axis.shown(born[some])), lambda some, number: text(
            moments[number:number + 1]) * (some.stop - some.start)),
        column(lambda some: "".join(map(known.__getitem__, typed[some])),
               lambda some, number: site_of[ends.fates[number]] * (
                   some.stop - some.start)),
        column(lambda some: "".join(map(known.__getitem__, allocated[some])), taken),
        column(lambda some: text(rows[some]), lambda some, _: text(ends.rows[some])))


def _parts(some: slice) -> Iterator[slice]:
    """Split some rows into parts that are written at once."""
    for start in range(some.start, some.stop, PIECE):
        yield slice(start, min(start + PIECE, some.stop))


def find_markers(profile: Profile, begin: int, samples: Samples, rows: Sequence[int],
                 axis: Axis, weights: Sequence[int]) -> list[Marker]:
    """Return the markers of collections, and of the program's marks, by time.

    Args:
        profile: The profile of one process.
        begin: The start of the process, in nanoseconds since the start of the first
            process.
        samples: The samples of all processes.
        rows: The rows of the samples of this process.
        axis: The x axis.
        weights: The bytes that each sample represents.
    """
    events = [c._replace(time=c.time + begin) for c in profile.collections]
    minors = [c for c in events if not c.is_major]
    majors = [c for c in events if c.is_major]
    is_old = bytes(samples.fate).translate(_IS_OLD)
    promoted: dict[int, int] = collections.defaultdict(int)
    freed: dict[int, int] = collections.defaultdict(int)
    for row in rows if events else ():
        # most objects are short-lived, so this test comes first
        if is_old[row]:
            promoted[samples.collected[row]] += weights[row]
            if samples.fate[row] == FREED:
                freed[samples.ended[row]] += weights[row]
    result = [
        *(Marker("MinorCollection", "Minor collection", axis.at(c.time),
                 axis.at(c.time + c.duration),
                 {"allocated": c.number, "promoted": bytes_},
                 categories.COLLECTOR) for c, bytes_ in zip(
              minors, _by_event([c.time + c.duration for c in minors], promoted))),
        *(Marker("MajorCollection", "Major collection", axis.at(c.time),
                 axis.at(c.time + c.duration) if c.duration else None,
                 {"number": c.number, "freed": bytes_}, categories.COLLECTOR)
          for c, bytes_ in zip(
              majors, _by_event([c.time for c in majors], freed))),
        *(Marker("Mark", "Mark", axis.at(mark.time + begin), None,
                 {"text": mark.name})
          for mark in profile.marks)]
    return sorted(result, key=lambda marker: marker.start)


def _by_event(times: list[int], sums: Mapping[int, int]) -> list[int]:
    """Add each number to the event that is nearest in time.

    Args:
        times: The times of the events, ascending.
        sums: Numbers by their times.

    Returns:
        The sum of each event.
    """
    result = [0] * len(times)
    for time, number in sums.items() if times else ():
        at = bisect.bisect_left(times, time)
        if at == len(times) or (at and time - times[at - 1] < times[at] - time):
            at -= 1
        result[at] += number
    return result
