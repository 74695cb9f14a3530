"""What became of the sampled objects?  The definition, to test the hook engine's
objects.c against; which objects are sampled, oracle.py says.

At the first minor collection after its birth, an object *died young* if nothing holds
it, and else it is *promoted*; if it is *pinned*, the next minor collection decides.
(Nobody asks again for a pinned object that shares a piece with others, which no JIT
makes: of that, nothing is known.)  One that was promoted is *freed* by the
first major collection that doesn't reach it when it marks; what is promoted
later than that, it doesn't judge.  It is told at the minor collection that comes
first after the marking, before anything else.

Of a piece, what follows the last object that was made is an object of which nothing is
known.  A text that is alone in its piece was *shrunk* from what was reserved for it, if
nothing else was written there, or nobody can tell as it was not cleared.  What it takes
is told where it is promoted, or still young when the profile ends.  Another piece so
large that not all of it is cleared is known if all of it was made, and otherwise counts
as one object, of which nothing is known.

A minor collection that nobody sees makes all of it unknown: what had been promoted is
*lost*, and what was made before the next one that is seen, not known.

There are no addresses here, no marks, and no forwarding.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Union

import oracle

#: as a profile has them
DIED, PROMOTED, NOT_KNOWN, STILL_YOUNG = 0, 1, 3, 4
#: no minor collection has told yet
PINNED = -1
#: so many bytes of a piece are cleared
CLEARED = 4096


class Start(NamedTuple):
    interval: int
    seed: int
    fixed: bool
    follow: bool


class Made(NamedTuple):
    """An object of a piece; or what is none."""

    size: int
    type: int
    #: DIED, PROMOTED or PINNED; NOT_KNOWN: what is there is no object
    fate: int
    is_text: bool = False
    #: of what is no object: there is something else
    is_junk: bool = False
    #: bytes that it takes, after it was shrunk; 0: it was not
    live_size: int = 0


class Birth(NamedTuple):
    key: int
    parts: tuple[Made, ...]
    #: not in the nursery: "large", or "old" from birth
    place: str = ""


class Rate(NamedTuple):
    interval: int


class Drop(NamedTuple):
    """The program does without an object of its past."""

    key: int
    part: int


class Unpin(NamedTuple):
    """What was PINNED."""

    key: int
    part: int
    #: DIED or PROMOTED, at the next minor collection
    fate: int


class Shrink(NamedTuple):
    """A text that is alone in its piece."""

    key: int
    size: int


class MarkingEnds(NamedTuple):
    """Of a major collection."""


class Minor(NamedTuple):
    is_seen: bool


class Stop(NamedTuple):
    pass


Step = Union[Start, Birth, Rate, Drop, Unpin, Shrink, MarkingEnds, Minor, Stop]


def parts_of(birth: Birth) -> list[Made]:
    """As far as they can be told apart."""
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
    """Keys of what was young when nobody saw a collection."""
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
            # a piece that nobody will look at takes no gap
            yield oracle.Allocation(step.key, sum(sizes),
                                    () if step.key in lost else sizes)


class _Sampled(NamedTuple):
    key: int
    which: int
    #: of the objects that were made
    part: int
    made: Made
    is_part: bool


class _Heap:
    """Of the sampled objects alone."""

    def __init__(self, births: dict[int, Birth],
                 found: dict[int, tuple[oracle.Sample, list[oracle.Object]]]) -> None:
        self._births = births
        self._found = found
        self._dropped: set[tuple[int, int]] = set()
        #: as they were pinned first, and shrunk last
        self._unpinned: dict[tuple[int, int], int] = {}
        self._shrunk: dict[int, int] = {}
        self.begin(False)

    def begin(self, follow: bool) -> None:
        self._follow = follow
        self._young: list[int] = []
        self._pinned: list[_Sampled] = []
        self._old: list[_Sampled] = []
        #: that the last marking did not reach, of those that were old then
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
    """All that is to be said of samples, in the order in which it is, as
    native/objects_harness.c prints it."""
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
