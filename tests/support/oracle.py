"""Define which objects are sampled, to test both engines against this definition.

Number the bytes that the program allocates 0, 1, 2, ... Some bytes are sampled. An
object is sampled if one of its bytes is sampled.

*Exponential gaps*: the first sampled byte follows the start after a random gap. Each
further one follows the end of the previous sampled object after a random gap.
*Fixed gaps*: every interval-th byte is sampled, independently of the objects.

A new gap is drawn, counted from the next byte, when the interval changes. The same
happens when memory pressure has hidden some bytes from the profiler. The hook engine
notices this when the program next enters the GC: at the next allocation or collection,
or when the interval changes. No bytes are hidden from the builtin engine.

An allocation may be a batch of several objects. The object with the batch's first
sampled byte is a *sampled object*. Each later object of the batch is sampled if it
would be sampled when allocated separately. The gaps for these objects come from a
second generator with the next seed, whose first gap is drawn at the start and not used.

This definition contains no addresses and no nursery.
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
    #: whether each sample sets the interval to the result of next_interval()
    follows: bool = False


class Stop(NamedTuple):
    pass


class Rate(NamedTuple):
    interval: int


class Allocation(NamedTuple):
    """The allocation of an object, small or large, or of a batch."""

    number: int
    size: int
    #: sizes of the objects of a batch
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
    """A sampled object."""

    #: number of the allocation
    number: int
    #: index among the sampled objects of the allocation
    which: int
    #: index among all objects of the allocation
    part: int
    size: int


def splitmix64(seed: int) -> Iterator[int]:
    """Yield random 64-bit numbers (Steele, Lea and Flood, OOPSLA 2014)."""
    mask = 2**64 - 1
    state = seed
    while True:
        state = state + 0x9E3779B97F4A7C15 & mask
        z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        yield z ^ z >> 31


def gap(interval: int, fixed: bool, random: Iterator[int]) -> int:
    """Return a random gap: the number of bytes before the next sampled byte."""
    if fixed:
        return interval - 1
    uniform = ((next(random) >> 11) + 1) / 2**53        # 0 < uniform <= 1
    return min(int(-math.log(uniform) * interval), MAX_INTERVAL)


def next_interval(interval: int, size: int) -> int:
    """Return the interval after a sample, if `Start.follows` is set.

    The harnesses compute the same. The interval may depend only on earlier samples.
    """
    return (interval * 5 + size) % 10007 + 1


def following_byte(sampled: int, end: int, interval: int, fixed: bool,
                   random: Iterator[int]) -> int:
    """Return the next sampled byte after a sampled object, which ends before `end`."""
    if fixed:
        # the first sampled byte that is not in the object
        return sampled - (sampled - end) // interval * interval
    return end + gap(interval, fixed, random)


def objects(event: Allocation, sampled: int, interval: int, fixed: bool,
            random: Iterator[int]) -> Iterator[Object]:
    """Yield the sampled objects of an allocation with a sampled byte.

    `sampled` is the offset of the first sampled byte in the allocation.
    """
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
                return          # a further gap must not be drawn
            sampled = following_byte(sampled, end, interval, fixed, random)


def samples(events: Iterable[Event], *,
            builtin: bool = False) -> Iterator[Sample]:
    """Yield the samples of the hook engine, or of the builtin engine, in order."""
    for sample, _ in samples_and_objects(events, builtin=builtin):
        yield sample


def samples_and_objects(events: Iterable[Event], *, builtin: bool = False
                        ) -> Iterator[tuple[Sample, list[Object]]]:
    """Yield each sample with its sampled objects, if the batch's objects are known."""
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
            gap(interval, fixed, behind)        # the first gap is not used
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
                    # the gap drawn with the old interval is discarded
                    interval = following
                    sampled = allocated + gap(interval, fixed, random)
