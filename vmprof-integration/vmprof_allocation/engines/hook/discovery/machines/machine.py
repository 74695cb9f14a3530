"""What search.py asks of a machine's code."""
from __future__ import annotations

import abc
import bisect
import collections
from collections.abc import Iterator, Set


class Text:
    """The code of a library, and where its functions start (sorted)."""

    def __init__(self, data: bytes, address: int, starts: list[int]):
        self.data = data
        self.address = address
        self.starts = starts

    def code(self, function: int) -> bytes:
        """Up to where the next one starts; empty if none starts there."""
        i = bisect.bisect_left(self.starts, function)
        if i == len(self.starts) or self.starts[i] != function:
            return b""
        end = (self.starts[i + 1] if i + 1 < len(self.starts)
               else self.address + len(self.data))
        return self.data[function - self.address:end - self.address]


class Machine(abc.ABC):
    """A `function` is the address at which it starts; a word has 64 bits."""

    #: kinds of relocations of pointers to imported functions: of one that is called
    #: (JUMP_SLOT), and then of one whose address is taken (GLOB_DAT)
    import_kinds: tuple[int, int]

    #: as Layout has it
    name: str

    def __init__(self, text: Text):
        self.text = text

    # of the whole text: what is counted may be wrong here and there

    @abc.abstractmethod
    def compared(self) -> collections.Counter[int]:
        """The words at constant addresses that are compared with something."""

    @abc.abstractmethod
    def first_compared(self, word: int) -> int:
        """Where that is done with this one for the first time.  Raises KeyError."""

    @abc.abstractmethod
    def stored(self) -> collections.Counter[int]:
        """The words at constant addresses that are written to."""

    @abc.abstractmethod
    def passed(self, inside: range) -> dict[int, collections.Counter[int]]:
        """For each constant in `inside` that is passed as the first argument, the
        functions that get it."""

    @abc.abstractmethod
    def addressed(self) -> Set[int] | None:
        """The functions whose address is made, if a call by an address has to lead to
        an instruction that is for that; None: it has not."""

    # of a function, for certain

    @abc.abstractmethod
    def callees(self, function: int) -> set[int]:
        """Whom it calls by address."""

    @abc.abstractmethod
    def calls(self, function: int, others: Set[int]) -> bool:
        """Does it call one of them?"""

    @abc.abstractmethod
    def clears(self, function: int, offset: int) -> bool:
        """Does it write zero to [register + offset]?"""

    @abc.abstractmethod
    def stores(self, function: int, offsets: Set[int]) -> bool:
        """Does it write to [register + offset], of each offset?"""

    @abc.abstractmethod
    def factors(self, function: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Of its multiplications, the factors that come from [T + something +
        displacement], with T a constant: (which instruction, (T, displacement))."""

    @abc.abstractmethod
    def displacements(self, function: int, before: int, table: int) -> set[int]:
        """Of the words that it reads from [T + something + displacement], before an
        instruction."""

    @abc.abstractmethod
    def movable(self, function: int) -> int:
        """How many bytes at its start can run elsewhere: whole instructions that don't
        depend on where they are, and that nothing jumps into.  0 if that is not
        enough for a jump, or too much to swap at once."""

    @abc.abstractmethod
    def takes(self, function: int, arguments: int) -> bool:
        """Does it read so many arguments from where the source has them?  With
        link-time optimization, a compiler may leave out those that are always the same,
        and move the others up."""
