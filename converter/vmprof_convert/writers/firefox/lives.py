"""What became of the objects, and what the collector did."""
from __future__ import annotations

import array
import bisect
import collections
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from typing import Any, NamedTuple

from vmprof_convert import lifetimes
from vmprof_convert.model import (
    ALIVE,
    FREED,
    LOST,
    PINNED,
    UNKNOWN,
    UNTOLD,
    Profile,
    Samples,
)
from vmprof_convert.writers.firefox.axis import TIME, Axis
from vmprof_convert.writers.firefox.format import categories
from vmprof_convert.writers.firefox.format.columns import PIECE, Column, Numbers
from vmprof_convert.writers.firefox.format.markers import Marker
from vmprof_convert.writers.firefox.stacks import MAJOR, MINOR, OUT_OF_SIGHT

_SITE_OF = {lifetimes.DIED_YOUNG: MINOR, lifetimes.FREED_LATER: MAJOR}
#: what is alive, or of what nothing was recorded
_STAYS = (lifetimes.STILL_ALIVE, lifetimes.NOT_RECORDED)
#: for translate(): of each fate, whether it is an end; of what was old, or before that
_GOES = [UNTOLD < fate <= UNKNOWN and lifetimes.state(fate, -1, -1) not in _STAYS
         for fate in range(256)]
_GOES_OLD = bytes(goes and fate in (FREED, LOST) for fate, goes in enumerate(_GOES))
_GOES_YOUNG = bytes(map(operator.sub, _GOES, _GOES_OLD))
_SITES = [_SITE_OF.get(lifetimes.state(fate, -1, -1), OUT_OF_SIGHT)
          for fate in range(UNKNOWN + 1)]
#: likewise, whether it became old
_IS_OLD = bytes(fate in (ALIVE, FREED, LOST, PINNED) for fate in range(256))


class Ends(NamedTuple):
    """What ended, as columns, by time.  There are as many as samples: an object for
    each takes a third of all time and memory."""

    rows: array.array[int]
    #: places on the axis
    times: array.array[int]


class Lives(NamedTuple):
    """Columns of a table of allocations; an end has the weight of its birth, negative,
    and the same address."""

    times: Column
    stacks: Column
    weights: Column
    addresses: Column
    #: of the times
    end: float


def find_ends(samples: Samples, axis: Axis, weights: Sequence[int]) -> Ends:
    """What nobody followed ends where it got out of sight: so what does not end is
    what the table shows as alive."""
    has_weights = all(weights)

    def of(ends: bytes) -> bytes:
        goes = samples.fate.tobytes().translate(ends)
        # the front end takes a weight of 0 for a birth
        return goes if has_weights else bytes(map(operator.and_, goes,
                                                  map(bool, weights)))

    goes_young, goes_old = of(_GOES_YOUNG), of(_GOES_OLD)
    # by themselves: the first are in the order of their ends as they are
    young = _sorted(axis, goes_young, compress(samples.collected, goes_young))
    old = _sorted(axis, goes_old, (
        after if after >= 0 else first for first, after in zip(
            compress(samples.collected, goes_old), compress(samples.ended, goes_old))))
    if not old.rows:
        return young
    result = Ends(array.array("i"), array.array("q"))
    turns = _turns(young.times, old.times)
    for column, of_young, of_old in zip(result, young, old):
        for piece in _merged(of_young, of_old, *turns):
            column.extend(piece)
    return result


def _sorted(axis: Axis, goes: bytes, moments: Iterable[int]) -> Ends:
    """Of these rows, at these moments."""
    rows = array.array("i", compress(range(len(goes)), goes))
    times = axis.all_at(moments)
    if any(map(operator.gt, compress(axis.samples, goes), times)):
        # in a damaged profile
        times = array.array("q", map(max, compress(axis.samples, goes), times))
    if all(map(operator.le, times, islice(times, 1, None))):
        return Ends(rows, times)
    order = sorted(range(len(rows)), key=times.__getitem__)
    return Ends(array.array("i", map(rows.__getitem__, order)),
                array.array("q", map(times.__getitem__, order)))


def births_and_deaths(rows: Sequence[int], ends: Ends, samples: Samples, axis: Axis,
                      stacks: Sequence[int], weights: Sequence[int],
                      sites: Mapping[str, int]) -> Lives:
    """`rows`: by time, of which these are the `ends`."""
    site_of = [sites[site] for site in _SITES]
    born, fates = _picked(axis.samples, rows), samples.fate

    def sites_of_ends() -> Numbers:
        return array.array("i", map(site_of.__getitem__, _picked(fates, ends.rows)))

    def freed() -> Numbers:
        return _column(map(operator.neg, _picked(weights, ends.rows)), weights)

    turns = _turns(born, ends.times)

    def column(of_births: Callable[[], Numbers], of_deaths: Callable[[], Numbers], *,
               are_microseconds: bool = False) -> Column:
        return Column(len(rows) + len(ends.rows), lambda: _merged(
            of_births(), of_deaths(), *turns), are_microseconds)

    return Lives(
        column(lambda: born, lambda: ends.times, are_microseconds=axis.unit == TIME),
        column(lambda: _picked(stacks, rows), sites_of_ends),
        column(lambda: _picked(weights, rows), freed),
        column(lambda: array.array("i", rows), lambda: ends.rows),
        axis.shown([max([born[-1], *ends.times[-1:]])])[0])


def _turns(first: Sequence[int], second: Sequence[int]) -> (
        tuple[array.array[int], array.array[int]]):
    """What ascends, as one: numbers of the first that come before some of the second,
    and of these.  Where both are the same, the first comes first."""
    # Most objects end with many others, at a collection: what is between two of these
    # is copied together.
    firsts, seconds = array.array("i"), array.array("i")
    done = at = 0
    while at < len(second):
        done = bisect.bisect_right(first, second[at], done)
        at = bisect.bisect_right(second, second[at], at)
        firsts.append(done)
        seconds.append(at)
    return firsts, seconds


def _merged(first: Numbers, second: Numbers, first_until: Sequence[int],
            second_until: Sequence[int]) -> Iterator[Numbers]:
    whole: Any = first[:0]
    done = at = 0
    for until, after in zip(first_until, second_until):
        whole.extend(first[done:until])
        whole.extend(second[at:after])
        done, at = until, after
        if len(whole) >= PIECE:
            yield whole
            whole = first[:0]
    yield whole
    yield first[done:]


def _picked(column: Sequence[int], rows: Sequence[int]) -> Numbers:
    if isinstance(column, (array.array, list)) and isinstance(rows, range) and (
            len(rows) == len(column)):
        return column
    if not isinstance(column, array.array):
        return list(map(column.__getitem__, rows))
    values = array.array(column.typecode)
    for start in range(0, len(rows), PIECE):
        # some at a time, which takes half the time of one by one; of a single row,
        # there would be no tuple
        some = operator.itemgetter(*rows[start:start + PIECE], 0)(column)
        values.extend(array.array(column.typecode, some[:-1]))
    return values


def _column(numbers: Iterable[int], like: Sequence[int]) -> Numbers:
    """An array, or in a damaged profile, whose numbers may be too large, a list."""
    return (array.array("q", numbers) if isinstance(like, array.array)
            else list(numbers))


def find_markers(profile: Profile, begin: int, samples: Samples, rows: Sequence[int],
                 axis: Axis, weights: Sequence[int]) -> list[Marker]:
    """Collections of the process of `profile`, which began at `begin`, and what it
    marked, by time; its samples are the `rows` of `samples`."""
    events = [c._replace(time=c.time + begin) for c in profile.collections]
    minors = [c for c in events if not c.is_major]
    majors = [c for c in events if c.is_major]
    fates, collected, ended = samples.fate, samples.collected, samples.ended
    # most died young
    old = array.array("i", (
        compress(rows, fates.tobytes().translate(_IS_OLD)) if isinstance(rows, range)
        else filter(lambda row: _IS_OLD[fates[row]], rows)) if events else ())
    promoted = _by_event([c.time + c.duration for c in minors], old, collected, weights)
    freed = _by_event([c.time for c in majors], array.array("i", (
        row for row in old if fates[row] == FREED)), ended, weights)
    result = [
        *(Marker("MinorCollection", "Minor collection", axis.at(c.time),
                 axis.at(c.time + c.duration),
                 {"allocated": c.number, "promoted": bytes_},
                 categories.COLLECTOR) for c, bytes_ in zip(minors, promoted)),
        *(Marker("MajorCollection", "Major collection", axis.at(c.time),
                 axis.at(c.time + c.duration) if c.duration else None,
                 {"number": c.number, "freed": bytes_}, categories.COLLECTOR)
          for c, bytes_ in zip(majors, freed)),
        *(Marker("Mark", "Mark", axis.at(mark.time + begin), None,
                 {"text": mark.name})
          for mark in profile.marks)]
    return sorted(result, key=lambda marker: marker.start)


def _by_event(times: list[int], rows: Sequence[int], moments: Sequence[int],
              numbers: Sequence[int]) -> list[int]:
    """For each of the events at these times, the sum of the numbers of those rows whose
    moments it is nearest to."""
    result = [0] * len(times)
    sums: dict[int, int] = collections.defaultdict(int)
    for time, number in zip(map(moments.__getitem__, rows),
                            map(numbers.__getitem__, rows)):
        sums[time] += number
    for time, number in sums.items():
        at = bisect.bisect_left(times, time)
        if at == len(times) or (at and time - times[at - 1] < times[at] - time):
            at -= 1
        if at >= 0:
            result[at] += number
    return result
