"""Decoding of PyPy's stacks, which are pairs of words (kind, address).

readers/contents.py and readers/vmprof_log.py add these stacks to a table (Stacks).
PROFILE.rst lists the kinds.
"""
from __future__ import annotations

from collections.abc import Sequence

from vmprof_convert.profile.model import LABEL, Function
from vmprof_convert.profile.stacks import Frame, Stacks, StackTable

INTERPRETED, JIT, MACHINE_CODE, NATIVE, LINE = 1, 3, 6, 7, 8
#: Innermost functions in the stack of an allocation by the JIT. COMPILER represents
#: tracing, optimizing and writing machine code. LOG represents the log that the JIT
#: writes for lines, and on AArch64 for stacks. The caller is the program's function.
COMPILER = Function("[JIT compiler]", 0, "", LABEL)
LOG = Function("[JIT compiler: its log]", 0, "", LABEL)
#: Callee of a function that was compiled together with others, if the profile does not
#: show which of them was running.
NOT_KNOWN = Function("[compiled code, function not known]", 0, "", LABEL)
#: frame of each pair of words that represents COMPILER, LOG or NOT_KNOWN
_OF_THE_JIT = {(MACHINE_CODE, number): Frame(number, "native", 0)
               for number in (1, 2, 3)}
#: COMPILER, LOG or NOT_KNOWN, by its frame
LABELS = dict(zip(_OF_THE_JIT.values(), (COMPILER, LOG, NOT_KNOWN)))

_KINDS = {INTERPRETED: "interpreted", JIT: "jit", NATIVE: "native"}


def child(stacks: Stacks, node: int, kind: int, address: int) -> int:
    """Add a pair of words to a stack, after all outer pairs; return the new node.

    The JIT's machine code has a pair for its start (kind 6), which is ignored. Pairs of
    the inlined Python frames follow, innermost first (kind 3). If the interpreter
    entered the machine code, the outermost of these frames is also an interpreted frame
    (kind 1). Then both pairs become one frame. If other machine code called this code,
    the caller's pairs follow instead.

    A pair with the current line of a frame (kind 8) precedes the frame. As this
    function gets the pairs outermost first, the line comes after its frame and changes
    the frame.

    Args:
        stacks: The table of stacks.
        node: The node of the pairs so far.
        kind: The first word of the pair.
        address: The second word of the pair.
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
    """Return the numbers of the stacks that contain a label, one of LABELS' values."""
    if isinstance(stacks, Stacks) and not any(
            LABELS.get(frame) == label for frame in stacks.frames):
        return set()            # without a tree, which would take memory
    tree = stacks.tree()
    found = bytearray(len(tree.frames))
    for node, (parent, frame) in enumerate(zip(tree.parents, tree.frames)):
        found[node] = node > 0 and (found[parent] or LABELS.get(frame) == label)
    return {number for number, node in enumerate(tree.nodes) if found[node]}


def decode(stacks: Stacks, words: Sequence[int]) -> int:
    """Add a stack to the table and return its node.

    Args:
        stacks: The table of stacks.
        words: The words of the stack, innermost frame first.
    """
    node = 0
    # the last word of an odd number is not part of a pair
    for i in range(len(words) // 2 * 2 - 2, -1, -2):
        node = child(stacks, node, words[i], words[i + 1])
    return node
