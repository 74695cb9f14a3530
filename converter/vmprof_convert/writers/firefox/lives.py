"""What became of the objects, and what the collector did."""
from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable

from vmprof_convert import lifetimes
from vmprof_convert.model import ALIVE, FREED, LOST, PINNED, Profile, Samples
from vmprof_convert.writers.firefox.axis import Axis
from vmprof_convert.writers.firefox.format import categories
from vmprof_convert.writers.firefox.format.markers import Marker
from vmprof_convert.writers.firefox.stacks import MAJOR, MINOR, OUT_OF_SIGHT

# There are as many as samples: with names, making them takes a third of all time.
#: of an object: the time, and what ended it, a name of stacks.SITES
End = tuple[float, str]
#: a row of a table of allocations: time, stack, bytes (of a death negative), address
Entry = tuple[float, int, int, int]


_SITE_OF = {lifetimes.DIED_YOUNG: MINOR, lifetimes.FREED_LATER: MAJOR}


def find_ends(profile: Profile, axis: Axis, weights: list[int]) -> dict[int, End]:
    """By row.  What nobody followed ends where it got out of sight: so what
    does not end is what the table shows as alive."""
    samples = profile.samples
    result = {}
    for row, (fate, collected, ended) in enumerate(zip(
            samples.fate, samples.collected, samples.ended)):
        then = lifetimes.state(fate, collected, ended)
        # the front end takes a weight of 0 for a birth
        if (then in (lifetimes.STILL_ALIVE, lifetimes.NOT_RECORDED)
                or not weights[row]):
            continue
        site = _SITE_OF.get(then, OUT_OF_SIGHT)
        # in a damaged profile it may be before the birth
        result[row] = (max(axis.samples[row], axis.at(
            ended if ended >= 0 else collected)), site)
    return result


def births_and_deaths(rows: list[int], times: list[float], stacks: list[int],
                      weights: list[int], ends: dict[int, End],
                      sites: dict[str, int]) -> list[Entry]:
    births = [(times[row], stacks[row], weights[row], row) for row in rows]
    deaths = [(ends[row][0], sites[ends[row][1]], -weights[row], row)
              for row in rows if row in ends]
    # at one time births come first, as the sort leaves them there
    return sorted(births + deaths, key=operator.itemgetter(0))


def find_markers(profile: Profile, begin: int, samples: Samples, rows: Iterable[int],
                 axis: Axis, weights: list[int]) -> list[Marker]:
    """Collections of the process of `profile`, which began at `begin`, and what it
    marked, by time; its samples are the `rows` of `samples`."""
    collections = [c._replace(time=c.time + begin) for c in profile.collections]
    minors = [c for c in collections if not c.is_major]
    majors = [c for c in collections if c.is_major]
    fates, collected, ended = samples.fate, samples.collected, samples.ended
    old = [row for row in rows if fates[row] in (ALIVE, FREED, LOST, PINNED)]
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
    for time, number in parts:
        at = bisect.bisect_left(times, time)
        if at == len(times) or (at and time - times[at - 1] < times[at] - time):
            at -= 1
        if at >= 0:
            result[at] += number
    return result
