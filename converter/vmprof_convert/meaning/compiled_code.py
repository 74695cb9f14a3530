"""Find the stacks of compiled code, and the stacks in which functions are missing."""
from __future__ import annotations

from typing import NamedTuple

from vmprof_convert.meaning.missing_callers import Missing, missing
from vmprof_convert.profile.model import NATIVE, Profile
from vmprof_convert.profile.stacks import StackTable
from vmprof_convert.readers.pypy_stacks import LOG, NOT_KNOWN, stacks_with


class CompiledCode(NamedTuple):
    """The stacks of compiled code, as indices in Profile.stacks."""

    #: the stacks in which known functions are missing, and these functions
    missing: Missing
    #: the stacks with the label for unknown compiled code, in which a function may be
    #: missing
    not_known: set[int]
    #: the stacks in which the JIT writes its log, which it does only for the sampler
    log: set[int]
    #: the stacks whose innermost Python function is compiled code
    compiled: set[int]


def compiled_code(profile: Profile) -> CompiledCode:
    """Return the stacks of compiled code in a profile."""
    return CompiledCode(missing(profile), stacks_with(profile.stacks, NOT_KNOWN),
                        stacks_with(profile.stacks, LOG),
                        _compiled(profile.stacks))


def _compiled(stacks: StackTable) -> set[int]:
    """Return the stacks whose innermost Python function is compiled code."""
    tree = stacks.tree()
    # A node comes after its parent in the tree. Native code counts as code of its
    # caller.
    is_compiled = bytearray(len(tree.parents))
    for node, (parent, frame) in enumerate(zip(tree.parents, tree.frames)):
        if frame.kind == "jit":
            is_compiled[node] = 1
        elif frame.kind == NATIVE and parent >= 0:
            is_compiled[node] = is_compiled[parent]
    return {stack for stack, node in enumerate(tree.nodes) if is_compiled[node]}
