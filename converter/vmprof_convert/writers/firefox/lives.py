"""What became of the objects, and what the collector did."""
from __future__ import annotations

import array
import bisect
import collections
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

from vmprof_convert.meaning import lifetimes
from vmprof_convert.profile.long_columns import (
    PIECE,
    Long,
    Runs,
    made,
    picked,
    picked_pieces,
    pieces_of,
    until,
)
from vmprof_convert.profile.model import (
    ALIVE,
    DIED,
    FREED,
    LOST,
    UNKNOWN,
    UNTOLD,
    Profile,
    Row,
    Samples,
)
from vmprof_convert.writers.firefox.axis import TIME, Axis
from vmprof_convert.writers.firefox.format import categories
from vmprof_convert.writers.firefox.format.columns import Column, Piece, Same
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
#: so many are by themselves when they are written
_FEW = 2**6
#: likewise, whether it became old
_IS_OLD = bytes(fate in (ALIVE, FREED, LOST) for fate in range(256))


class Ends(NamedTuple):
    """What ended, as columns, by time.  There are as many as samples: an object for
    each takes a third of all time and memory."""

    rows: Sequence[int]
    #: places on the axis
    times: Sequence[int]
    weights: Sequence[int]
    fates: Sequence[int]

    def chosen(self, which: Iterable[Iterable[object]]) -> Ends:
        """Those of which it is true, which is told piece by piece."""
        columns: list[Long | list[int]] = [
            Long(column.typecode, column.store) if isinstance(column, Long)
            else [] for column in self]
        for flags, *pieces in zip(map(list, which), *map(pieces_of, self)):
            for column, piece in zip(columns, pieces):
                column.extend(list(compress(piece, flags)))
        return Ends(*(column.short() if isinstance(column, Long) else column
                      for column in columns))


class Lives(NamedTuple):
    """Columns of a table of allocations; an end has the weight of its birth, negative,
    and the same address."""

    times: Column
    stacks: Column
    weights: Column
    addresses: Column
    #: of the times
    end: float


def split_shrunk(samples: Samples) -> Samples:
    """With a row more, at the end, for each object that was shrunk since it was
    allocated: what was taken off, which ends at the object's first minor collection.
    Its `live_size` is the number of these bytes, negative, as it is no object."""
    if not any(samples.live_size):
        return samples
    result = Samples(samples.store)
    result.carried = samples.carried
    for new, old in zip(result.columns(), samples.columns()):
        new.extend(old)
    for row, live_size in enumerate(samples.live_size):
        if live_size:
            whole = Row(*[column[row] for column in samples.columns()])
            result.add_row(whole._replace(fate=DIED, ended=-1,
                                          live_size=live_size - whole.size))
    result.finish()
    return result


def find_ends(samples: Samples, axis: Axis, weights: Sequence[int]) -> Ends:
    """What nobody followed ends where it got out of sight: so what does not end is
    what the table shows as alive."""
    # by themselves: the first are in the order of their ends as they are
    young, old = Runs("qiqb", samples.store), Runs("qiqb", samples.store)
    first = 0
    for fates, collected, ended, births, shown in zip(*map(pieces_of, (
            samples.fate, samples.collected, samples.ended, axis.samples, weights))):
        rows = range(first, first + len(fates))
        first += len(fates)
        has_weights = all(shown)
        for ends, is_old, runs in (_GOES_YOUNG, False, young), (_GOES_OLD, True, old):
            goes = bytes(fates).translate(ends)
            if not has_weights:
                # the front end takes a weight of 0 for a birth
                goes = bytes(map(operator.and_, goes, map(bool, shown)))
            if not goes.count(1):
                continue
            moments: Iterable[int] = compress(collected, goes)
            if is_old:
                moments = [after if after >= 0 else before for before, after in zip(
                    moments, compress(ended, goes))]
            times: Sequence[int] = axis.all_at(moments)
            born = list(compress(births, goes))
            if any(map(operator.gt, born, times)):
                # in a damaged profile
                times = list(map(max, born, times))
            # (from a list, an array is made in half the time)
            runs.add(times, list(compress(rows, goes)), list(
                compress(shown, goes)) if isinstance(weights, Long) else [0] * len(
                    times), list(compress(fates, goes)))
    columns = young.merged()
    if len(old):
        of_young, of_old = columns, old.merged()
        turns = _turns(of_young[0], of_old[0])
        columns = [made(one.typecode, samples.store, _merged(one, other, *turns))
                   for one, other in zip(of_young, of_old)]
    times, rows_, of_ends, fates_ = columns
    return Ends(rows_, times, of_ends if isinstance(weights, Long)
                else list(map(weights.__getitem__, rows_)), fates_)


def births_and_deaths(rows: Sequence[int], ends: Ends, samples: Samples, axis: Axis,
                      stacks: Sequence[int], weights: Sequence[int],
                      sites: Mapping[str, int]) -> Lives:
    """`rows`: by time, of which these are the `ends`."""
    site_of = [sites[site] for site in _SITES].__getitem__
    born = picked(axis.samples, rows)
    turns = _turns(born, ends.times)
    length = len(rows) + len(ends.rows)

    def column(of_births: Callable[[], Sequence[int]], of_deaths: Sequence[int],
               change: Callable[[int], int] | None = None) -> Column:
        return Column(length, lambda: _merged(of_births(), of_deaths, *turns, change),
                      are_few=change is not None)

    return Lives(
        Column(length, lambda: _merged(born, ends.times, *turns, are_same=True),
               axis.unit == TIME),
        column(lambda: picked(stacks, rows), ends.fates, site_of),
        column(lambda: picked(weights, rows), ends.weights, operator.neg),
        column(lambda: rows, ends.rows),
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
        behind = second[at] + 1
        done = until(first, behind, done)
        at = until(second, behind, at)
        firsts.append(done)
        seconds.append(at)
    return firsts, seconds


def _merged(first: Sequence[int], second: Sequence[int], first_until: Sequence[int],
            second_until: Sequence[int], change: Callable[[int], int] | None = None, *,
            are_same: bool = False) -> Iterator[Piece]:
    """`change`: of what is of the second; `are_same`: what is of it together."""
    few: list[int] = []
    done = at = 0
    for until_, after in zip((*first_until, len(first)), (*second_until, len(second))):
        while done < until_ or at < after:
            numbers: Any
            if done < until_:
                some = min(until_, done + PIECE)
                numbers = first[done:some]
                done, count = some, some - done
            else:
                some = min(after, at + PIECE)
                numbers = ([second[at]] * (some - at) if are_same and some - at < _FEW
                           else Same(second[at], some - at) if are_same
                           else second[at:some])
                numbers = list(map(change, numbers)) if change else numbers
                at, count = some, some - at
            if count < _FEW:
                few += numbers
            if few and (count >= _FEW or len(few) >= PIECE):
                yield few
                few = []
            if count >= _FEW:
                yield numbers
    if few:
        yield few


def find_markers(profile: Profile, begin: int, samples: Samples, rows: Sequence[int],
                 axis: Axis, weights: Sequence[int]) -> list[Marker]:
    """Collections of the process of `profile`, which began at `begin`, and what it
    marked, by time; its samples are the `rows` of `samples`."""
    events = [c._replace(time=c.time + begin) for c in profile.collections]
    minors = [c for c in events if not c.is_major]
    majors = [c for c in events if c.is_major]
    promoted: dict[int, int] = collections.defaultdict(int)
    freed: dict[int, int] = collections.defaultdict(int)
    # most died young
    for fates, *columns in zip(*(
            picked_pieces(column, rows) for column in (
                samples.fate, samples.collected, samples.ended, weights)
    )) if events else ():
        is_old = bytes(fates).translate(_IS_OLD)
        for fate, collected, ended, weight in zip(*(
                compress(column, is_old) for column in (fates, *columns))):
            promoted[collected] += weight
            if fate == FREED:
                freed[ended] += weight
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
    """For each of the events at these times, the sum of the numbers of those moments
    that it is nearest to."""
    result = [0] * len(times)
    for time, number in sums.items() if times else ():
        at = bisect.bisect_left(times, time)
        if at == len(times) or (at and time - times[at - 1] < times[at] - time):
            at -= 1
        result[at] += number
    return result
