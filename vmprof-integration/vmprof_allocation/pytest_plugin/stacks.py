"""Choose the samples that count as leaked, for filter_fn and current_thread_only.

The arguments of the marker limit_leaks, and the object that filter_fn gets, have the
names and meanings of those in pytest-memray.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple

from vmprof_convert.meaning.visible_stacks import Program
from vmprof_convert.profile import columns
from vmprof_convert.profile.model import ALIVE, Profile

#: The name and the file of a function for which the profile has none.
_UNKNOWN = "???"


class StackFrame(NamedTuple):
    """A frame of a call stack."""

    function: str
    filename: str
    #: The executed line, or the line of the function's definition if the executed line
    #: is unknown.  0 if both are unknown.
    lineno: int


class Stack(NamedTuple):
    """A call stack that allocated leaked objects."""

    #: The innermost frame first.
    frames: tuple[StackFrame, ...]


class Chosen(NamedTuple):
    """The choice of the samples that count as leaked."""

    #: A function that returns whether a stack counts.  None if all stacks count.
    filter_fn: Callable[[Stack], object] | None
    #: The kernel's number of the only thread that counts.  None if all threads count.
    thread: int | None

    @property
    def is_everything(self) -> bool:
        """Whether all samples count."""
        return self.filter_fn is None and self.thread is None

    def part(self, profile: Profile, gained: Iterable[Profile]) -> Profile:
        """Return a copy of a profile that contains only the samples that count.

        filter_fn is called once for each stack of a live object in `gained`.

        Args:
            profile: All samples.
            gained: The leaked samples.
        """
        samples = profile.samples
        refused: set[int] = set()
        if self.filter_fn is not None:
            refused = self._refused(profile, {
                stack for one in gained for stack, thread, fate in zip(
                    one.samples.stack, one.samples.thread, one.samples.fate)
                if fate == ALIVE and self.thread in (None, thread)})
        which = [stack not in refused and self.thread in (None, thread)
                 for stack, thread in zip(samples.stack, samples.thread)]
        return dataclasses.replace(profile, samples=samples.mapped(
            lambda column: columns.chosen(column, which)))

    def _refused(self, profile: Profile, stacks: set[int]) -> set[int]:
        assert self.filter_fn is not None
        program = Program(profile)
        answers: dict[Stack, bool] = {}
        refused = set()
        for number in sorted(stacks):
            stack = _visible(program, number)
            if stack not in answers:
                answers[stack] = bool(self.filter_fn(stack))
            if not answers[stack]:
                refused.add(number)
        return refused


def _visible(program: Program, number: int) -> Stack:
    frames = []
    for frame in reversed(program.stack(number)):
        function = program.function(frame)
        frames.append(StackFrame(function.name or _UNKNOWN, function.file or _UNKNOWN,
                                 max(program.line(frame), 0) or function.line))
    return Stack(tuple(frames))
