"""A simulated heap and its profile, to compare estimates with every object.

The simulated time counts bytes: the program allocates a byte per nanosecond. The
collector is generational, as in PyPy. A minor collection runs when the nursery is full.
It frees the dead young objects and promotes the others. After every `minors` minor
collections, a major collection frees the old objects that are dead and were old before.
"""
from __future__ import annotations

import bisect
import collections
import math
import random
from collections.abc import Sequence
from typing import Optional

from made_profiles import FrameSpec, Log
from vmprof_convert.profile.probability import probability

FOREVER = 2**62


class Object:
    """An object of the simulated program. Its times are in bytes."""

    __slots__ = ("birth", "collected", "death", "died_young", "function", "size",
                 "type")

    def __init__(self, function: str, type_: str, size: int, birth: int,
                 death: int) -> None:
        self.function = function
        self.type = type_
        self.size = size
        self.birth = birth
        #: time at which the program drops the object
        self.death = death
        #: time of the first minor collection after the allocation
        self.collected = FOREVER
        self.died_young = False


class Exact:
    """The exact bytes and number of some objects.

    It also has the standard deviations of estimates of both from samples.
    """

    def __init__(self) -> None:
        self.bytes = self.objects = 0
        self._bytes_variance = self._objects_variance = 0.0

    def add(self, size: int, interval: int) -> None:
        self.bytes += size
        self.objects += 1
        p = probability(size, interval, "exponential")
        self._bytes_variance += size * size * (1 - p) / p
        self._objects_variance += (1 - p) / p

    @property
    def bytes_sigma(self) -> float:
        return math.sqrt(self._bytes_variance)

    @property
    def objects_sigma(self) -> float:
        return math.sqrt(self._objects_variance)


#: sums by function, type and outcome (lifetimes.py); the outcome None means all
Truth = dict[tuple[str, str, Optional[str]], Exact]
#: an object of a batched allocation: type, size, and the bytes that the program
#: allocates until it drops the object
Part = tuple[str, int, float]


class Heap:
    """The simulated heap, with its program and sampler."""

    def __init__(self, *, interval: int = 1000, seed: int = 1,
                 nursery: int = 20_000, minors: int = 10,
                 facts: str = "types,lifetimes", **settings: object) -> None:
        """Begin a profile; each major collection follows `minors` minor ones."""
        self.log = Log()
        self.log.settings(interval=interval, facts=facts, **settings)
        self.rng = random.Random(seed)
        self.interval = interval
        self.nursery = nursery
        self.minors = minors
        self.now = 0
        self.objects: list[Object] = []
        #: times of the major collections
        self.majors: list[int] = []
        #: sampled objects in the nursery: key of the sample, number of the object in
        #: the sample, object, whether the allocation was batched
        self._young: list[tuple[int, int, Object, bool]] = []
        self._old: list[tuple[int, int, Object]] = []
        self._begin = 0
        self._started = 0
        self._gap = self._next_gap()
        self._functions: dict[str, int] = {}
        self._types: dict[str, int] = {}
        self._collected = 0

    def _next_gap(self) -> int:
        return math.ceil(self.rng.expovariate(1 / self.interval))

    def _stack(self, names: Sequence[str]) -> list[FrameSpec]:
        for name in names:
            if name not in self._functions:
                self._functions[name] = self.log.function(
                    name, len(self._functions) + 1)
        return [self._functions[name] for name in names]

    def type(self, name: str) -> int:
        """Return the number of a type in the profile; if the type is new, name it
        there.
        """
        number = self._types.get(name)
        if number is None:
            if name.endswith(" (storage)"):
                number = self.log.type(owner=name[:-10])
            elif name.startswith("<"):
                number = self.log.type(internal=name[1:-1])
            else:
                number = self.log.type(name)
            self._types[name] = number
        return number

    def allocate(self, names: str, *parts: Part) -> None:
        """Allocate objects in one batch.

        Args:
            names: The functions, outermost first, separated by blanks.
            parts: The type, the size and the lifetime (in bytes) of each object.
        """
        stack = names.split()
        piece = sum(size for _, size, _ in parts)
        if self.now - self._begin + piece > self.nursery:
            self.collect_minor()
        # numbers of the sampled bytes in this batch, from 1
        marks = []
        at = self._gap
        while at <= piece:
            marks.append(at)
            at += self._next_gap()
        self._gap = at - piece
        self.now += piece
        made = [Object(stack[-1], type_, size, self.now, (
                    FOREVER if life == math.inf else self.now + int(life)))
                for type_, size, life in parts]
        self.objects += made
        if not marks:
            return
        self.log.allocation(self._stack(stack), size=piece,
                            interval=self.interval, time=self.now)
        ends = []
        end = 0
        for object_ in made:
            end += object_.size
            ends.append(end)
        hit = sorted({bisect.bisect_left(ends, mark) for mark in marks})
        for which, number in enumerate(hit):
            self._young.append((self.log.keys, which, made[number],
                                len(made) > 1))

    def mark(self, name: str) -> None:
        """Set a user's mark at the current time, with the resident memory."""
        self.log.mark(self.now, name)
        self.log.figure(11, self.now, self.now)

    def run(self, bytes_: int) -> None:
        """Allocate `bytes_` in code that is not sampled."""
        self.now += bytes_

    def collect_minor(self) -> None:
        """Run a minor collection, and a major one if it is due."""
        for object_ in self.objects[self._started:]:
            object_.collected = self.now
            object_.died_young = object_.death <= self.now
        self._started = len(self.objects)
        log = self.log
        log.allocated = self.now
        log.collection(self.now)
        log.event(1, self.now, 10, self.now)
        for key, which, object_, in_piece in self._young:
            log.young(key, 0 if object_.died_young else 1,
                      self.type(object_.type),
                      object_.size if in_piece else None)
            if not object_.died_young:
                self._old.append((key, which, object_))
        self._young.clear()
        self._begin = self.now
        self._collected += 1
        if self._collected % self.minors == 0:
            self.mark_and_sweep()
        if len(log.facts) > 20_000:
            log.flush()

    def mark_and_sweep(self) -> None:
        """Run a major collection, which frees the old objects that are dead.

        Objects that were promoted at the same time are not examined.
        """
        self.majors.append(self.now)
        self.log.event(3, self.now, 0, len(self.majors))
        kept = []
        for key, which, object_ in self._old:
            if object_.death <= self.now and object_.collected < self.now:
                self.log.freed(key, which)
            else:
                kept.append((key, which, object_))
        self._old = kept

    def collect(self) -> None:
        """Free all dead objects, as gc.collect() does."""
        self.collect_minor()
        self.run(1)
        self.collect_minor()
        self.mark_and_sweep()

    def data(self) -> bytes:
        """Return the finished profile."""
        self.log.allocated = self.now
        self.log.last_time = max(self.log.last_time, self.now)
        return self.log.data()

    def truth(self, at: int | None = None) -> Truth:
        """Return the exact sums of the objects that were allocated until `at`.

        If `at` is None, all objects count.
        """
        result: Truth = collections.defaultdict(Exact)
        for object_ in self.objects:
            if at is None or object_.birth <= at:
                for state in None, self._state(object_, at):
                    result[object_.function, object_.type, state].add(
                        object_.size, self.interval)
        return result

    def _state(self, object_: Object, at: int | None) -> str:
        """Return what the collector knows of an object at a time.

        Args:
            object_: the object.
            at: the number of bytes allocated before; None for the end.

        Returns:
            "alive", "died young" or "freed later".
        """
        if at is None:
            at = FOREVER - 1
        if object_.collected > at:
            return "alive"
        if object_.died_young:
            return "died young"
        for major in self.majors[
                bisect.bisect_right(self.majors, object_.collected):]:
            if object_.death <= major <= at:
                return "freed later"
        return "alive"
