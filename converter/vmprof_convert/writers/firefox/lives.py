"""What became of the objects, and what the collector did."""
from __future__ import annotations

import array
import bisect
import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple, Union

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
from vmprof_convert.writers.firefox.axis import Axis
from vmprof_convert.writers.firefox.format import categories
from vmprof_convert.writers.firefox.format.markers import Marker
from vmprof_convert.writers.firefox.stacks import MAJOR, MINOR, OUT_OF_SIGHT

_SITE_OF = {lifetimes.DIED_YOUNG: MINOR, lifetimes.FREED_LATER: MAJOR}
#: what is alive, or of what nothing was recorded
_STAYS = (lifetimes.STILL_ALIVE, lifetimes.NOT_RECORDED)
#: for translate(): of each fate, whether it is an end
_GOES = bytes(UNTOLD < fate <= UNKNOWN and lifetimes.state(fate, -1, -1) not in _STAYS
              for fate in range(256))
_SITES = [_SITE_OF.get(lifetimes.state(fate, -1, -1), OUT_OF_SIGHT)
          for fate in range(UNKNOWN + 1)]


_OLD = frozenset({ALIVE, FREED, LOST, PINNED})
#: in a damaged profile, numbers may be too large for an array
Column = Union["array.array[Any]", list[Any]]


class Ends(NamedTuple):
    """What ended, as columns, by time.  There are as many as samples: an object for
    each takes a third of all time and memory."""

    rows: array.array[int]
    times: array.array[float]


class Lives(NamedTuple):
    """Columns of a table of allocations; an end has the weight of its birth, negative,
    and the same address."""

    times: Column
    stacks: Column
    weights: Column
    addresses: Column


def find_ends(samples: Samples, axis: Axis, weights: Sequence[int]) -> Ends:
    """What nobody followed ends where it got out of sight: so what does not end is
    what the table shows as alive."""
    goes = samples.fate.tobytes().translate(_GOES)
    if not all(weights):
        # the front end takes a weight of 0 for a birth
        goes = bytes(map(operator.and_, goes, map(bool, weights)))
    ends = axis.all_at(
        after if after >= 0 else first for first, after in zip(
            compress(samples.collected, goes), compress(samples.ended, goes)))
    if any(map(operator.gt, compress(axis.samples, goes), ends)):
        # in a damaged profile
        ends = list(map(max, compress(axis.samples, goes), ends))
    rows = array.array("i", compress(range(len(goes)), goes))
    order = array.array("i", sorted(range(len(rows)), key=ends.__getitem__))
    return Ends(array.array("i", map(rows.__getitem__, order)),
                array.array("d", map(ends.__getitem__, order)))


def births_and_deaths(rows: Sequence[int], ends: Ends, samples: Samples,
                      times: Sequence[float], stacks: Sequence[int],
                      weights: Sequence[int], sites: Mapping[str, int]) -> Lives:
    """`rows`: by time, of which these are the `ends`."""
    site_of = [sites[site] for site in _SITES]
    born = (_picked(times, rows, "d"), _picked(stacks, rows, "i"),
            _picked(weights, rows, "q"), array.array("i", rows))
    fates = samples.fate
    gone = (ends.times, array.array("i", list(map(
        site_of.__getitem__, map(fates.__getitem__, ends.rows)))),
            _column(map(operator.neg, map(weights.__getitem__, ends.rows)), weights),
            ends.rows)
    result = Lives(*(column[:0] for column in born))
    # Most objects end with many others, at a collection: both tables are copied in
    # pieces, from one such moment to the next.  At one time births come first.
    done = at = 0
    while at < len(ends.times):
        time = ends.times[at]
        after = bisect.bisect_right(ends.times, time, at)
        until = bisect.bisect_right(born[0], time, done)
        for whole, births, deaths in zip(result, born, gone):
            whole.extend(births[done:until])
            whole.extend(deaths[at:after])
        done, at = until, after
    for whole, births in zip(result, born):
        whole.extend(births[done:])
    return result


def _picked(column: Sequence[Any], rows: Sequence[int], typecode: str) -> Column:
    """A new one."""
    if isinstance(column, array.array) and column.typecode == typecode and (
            isinstance(rows, range)):
        return column[rows.start:rows.stop]
    values = map(column.__getitem__, rows)
    return (list(values) if isinstance(column, list) and typecode == "q"
            else array.array(typecode, values))


def _column(numbers: Iterable[int], like: Sequence[int]) -> Column:
    """An array, or in a damaged profile, whose numbers may be too large, a list."""
    return (array.array("q", numbers) if isinstance(like, array.array)
            else list(numbers))


def find_markers(profile: Profile, begin: int, samples: Samples, rows: Iterable[int],
                 axis: Axis, weights: Sequence[int]) -> list[Marker]:
    """Collections of the process of `profile`, which began at `begin`, and what it
    marked, by time; its samples are the `rows` of `samples`."""
    collections = [c._replace(time=c.time + begin) for c in profile.collections]
    minors = [c for c in collections if not c.is_major]
    majors = [c for c in collections if c.is_major]
    fates, collected, ended = samples.fate, samples.collected, samples.ended
    old = [row for row in rows if fates[row] in _OLD] if collections else []
    promoted = _by_event([c.time + c.duration for c in minors], (
        (collected[row], weights[row]) for row in old))
    freed = _by_event([c.time for c in majors], (
        (ended[row], weights[row]) for row in old if fates[row] == FREED))
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


def _by_event(times: list[int], parts: Iterable[tuple[int, int]]) -> list[int]:
    """For each of the events at these times, the sum of the parts, each a time
    and a number, that it is nearest to."""
    result = [0] * len(times)
    sums: dict[int, int] = {}
    for time, number in parts:
        sums[time] = sums.get(time, 0) + number
    for time, number in sums.items():
        at = bisect.bisect_left(times, time)
        if at == len(times) or (at and time - times[at - 1] < times[at] - time):
            at -= 1
        if at >= 0:
            result[at] += number
    return result
