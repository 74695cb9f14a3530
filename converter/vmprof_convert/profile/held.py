"""Who held what was alive, when somebody asked: what a profile says of it."""
from __future__ import annotations

import array
import dataclasses
from typing import NamedTuple

#: how an object is held: by each of a set of holders alone; by these together; by the
#: program, but by none of the holders; only by the interpreter; it waits for its
#: finalizer, or is held by what does; or nothing that the GC knows leads there
NO_PATH, ALONE, TOGETHER, OTHERWISE, INTERPRETER, FINALIZER = range(6)

#: bits of sets that are those of classes; what is below belongs to single objects
CLASSES = -1 << 30

#: behind the problems of native/held/question.h, and 1000: it is not all there
INCOMPLETE = 1006


class Holder(NamedTuple):
    """An object; several that hold something together; or all instances of a class."""

    #: its bit, or theirs
    set: int
    #: its id(), but for text and numbers, which have others; of several: 0; that of a
    #: class
    address: int
    #: that can't be reached without: exact, of all objects
    bytes: int
    objects: int
    #: as Python's programmers write it, but for what is behind an arrow; empty: these
    #: are several; "all instances of TYPE": they are those of a class
    path: str = ""
    type: str = ""
    #: other names that modules have for it
    aliases: tuple[str, ...] = ()

    @property
    def is_class(self) -> bool:
        return bool(self.set & CLASSES)


class Step(NamedTuple):
    """An object on a path, which is large enough to have a name."""

    #: the one before, as an index into Held.steps; -1: it is the first
    before: int
    #: that were reached from the roots through this object first, itself included
    bytes: int
    #: what it adds to the path
    label: str
    type: str


@dataclasses.dataclass
class Held:
    """One answer."""

    #: nanoseconds since the start
    time: int
    #: native/held/held.h; 0: there is an answer
    problem: int
    #: that were reached
    objects: int
    bytes: int
    #: nanoseconds: that the program stood still; and of processor time, of the process
    #: that looked
    still: int
    duration: int
    #: bytes that it took
    memory: int
    #: of holders, steps and sampled objects together
    rows: int
    holders: list[Holder] = dataclasses.field(default_factory=list)
    #: a path's first step comes before the others
    steps: list[Step] = dataclasses.field(default_factory=list)
    #: the number of steps of the reference path that ends with each step
    depths: list[int] = dataclasses.field(default_factory=list)
    #: sets of the holders that have a name
    named: set[int] = dataclasses.field(default_factory=set)
    #: of the sampled objects that were alive: columns
    stacks: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    types: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    sizes: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    #: bytes that they took then, where `sizes` were allocated
    live_sizes: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    intervals: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    sets: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    #: one of NO_PATH to FINALIZER
    hows: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    #: the last step of the path there, as far as it has names: an index into `steps`;
    #: -1: none
    paths: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))

    def path(self, step: int) -> str:
        """The whole one, up to a step."""
        label, before = self.steps[step].label, self.steps[step].before
        return (self.path(before) if before >= 0 else "") + label
