"""What a track shows where no time was sampled: who allocated how much, when.

The front end draws a thread's track from its samples alone, each as wide as the
time to its neighbours, in the colour of its innermost frame.  So these samples
share their bin's width as their stacks share what was allocated in it.
"""
from __future__ import annotations

import collections
import operator
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, compress, count, repeat
from typing import NamedTuple

from vmprof_convert.profile.long_columns import until

#: how many bins there are: a screen shows little more
BINS = 500
#: rows of a track; where there would be more, the bins are wider, but no fewer than
#: so many
MOST, FEWEST = 100_000, 60
#: one part of them in so many that is empty is seen as a gap
_GAP = 100
#: so many intervals may be between time samples while the program runs: the kernel
#: looks at its clock less often than that
_APART = 20
#: digits of a time in milliseconds: more make the file larger, and nobody sees them
_DIGITS = 4


class Activity(NamedTuple):
    """Columns of a table of samples."""

    times: list[float]
    stacks: list[int]
    weights: list[int]


def summarize(times: Sequence[float], stacks: Sequence[int], weights: Sequence[int],
              end: float, idle: int, bins_: int = BINS) -> Activity:
    """`times` ascend; `end` is that of the profile, and `idle` the stack where nothing
    happened."""
    # in which bins, and how wide: counting rows is quick
    while True:
        width = end / bins_ or 1.0
        parts = list(_parts(times, width))
        if bins_ <= FEWEST or sum(
                len(set(stacks[at:after])) for _, at, after in parts) <= MOST:
            break
        bins_ = (bins_ + 1) // 2
    bins: dict[int, dict[int, int]] = {}
    for number, at, after in parts:
        sums = bins.setdefault(number, collections.defaultdict(int))
        for stack, weight in zip(stacks[at:after], weights[at:after]):
            sums[stack] += weight
    return _drawn(bins, width, end, idle, bins_)


def pauses(times: Sequence[float], interval: float, end: float) -> list[int]:
    """Rows of time samples, taken each `interval` while the program runs: those before
    which there was none for so long that it is seen.  The front end would draw each
    until the next one.  `interval` 0.0: the axis is none of time."""
    if not interval:
        return []
    least = max(end / _GAP, interval * _APART)
    gaps = map(operator.sub, times, chain((0.0,), times))
    return list(compress(count(), map(operator.gt, gaps, repeat(least))))


def with_pauses(times: Sequence[float], stacks: Sequence[int], before: Sequence[int],
                interval: float, idle: int) -> Activity:
    """`before`: the rows of pauses()."""
    drawn = Activity([], [], [])
    at = 0
    for row in (*before, len(times)):
        drawn.times.extend(times[at:row])
        drawn.stacks.extend(stacks[at:row])
        drawn.weights.extend([1] * (row - at))
        if row < len(times):
            # where it begins and where it ends, as a track is drawn halfway to what is
            # before and behind
            drawn.times.extend((times[row - 1] + interval if row else 0.0,
                                times[row] - interval))
            drawn.stacks.extend((idle, idle))
            drawn.weights.extend((0, 0))
        at = row
    return drawn


def _parts(times: Sequence[float], width: float) -> Iterator[tuple[int, int, int]]:
    """Of each bin its number, and where it begins and ends; the last moment may have
    two."""
    at = 0
    while at < len(times):
        number = int(times[at] / width)
        # there may be fewer rows than bins
        after = max(at + 1, until(times, (number + 1) * width, at))
        yield number, at, after
        at = after


def _drawn(bins: dict[int, dict[int, int]], width: float, end: float, idle: int,
           bins_: int) -> Activity:
    # or the front end says that its buffer was empty before the first sample
    times, stacks, weights = [0.0], [idle], [0]

    def pause(number: int, next_: int) -> None:
        if (next_ - number) * _GAP > bins_:
            times.extend((number * width, next_ * width))
            stacks.extend((idle, idle))
            weights.extend((0, 0))

    before = 0
    for number, sums in bins.items():
        pause(before, number)
        shown = {stack: weight for stack, weight in sums.items() if weight}
        total = sum(shown.values())
        times += [(number + begun / total) * width
                  for begun in accumulate(shown.values(), initial=0)][:-1]
        stacks += shown
        weights += shown.values()
        before = number + 1
    pause(before, bins_)
    # what is rounded must not go back
    return Activity(list(accumulate((
        min(round(time, _DIGITS), end) for time in times), max)), stacks, weights)
