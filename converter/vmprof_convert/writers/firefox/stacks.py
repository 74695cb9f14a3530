"""The stacks of a profile, as the builder has them."""
from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vmprof_convert import origins, type_names
from vmprof_convert.model import LABEL, NATIVE, PYTHON, Frame, Function, Profile
from vmprof_convert.origins import Origins
from vmprof_convert.program import CUT, Program
from vmprof_convert.type_names import TypeNames
from vmprof_convert.writers.firefox.format import categories
from vmprof_convert.writers.firefox.format.builder import ProfileBuilder
from vmprof_convert.writers.firefox.format.categories import Category

#: where a track shows that nothing was sampled
IDLE = "[nothing sampled]"

#: Where objects end, as far as that is known: deallocations have no stack.
MINOR, MAJOR, OUT_OF_SIGHT = SITES = (
    "[minor collection]", "[major collection]", "[not followed any further]")

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
    """Rows of the builder's table of stacks."""

    #: of each sample: the function that ran
    code: Sequence[int]
    #: of each sample: below it the type of the object, where types are recorded
    typed: Sequence[int]
    #: of each of SITES, if ends are recorded
    sites: dict[str, int]
    #: of IDLE
    idle: int


def add(profile: Profile, builder: ProfileBuilder, origins_: Origins,
        progress: Callable[[int, int], None] | None, *,
        has_idle: bool) -> Stacks:
    """Give all stacks of `profile` to `builder`, with IDLE's if it `has_idle`."""
    program = Program(profile)
    frame_index = _FrameIndex(program, builder, origins_).__getitem__
    samples = profile.samples
    # time samples are of nothing
    types = ([type_ if size else None for type_, size in
              zip(samples.type, samples.size)] if profile.has_types
             else [None] * len(samples))
    type_frame = _TypeFrames(profile, builder).__getitem__
    pairs = set(zip(samples.stack, types))
    pairs.update((stack, None) for stack, _ in list(pairs))
    # the lost one last
    distinct = sorted(pairs, key=lambda pair: (
        pair[0] < 0, pair[0], -2 if pair[1] is None else pair[1]))

    def label(name: str, category: Category) -> int:
        return builder.frame(builder.function(name, python=False), category)

    cut = profile.cut_off
    root = [label(CUT, categories.OTHER)] if cut else []
    stacks = []
    step = len(distinct) // 100 + 1
    number, frames = None, []
    for done, (stack, type_) in enumerate(distinct):
        if progress is not None and done % step == 0:
            progress(done, len(distinct))
        if stack != number:
            seen = program.stack(stack)
            number, frames = stack, list(map(frame_index, seen))
            if stack in cut and seen[0].kind != LABEL:
                frames = root + frames
        stacks.append(frames if type_ is None else [*frames, type_frame(type_)])
    sites = SITES if profile.has_lifetimes else ()
    stacks += [[label(site, categories.COLLECTOR)] for site in sites]
    if has_idle:
        stacks.append([label(IDLE, categories.IDLE)])
    result = builder.set_stacks(stacks)
    index = dict(zip(distinct, result))
    if progress is not None:
        progress(len(distinct), len(distinct))
    of_code = {stack: row for (stack, type_), row in index.items() if type_ is None}
    code = array.array("i", map(of_code.__getitem__, samples.stack))
    return Stacks(
        code, (array.array("i", map(index.__getitem__, zip(samples.stack, types)))
               if profile.has_types else code),
        dict(zip(sites, result[len(distinct):])), result[-1])


class _FrameIndex(dict[Frame, int]):
    """The builder's index of each of the program's frames."""

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
        """All frames of a function agree, but for the subcategory."""
        if function.kind == LABEL:
            return categories.OTHER
        way = (categories.NATIVE if function.kind == NATIVE
               else _WAYS.get(frame.kind, 0))
        return Category(_ORIGINS[self._origins.of(function)], way)


class _TypeFrames(dict[int, int]):
    """The builder's index of a frame for each type of objects."""

    def __init__(self, profile: Profile, builder: ProfileBuilder):
        super().__init__()
        self._names = TypeNames(profile)
        self._builder = builder

    def __missing__(self, number: int) -> int:
        name, kind = self._names.shown(number)
        index = self._builder.frame(
            self._builder.function(name, python=False), _TYPES.get(
                kind, categories.TYPE))
        self[number] = index
        return index
