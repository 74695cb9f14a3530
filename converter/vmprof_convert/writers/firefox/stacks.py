"""Conversion of the stacks of a profile into the builder's stacks."""
from __future__ import annotations

import array
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from vmprof_convert.analysis.holder_tree import HeldStack
from vmprof_convert.meaning import origins, type_names
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.meaning.type_names import TypeNames
from vmprof_convert.meaning.visible_stacks import CUT, Program
from vmprof_convert.profile.model import (
    LABEL,
    NATIVE,
    PYTHON,
    Function,
    Profile,
)
from vmprof_convert.profile.stacks import Frame
from vmprof_convert.writers.firefox.format import categories
from vmprof_convert.writers.firefox.format.builder import ProfileBuilder
from vmprof_convert.writers.firefox.format.categories import Category

#: name of the function that a track shows for times without samples
IDLE = "[nothing sampled]"
#: number in place of a type for CPU samples, which have no type
_NO_TYPE = -2

#: Names of the functions in which objects end in the file, because deallocations have
#: no stacks. OUT_OF_SIGHT is for unknown outcomes.
MINOR, MAJOR, OUT_OF_SIGHT = SITES = (
    "[minor collection]", "[major collection]", "[not followed any further]")

#: name that replaces MAJOR for native memory
GIVEN_BACK = "[free()]"

_ORIGINS = {origins.PROGRAM: categories.PROGRAM,
            origins.PACKAGES: categories.PACKAGES,
            origins.LIBRARY: categories.LIBRARY,
            origins.IMPORTING: categories.IMPORTING,
            origins.BUILT_IN: categories.BUILT_IN}
_WAYS = {"interpreted": categories.INTERPRETED, "jit": categories.JIT,
         "native": categories.NATIVE}
_TYPES = {type_names.CLASS: categories.CLASS,
          type_names.STORAGE: categories.STORAGE,
          type_names.INTERNAL: categories.INTERNAL,
          type_names.LAYOUT: categories.INTERNAL}


class Stacks(NamedTuple):
    """Indices in the builder's table of stacks."""

    #: stack for each stack of the profile, ending with the function that was running
    code: dict[int, int]
    #: stack for each sample, which ends with the type of the object if types are
    #: recorded
    typed: array.array[int]
    #: stack for each of SITES, empty if the profile has no outcomes
    sites: dict[str, int]
    #: stack of IDLE, -1 if it was not requested
    idle: int


def add(profile: Profile, builder: ProfileBuilder, origins_: Origins,
        progress: Callable[[int, int], None] | None, *,
        has_idle: bool) -> Stacks:
    """Add all stacks of a profile to a builder.

    Args:
        profile: The profile.
        builder: The builder.
        origins_: The origins of the profile's functions, which determine categories.
        progress: A function that is called with the number of converted stacks and the
            number of all stacks.
        has_idle: Whether to add the stack of IDLE.
    """
    program = Program(profile)
    samples = profile.samples
    rows = _Rows(program, builder, _FrameIndex(program, builder, origins_),
                 profile.cut_off)

    def label(name: str, category: Category) -> int:
        return builder.stack(-1, builder.frame(
            builder.function(name, python=False), category))

    # Only the stacks of samples are needed. The lost stack, -1, comes last.
    sampled = sorted(set(samples.stack), key=lambda number: (number < 0, number))
    of_code: dict[int, int] = {}
    step = len(sampled) // 100 + 1
    for done, stack in enumerate(sampled):
        if progress is not None and done % step == 0:
            progress(done, len(sampled))
        of_code[stack] = rows.of(stack) if stack >= 0 else rows.lost()
    if progress is not None:
        progress(len(sampled), len(sampled))
    if profile.has_types:
        types: Sequence[int] = samples.type
        if samples.ticks:
            # CPU samples have no type
            types = [type_ if size else _NO_TYPE
                     for type_, size in zip(types, samples.size)]
        typed = map(_Typed(profile, builder, of_code).__getitem__,
                    zip(samples.stack, types))
    else:
        typed = map(of_code.__getitem__, samples.stack)
    sites = SITES if profile.has_lifetimes else ()
    return Stacks(
        of_code, array.array("i", typed),
        {site: label(site, categories.COLLECTOR)
         if site != MAJOR or not profile.is_raw else label(
             GIVEN_BACK, categories.OTHER) for site in sites},
        label(IDLE, categories.IDLE) if has_idle else -1)


def add_held(held: Iterable[HeldStack], builder: ProfileBuilder) -> list[int]:
    """Add the stacks of retainers; return their indices in the same order."""
    rows = []
    for stack in held:
        type_, place = stack.type, stack.place
        frames = [builder.frame(builder.function(name, python=False), categories.OTHER)
                  for name in stack.holders]
        if type_ is not None:
            frames.append(builder.frame(
                builder.function(type_.name, python=False), _type(type_.kind)))
        if place is not None:
            frames.append(builder.frame(
                builder.function(place.name, place.file, place.line,
                                 python=bool(place.file), shown=place.path),
                Category(_ORIGINS[place.origin], 0) if place.origin in _ORIGINS
                else categories.OTHER))
        row = -1
        for frame in frames:
            row = builder.stack(row, frame)
        rows.append(row)
    return rows


class _FrameIndex(dict[Frame, int]):
    """A cache of the builder's index of each frame."""

    def __init__(self, program: Program, builder: ProfileBuilder,
                 origins_: Origins):
        super().__init__()
        self._program = program
        self._builder = builder
        self._origins = origins_

    def __missing__(self, frame: Frame) -> int:
        function = self._program.function(frame)
        index = self._builder.frame(
            self._builder.function(
                function.name, function.file, function.line,
                python=function.kind == PYTHON,
                shown=self._origins.path(function.file)),
            self._category(function, frame), frame.line)
        self[frame] = index
        return index

    def _category(self, function: Function, frame: Frame) -> Category:
        """Return the category of a frame.

        All frames of a function have the same main category.
        """
        if function.kind == LABEL:
            return categories.OTHER
        way = (categories.NATIVE if function.kind == NATIVE
               else _WAYS.get(frame.kind, 0))
        return Category(_ORIGINS[self._origins.of(function)], way)


class _Rows:
    """The conversion of the profile's stacks, with a cache of the nodes."""

    def __init__(self, program: Program, builder: ProfileBuilder, frames: _FrameIndex,
                 cut: Container[int]) -> None:
        """Prepare the conversion; `cut` contains stacks without outermost frames."""
        self._program = program
        self._builder = builder
        self._frames = frames
        self._cut = cut
        self._tree = program.tree()
        #: builder's stack of each converted node, and of nodes below the frame CUT
        self._rows: dict[int, int] = {0: -1}
        self._cut_rows: dict[int, int] = {}

    def lost(self) -> int:
        """Return the builder's stack for samples whose stack got lost."""
        frame, = self._program.stack(-1)
        return self._builder.stack(-1, self._frames[frame])

    def of(self, stack: int) -> int:
        """Return the builder's stack for a stack of the profile."""
        node = self._tree.nodes[stack]
        # if the outermost frame is a label, it is not a function with missing callers
        if stack not in self._cut or self._tree.path(node)[0].kind == LABEL:
            return self._find(self._rows, node)
        if not self._cut_rows:
            self._cut_rows[0] = self._builder.stack(-1, self._builder.frame(
                self._builder.function(CUT, python=False), categories.OTHER))
        return self._find(self._cut_rows, node)

    def _find(self, rows: dict[int, int], node: int) -> int:
        nodes = []
        while node not in rows:
            nodes.append(node)
            node = self._tree.parents[node]
        row = rows[node]
        for node in reversed(nodes):
            row = rows[node] = self._builder.stack(
                row, self._frames[self._tree.frames[node]])
        return row


class _Typed(dict[tuple[int, int], int]):
    """A cache of the builder's stacks that end with a type.

    The keys are pairs of a stack of the profile and the type of an object that it
    allocated.
    """

    def __init__(self, profile: Profile, builder: ProfileBuilder,
                 code: dict[int, int]):
        super().__init__()
        self._code = code
        self._builder = builder
        self._frames = _TypeFrames(profile, builder)

    def __missing__(self, key: tuple[int, int]) -> int:
        stack, type_ = self._code[key[0]], key[1]
        row = self[key] = (stack if type_ == _NO_TYPE else self._builder.stack(
            stack, self._frames[type_]))
        return row


def _type(kind: str) -> Category:
    return _TYPES.get(kind, categories.TYPE)


class _TypeFrames(dict[int, int]):
    """A cache of the builder's index of a frame for each type of objects."""

    def __init__(self, profile: Profile, builder: ProfileBuilder):
        super().__init__()
        self._names = TypeNames(profile)
        self._builder = builder

    def __missing__(self, number: int) -> int:
        name, kind = self._names.shown(number)
        index = self._builder.frame(
            self._builder.function(name, python=False), _type(kind))
        self[number] = index
        return index
