"""Find the fields of frames and code objects that determine the lines of frames.

A Python frame stores its present instruction, and its code object stores the lines of
instructions.  The shadow stack has references to the running frames.
"""
from __future__ import annotations

import sys
from types import FrameType

from vmprof_allocation.engines.hook.probe.fields import Fields
from vmprof_allocation.engines.hook.probe.memory import (
    TYPE,
    Memory,
    NotCertain,
    Types,
    gc,
)

_FRAME = "GcStruct pypy.interpreter.pyframe.PyFrame"
_CODE = "GcStruct pypy.interpreter.pycode.PyCode"
_REFERENCE = "GcStruct JitVirtualRef"
#: The tables of lines that native/hook/lines/frame_lines.c can read.
_TABLES = ("inst_co_lnotab", "inst_co_linetable")
#: The depth of the calls in the check.
_DEPTH = 20


def find(memory: Memory, types: Types, roots: int) -> list[int]:
    """Return the offsets of these fields, in the order of hook/lines/frame_lines.h.

    Args:
        memory: the memory of this process.
        types: the type table.
        roots: the address of the pointer to the top of the shadow stack.

    Raises:
        NotCertain: an offset is not certain.
    """
    fields = Fields(memory, types)
    of_code = fields.of(fields.row(_CODE))
    kinds = [kind for kind, name in enumerate(_TABLES) if name in of_code]
    if len(kinds) != 1:
        raise NotCertain("code has %d tables of lines" % len(kinds))
    found = [_type(memory), *(fields.field(_FRAME, name) for name in (
        "inst_pycode", "inst_last_instr", "vable_token", "inst_f_backref")), *(
        of_code[name] for name in (
            "inst__vmprof_unique_id", "inst_co_firstlineno", _TABLES[kinds[0]])),
        types.numbers[fields.row(_REFERENCE)], fields.field(_REFERENCE, "forced"),
        kinds[0]]
    string = _string(memory, of_code[_TABLES[kinds[0]]])
    _compare(memory, found, roots)
    return found + string


def _type(memory: Memory) -> int:
    """Return the number of the type of frames, the only subclass of PyFrame."""
    frame = sys._getframe()
    for _ in range(3):
        gc.collect()
    # old objects do not move
    return memory.word(id(frame)) & TYPE


def _string(memory: Memory, at: int) -> list[int]:
    """Return the offsets of the characters and of the length in a table of lines.

    Args:
        memory: the memory of this process.
        at: the offset of the pointer to the table in a code object.
    """
    code = compile("\n".join("a%d" % i for i in range(200)), "made", "exec")
    table = getattr(code, "co_linetable", None) or code.co_lnotab
    for _ in range(3):
        gc.collect()
    address = memory.word(id(code) + at)
    words = memory.words(address, 3)
    start = bytes(b"".join(word.to_bytes(8, "little") for word in memory.words(
        address, len(table) // 8 + 6))).find(table)
    lengths = [i for i in (1, 2) if words[i] == len(table)]
    if start < 0 or len(lengths) != 1:
        raise NotCertain("the layout of a table of lines is unknown")
    return [start, 8 * lengths[0]]


def _compare(memory: Memory, found: list[int], roots: int) -> None:
    """Check the fields of running frames against Python's own attributes."""
    type_, code, instruction, token, back, _, first_line, *_ = found

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
            return
        running: list[FrameType] = []
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            running.append(frame)
            frame = frame.f_back
        for _ in range(3):
            gc.collect()
        # old objects do not move
        start, end = memory.word(roots - 8), memory.word(roots)
        if not 0 < end - start < 1 << 21:
            raise NotCertain("the beginning of the stack of roots is unknown")
        places = {word: place for place, word in reversed(list(enumerate(
            memory.words(start, (end - start) // 8))))}
        order = [places.get(id(frame), -1) for frame in reversed(running)]
        if -1 in order or sorted(order) != order:
            raise NotCertain("running frames are not among the roots, or are in "
                             "another order")
        for frame, caller in zip(running[1:], running[2:]):
            address = id(frame)
            if (memory.word(address) & TYPE != type_
                    or memory.word(address + code) != id(frame.f_code)
                    or memory.word(address + instruction) != frame.f_lasti
                    or memory.word(address + token) != 0
                    or memory.word(address + back) != id(caller)
                    or memory.word(id(frame.f_code) + first_line)
                    != frame.f_code.co_firstlineno):
                raise NotCertain("the fields of running frames differ from Python's "
                                 "attributes")

    deep(_DEPTH)
