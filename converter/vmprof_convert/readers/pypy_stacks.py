"""PyPy's stacks: pairs of words, (kind, address)."""
from __future__ import annotations

from collections.abc import Sequence

from vmprof_convert.profile.model import LABEL, Function
from vmprof_convert.profile.stacks import Frame, Stacks, StackTable

INTERPRETED, JIT, MACHINE_CODE, NATIVE, LINE = 1, 3, 6, 7, 8
#: innermost in the stack of what the JIT allocates while it traces a loop, optimizes
#: it and writes machine code, or a log of that (for lines, and on AArch64 for stacks);
#: its caller is the function that runs then
COMPILER = Function("[JIT compiler]", 0, "", LABEL)
LOG = Function("[JIT compiler: its log]", 0, "", LABEL)
#: called by a function with which others may have been compiled, if nothing tells which
#: of them runs
NOT_KNOWN = Function("[compiled code, function not known]", 0, "", LABEL)
#: by the pair that stands for it
_OF_THE_JIT = {(MACHINE_CODE, number): Frame(number, "native", 0)
               for number in (1, 2, 3)}
#: by frame
LABELS = dict(zip(_OF_THE_JIT.values(), (COMPILER, LOG, NOT_KNOWN)))

_KINDS = {INTERPRETED: "interpreted", JIT: "jit", NATIVE: "native"}


def child(stacks: Stacks, node: int, kind: int, address: int) -> int:
    """The node of one pair more, from the outermost on.

    A piece of the JIT's machine code writes its start (kind 6) and then the
    Python frames that are inlined at this point, innermost first (kind 3).
    The outermost of them is the frame that the interpreter was running when it
    entered the machine code, if it entered it there: then this frame's own
    entry (kind 1) is the next one outwards, and the two are one.  If other
    machine code called it, then there is none, and the next piece follows.
    The line that a frame was at (kind 8) stands before the frame, so that it comes
    behind it.
    """
    name = _KINDS.get(kind)
    if (kind, address) in _OF_THE_JIT:
        return stacks.child(node, *_OF_THE_JIT[kind, address])
    if kind == LINE and node:
        outer, frame = stacks.last(node)
        return stacks.child(outer, frame.address, frame.kind, address)
    if name is None:
        return node
    if kind == JIT and node:
        outer, frame = stacks.last(node)
        if frame.address == address and frame.kind == "interpreted":
            node = outer
    return stacks.child(node, address, name)


def stacks_with(stacks: StackTable, label: Function) -> set[int]:
    """The numbers of those that have this one of LABELS."""
    if isinstance(stacks, Stacks) and not any(
            LABELS.get(frame) == label for frame in stacks.frames):
        return set()            # without a tree, which takes memory
    tree = stacks.tree()
    found = bytearray(len(tree.frames))
    for node, (parent, frame) in enumerate(zip(tree.parents, tree.frames)):
        found[node] = node > 0 and (found[parent] or LABELS.get(frame) == label)
    return {number for number, node in enumerate(tree.nodes) if found[node]}


def decode(stacks: Stacks, words: Sequence[int]) -> int:
    """The node of a stack; `words` are innermost first."""
    node = 0
    # of an odd number, the last one is no frame
    for i in range(len(words) // 2 * 2 - 2, -1, -2):
        node = child(stacks, node, words[i], words[i + 1])
    return node
