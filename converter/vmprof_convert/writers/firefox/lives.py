"""What became of the objects, and what the collector did."""
from __future__ import annotations

import array
import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

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
#: fates of what is alive, or of what nothing was recorded
_STAYS = {fate for fate in range(UNTOLD, UNKNOWN + 1)
          if lifetimes.state(fate, -1, -1) in (
              lifetimes.STILL_ALIVE, lifetimes.NOT_RECORDED)}
_SITES = [_SITE_OF.get(lifetimes.state(fate, -1, -1), OUT_OF_SIGHT)
          for fate in range(UNKNOWN + 1)]


class Ends(NamedTuple):
    """What ended, as columns, by time.  There are as many as samples: an object for
    each takes a third of all time and memory."""

    rows: Sequence[int]
    times: Sequence[float]


class Lives(NamedTuple):
    """Columns of a table of allocations; an end has the weight of its birth, negative,
    and the same address."""

    times: Sequence[float]
    stacks: Sequence[int]
    weights: Sequence[int]
    addresses: Sequence[int]


def find_ends(samples: Samples, rows: Sequence[int], axis: Axis,
              weights: Sequence[int]) -> Ends:
    """Of `rows`.  What nobody followed ends where it got out of sight: so what
    does not end is what the table shows as alive."""
    fates, collected, ended = samples.fate, samples.collected, samples.ended
    # the front end takes a weight of 0 for a birth
    gone = [row for row in rows if fates[row] not in _STAYS and weights[row]]
    ends = axis.all_at([ended[row] if ended[row] >= 0 else collected[row]
                        for row in gone])
    # in a damaged profile it may be before the birth
    ends = list(map(max, map(axis.samples.__getitem__, gone), ends))
    order = sorted(range(len(gone)), key=ends.__getitem__)
    return Ends(array.array("i", map(gone.__getitem__, order)),
                array.array("d", map(ends.__getitem__, order)))


def births_and_deaths(rows: Sequence[int], ends: Ends, samples: Samples,
                      times: Sequence[float], stacks: Sequence[int],
                      weights: Sequence[int], sites: Mapping[str, int]) -> Lives:
    """`rows`: by time, of which these are the `ends`."""
    births = array.array("d", map(times.__getitem__, rows))
    site_of = [sites[site] for site in _SITES]
    # two runs that ascend: merged quickly; at one time births come first
    all_ = births + array.array("d", ends.times)
    order = sorted(range(len(all_)), key=all_.__getitem__)
    place = array.array("i", map(stacks.__getitem__, rows))
    place.extend([site_of[samples.fate[row]] for row in ends.rows])
    weight = _column(map(weights.__getitem__, rows), weights)
    weight.extend([-weights[row] for row in ends.rows])
    address = array.array("i", rows) + array.array("i", ends.rows)
    return Lives(array.array("d", map(all_.__getitem__, order)),
                 array.array("i", map(place.__getitem__, order)),
                 _column(map(weight.__getitem__, order), weights),
                 array.array("i", map(address.__getitem__, order)))


def _column(numbers: Iterable[int],
            like: Sequence[int]) -> list[int] | array.array[int]:
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
    old = [row for row in rows
           if fates[row] in (ALIVE, FREED, LOST, PINNED)] if collections else []
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
