"""The analysis of AArch64 code, in which each instruction is one word.

Memory operands cannot be relative to the program counter::

    adrp x1, PAGE; add x1, x1, #x   the GC
    ldr  x0, [x1, #400]             nursery_free
    ldr  x4, [x1, #432]             nursery_top
    add  x2, x0, #32
    str  x2, [x1, #400]
    cmp  x2, x4
    b.ls 1f
    mov  x0, x1; mov x1, #32; bl collect_and_reserve

The counts of addresses therefore need the constants in registers.  _Counts follows the
instructions in the order of their addresses, not of their execution.  At the start of a
function, no constant is known, and few are known after a call.
"""
from __future__ import annotations

import collections
from collections.abc import Iterator, Set

from vmprof_allocation.engines.hook.discovery.layout import SWAPPED
from vmprof_allocation.engines.hook.discovery.machines import aarch64_words as words
from vmprof_allocation.engines.hook.discovery.machines.machine import Machine, Text


class AArch64(Machine):
    """The analysis of AArch64 code."""

    name = "aarch64"
    import_kinds = 1026, 1025

    def __init__(self, text: Text):
        """Store the code, and analyse the whole text."""
        super().__init__(text)
        self._functions: dict[int, _Function] = {}
        self._counts = _Counts(text)

    def compared(self) -> collections.Counter[int]:
        """Count the words that are compared: see Machine.compared()."""
        return self._counts.compared

    def first_compared(self, word: int) -> int:
        """Return the address of the first comparison: see Machine.first_compared()."""
        return self._counts.first_compared[word]

    def stored(self) -> collections.Counter[int]:
        """Count the words that are written: see Machine.stored()."""
        return self._counts.stored

    def passed(self, inside: range) -> dict[int, collections.Counter[int]]:
        """Count the callees of first arguments: see Machine.passed()."""
        return {argument: callees for argument, callees in self._counts.passed.items()
                if argument in inside}

    def addressed(self) -> Set[int]:
        """Return the functions whose address is computed: see Machine.addressed()."""
        return self._counts.made

    def _function(self, function: int) -> _Function:
        if function not in self._functions:
            self._functions[function] = _Function(self.text.code(function), function)
        return self._functions[function]

    def callees(self, function: int) -> set[int]:
        """Return the functions that a function calls directly."""
        return {place for w, place in self._function(function).targets()
                if words.is_call(w)}

    def calls(self, function: int, others: Set[int]) -> bool:
        """Return whether a function calls one of the others."""
        return not others.isdisjoint(self.callees(function))

    def _stores_to(self, function: int, offset: int) -> list[int]:
        """Return the registers that a function stores at [register + offset]."""
        return [register for w in self._function(function).words
                for is_store, base, places in [words.access(w) or (False, 0, [])]
                if is_store and base != words.ZERO
                for at, register in places if at == offset]

    def clears(self, function: int, offset: int) -> bool:
        """Return whether a function writes zero to [register + offset]."""
        return words.ZERO in self._stores_to(function, offset)

    def stores(self, function: int, offsets: Set[int]) -> bool:
        """Return whether a function writes to [register + offset], for all offsets."""
        return all(self._stores_to(function, offset) for offset in offsets)

    def factors(self, function: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Find multiplications by a factor from a table: see Machine.factors()."""
        code = self._function(function)
        for at, w in enumerate(code.words):
            for register in words.multiplied(w) or ():
                found = code.loaded_from(at, register)
                if found is not None:
                    yield at, found

    def displacements(self, function: int, before: int, table: int) -> set[int]:
        """Return the displacements of loaded words: see Machine.displacements()."""
        code = self._function(function)
        return {offset for at, w in enumerate(code.words[:before])
                for is_store, base, places in [words.access(w) or (True, 0, [])]
                if not is_store and code.table(at, base) == table
                for offset, _ in places}

    def movable(self, function: int) -> int:
        """Return the number of bytes that a jump can replace: see Machine.movable()."""
        code = self._function(function)
        if (len(code.words) == 0 or not words.is_movable(code.words[0])
                or any(place == function and not words.is_call(w)
                       for w, place in code.targets())):
            return 0
        return SWAPPED[self.name]       # one instruction

    def takes(self, function: int, arguments: int) -> bool:
        """Return whether a function reads its arguments: see Machine.takes()."""
        left = set(range(arguments))
        for w in self._function(function).words:
            left -= words.read(w)
            if not left or left & words.written(w):
                break
        return not left


class _Function:
    """The instructions of a function, and the origin of the values in its registers."""

    def __init__(self, code: bytes, address: int):
        self.words = words.words(code)
        self._address = address

    def targets(self) -> Iterator[tuple[int, int]]:
        """Yield (word, target address) of direct calls and jumps."""
        for at, w in enumerate(self.words):
            place = words.target(w, self._address + 4 * at)
            if place is not None:
                yield w, place

    def _last_write(self, at: int, register: int) -> int:
        """Return the index of the last write to a register before `at`, or -1."""
        if register != words.ZERO:
            for i in range(at - 1, -1, -1):
                if register in words.written(self.words[i]):
                    return i
        return -1

    def constant(self, at: int, register: int) -> int | None:
        """Return the address in a register before instruction `at`.

        Returns:
            None if adrp and add did not compute the value of the register.
        """
        at = self._last_write(at, register)
        if at < 0:
            return None
        w = self.words[at]
        place = words.address_of(w, self._address + 4 * at)
        if place is not None:
            return place
        source = words.moved_from(w)
        base, more = words.added(w) or (source, 0)
        place = None if base is None else self.constant(at, base)
        return None if place is None else place + more

    def table(self, at: int, base: int) -> int | None:
        """Return the constant T if a register contains T + something, or None.

        The register's value is its value before instruction `at`.
        """
        at = self._last_write(at, base)
        registers = words.summed(self.words[at]) if at >= 0 else None
        found = [place for place in (self.constant(at, register)
                                     for register in registers or ())
                 if place is not None]
        return found[0] if len(found) == 1 else None

    def loaded_from(self, at: int, register: int) -> tuple[int, int] | None:
        """Return the origin (T, displacement) of the value in a register before `at`.

        Returns:
            None if the value was not loaded from [T + something + displacement].
        """
        at = self._last_write(at, register)
        found = words.access(self.words[at]) if at >= 0 else None
        if found is None or found[0]:
            return None
        table = self.table(at, found[1])
        if table is None:
            return None
        return table, next(offset for offset, into in found[2] if into == register)


#: An unknown value of a register.
_NONE = -1


class _Counts:
    """How often instructions compare, store or pass each constant address."""

    def __init__(self, text: Text):
        self.compared: collections.Counter[int] = collections.Counter()
        self.first_compared: dict[int, int] = {}
        self.stored: collections.Counter[int] = collections.Counter()
        #: Counts of the callees, by their first argument.
        self.passed: dict[int, collections.Counter[int]] = {}
        #: Functions whose address is computed.
        self.made: set[int] = set()
        # for each register: the constant that it contains, and the constant address
        # from which its value was loaded
        self._constants = [_NONE] * 32
        self._origins = [_NONE] * 32
        self._starts = set(text.starts)
        code = words.words(text.data)
        for at, w in enumerate(code):
            pc = text.address + 4 * at
            if pc in self._starts:
                self._constants, self._origins = [_NONE] * 32, [_NONE] * 32
            pair = words.compared(w)
            if pair is not None:
                # addresses are compared as unsigned numbers
                if at + 1 < len(code) and words.is_unsigned_branch(code[at + 1]):
                    self._compare(pc, {self._origins[register] for register in pair})
            else:
                self._run(w, pc)

    def _compare(self, pc: int, origins: set[int]) -> None:
        for origin in origins - {_NONE}:
            self.compared[origin] += 1
            self.first_compared.setdefault(origin, pc)

    def _run(self, w: int, pc: int) -> None:
        """Update the known registers and the counts after the instruction `w`."""
        constants, origins = self._constants, self._origins
        found = words.access(w)
        if found is not None and constants[found[1]] != _NONE:
            is_store, base, places = found
            start = constants[base]
            for offset, register in places:
                if is_store:
                    self.stored[start + offset] += 1
                else:
                    constants[register], origins[register] = _NONE, start + offset
        else:
            if words.is_call(w):
                self._call(words.target(w, pc))
            constant, origin = self._value(w, pc)
            for register in words.written(w):
                constants[register] = origins[register] = _NONE
            if constant != _NONE or origin != _NONE:
                constants[w & 31], origins[w & 31] = constant, origin
        constants[words.ZERO] = origins[words.ZERO] = _NONE

    def _call(self, callee: int | None) -> None:
        argument = self._constants[0]
        if argument != _NONE and callee in self._starts:
            self.passed.setdefault(argument, collections.Counter())[callee] += 1

    def _value(self, w: int, pc: int) -> tuple[int, int]:
        """Return the constant and the origin of the new value in register `w & 31`."""
        constant = words.address_of(w, pc)
        if constant is None:
            source, more = words.added(w) or (words.moved_from(w), 0)
            if source is None:
                return _NONE, _NONE
            constant = self._constants[source]
            if more == 0:
                return constant, self._origins[source]
            if constant != _NONE:
                constant += more
        if constant in self._starts:
            self.made.add(constant)
        return constant, _NONE
