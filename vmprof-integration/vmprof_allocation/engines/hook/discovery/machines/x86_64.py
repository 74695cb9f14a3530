"""The analysis of x86-64 code.

Byte patterns count instructions in the whole text; capstone decodes single functions.
"""
from __future__ import annotations

import collections
import re
import struct
from collections.abc import Iterator, Set
from typing import Any

import capstone
from capstone import x86

from vmprof_allocation.engines.hook.discovery.layout import SWAPPED
from vmprof_allocation.engines.hook.discovery.machines import (
    x86_64_registers as registers,
)
from vmprof_allocation.engines.hook.discovery.machines.machine import Machine, Text

#: The size of the jump at a function's entry, and the maximum size of the code that it
#: replaces.
JUMP_SIZE, MAX_MOVED = 5, SWAPPED["x86_64"]

# A pattern may match in the middle of an instruction.  Compared with 20,000 real
# matches, such matches are negligible.
_RIP = rb"[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]....(?<=....)"
_COMPARE = rb"[\x48\x4c][\x39\x3b]" + _RIP      # cmp reg, [rip+x] or reverse
_STORE = rb"[\x48\x4c]\x89" + _RIP              # mov [rip+x], reg
_CALL = re.compile(rb"\xe8(?=(....))", re.DOTALL)
#: lea rdi, [rip+x]; ...; call f
_CALL_WITH = re.compile(rb"\x48\x8d\x3d(....).{0,16}?\xe8(....)", re.DOTALL)


class X8664(Machine):
    """The analysis of x86-64 code."""

    name = "x86_64"
    import_kinds = 7, 6

    def __init__(self, text: Text):
        """Store the code, and prepare the decoder."""
        super().__init__(text)
        self._functions: dict[int, list[Any]] = {}
        self._decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._decoder.detail = True

    def _targets(self, pattern: bytes) -> Iterator[tuple[int, int]]:
        """Yield (address, operand address) of RIP-relative instructions in the text.

        `pattern` matches the bytes of the instruction, and ends with the displacement.
        """
        for match in re.finditer(pattern, self.text.data, re.DOTALL):
            end = match.end()
            (displacement,) = struct.unpack_from("<i", self.text.data, end - 4)
            yield (self.text.address + match.start(),
                   self.text.address + end + displacement)

    def compared(self) -> collections.Counter[int]:
        """Count the words that are compared: see Machine.compared()."""
        return collections.Counter(word for _, word in self._targets(_COMPARE))

    def first_compared(self, word: int) -> int:
        """Return the address of the first comparison: see Machine.first_compared()."""
        for at, operand in self._targets(_COMPARE):
            if operand == word:
                return at
        raise KeyError(word)

    def stored(self) -> collections.Counter[int]:
        """Count the words that are written: see Machine.stored()."""
        return collections.Counter(word for _, word in self._targets(_STORE))

    def passed(self, inside: range) -> dict[int, collections.Counter[int]]:
        """Count the callees of first arguments: see Machine.passed()."""
        callees: dict[int, collections.Counter[int]] = {}
        starts = set(self.text.starts)
        for match in _CALL_WITH.finditer(self.text.data):
            argument = (self.text.address + match.start() + 7
                        + struct.unpack("<i", match.group(1))[0])
            callee = (self.text.address + match.end()
                      + struct.unpack("<i", match.group(2))[0])
            if argument in inside and callee in starts:
                callees.setdefault(argument, collections.Counter())[callee] += 1
        return callees

    def addressed(self) -> None:
        return None         # on Linux, a program may call any address

    def _decoded(self, function: int) -> list[Any]:
        """Return the instructions of a function."""
        if function not in self._functions:
            self._functions[function] = list(
                self._decoder.disasm(self.text.code(function), function))
        return self._functions[function]

    def callees(self, function: int) -> set[int]:
        """Return the functions that a function calls directly."""
        return {i.operands[0].imm for i in self._decoded(function)
                if i.id == x86.X86_INS_CALL and i.operands[0].type == x86.X86_OP_IMM}

    def calls(self, function: int, others: Set[int]) -> bool:
        """Return whether a function calls one of the others."""
        # decoding takes long, so first search for the bytes of such a call
        return any(
            function + match.end() + 4 + struct.unpack("<i", match.group(1))[0]
            in others for match in _CALL.finditer(self.text.code(function))
        ) and not others.isdisjoint(self.callees(function))

    def _stores_to(self, function: int, offset: int) -> list[Any]:
        """Return the instructions `mov [register + offset], ...` of a function."""
        # first compare bytes, because capstone takes longest to decode the operands
        wanted = _displacement(offset)
        return [i for i in self._decoded(function)
                if i.id == x86.X86_INS_MOV and wanted in i.bytes
                for n, m in registers.memory(i)
                if n == 0 and m.disp == offset and m.base != x86.X86_REG_RIP]

    def clears(self, function: int, offset: int) -> bool:
        """Return whether a function writes zero to [register + offset]."""
        return any(i.operands[1].type == x86.X86_OP_IMM and i.operands[1].imm == 0
                   for i in self._stores_to(function, offset))

    def stores(self, function: int, offsets: Set[int]) -> bool:
        """Return whether a function writes to [register + offset], for all offsets."""
        code = self.text.code(function)
        return (all(_displacement(offset) in code for offset in offsets)
                and all(self._stores_to(function, offset) for offset in offsets))

    def factors(self, function: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Find factors of `imul`, in memory or in a register: see Machine.factors()."""
        code = self._decoded(function)
        for at, instruction in enumerate(code):
            if instruction.id == x86.X86_INS_IMUL:
                for operand in instruction.operands:
                    found = registers.loaded_from(code, at, operand)
                    if found is not None:
                        yield at, found

    def displacements(self, function: int, before: int, table: int) -> set[int]:
        """Return the displacements of loaded words: see Machine.displacements()."""
        code = self._decoded(function)[:before]
        return {m.disp for at, i in enumerate(code) if i.id == x86.X86_INS_MOV
                and i.operands[0].size == 8
                for n, m in registers.memory(i)
                if n == 1 and registers.table(code, at, m) == table}

    def movable(self, function: int) -> int:
        """Return the number of bytes that a jump can replace: see Machine.movable()."""
        code = self._decoded(function)
        size = 0
        for instruction in code:
            if size >= JUMP_SIZE:
                break
            if (any(m.base == x86.X86_REG_RIP
                    for _, m in registers.memory(instruction))
                    or instruction.group(capstone.CS_GRP_JUMP)
                    or instruction.group(capstone.CS_GRP_CALL)
                    or instruction.group(capstone.CS_GRP_RET)):
                return 0
            size += instruction.size
        if not JUMP_SIZE <= size <= MAX_MOVED or function % MAX_MOVED:
            return 0
        inner = range(function + 1, function + size)
        if any(i.mnemonic.startswith(("j", "loop", "xbegin"))
               and i.operands[0].type == x86.X86_OP_IMM
               and i.operands[0].imm in inner for i in code):
            return 0
        return size

    def takes(self, function: int, arguments: int) -> bool:
        """Return whether a function reads its arguments: see Machine.takes()."""
        return registers.takes(self._decoded(function), arguments)


def _displacement(offset: int) -> bytes:
    """Return the bytes of the displacement in [register + offset] if they are four.

    Returns:
        b"", which all instructions contain, if the displacement has one byte.
    """
    return b"" if -128 <= offset < 128 else struct.pack("<i", offset)
