"""Which objects are sampled?  The definition, to test the machine against.

Number the bytes that the program allocates: 0, 1, 2, ...  Some of them are
sampled.  An object is sampled if one of its bytes is.

*Exponential gaps*: the next sampled byte comes a random gap after the start,
and from then on a random gap after the end of each sampled object.
*Fixed gaps*: every interval-th byte, whatever the objects.

A gap is drawn anew, and counts from the next byte, when the interval changes,
and when memory pressure hid some bytes from the profiler, which the hook
engine learns when the GC is next entered: at the next allocation or
collection, or when the interval changes.  From the builtin engine nothing is
hidden.

There are no addresses here, no nursery, and no notion of one being full.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Union

MAX_INTERVAL = 2**62


class Start(NamedTuple):
    interval: int
    seed: int
    fixed: bool
    #: each sample changes the interval: next_interval()
    follows: bool = False


class Stop(NamedTuple):
    pass


class Rate(NamedTuple):
    interval: int


class Allocation(NamedTuple):
    """Of an object, small or large."""

    number: int
    size: int


class Collection(NamedTuple):
    pass


class Pressure(NamedTuple):
    pass


Event = Union[Start, Stop, Rate, Allocation, Collection, Pressure]


class Sample(NamedTuple):
    number: int
    size: int
    interval: int


def splitmix64(seed: int) -> Iterator[int]:
    """Steele, Lea and Flood, OOPSLA 2014."""
    mask = 2**64 - 1
    state = seed
    while True:
        state = state + 0x9E3779B97F4A7C15 & mask
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        yield z ^ z >> 31


def gap(interval: int, fixed: bool, random: Iterator[int]) -> int:
    """The number of bytes before the next sampled one."""
    if fixed:
        return interval - 1
    uniform = ((next(random) >> 11) + 1) / 2**53        # 0 < uniform <= 1
    return min(int(-math.log(uniform) * interval), MAX_INTERVAL)


def next_interval(interval: int, size: int) -> int:
    """What the drivers choose after a sample, if they follow: anything that
    depends on nothing but the past."""
    return (interval * 5 + size) % 10007 + 1


def samples(events: Iterable[Event], *,
            builtin: bool = False) -> Iterator[Sample]:
    """The samples of the events, in order: the hook engine's, or those of
    the builtin one."""
    running = hidden = fixed = follows = False
    interval = 0
    allocated = 0               # the number of the next byte
    sampled = 0                 # the number of the next sampled byte
    random = splitmix64(0)

    for event in events:
        if isinstance(event, Start):
            running, hidden = True, False
            interval, seed, fixed, follows = event
            random = splitmix64(seed)
            sampled = allocated + gap(interval, fixed, random)
        elif isinstance(event, Stop):
            running = False
        elif isinstance(event, Pressure):
            hidden = running and not builtin
        elif running and hidden:
            hidden = False
            sampled = allocated + gap(interval, fixed, random)
        if isinstance(event, Rate) and running:
            interval = event.interval
            sampled = allocated + gap(interval, fixed, random)

        if isinstance(event, Allocation):
            start, allocated = allocated, allocated + event.size
            if running and start <= sampled < allocated:
                yield Sample(event.number, event.size, interval)
                if fixed:
                    # of every interval-th byte, the first one behind the object
                    sampled += -((sampled - allocated) // interval) * interval
                else:
                    sampled = allocated + gap(interval, fixed, random)
                following = next_interval(interval, event.size)
                if follows and following != interval:
                    # that gap is thrown away
                    interval = following
                    sampled = allocated + gap(interval, fixed, random)
