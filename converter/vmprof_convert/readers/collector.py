"""Samples on their way from a file to who wants them.

Where facts are recorded, a sample waits for them: until its object's first
minor collection, and those that became old until they are freed.  So what has
to be remembered is bounded by what is alive.
"""
from __future__ import annotations

from vmprof_convert.model import (
    ALIVE,
    DIED,
    FREED,
    LOST,
    PENDING,
    PINNED,
    UNKNOWN,
    UNTOLD,
    Rows,
    Stacks,
)

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


#: what `facts` say of an object's first minor collection; else: not known.  From 4
#: on, the profile ended before
_STILL_YOUNG = 4
_OUTCOMES = {0: DIED, 1: ALIVE, 2: PINNED, _STILL_YOUNG: PENDING}

#: the first columns of Rows.add(): stack, time, thread, size, interval, memory
_Sample = tuple[int, int, int, int, int, int]


class Collector:
    """Hands samples on, and keeps what a profile says of all of them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        #: another part of the profile follows the one that is read
        self.goes_on = False
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        """Forget what came before; see Rows."""
        self.stacks = Stacks()
        #: samples in the file; and rows without a stack, of which an object more
        #: in one piece is another one
        self.count = self.lost = 0
        #: facts that fit no sample
        self.misfits = 0
        #: what is recorded of all sampled objects
        self._has_types = self._has_lifetimes = False
        #: by their keys: those that no collection met
        self._pending: dict[int, _Sample] = {}
        #: those that the present one met: what each turned out to be, one object
        #: or several, and how many of its bytes are none of theirs
        self._pieces: dict[int, tuple[_Sample, int, int]] = {}
        #: those that were old after it: key, and which of its objects
        self._old: dict[tuple[int, int], tuple[_Sample, int, int]] = {}
        self._rows.begin(settings)

    def expect(self, facts: str) -> None:
        """What the settings say of facts, before the samples."""
        if not self.count:
            words = facts.split(",")
            self._has_types = "types" in words
            self._has_lifetimes = "lifetimes" in words

    def stack(self, node: int, words: int) -> int:
        """The number of the stack that ends with `node` of `stacks`, and had
        so many words in its record."""
        return self.stacks.number(node, words >= FULL_RECORD)

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int) -> None:
        self.count += 1
        if stack < 0 or stack in self.stacks.full:
            self._count_stack(stack)
        if size and (self._has_types or self._has_lifetimes):
            self._pending[self.count] = (stack, time, thread, size, interval,
                                         memory)
        else:
            self._rows.add(stack, time, thread, size, interval, memory)

    def add_tick(self, stack: int, time: int, thread: int, memory: int) -> None:
        """A time sample."""
        self.count += 1
        if stack < 0 or stack in self.stacks.full:
            self._count_stack(stack)
        self._rows.add(stack, time, thread, 0, 0, memory)

    def _count_stack(self, stack: int) -> None:
        if stack in self.stacks.full:
            self.stacks.full[stack] += 1
        elif stack < 0:
            self.lost += 1

    def add_object(self, key: int, type_: int, survived: int) -> None:
        """Of an older profile."""
        self._rows.add_object(key, type_, survived)

    # of these, `key` counts from 1 on the samples that were added

    def begin_collection(self) -> None:
        """What is said from now on is of another collection."""
        self._pieces.clear()

    def young(self, key: int, outcome: int, type_: int, size: int | None,
              time: int) -> None:
        """The next object of this sample has met its first minor collection.
        `size` None: it is that of the sample."""
        if outcome >= _STILL_YOUNG and self.goes_on:
            return              # the next part says what becomes of it
        sample = self._pending.pop(key, None)
        if sample is not None and size is None and outcome == 0:
            # most of them: one object, which died young
            self._pieces[key] = sample, 1, 0
            if self._has_lifetimes:
                self._rows.add(*sample, type_, DIED, time)
            else:
                self._rows.add(*sample, type_)
            return
        number = 0
        if sample is not None:
            left = sample[3]
        elif key in self._pieces:
            sample, number, left = self._pieces[key]
        else:
            self.misfits += 1
            return
        fate = _OUTCOMES.get(outcome, UNKNOWN)
        if size is None:
            size = sample[3]
        if 0 < size <= left:
            self._pieces[key] = sample, number + 1, left - size
        else:
            self._pieces[key] = sample, number + 1, left
            self.misfits += 1
            if number:
                return
            fate, type_, size = UNKNOWN, -1, sample[3]
        if number:
            self._count_stack(sample[0])    # it is another row
        if size != sample[3]:
            sample = (*sample[:3], size, *sample[4:])
        if not self._has_lifetimes:
            self._rows.add(*sample, type_)
        elif fate == ALIVE:
            self._old[key, number] = sample, type_, time
        else:
            self._rows.add(*sample, type_, fate,
                           -1 if fate == PENDING else time)

    def freed(self, key: int, number: int, time: int) -> None:
        self._end(key, number, FREED, time)

    def lose(self, key: int, number: int, time: int) -> None:
        self._end(key, number, LOST, time)

    def _end(self, key: int, number: int, fate: int, time: int) -> None:
        object_ = self._old.pop((key, number), None)
        if object_ is None:
            self.misfits += self._has_lifetimes
            return
        sample, type_, collected = object_
        self._rows.add(*sample, type_, fate, collected, time)

    def finish(self) -> None:
        """Nothing more is said of those that wait."""
        fate = PENDING if self._has_lifetimes else UNTOLD
        for sample in self._pending.values():
            self._rows.add(*sample, -1, fate)
        for sample, type_, collected in self._old.values():
            self._rows.add(*sample, type_, ALIVE, collected)
        self._pending.clear()
        self._old.clear()
        self._pieces.clear()
