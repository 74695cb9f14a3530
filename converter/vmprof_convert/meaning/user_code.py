"""The program's own code: what libraries allocate counts for who called them."""
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
    """Each stack of a profile with the frames of the program's own functions, and
    nothing else but a label at its end: what is imported counts for the import,
    wherever it stands."""

    def __init__(self, profile: Profile, origins: Origins) -> None:
        self._all = profile.stacks
        self._program = Program(profile)
        self._origins = origins
        #: by kind and address
        self._known: dict[tuple[str, int], str] = {}

    def __len__(self) -> int:
        return len(self._all)

    def has_compiled(self) -> bool:
        # what a library allocates may be all that is compiled
        return self._all.has_compiled()

    def stack(self, number: int) -> tuple[Frame, ...]:
        own: list[Frame] = []
        is_import = False
        stack = self._program.stack(number)
        if shows_an_exception(self._program.function(stack[0])):
            own.append(LABEL_FRAMES[UNCAUGHT])
            # no import of the program's
            stack = tuple(frame for frame in stack
                          if self._origin(frame) != IMPORTING)
        origin = NOWHERE
        for frame in stack:
            # whichever was compiled with its caller counts as that does
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
    """Whether any function of the program's is in `profile`: it may be a package
    that is installed."""
    return any(origins.of(function) == PROGRAM
               for function in profile.functions.values())


def only_own(profile: Profile, origins: Origins) -> Profile:
    """`profile` with nothing but the program's own code in its stacks."""
    return dataclasses.replace(profile, stacks=OwnStacks(profile, origins))
