"""What the stacks of compiled code lack, and what is the JIT's own work for us."""
from __future__ import annotations

from typing import NamedTuple

from vmprof_convert.meaning.missing_callers import Missing, missing
from vmprof_convert.profile.model import Profile
from vmprof_convert.readers.pypy_stacks import LOG, NOT_KNOWN, stacks_with


class CompiledCode(NamedTuple):
    """Stacks are indices in Profile.stacks."""

    missing: Missing
    #: in which a function may be missing, behind the label that says so
    not_known: set[int]
    #: in which the JIT writes its log: nobody does without the sampler
    log: set[int]


def compiled_code(profile: Profile) -> CompiledCode:
    return CompiledCode(missing(profile), stacks_with(profile.stacks, NOT_KNOWN),
                        stacks_with(profile.stacks, LOG))
