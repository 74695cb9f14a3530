"""Reduce stacks to user code, so that library allocations belong to their caller.

The option --user-code uses this module. origins.py decides which functions are user
code.
"""
from __future__ import annotations

import dataclasses

from vmprof_convert.meaning.origins import IMPORTING, NOWHERE, PROGRAM, Origins
from vmprof_convert.meaning.visible_stacks import (
    IMPORT,
    LABEL_FRAMES,
    OUTSIDE,
    UNCAUGHT,
    Program,
    shows_an_exception,
)
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.stacks import Frame, StackTable
from vmprof_convert.readers.pypy_stacks import LABELS, NOT_KNOWN


class OwnStacks(StackTable):
    """The stacks of a profile with only user functions and labels.

    An import inside of a user function is shown as the label IMPORT after this
    function.
    """

    def __init__(self, profile: Profile, origins: Origins) -> None:
        """Prepare the stacks of a profile."""
        self._all = profile.stacks
        self._program = Program(profile)
        self._origins = origins
        #: the origins of functions, by the frame's kind and address
        self._known: dict[tuple[str, int], str] = {}

    def __len__(self) -> int:
        """Return the number of stacks."""
        return len(self._all)

    def has_compiled(self) -> bool:
        """Return whether the profile contains compiled code."""
        # Compiled code may be in libraries only.
        return self._all.has_compiled()

    def stack(self, number: int) -> tuple[Frame, ...]:
        """Return the user functions of a stack, outermost first, or a label."""
        own: list[Frame] = []
        is_import = False
        stack = self._program.stack(number)
        if shows_an_exception(self._program.function(stack[0])):
            own.append(LABEL_FRAMES[UNCAUGHT])
            # The interpreter imports modules to show an exception. These imports are
            # not shown as imports of the program.
            stack = tuple(frame for frame in stack
                          if self._origin(frame) != IMPORTING)
        origin = NOWHERE
        for frame in stack:
            # An unknown compiled function has the origin of its caller.
            if LABELS.get(frame) != NOT_KNOWN:
                origin = self._origin(frame)
            if origin in (PROGRAM, NOWHERE):
                own.append(frame)
                is_import = False
            elif origin == IMPORTING:
                is_import = True
        if is_import:
            own.append(LABEL_FRAMES[IMPORT])
        return tuple(own) or (LABEL_FRAMES[OUTSIDE],)

    def _origin(self, frame: Frame) -> str:
        key = frame.kind, frame.address
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._origins.of(
                self._program.function(frame))
        return found


def has_own_code(profile: Profile, origins: Origins) -> bool:
    """Return whether the profile contains any user function.

    It contains none if the program is an installed package.
    """
    return any(origins.of(function) == PROGRAM
               for function in profile.functions.values())


def only_own(profile: Profile, origins: Origins) -> Profile:
    """Return the profile with only user functions in its stacks."""
    return dataclasses.replace(profile, stacks=OwnStacks(profile, origins))
