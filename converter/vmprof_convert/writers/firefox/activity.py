"""What a track shows where no time was sampled: who allocated how much, when.

The front end draws a thread's track from its samples alone, each as wide as the
time to its neighbours, in the colour of its innermost frame.  So these samples
share their bin's width as their stacks share what was allocated in it.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: how many bins there are: a screen shows little more
BINS = 500
#: one part of them in so many that is empty is seen as a gap
_GAP = 100
#: digits of a time in milliseconds: more make the file larger, and nobody sees them
_DIGITS = 4


class Activity(NamedTuple):
    """Columns of a table of samples."""

    times: list[float]
    stacks: list[int]
    weights: list[int]


def summarize(rows: Iterable[tuple[float, int, int]], end: float,
              idle: int, bins_: int = BINS) -> Activity:
    """`rows` are times, ascending, stacks and weights; `end` is that of the
    profile, and `idle` the stack where nothing happened."""
    width = end / bins_ or 1.0
    bins: dict[int, dict[int, int]] = {}
    for time, stack, weight in rows:
        stacks = bins.setdefault(int(time / width), {})
        stacks[stack] = stacks.get(stack, 0) + weight
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
    for number, stacks in bins.items():
        pause(before, number)
        total = sum(stacks.values())
        begun = 0
        for stack, weight in stacks.items():
            if weight:
                add((number + begun / total) * width, stack, weight)
                begun += weight
        before = number + 1
    pause(before, bins_)
    return result
