"""The effects of AArch64's instructions on the general registers.

A parameter `w` is the word of an instruction; `pc` is the address of the instruction.
Bits 28 to 25 of a word are its class of encodings in the manual.  In doubt, a word is
assumed to write more registers, and an unknown word to write every register.  A word is
never assumed to read more registers or to be movable.  Register 31 is the stack pointer
or zero.
"""
from __future__ import annotations

import array

ZERO = 31
EVERYTHING = frozenset(range(31))
#: Registers that a call may change.
VOLATILE = frozenset(range(19)) | {30}
NOTHING: frozenset[int] = frozenset()
_NOP, _PACIASP, _PACIBSP = 0xd503201f, 0xd503233f, 0xd503237f
_BTI = 0xd503241f, 0xd503245f, 0xd503249f, 0xd50324df


def words(code: bytes) -> array.array[int]:
    """Return the words of the instructions in `code`."""
    return array.array("I", code[:len(code) & ~3])


def signed(value: int, bits: int) -> int:
    """Return a number whose lowest `bits` bits are in two's complement."""
    return value - (1 << bits) if value >> bits - 1 & 1 else value


# targets

def is_call(w: int) -> bool:
    """Return whether an instruction is a bl."""
    return w & 0xfc000000 == 0x94000000


def target(w: int, pc: int) -> int | None:
    """Return the target of a direct call or jump, or None."""
    if w & 0x7c000000 == 0x14000000:                            # b, bl
        return pc + 4 * signed(w & 0x3ffffff, 26)
    if w & 0xfe000000 == 0x54000000 or w & 0x7e000000 == 0x34000000:
        return pc + 4 * signed(w >> 5 & 0x7ffff, 19)            # b.cond, cbz, cbnz
    if w & 0x7e000000 == 0x36000000:                            # tbz, tbnz
        return pc + 4 * signed(w >> 5 & 0x3fff, 14)
    return None


# the origin of the value in register `w & 31`

def address_of(w: int, pc: int) -> int | None:
    """Return the address that adrp or adr computes, or None."""
    if w & 0x1f000000 != 0x10000000:
        return None
    offset = signed((w >> 5 & 0x7ffff) << 2 | w >> 29 & 3, 21)
    return (pc & -4096) + (offset << 12) if w >> 31 else pc + offset


def added(w: int) -> tuple[int, int] | None:
    """Return (n, x) of `add xd, xn, #x`, or None."""
    if w & 0xff800000 != 0x91000000:
        return None
    return w >> 5 & 31, (w >> 10 & 0xfff) << (12 if w >> 22 & 1 else 0)


def moved_from(w: int) -> int | None:
    """Return m of `mov xd, xm`, or None."""
    return w >> 16 & 31 if w & 0xffe0ffe0 == 0xaa0003e0 else None


def summed(w: int) -> tuple[int, int] | None:
    """Return (n, m) of `add xd, xn, xm` or `add xd, xn, wm`, or None."""
    if w & 0xffe0fc00 in (0x8b000000, 0x8b204000):
        return w >> 5 & 31, w >> 16 & 31
    return None


def multiplied(w: int) -> tuple[int, int] | None:
    """Return (n, m) of `madd xd, xn, xm, xa`, which includes mul, or None."""
    return (w >> 5 & 31, w >> 16 & 31) if w & 0xffe08000 == 0x9b000000 else None


def compared(w: int) -> tuple[int, int] | None:
    """Return (n, m) of `cmp xn, xm`, or None."""
    return (w >> 5 & 31, w >> 16 & 31) if w & 0xffe0fc1f == 0xeb00001f else None


def is_unsigned_branch(w: int) -> bool:
    """Return whether an instruction is a b.hs, b.lo, b.hi or b.ls."""
    return w & 0xff00001e in (0x54000002, 0x54000008)


def access(w: int) -> tuple[bool, int, list[tuple[int, int]]] | None:
    """Return the memory access of ldr, str, ldur, stur, ldp or stp with 64 bits.

    Returns:
        (whether it stores, base, [(offset, register)]).  None for other instructions,
        and for an instruction that changes the base register.
    """
    if w & 0xff800000 == 0xf9000000:
        places = [(8 * (w >> 10 & 0xfff), w & 31)]
    elif w & 0xffa00c00 == 0xf8000000:
        places = [(signed(w >> 12 & 0x1ff, 9), w & 31)]
    elif w & 0xff800000 == 0xa9000000:
        offset = 8 * signed(w >> 15 & 0x7f, 7)
        places = [(offset, w & 31), (offset + 8, w >> 10 & 31)]
    else:
        return None
    return not w >> 22 & 1, w >> 5 & 31, places


# written registers

def written(w: int) -> frozenset[int]:
    """Return the registers that an instruction may write."""
    kind = w >> 25 & 15
    if kind & 0b0101 == 0b0100:
        return _written_by_access(w)
    if kind & 0b1110 == 0b1000:                     # operations with a constant
        return frozenset((w & 31,))
    if kind & 0b0111 == 0b0101:                     # operations on registers
        # ccmp and ccmn write only flags; so does cmp, whose register is 31
        return NOTHING if w & 0x1fe00000 == 0x1a400000 else frozenset((w & 31,))
    if kind & 0b0111 == 0b0111:                     # floating point and vectors
        return frozenset((w & 31,))
    if kind & 0b1110 == 0b1010:
        return _written_by_branch(w)
    return EVERYTHING


def _written_by_branch(w: int) -> frozenset[int]:
    if is_call(w) or w & 0xfe600000 == 0xd6200000:              # bl, blr
        return VOLATILE
    if (target(w, 0) is not None or w & 0xfe000000 == 0xd6000000    # br, ret
            or w in (_NOP, *_BTI)):
        return NOTHING
    # paciasp and similar instructions on fixed registers
    if w & 0xfffff01f == 0xd503201f:
        return frozenset((16, 17, 30))
    if w & 0xffc00000 == 0xd5000000:                            # mrs, msr, ...
        return frozenset((w & 31,)) if w >> 21 & 1 else NOTHING
    return EVERYTHING


def _written_by_access(w: int) -> frozenset[int]:
    first, base, second, third = w & 31, w >> 5 & 31, w >> 10 & 31, w >> 16 & 31
    is_vector = w >> 26 & 1
    kind = w >> 28 & 3
    if kind == 2:                                   # pairs
        result = set() if is_vector or not w >> 22 & 1 else {first, second}
        return frozenset(result | {base} if w >> 23 & 1 else result)
    if kind == 3:
        result = set() if is_vector or not w >> 22 & 3 else {first}
        # a constant offset, or a register as offset
        if w >> 24 & 1 or w & 0x200c00 == 0x200800:
            return frozenset(result)
        # a new base, before or after the access
        if not w >> 21 & 1:
            return frozenset(result | {base} if w >> 10 & 1 else result)
        return EVERYTHING                               # atomic
    if kind == 1 and not w >> 24 & 1:               # loads from the code
        return NOTHING if is_vector else frozenset((first,))
    if kind == 0 and is_vector:                     # several vectors
        return frozenset((base,))
    # exclusive access, and others
    return frozenset((first, base, second, third, third | 1))


# read registers, and movable instructions

def read(w: int) -> frozenset[int]:
    """Return registers that an instruction certainly reads; it may read others, too."""
    first, base, third = w & 31, w >> 5 & 31, w >> 16 & 31
    found = access(w)
    if found is not None:
        is_store, base, places = found
        return frozenset((base, *(register for _, register in places if is_store)))
    if w & 0x7c000000 == 0x34000000:                            # cbz, tbz
        return frozenset((first,))
    if w & 0x1f000000 == 0x11000000 or w & 0x1f800000 in (
            0x12000000, 0x13000000):                            # add #, and #, lsl, ...
        return frozenset((base,))
    if (w & 0x1e000000 == 0x0a000000 or w & 0x1f000000 == 0x1b000000
            or w & 0x1fe00000 == 0x1a800000):                   # mov, add, madd, csel
        return frozenset((base, third))
    if w & 0x3f000000 == 0x39000000:                            # ldrb, strb, ldr w, ...
        return frozenset((base,) if w >> 22 & 3 else (first, base))
    return NOTHING


def is_movable(w: int) -> bool:
    """Return whether an instruction has the same effect at another address."""
    kind = w >> 25 & 15
    if kind & 0b0101 == 0b0100:
        return w >> 29 & 1 == 1                     # ldr, str, ldp, stp
    if kind & 0b1110 == 0b1000:
        return w & 0x1f000000 != 0x10000000         # adr, adrp
    if kind & 0b0111 == 0b0101:
        return w & 0xffff0000 != 0xdac10000         # signatures of any register
    return w in (_NOP, _PACIASP, _PACIBSP, *_BTI)
