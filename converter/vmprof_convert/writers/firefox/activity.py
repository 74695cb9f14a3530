"""What a track shows where no time was sampled: who allocated how much, when.

The front end draws a thread's track from its samples alone, each as wide as the
time to its neighbours, in the colour of its innermost frame.  So these samples
share their bin's width as their stacks share what was allocated in it.
"""
from __future__ import annotations

import collections
import operator
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, compress, count, repeat
from typing import NamedTuple

from vmprof_convert.analysis.by_stack import whole
from vmprof_convert.writers.firefox.format.bins import bins_of

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


def summarize(times: Sequence[float], stacks: Sequence[int], weights: Iterable[float],
              end: float, idle: int, bins_: int = BINS,
              shown: Mapping[int, int] | None = None) -> Activity:
    """`times` ascend; `end` is that of the profile, and `idle` the stack where nothing
    happened; `shown`: instead of each of `stacks` another one."""
    # in which bins, and how wide: counting rows is quick
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


def _drawn(bins: dict[int, dict[int, float]], width: float, end: float, idle: int,
           bins_: int) -> Activity:
    # or the front end says that its buffer was empty before the first sample
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
        # (beside what a damaged profile has, the rest may be nothing)
        total = sum(shown.values()) or 1
        times += [(number + begun / total) * width
                  for begun in accumulate(shown.values(), initial=0)][:-1]
        stacks += shown
        weights += shown.values()
        before = number + 1
    pause(before, bins_)
    # what is rounded must not go back
    return Activity(list(accumulate((
        min(round(time, _DIGITS), end) for time in times), max)), stacks, weights)
