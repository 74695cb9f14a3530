"""The retainers of live objects, as a heap snapshot with retained sizes found them.

readers/contents.py fills these classes from the records *held*, *holders*, *held paths*
and *held objects* (PROFILE.rst). analysis/holders.py and analysis/holder_tree.py
evaluate them.
"""
from __future__ import annotations

import array
import dataclasses
from typing import NamedTuple

#: How a sampled object is retained (Held.hows). "The set" is the set of its retainers
#: (Held.sets).
#: - NO_PATH: The GC knows no reference path to the object.
#: - ALONE: Each retainer of the set retains the object without the others.
#: - TOGETHER: The set retains the object, but no single retainer of the set does.
#: - OTHERWISE: The program can reach the object without any of the retainers.
#: - INTERPRETER: Only the interpreter refers to the object.
#: - FINALIZER: The object or one of its retainers waits for its finalizer.
NO_PATH, ALONE, TOGETHER, OTHERWISE, INTERPRETER, FINALIZER = range(6)

#: Mask of the bits in Holder.set that represent classes. The lower bits represent
#: single objects.
CLASSES = -1 << 30

#: Value of Held.problem if rows are missing. The native code's problems end at 1005.
INCOMPLETE = 1006


class Holder(NamedTuple):
    """An object, a group of objects or all instances of a class, with retained size."""

    #: one bit for an object or a class, several bits for a group
    set: int
    #: `id()` of the object or the class, except for text and numbers; 0 for a group
    address: int
    #: exact total size and number of the objects that only this retainer keeps
    #: reachable
    bytes: int
    objects: int
    #: Reference path as a Python expression, except for steps after an arrow. The path
    #: is empty for a group and "all instances of TYPE" for a class.
    path: str = ""
    type: str = ""
    #: other names that modules have for the object
    aliases: tuple[str, ...] = ()

    @property
    def is_class(self) -> bool:
        """Whether the retainer is all instances of a class."""
        return bool(self.set & CLASSES)


class Step(NamedTuple):
    """An object on a reference path, through which the walk reached many bytes.

    An object is no step if less than 1/4096 of all bytes was reached through it, except
    modules.
    """

    #: index of the preceding step in Held.steps, -1 for the first step
    before: int
    #: bytes of this object, and of the objects that the walk from the roots reached
    #: first through this object
    bytes: int
    #: text that the step adds to the path
    label: str
    type: str


@dataclasses.dataclass
class Held:
    """The retainers that one heap snapshot found."""

    #: time of the snapshot in nanoseconds since the start
    time: int
    #: 0 if the snapshot found the retainers. Otherwise 1000 + enum held_problem of
    #: native/held/question.h, 2000 + a signal that ended the forked process, or
    #: INCOMPLETE
    problem: int
    #: number and bytes of all objects that were reached from the GC's roots
    objects: int
    bytes: int
    #: pause of the program in nanoseconds
    still: int
    #: processor time of the forked process in nanoseconds
    duration: int
    #: bytes that the forked process needed
    memory: int
    #: number of retainers, steps and sampled objects together that the profile should
    #: contain; fewer are present if the problem is INCOMPLETE
    rows: int
    holders: list[Holder] = dataclasses.field(default_factory=list)
    #: steps of the reference paths; each step comes after its predecessor
    steps: list[Step] = dataclasses.field(default_factory=list)
    #: number of steps of the reference path that ends with each step
    depths: list[int] = dataclasses.field(default_factory=list)
    #: Holder.set of each retainer that has a reference path
    named: set[int] = dataclasses.field(default_factory=set)
    #: Columns of the sampled objects that were alive: indices in Profile.stacks and
    #: Profile.types, and the sizes in bytes when the objects were allocated.
    stacks: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    types: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    sizes: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    #: size of each object in bytes when the snapshot was taken
    live_sizes: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    #: mean gap between sample points in bytes when each object was sampled
    intervals: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    #: retainers of each object: the bits of their Holder.set
    sets: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    #: one of NO_PATH to FINALIZER for each object
    hows: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))
    #: index in `steps` of the last step with a name on the path to each object, or -1
    paths: array.array[int] = dataclasses.field(
        default_factory=lambda: array.array("q"))

    def path(self, step: int) -> str:
        """Return the whole reference path that ends with a step."""
        label, before = self.steps[step].label, self.steps[step].before
        return (self.path(before) if before >= 0 else "") + label
