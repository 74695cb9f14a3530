"""Samples on their way from a file to who wants them."""
from __future__ import annotations

from vmprof_convert.model import Rows, Stacks

#: the longest stack that is believed, in words of a record or frames of a block:
#: a bound of ours.  What says more is damaged, and no reason to ask for memory.
#: (vmprof's records stay far below it, see FULL_RECORD.)
MAX_DEPTH = 2**16

#: words of a stack that filled vmprof's record.  vmprof goes on to the next
#: frame while two of 1019 words are free, in steps of two: so with 1016 words
#: it went on, and with 1018 it stopped.  Of the frames that are inlined in a
#: piece of machine code it writes one if only one word is free, hence 1020.
#: (vmp_stack.c, MAX_STACK_DEPTH - 1; vmprof_get_custom_offset.h.)  The column
#: of resident memory has its own room.
FULL_RECORD = 1018


class Collector:
    """Hands samples on, and keeps what a profile says of all of them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        """Forget what came before; see Rows."""
        self.stacks = Stacks()
        #: of the samples, and those without a stack
        self.count = self.lost = 0
        self._rows.begin(settings)

    def stack(self, node: int, words: int) -> int:
        """The number of the stack that ends with `node` of `stacks`, and had
        so many words in its record."""
        return self.stacks.number(node, words >= FULL_RECORD)

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int) -> None:
        self.count += 1
        if stack in self.stacks.full:
            self.stacks.full[stack] += 1
        elif stack < 0:
            self.lost += 1
        self._rows.add(stack, time, thread, size, interval, memory)

    def add_object(self, key: int, type_: int, survived: int) -> None:
        self._rows.add_object(key, type_, survived)
