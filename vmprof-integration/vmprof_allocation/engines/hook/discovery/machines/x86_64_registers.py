"""The origin of values in registers, within one function.

A parameter `code` is the list of a function's instructions, and `at` is an index of
this list.  Instructions are followed backwards by their addresses, not by the order of
execution.  If a register was last written by an unknown instruction, its origin is
unknown.  A value is never guessed, because the sampler writes to addresses that are
derived from such values.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from capstone import x86

#: The 64-bit register that contains a smaller register.
_WHOLE = {
    getattr(x86, "X86_REG_" + part): getattr(x86, "X86_REG_" + whole)
    for whole, parts in {
        **{"R%sX" % c: ("E%sX" % c, "%sX" % c, "%sL" % c, "%sH" % c) for c in "ABCD"},
        **{"R" + n: ("E" + n, n, n + "L") for n in ("SI", "DI", "BP", "SP")},
        **{"R%d" % i: ("R%dD" % i, "R%dW" % i, "R%dB" % i) for i in range(8, 16)},
    }.items() for part in parts}
#: Instructions that do not write their first operand.
_WRITES_NOTHING = {x86.X86_INS_CMP, x86.X86_INS_TEST, x86.X86_INS_PUSH,
                   x86.X86_INS_BT, x86.X86_INS_CALL}
#: Registers that a call may change.
_VOLATILE = {getattr(x86, "X86_REG_" + name) for name in (
    "RAX", "RCX", "RDX", "RSI", "RDI", "R8", "R9", "R10", "R11")}


def whole(register: int) -> int:
    """Return the 64-bit register that contains a register."""
    return int(_WHOLE.get(register, register))


def memory(instruction: Any) -> Iterator[tuple[int, Any]]:
    """Yield (index, operand) for the operands of an instruction that are in memory."""
    for i, operand in enumerate(instruction.operands):
        if operand.type == x86.X86_OP_MEM:
            yield i, operand.mem


def _writes(instruction: Any, register: int) -> bool:
    """Return whether an instruction writes a 64-bit register."""
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
    """Return the index of the last write to a register before `at`, or -1."""
    register = whole(register)
    for i in range(at - 1, -1, -1):
        if _writes(code[i], register):
            return i
    return -1


def constant(code: list[Any], at: int, register: int) -> int | None:
    """Return the address in a register before instruction `at`.

    Returns:
        None if `lea register, [rip + x]` did not compute the value.
    """
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
    """Return the known address in one of two registers, or None.

    Returns:
        None unless exactly one of the registers contains a known address.
    """
    found = [c for c in (constant(code, at, r) for r in registers) if c is not None]
    return found[0] if len(found) == 1 else None


def table(code: list[Any], at: int, place: Any) -> int | None:
    """Return the constant address T of an operand [T + something + displacement].

    Args:
        code: the instructions of the function.
        at: the index of the operand's instruction.
        place: the operand, which is in memory.

    Returns:
        None if the operand has another form.
    """
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
    """Return the origin (T, displacement) of an operand of instruction `at`.

    The operand is [T + something + displacement], or a register that was loaded from
    there.

    Returns:
        None if the operand has another origin.
    """
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


#: The registers of a function's arguments, in order.
ARGUMENTS = (x86.X86_REG_RDI, x86.X86_REG_RSI, x86.X86_REG_RDX, x86.X86_REG_RCX)


def takes(code: list[Any], arguments: int) -> bool:
    """Return whether a function reads N arguments from their usual registers.

    See Machine.takes().

    Args:
        code: the instructions of the function.
        arguments: N.
    """
    left = set(ARGUMENTS[:arguments])
    for instruction in code:
        read, written = ({whole(r) for r in registers}
                         for registers in instruction.regs_access())
        operands = instruction.operands
        if (instruction.id == x86.X86_INS_XOR and operands[0].type == x86.X86_OP_REG
                and operands[1].type == x86.X86_OP_REG
                and operands[0].reg == operands[1].reg):
            read = set()                # the instruction computes zero
        left -= read
        if not left or left & written or instruction.id == x86.X86_INS_CALL:
            break
    return not left
