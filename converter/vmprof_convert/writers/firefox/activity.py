"""The activity graphs of the tracks: allocations over time, and pauses.

The Profiler's front end draws a thread's track from its samples alone. A sample is as
wide as the time to its neighbours and has the colour of its innermost frame. So a track
without CPU samples gets artificial samples. Within a bin of time, the width of a stack
is proportional to its share of the allocations. convert.py calls this module.
"""
from __future__ import annotations

import collections
import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, compress, count, repeat
from typing import NamedTuple

from vmprof_convert.analysis.by_stack import whole
from vmprof_convert.writers.firefox.format.bins import bins_of

#: number of bins in a track; a screen does not show many more
BINS = 500
#: Largest number of rows of a track, and smallest number of bins. A track with more
#: rows gets fewer and wider bins.
MOST, FEWEST = 100_000, 60
#: a pause is visible in a track if it takes more than 1 / _GAP of the run
_GAP = 100
#: Largest number of intervals between two CPU samples of a running program. The kernel
#: may check the processor time of a process less often than once per interval.
_APART = 20
#: number of decimal places of a time in milliseconds; more places are not visible and
#: enlarge the file
_DIGITS = 4


class Activity(NamedTuple):
    """The columns of a table of samples."""

    times: list[float]
    stacks: list[int]
    weights: list[int]


def summarize(times: Sequence[float], stacks: Sequence[int], weights: Iterable[float],
              end: float, idle: int, bins_: int = BINS,
              shown: Mapping[int, int] | None = None) -> Activity:
    """Return artificial samples that show the allocations of a track.

    Args:
        times: The time of each allocation, ascending.
        stacks: The stack of each allocation.
        weights: The weight of each allocation.
        end: The end of the profile.
        idle: The stack for the time without allocations.
        bins_: The number of bins.
        shown: The stack to show in place of each of `stacks`, None to show `stacks`
            themselves.
    """
    # Halve the number of bins until the track has at most MOST rows. Counting the rows
    # takes little time.
    while True:
        width = end / bins_ or 1.0
        parts = list(bins_of(times, width))
        if bins_ <= FEWEST or sum(
                len(set(stacks[at:after])) for _, at, after in parts) <= MOST:
            break
        bins_ = (bins_ + 1) // 2
    bins: dict[int, dict[int, float]] = {}
    weights = iter(weights)
    for number, at, after in parts:
        sums = bins.setdefault(number, collections.defaultdict(float))
        for stack, weight in zip(stacks[at:after], weights):
            sums[stack] += weight
    if shown is not None:
        bins = {number: _as_shown(sums, shown) for number, sums in bins.items()}
    return _drawn(bins, width, end, idle, bins_)


def _as_shown(sums: Mapping[int, float], shown: Mapping[int, int]) -> dict[int, float]:
    result: dict[int, float] = collections.defaultdict(float)
    for stack, weight in sums.items():
        result[shown[stack]] += weight
    return result


def pauses(times: Sequence[float], interval: float, end: float) -> list[int]:
    """Return the CPU samples that follow a visible pause.

    The front end draws each sample up to the next one, so a pause needs samples, too.

    Args:
        times: The time of each CPU sample, ascending.
        interval: The time between two samples of a running program; 0.0 on an axis of
            bytes, on which no pause is visible.
        end: The end of the profile.

    Returns:
        The indices of these samples in `times`.
    """
    if not interval:
        return []
    least = max(end / _GAP, interval * _APART)
    gaps = map(operator.sub, times, chain((0.0,), times))
    return list(compress(count(), map(operator.gt, gaps, repeat(least))))


def with_pauses(times: Sequence[float], stacks: Sequence[int], before: Sequence[int],
                interval: float, idle: int) -> Activity:
    """Return CPU samples with additional samples in each pause.

    Args:
        times: The time of each CPU sample, ascending.
        stacks: The stack of each CPU sample.
        before: The result of pauses().
        interval: The time between two samples of a running program.
        idle: The stack for pauses.
    """
    drawn = Activity([], [], [])
    at = 0
    for row in (*before, len(times)):
        drawn.times.extend(times[at:row])
        drawn.stacks.extend(stacks[at:row])
        drawn.weights.extend([1] * (row - at))
        if row < len(times):
            # One sample for the begin and one for the end of the pause: the front end
            # draws a sample halfway to its neighbours.
            drawn.times.extend((times[row - 1] + interval if row else 0.0,
                                times[row] - interval))
            drawn.stacks.extend((idle, idle))
            drawn.weights.extend((0, 0))
        at = row
    return drawn


def _drawn(bins: dict[int, dict[int, float]], width: float, end: float, idle: int,
           bins_: int) -> Activity:
    # without a sample at 0, the front end claims that its buffer was empty before
    times, stacks, weights = [0.0], [idle], [0]

    def pause(number: int, next_: int) -> None:
        if (next_ - number) * _GAP > bins_:
            times.extend((number * width, next_ * width))
            stacks.extend((idle, idle))
            weights.extend((0, 0))

    rounded = iter(whole(chain.from_iterable(sums.values() for sums in bins.values())))
    before = 0
    for number, sums in bins.items():
        pause(before, number)
        shown = {stack: weight for stack, weight in zip(sums, rounded) if weight}
        # next to the huge numbers of a damaged profile, other weights may round to 0
        total = sum(shown.values()) or 1
        times += [(number + begun / total) * width
                  for begun in accumulate(shown.values(), initial=0)][:-1]
        stacks += shown
        weights += shown.values()
        before = number + 1
    pause(before, bins_)
    # the times must not descend after they were rounded
    return Activity(list(accumulate((
        min(round(time, _DIGITS), end) for time in times), max)), stacks, weights)
