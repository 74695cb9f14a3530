"""The analysis of a machine's code, as an interface for search.py."""
from __future__ import annotations

import abc
import bisect
import collections
from collections.abc import Iterator, Set


class Text:
    """The machine code of a library, and the sorted addresses of its functions."""

    def __init__(self, data: bytes, address: int, starts: list[int]):
        """Store the code.

        Args:
            data: the section .text.
            address: the address of its first byte.
            starts: the sorted addresses of all functions.
        """
        self.data = data
        self.address = address
        self.starts = starts

    def code(self, function: int) -> bytes:
        """Return the code of a function, or b"" if no function has this address.

        The code ends where the next function starts.
        """
        i = bisect.bisect_left(self.starts, function)
        if i == len(self.starts) or self.starts[i] != function:
            return b""
        end = (self.starts[i + 1] if i + 1 < len(self.starts)
               else self.address + len(self.data))
        return self.data[function - self.address:end - self.address]


class Machine(abc.ABC):
    """The analysis of a library's code.

    A `function` is the address of its first instruction; a word has 64 bits.
    """

    #: The types of relocations of pointers to imported functions: for calls
    #: (JUMP_SLOT), and for functions whose address is taken (GLOB_DAT).
    import_kinds: tuple[int, int]

    #: The name in Layout.machine.
    name: str

    def __init__(self, text: Text):
        """Store the code of a library."""
        self.text = text

    # Analyses of the whole text, which may count some instructions wrongly

    @abc.abstractmethod
    def compared(self) -> collections.Counter[int]:
        """Count the words at constant addresses that are compared with a value."""

    @abc.abstractmethod
    def first_compared(self, word: int) -> int:
        """Return the address of the first comparison of a word.

        Raises:
            KeyError: the word is not compared.
        """

    @abc.abstractmethod
    def stored(self) -> collections.Counter[int]:
        """Count the words at constant addresses that are written."""

    @abc.abstractmethod
    def passed(self, inside: range) -> dict[int, collections.Counter[int]]:
        """Count the calls whose first argument is a constant address in `inside`.

        Returns:
            For each such address, the number of calls of each function.
        """

    @abc.abstractmethod
    def addressed(self) -> Set[int] | None:
        """Return the functions whose address is computed.

        Returns:
            None if a call by an address may lead to any instruction.  Some machines
            require that such a call leads to a special instruction; an entry patch
            replaces this instruction by a jump.
        """

    # Analyses of a function, which are certain

    @abc.abstractmethod
    def callees(self, function: int) -> set[int]:
        """Return the functions that a function calls directly."""

    @abc.abstractmethod
    def calls(self, function: int, others: Set[int]) -> bool:
        """Return whether a function calls one of the others."""

    @abc.abstractmethod
    def clears(self, function: int, offset: int) -> bool:
        """Return whether a function writes zero to [register + offset]."""

    @abc.abstractmethod
    def stores(self, function: int, offsets: Set[int]) -> bool:
        """Return whether a function writes to [register + offset], for all offsets."""

    @abc.abstractmethod
    def factors(self, function: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Find multiplications by a factor from a table.

        Yields:
            (index of the instruction, (T, displacement)) for each factor that is loaded
            from [T + something + displacement], where T is a constant.
        """

    @abc.abstractmethod
    def displacements(self, function: int, before: int, table: int) -> set[int]:
        """Return the displacements of the words that a function loads from a table.

        Args:
            function: the function.
            before: the index of the instruction up to which it is examined.
            table: the constant T in [T + something + displacement].
        """

    @abc.abstractmethod
    def movable(self, function: int) -> int:
        """Return the number of bytes at a function's start that a jump can replace.

        These are whole instructions that can run at another address, and that are not
        the target of a jump.

        Returns:
            0 if these bytes are too few for a jump, or too many for one store.
        """

    @abc.abstractmethod
    def takes(self, function: int, arguments: int) -> bool:
        """Return whether a function reads N arguments from their usual registers.

        With link-time optimization, a compiler may omit arguments that are always the
        same, and move the following arguments to other registers.

        Args:
            function: the function.
            arguments: N.
        """
