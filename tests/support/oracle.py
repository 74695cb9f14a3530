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

An allocation may be a *piece* of several objects.  The one that holds the
piece's first sampled byte is a *sampled object*, and so is each one behind it
that would be sampled if it were allocated on its own: by gaps of a second
generator, of the next seed, which draws one without using it at the start.

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
    """Of an object, small or large, or of a piece."""

    number: int
    size: int
    #: of a piece: sizes of its objects
    parts: tuple[int, ...] = ()


class Collection(NamedTuple):
    pass


class Pressure(NamedTuple):
    pass


Event = Union[Start, Stop, Rate, Allocation, Collection, Pressure]


class Sample(NamedTuple):
    number: int
    size: int
    interval: int


class Object(NamedTuple):
    """A sampled one."""

    #: of its allocation
    number: int
    #: of the sampled objects of the allocation
    which: int
    #: of all objects of the allocation
    part: int
    size: int


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


def following_byte(sampled: int, end: int, interval: int, fixed: bool,
                   random: Iterator[int]) -> int:
    """The next sampled byte behind a sampled object, which ends before `end`."""
    if fixed:
        # of every interval-th byte, the first one behind the object
        return sampled - (sampled - end) // interval * interval
    return end + gap(interval, fixed, random)


def objects(event: Allocation, sampled: int, interval: int, fixed: bool,
            random: Iterator[int]) -> Iterator[Object]:
    """The sampled objects of a sample, whose byte number `sampled` is the first
    one that is."""
    if len(event.parts) <= 1:
        yield Object(event.number, 0, 0, event.size)
        return
    which = end = 0
    for part, size in enumerate(event.parts):
        start, end = end, end + size
        if start <= sampled < end:
            yield Object(event.number, which, part, size)
            which += 1
            if end == event.size:
                return          # it would not be used
            sampled = following_byte(sampled, end, interval, fixed, random)


def samples(events: Iterable[Event], *,
            builtin: bool = False) -> Iterator[Sample]:
    """The samples of the events, in order: the hook engine's, or those of
    the builtin one."""
    for sample, _ in samples_and_objects(events, builtin=builtin):
        yield sample


def samples_and_objects(events: Iterable[Event], *, builtin: bool = False
                        ) -> Iterator[tuple[Sample, list[Object]]]:
    """Each with its sampled objects, if what is in a piece can be known."""
    running = hidden = fixed = follows = False
    interval = 0
    allocated = 0               # the number of the next byte
    sampled = 0                 # the number of the next sampled byte
    random = behind = splitmix64(0)

    for event in events:
        if isinstance(event, Start):
            running, hidden = True, False
            interval, seed, fixed, follows = event
            random = splitmix64(seed)
            behind = splitmix64(seed + 1 & 2**64 - 1)
            gap(interval, fixed, behind)        # is not used
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
                yield (Sample(event.number, event.size, interval),
                       list(objects(event, sampled - start, interval, fixed,
                                    behind)))
                sampled = following_byte(sampled, allocated, interval, fixed,
                                         random)
                following = next_interval(interval, event.size)
                if follows and following != interval:
                    # that gap is thrown away
                    interval = following
                    sampled = allocated + gap(interval, fixed, random)
