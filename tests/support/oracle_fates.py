"""Define the outcomes of sampled objects, to test the hook engine's objects.c.

oracle.py defines which objects are sampled.

The first minor collection after an allocation determines the object's outcome. The
object is *short-lived* if the program cannot reach it, and otherwise it is *promoted*.
If the object is *pinned*, the next minor collection determines the outcome. (A pinned
object in a batch with others has an unknown outcome: the JIT makes no such batches.)

A promoted object is *freed* by the first major collection whose marking does not reach
the object. Objects that are promoted after the end of the marking are not evaluated.
The next minor collection reports the death before all other events.

The bytes of a batch after its last complete object are one object with an unknown
outcome. If a text is alone in its batch, the program has *shrunk* it, provided that the
rest contains no other data, or was not cleared. Its new size is reported when the text
is promoted, or is still young at the end of the profile. Any other batch that is too
large to be cleared completely is known only if all its objects were made. Otherwise it
counts as one object with an unknown outcome.

A minor collection without our hook makes all outcomes unknown. The objects promoted
before are *lost*, and the outcomes of the objects made until the next hooked collection
are unknown.

This definition contains no addresses, marks or forwarding pointers.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Union

import oracle

#: outcomes, with the numbers of a profile
DIED, PROMOTED, NOT_KNOWN, STILL_YOUNG = 0, 1, 3, 4
#: the object is pinned, so the next minor collection determines its outcome
PINNED = -1
#: number of bytes of a batch that the GC clears at most
CLEARED = 4096


class Start(NamedTuple):
    interval: int
    seed: int
    fixed: bool
    follow: bool


class Made(NamedTuple):
    """An object of a batch, or the rest of the batch after its last object."""

    size: int
    type: int
    #: DIED, PROMOTED or PINNED; NOT_KNOWN for the rest of a batch
    fate: int
    is_text: bool = False
    #: whether the rest of a batch contains other data
    is_junk: bool = False
    #: size in bytes after the object was shrunk, or 0 if it was not
    live_size: int = 0


class Birth(NamedTuple):
    key: int
    parts: tuple[Made, ...]
    #: where the object is allocated: "" for the nursery, "large" for a young large
    #: object, or "old" for an object that is old from birth
    place: str = ""


class Rate(NamedTuple):
    interval: int


class Drop(NamedTuple):
    """The program drops its last reference to an earlier object."""

    key: int
    part: int


class Unpin(NamedTuple):
    """The program unpins an object that was PINNED."""

    key: int
    part: int
    #: the object's outcome at the next minor collection, DIED or PROMOTED
    fate: int


class Shrink(NamedTuple):
    """The program shrinks a text that is alone in its batch."""

    key: int
    size: int


class MarkingEnds(NamedTuple):
    """A major collection ends its marking."""


class Minor(NamedTuple):
    is_seen: bool


class Stop(NamedTuple):
    pass


Step = Union[Start, Birth, Rate, Drop, Unpin, Shrink, MarkingEnds, Minor, Stop]


def parts_of(birth: Birth) -> list[Made]:
    """Return the objects of a batch, as far as the sampler can distinguish them."""
    parts = birth.parts
    size = sum(part.size for part in parts)
    made = []
    for part in parts:
        if part.fate == NOT_KNOWN:
            break
        made.append(part)
    if len(made) == len(parts):
        return made
    rest = size - sum(part.size for part in made)
    if len(made) == 1 and made[0].is_text and (
            made[0].size >= CLEARED or not parts[1].is_junk):
        return [made[0]._replace(size=size, live_size=made[0].size)]
    if size > CLEARED:
        return [Made(size, 0, NOT_KNOWN)]
    return [*made, Made(rest, 0, NOT_KNOWN)]


def _lost(steps: Iterable[Step]) -> set[int]:
    """Return the keys of objects that were young during a collection without our hook.
    """
    lost: set[int] = set()
    young: set[int] = set()
    is_lost = False
    for step in steps:
        if isinstance(step, Birth):
            young.add(step.key)
        elif isinstance(step, Minor) and not step.is_seen:
            is_lost = True
        elif isinstance(step, (Minor, Start)):
            if is_lost:
                lost |= young
            young.clear()
            is_lost = False
    return lost


def _events(steps: list[Step]) -> Iterator[oracle.Event]:
    lost = _lost(steps)
    for step in steps:
        if isinstance(step, Start):
            yield oracle.Start(step.interval, step.seed, step.fixed)
        elif isinstance(step, Stop):
            yield oracle.Stop()
        elif isinstance(step, Rate):
            yield oracle.Rate(step.interval)
        elif isinstance(step, Birth):
            sizes = tuple(part.size for part in parts_of(step))
            # the sampler does not examine such a batch, so it draws no gaps for objects
            yield oracle.Allocation(step.key, sum(sizes),
                                    () if step.key in lost else sizes)


class _Sampled(NamedTuple):
    key: int
    which: int
    #: index among all objects of the allocation
    part: int
    made: Made
    is_part: bool


class _Heap:
    """The sampled objects and their outcomes."""

    def __init__(self, births: dict[int, Birth],
                 found: dict[int, tuple[oracle.Sample, list[oracle.Object]]]) -> None:
        self._births = births
        self._found = found
        self._dropped: set[tuple[int, int]] = set()
        #: outcomes of objects after unpinning, and new sizes of shrunk texts
        self._unpinned: dict[tuple[int, int], int] = {}
        self._shrunk: dict[int, int] = {}
        self.begin(False)

    def begin(self, follow: bool) -> None:
        self._follow = follow
        self._young: list[int] = []
        self._pinned: list[_Sampled] = []
        self._old: list[_Sampled] = []
        #: old objects that the last marking did not reach
        self._unreached: list[_Sampled] = []
        self._is_lost = False

    def born(self, key: int) -> Iterator[str]:
        if key in self._found:
            sample, _ = self._found[key]
            yield "sample %d %d %d" % sample
            self._young.append(key)

    def drop(self, key: int, part: int) -> None:
        self._dropped.add((key, part))

    def unpin(self, key: int, part: int, fate: int) -> None:
        self._unpinned[key, part] = fate

    def shrink(self, key: int, size: int) -> None:
        self._shrunk[key] = size

    def mark(self) -> None:
        self._unreached = [object_ for object_ in self._old
                           if (object_.key, object_.part) in self._dropped]

    def minor(self, is_seen: bool) -> Iterator[str]:
        if not is_seen:
            self._is_lost = True
            return
        if self._is_lost:
            yield from self._lose()
        for object_ in self._unreached:
            yield "freed %d %d" % (object_.key, object_.which)
            self._old.remove(object_)
        self._unreached = []
        pinned = []
        for object_ in [*self._pinned, *self._take_young()]:
            fate = self._fate(object_)
            if fate == PINNED and self._follow and not object_.is_part:
                pinned.append(object_)
                continue
            yield self._told(object_, NOT_KNOWN if fate == PINNED else fate)
            if fate == PROMOTED and self._follow:
                self._old.append(object_)
        self._pinned = pinned
        yield "minor"

    def end(self) -> Iterator[str]:
        if not self._is_lost:
            for object_ in [*self._pinned, *self._take_young()]:
                yield self._told(object_, NOT_KNOWN if (
                    object_.made.fate == NOT_KNOWN) else STILL_YOUNG)
        self.begin(False)

    def _lose(self) -> Iterator[str]:
        for key in [*[object_.key for object_ in self._pinned], *self._young]:
            yield "young %d %d 0 0" % (key, NOT_KNOWN)
        for object_ in self._old:
            yield "lost %d %d" % (object_.key, object_.which)
        self.begin(self._follow)

    def _take_young(self) -> list[_Sampled]:
        result = []
        for key in self._young:
            parts = parts_of(self._births[key])
            result += [_Sampled(key, object_.which, object_.part,
                                parts[object_.part], len(parts) > 1)
                       for object_ in self._found[key][1]]
        self._young = []
        return result

    def _fate(self, object_: _Sampled) -> int:
        fate = object_.made.fate
        return fate if fate != PINNED else self._unpinned.get(
            (object_.key, object_.part), PINNED)

    def _told(self, object_: _Sampled, outcome: int) -> str:
        if not self._follow:
            outcome = NOT_KNOWN
        live_size = self._shrunk.get(object_.key, object_.made.live_size)
        return "young %d %d %d %d%s" % (
            object_.key, outcome, object_.made.type,
            object_.made.size if object_.is_part else 0,
            " %d" % live_size if live_size and outcome in (PROMOTED, STILL_YOUNG)
            else "")


def told(steps: list[Step]) -> list[str]:
    """Return all lines that native/objects_harness.c must print, in their order."""
    heap = _Heap({step.key: step for step in steps if isinstance(step, Birth)},
                 {sample.number: (sample, objects) for sample, objects
                  in oracle.samples_and_objects(_events(steps))})
    result: list[str] = []
    running = False
    for step in steps:
        if isinstance(step, Start):
            running = True
            heap.begin(step.follow)
        elif isinstance(step, Stop):
            running = False
            result += heap.end()
        elif isinstance(step, Birth):
            result += heap.born(step.key)
        elif isinstance(step, Drop):
            heap.drop(step.key, step.part)
        elif isinstance(step, Unpin):
            heap.unpin(*step)
        elif isinstance(step, Shrink):
            heap.shrink(*step)
        elif isinstance(step, MarkingEnds) and running:
            heap.mark()
        elif isinstance(step, Minor) and running:
            result += heap.minor(step.is_seen)
    return result
