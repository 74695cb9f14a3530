"""What a track shows where no time was sampled: who allocated how much, when.

The front end draws a thread's track from its samples alone, each as wide as the
time to its neighbours, in the colour of its innermost frame.  So these samples
share their bin's width as their stacks share what was allocated in it.
"""
from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

#: how many bins there are: a screen shows little more
BINS = 500
#: rows of a track; where there would be more, the bins are wider, but no fewer than
#: so many
MOST, FEWEST = 100_000, 60
#: one part of them in so many that is empty is seen as a gap
_GAP = 100
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
    width = end / bins_ or 1.0
    bins: dict[int, dict[int, int]] = {}
    at = 0
    while at < len(times):
        number = int(times[at] / width)
        # there may be fewer rows than bins
        after = max(at + 1, bisect.bisect_left(times, (number + 1) * width, at))
        _add(bins, number, zip(stacks[at:after], weights[at:after]))
        at = after
    while bins_ > FEWEST and sum(map(len, bins.values())) > MOST:
        wider: dict[int, dict[int, int]] = {}
        for number, sums in bins.items():
            _add(wider, number // 2, sums.items())
        bins, bins_, width = wider, (bins_ + 1) // 2, 2 * width
    return _drawn(bins, width, end, idle, bins_)


def _add(bins: dict[int, dict[int, int]], number: int,
         weights: Iterable[tuple[int, int]]) -> None:
    sums = bins.setdefault(number, {})
    for stack, weight in weights:
        sums[stack] = sums.get(stack, 0) + weight


def _drawn(bins: dict[int, dict[int, int]], width: float, end: float, idle: int,
           bins_: int) -> Activity:
    result = Activity([], [], [])

    def add(time: float, stack: int, weight: int) -> None:
        # what is rounded must not go back
        result.times.append(max(min(round(time, _DIGITS), end), result.times[-1])
                            if result.times else min(time, end))
        result.stacks.append(stack)
        result.weights.append(weight)

    def pause(number: int, next_: int) -> None:
        if (next_ - number) * _GAP > bins_:
            add(number * width, idle, 0)
            add(next_ * width, idle, 0)

    # or the front end says that its buffer was empty before the first sample
    add(0.0, idle, 0)
    before = 0
    for number, sums in bins.items():
        pause(before, number)
        total = sum(sums.values())
        begun = 0
        for stack, weight in sums.items():
            if weight:
                add((number + begun / total) * width, stack, weight)
                begun += weight
        before = number + 1
    pause(before, bins_)
    return result
