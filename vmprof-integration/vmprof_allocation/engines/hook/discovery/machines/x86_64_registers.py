"""Where the value in a register comes from, within one function.

Instructions are followed backwards as they stand, not as they run.  A register that
was last written by anything but what is understood here is of unknown origin: a value
is never guessed, for what comes of it is an address in somebody's process.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from capstone import x86

#: the 64 bits that a register is part of
_WHOLE = {
    getattr(x86, "X86_REG_" + part): getattr(x86, "X86_REG_" + whole)
    for whole, parts in {
        **{"R%sX" % c: ("E%sX" % c, "%sX" % c, "%sL" % c, "%sH" % c) for c in "ABCD"},
        **{"R" + n: ("E" + n, n, n + "L") for n in ("SI", "DI", "BP", "SP")},
        **{"R%d" % i: ("R%dD" % i, "R%dW" % i, "R%dB" % i) for i in range(8, 16)},
    }.items() for part in parts}
#: of these, the first operand is read only
_WRITES_NOTHING = {x86.X86_INS_CMP, x86.X86_INS_TEST, x86.X86_INS_PUSH,
                   x86.X86_INS_BT, x86.X86_INS_CALL}
#: what a call may leave as it likes
_VOLATILE = {getattr(x86, "X86_REG_" + name) for name in (
    "RAX", "RCX", "RDX", "RSI", "RDI", "R8", "R9", "R10", "R11")}


def whole(register: int) -> int:
    return int(_WHOLE.get(register, register))


def memory(instruction: Any) -> Iterator[tuple[int, Any]]:
    """Its operands that are in memory, with their numbers."""
    for i, operand in enumerate(instruction.operands):
        if operand.type == x86.X86_OP_MEM:
            yield i, operand.mem


def _writes(instruction: Any, register: int) -> bool:
    """`register`: a whole one."""
    if instruction.id == x86.X86_INS_CALL:
        return register in _VOLATILE
    if any(whole(r) == register for r in instruction.regs_write):
        return True
    operands = instruction.operands
    if instruction.id in (x86.X86_INS_XCHG, x86.X86_INS_XADD):
        return any(o.type == x86.X86_OP_REG and whole(o.reg) == register
                   for o in operands)
    return (bool(operands) and operands[0].type == x86.X86_OP_REG
            and whole(operands[0].reg) == register
            and instruction.id not in _WRITES_NOTHING)


def _last_write(code: list[Any], at: int, register: int) -> int:
    """The place before `at`; -1: there is none."""
    register = whole(register)
    for i in range(at - 1, -1, -1):
        if _writes(code[i], register):
            return i
    return -1


def constant(code: list[Any], at: int, register: int) -> int | None:
    """The address that is in a register before instruction `at`, if it was made by
    `lea register, [rip + x]`."""
    at = _last_write(code, at, register)
    if at < 0:
        return None
    instruction = code[at]
    if instruction.id == x86.X86_INS_LEA:
        place = instruction.operands[1].mem
        if place.base == x86.X86_REG_RIP:
            return int(instruction.address + instruction.size + place.disp)
    elif (instruction.id == x86.X86_INS_MOV and instruction.operands[0].size == 8
            and instruction.operands[1].type == x86.X86_OP_REG):
        return constant(code, at, instruction.operands[1].reg)
    return None


def _one_constant(code: list[Any], at: int, registers: tuple[int, int]) -> int | None:
    """Of the two that are added up, the one that is an address."""
    found = [c for c in (constant(code, at, r) for r in registers) if c is not None]
    return found[0] if len(found) == 1 else None


def table(code: list[Any], at: int, place: Any) -> int | None:
    """Of a memory operand of instruction `at`, the constant address T, if it is
    [T + something + displacement]."""
    if place.index and place.scale == 1 and place.base:
        return _one_constant(code, at, (place.base, place.index))
    if place.index or place.base in (0, x86.X86_REG_RIP):
        return None
    at = _last_write(code, at, place.base)
    if at < 0:
        return None
    operands = code[at].operands
    if (code[at].id == x86.X86_INS_ADD and operands[0].size == 8
            and operands[1].type == x86.X86_OP_REG):
        return _one_constant(code, at, (operands[0].reg, operands[1].reg))
    if code[at].id == x86.X86_INS_LEA:
        sum_of = operands[1].mem
        if sum_of.index and sum_of.scale == 1 and sum_of.base and not sum_of.disp:
            return _one_constant(code, at, (sum_of.base, sum_of.index))
    return None


def loaded_from(code: list[Any], at: int, operand: Any) -> tuple[int, int] | None:
    """(T, displacement) if an operand of instruction `at` is [T + something +
    displacement], or a register with what was loaded from there."""
    if operand.type == x86.X86_OP_REG:
        at = _last_write(code, at, operand.reg)
        if (at < 0 or code[at].id != x86.X86_INS_MOV
                or code[at].operands[0].size != 8):
            return None
        operand = code[at].operands[1]
    if operand.type != x86.X86_OP_MEM:
        return None
    address = table(code, at, operand.mem)
    return None if address is None else (address, operand.mem.disp)


#: where a function's arguments are, in their order
ARGUMENTS = (x86.X86_REG_RDI, x86.X86_REG_RSI, x86.X86_REG_RDX, x86.X86_REG_RCX)


def takes(code: list[Any], arguments: int) -> bool:
    """Does a function read so many arguments from where the source has them?  With
    link-time optimization, a compiler may leave out those that are always the same,
    and move the others up."""
    left = set(ARGUMENTS[:arguments])
    for instruction in code:
        read, written = ({whole(r) for r in registers}
                         for registers in instruction.regs_access())
        operands = instruction.operands
        if (instruction.id == x86.X86_INS_XOR and operands[0].type == x86.X86_OP_REG
                and operands[1].type == x86.X86_OP_REG
                and operands[0].reg == operands[1].reg):
            read = set()                # it makes a zero
        left -= read
        if not left or left & written or instruction.id == x86.X86_INS_CALL:
            break
    return not left
