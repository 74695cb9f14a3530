"""Synthetic profiles of programs with a leak, without one, and with a growing cache.

Random numbers determine when the sampled objects are allocated and when they die.
"""
from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from made_profiles import Log
from vmprof_convert import readers
from vmprof_convert.analysis.leaks.search import (
    Leak,
    Leaks,
    OldObjects,
    Process,
    find_leaks,
)
from vmprof_convert.profile.model import ALIVE, FREED, Columns, Profile, Samples

SECOND = 10**9
#: duration of a run in seconds
END = 20.0
#: mean bytes between two samples
INTERVAL = 1000
#: times in seconds at which the marking of a major collection ends
MAJORS = range(2, 21)

#: time at which an object is allocated, and time at which it is dropped, in seconds
Life = tuple[float, float]


class Kept(NamedTuple):
    """A sampled object."""

    #: functions, outermost first, with blanks between them
    stack: str
    type: str
    size: int
    born: float
    #: time in seconds; infinite if the object is never dropped
    dropped: float


def run_of(majors: Iterable[float], marks: Iterable[float] = (),
           stacks: Iterable[str] = ("main f0",),
           types: Iterable[str] = ("t0",)) -> Profile:
    """Return a profile with stacks, types and collections, but without old objects.

    The given stacks and types have the numbers 0, 1, ... in the profile.
    """
    log = Log()
    log.settings(interval=INTERVAL, facts="types,lifetimes")
    functions: dict[str, int] = {}
    for stack in stacks:
        frames = stack.split()
        for name in frames:
            if name not in functions:
                functions[name] = log.function(name)
        log.allocation([functions[name] for name in frames], size=16)
    for name in types:
        if name.endswith(" (storage)"):
            log.type(owner=name[:-10])
        elif name.startswith("<"):
            log.type(internal=name[1:-1])
        else:
            log.type(name)
    for number, time in enumerate(majors):
        log.event(3, int(time * SECOND), 0, number + 1)
    for time in marks:
        log.mark(int(time * SECOND), "here")
    log.last_time = int(END * SECOND)
    log.allocated = int(END * 2**20)
    return readers.read_bytes(log.data())


def process_of(objects: Iterable[Kept], majors: Iterable[float] = MAJORS,
               marks: Iterable[float] = ()) -> Process:
    """Return a process with these objects.

    Each object is old from its allocation on. The first major collection after the
    program has dropped an object frees the object.
    """
    objects = list(objects)
    majors = list(majors)
    stacks = {stack: number for number, stack in enumerate(
        dict.fromkeys(one.stack for one in objects))}
    types = {name: number for number, name in enumerate(
        dict.fromkeys(one.type for one in objects))}
    samples = Samples()
    for stack, type_, size, born, dropped in objects:
        freed = next((time for time in majors if time >= dropped), None)
        samples.add(stacks[stack], 0, 1, size, INTERVAL, 0, types[type_],
                    ALIVE if freed is None else FREED, int(born * SECOND),
                    -1 if freed is None else int(freed * SECOND))
    samples.finish()
    old = OldObjects()
    old.extend(Columns(*samples.columns()))
    return Process(run_of(majors, marks, stacks or ("main",), types), old)


def a_process(sites: list[list[Life]], majors: Iterable[float] = MAJORS,
              marks: Iterable[float] = (), size: int = 16) -> Process:
    """Return a process in which each allocation site has its own function and type."""
    return process_of((
        Kept("main f%d" % number, "t%d" % number, size, born, dropped)
        for number, lives in enumerate(sites) for born, dropped in lives),
        majors, marks)


def found(sites: list[list[Life]], majors: Iterable[float] = MAJORS,
          marks: Iterable[float] = (), size: int = 16) -> Leaks:
    """Return the leaks that find_leaks() finds in a_process()."""
    return find_leaks([a_process(sites, majors, marks, size)])


def types(found: list[Leak]) -> list[list[str]]:
    """Return a list of the names of its types for each leak."""
    return [[one.type.name for one in leak.types] for leak in found]


def probability(size: int) -> float:
    """Return the probability that an object of `size` bytes is sampled."""
    return -math.expm1(-size / INTERVAL)


def times(rng: random.Random, rate: Callable[[float], float],
          highest: float) -> list[float]:
    """Return the times of a Poisson process.

    Args:
        rng: The source of random numbers.
        rate: Returns the rate at a time, in events per second.
        highest: An upper limit of the rate.
    """
    result = []
    time = rng.expovariate(highest)
    while time < END:
        if rng.random() * highest < rate(time):
            result.append(time)
        time += rng.expovariate(highest)
    return result


# Lifetimes of the sampled objects of one allocation site. Each `rate` is in samples per
# second.

def leak(rng: random.Random, rate: float = 20) -> list[Life]:
    """Return the lifetimes of objects that are never dropped."""
    return [(t, math.inf) for t in times(rng, lambda t: rate, rate)]


def churn(rng: random.Random, rate: float = 20, mean: float = 3) -> list[Life]:
    """Return exponential lifetimes of `mean` seconds for a constant number of objects.
    """
    lives = [(0.0, rng.expovariate(1 / mean))
             for _ in range(round(rate * mean))]
    return lives + [(t, t + rng.expovariate(1 / mean))
                    for t in times(rng, lambda t: rate, rate)]


def last_used(rng: random.Random, rate: float = 20, keeps: int = 70) -> list[Life]:
    """Return the lifetimes in a cache that keeps the last `keeps` objects."""
    births = [0.0] * keeps + times(rng, lambda t: rate, rate)
    return [*zip(births, births[keeps:]),
            *((t, math.inf) for t in births[len(births) - keeps:])]


def cache(rng: random.Random, rate: float = 60) -> list[Life]:
    """Return the lifetimes in a cache that keeps all objects.

    The keys are random, so new keys become rarer.
    """
    return [(t, math.inf) for t in times(
        rng, lambda t: rate * math.exp(-t / 4), rate)]


def settled(rng: random.Random, rate: float = 100) -> list[Life]:
    """Return the lifetimes of data that a program builds at its start."""
    return [(t, math.inf) for t in times(
        rng, lambda t: rate * (t < END / 5), rate)]


def queue(rng: random.Random) -> list[Life]:
    """Return the lifetimes in a queue that receives and removes objects in batches."""
    lives = []
    for start in times(rng, lambda t: 1.5, 1.5):
        end = start + rng.expovariate(1 / 2)
        lives += [(start, end)] * rng.randrange(5, 60)
    return lives


def brief(rng: random.Random, rate: float = 300) -> list[Life]:
    """Return lifetimes of 10 ms: garbage that a minor collection promoted by chance."""
    return [(t, t + 0.01) for t in times(rng, lambda t: rate, rate)]
