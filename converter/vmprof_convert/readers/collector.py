"""Samples on their way from a file to who wants them.

Where facts are recorded, a sample waits for them: until its object's first
minor collection, and those that became old until they are freed.  So what has
to be remembered is bounded by what is alive.
"""
from __future__ import annotations

import array
import operator
from collections.abc import Iterator, Sequence
from itertools import compress

from vmprof_convert.model import (
    ALIVE,
    DIED,
    PENDING,
    PINNED,
    UNKNOWN,
    UNTOLD,
    Columns,
    Row,
    Rows,
    Samples,
)
from vmprof_convert.readers.held import Held, pieces
from vmprof_convert.stack_tree import Stacks

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
_OUTCOMES = {0: DIED, 1: ALIVE, 2: PINNED, 3: UNKNOWN, _STILL_YOUNG: PENDING}
#: for translate(): those of objects that a collection met
_FATES = bytes([DIED, ALIVE, PINNED, UNKNOWN, *[0] * 252])
#: a size: that of the sample
AS_SAMPLED = -1
#: of what met() gets of an object: its type, its size, its outcome, and whether it is
#: not the first of its key
_FIELDS = tuple(map(operator.itemgetter, range(3)))
_is_more = operator.itemgetter(3)
_FATE = Row._fields.index("fate")
#: sizes of so many runs are remembered as they are
_MOST_RUNS = 64
#: more bytes than any piece has
_NOTHING_LEFT = 2**63

#: rows that come one by one are handed on so many at a time
_TOGETHER = 2**10


class Collector:
    """Hands samples on, and keeps what a profile says of all of them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._is_table = isinstance(rows, Samples)
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
        #: those that wait for facts.  Who makes a table of all of them keeps them
        #: in memory anyway
        self._held = Held(self._is_table)
        #: keys of samples of earlier parts, which are not read: 0 or less; those of
        #: them that were young, and which of these a collection met
        self._carried: set[int] = set()
        self._carried_young: dict[int, Row] = {}
        self._carried_met: set[int] = set()
        #: of those that the present collection met, what may hold another object: how
        #: many there were so far, and the bytes that are left, and of all
        self._pieces: dict[int, tuple[int, int, int]] = {}
        #: likewise, of runs of which no other object was told: the first key, and the
        #: bytes of all pieces
        self._runs: list[tuple[int, array.array[int]]] = []
        #: by key, and which of its objects: what is old, and is not held above
        self._old: dict[tuple[int, int], Row] = {}
        #: of a table, the rows that come before a row that is held, and its number
        self._late = Samples()
        self._places = array.array("q")
        #: all is known of these
        self._ready: list[Row] = []
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

    def add(self, stacks: Sequence[int], times: Sequence[int], threads: Sequence[int],
            sizes: Sequence[int], intervals: Sequence[int],
            memories: Sequence[int]) -> None:
        """Samples, as columns."""
        number = len(stacks)
        self.count += number
        self._count_stacks(stacks)
        has_facts = self._has_types or self._has_lifetimes
        fates = array.array("b", [
            PENDING if self._has_lifetimes else UNTOLD]) * number
        met = bytes(number)
        if has_facts and not all(sizes):
            # nothing becomes of time samples
            met = bytes([not size for size in sizes])
            fates = array.array("b", [
                fate if size else UNTOLD for fate, size in zip(fates, sizes)])
        nothing = array.array("q", [-1])
        rows = Columns(times, threads, stacks, sizes, intervals, memories,
                       array.array("i", [-1]) * number, fates, nothing * number,
                       nothing * number)
        if not has_facts:
            self._rows.extend(rows)
            return
        for complete in self._held.take(self._wanted()):
            self._rows.extend(complete)
        self._held.extend(rows, met)

    def _count_stacks(self, stacks: Sequence[int]) -> None:
        full = self.stacks.full
        self.lost += stacks.count(-1)
        if full:
            for stack in filter(full.__contains__, stacks):
                full[stack] += 1

    def add_tick(self, stack: int, time: int, thread: int, memory: int) -> None:
        """A time sample."""
        self.count += 1
        self._count_stacks((stack,))
        self._hand_on(1, Row(time, thread, stack, 0, 0, memory))

    def carry(self, key: int, which: int, stack: int, size: int, interval: int,
              type_: int, is_old: bool) -> None:
        """A sample of an earlier part; its key is 0 or less."""
        if not self._has_lifetimes:
            return
        self._carried.add(key)
        row = Row(0, 0, stack, size, interval, 0)
        if is_old:
            self._old[key, which] = row._replace(type=type_, fate=ALIVE)
        else:
            self._carried_young[key] = row._replace(fate=PENDING)

    def is_known(self, key: int) -> bool:
        """Of an earlier part, which is not read: there was more to say of it."""
        return key in self._carried

    def _hand_on(self, key: int, row: Row) -> None:
        if key > 0 and self._is_table and self._held.row(key) >= 0:
            self._places.append(self._held.row(key) + 1)
            self._late.add_row(row)
        elif key > 0:
            self._ready.append(row)
            if len(self._ready) >= _TOGETHER:
                self._flush()
        else:
            self._rows.carry(row.stack, row.size, row.interval, row.type, row.fate,
                             row.collected, row.ended)

    def _flush(self) -> None:
        if self._ready:
            self._rows.extend(Columns(*zip(*self._ready[:_TOGETHER])))
            del self._ready[:_TOGETHER]

    def add_object(self, key: int, type_: int, survived: int) -> None:
        """Of an older profile."""
        self._rows.add_object(key, type_, survived)

    # of these, `key` counts from 1 on the samples that were added

    def begin_collection(self) -> None:
        """What is said from now on is of another collection."""
        self._pieces.clear()
        self._runs.clear()

    def met(self, key: int, alike: Sequence[Sequence[int]], time: int) -> int:
        """As young(), of this key and those that follow, as in _FIELDS, the first of
        which is one of this key.  Returns how many keys that were; 0: nothing was done,
        as they are not alike."""
        held, firsts, more = self._held, alike, []
        if any(map(_is_more, alike)):
            firsts = [object_ for object_ in alike if not object_[3]]
            at = -1
            for object_ in alike:
                if not object_[3]:
                    at += 1
                else:
                    more.append((at, object_))
        number = len(firsts)
        row = held.row(key, number)
        if row < 0 or held.met.find(1, row, row + number) >= 0:
            return 0
        # (zip() of as many arguments takes longer)
        types, sizes, outcomes = (map(field, firsts) for field in _FIELDS)
        samples, rows = held.samples, slice(row, row + number)
        own = wholes = samples.size[rows]
        said = array.array("q", sizes)
        if said.count(AS_SAMPLED) < number:
            own = array.array("q", [whole if size == AS_SAMPLED else size
                                    for size, whole in zip(said, wholes)])
            if min(own) <= 0 or any(map(operator.gt, own, wholes)):
                return 0
            samples.size[rows] = own
            self._remember(key, wholes)
        held.met[rows] = b"\1" * number
        samples.type[rows] = array.array("i", types)
        if self._has_lifetimes:
            samples.fate[rows] = array.array("b", bytes(outcomes).translate(_FATES))
            samples.collected[rows] = array.array("q", [time]) * number
        if more:
            self._met_more(key, row, more, own, wholes, time)
        return number

    def _remember(self, key: int, wholes: array.array[int]) -> None:
        self._runs.append((key, wholes))
        if len(self._runs) > _MOST_RUNS:
            self._pieces.update(self._of_runs())
            self._runs.clear()

    def _of_runs(self) -> dict[int, tuple[int, int, int]]:
        """What of them may hold another object, as in _pieces."""
        found = {}
        for key, wholes in self._runs:
            row = self._held.row(key, len(wholes))
            own = (self._held.samples.size[row:row + len(wholes)] if row >= 0 else
                   map(self._size, range(key, key + len(wholes))))
            for at, (whole, size) in enumerate(zip(wholes, own), key):
                if size < whole and at not in self._pieces:
                    found[at] = 1, whole - size, whole
        return found

    def _size(self, key: int) -> int:
        """Of what is not here any more, nothing more is said."""
        row = self._held.row(key)
        return self._held.samples.size[row] if row >= 0 else _NOTHING_LEFT

    def _wanted(self) -> Iterator[int]:
        """Keys of which there may be another object."""
        # (seldom asked for: not before somebody looks)
        for key, (_, left, _) in (*self._of_runs().items(), *self._pieces.items()):
            if left:
                yield key

    def _piece(self, key: int) -> tuple[int, int, int] | None:
        """As in _pieces."""
        found = self._pieces.get(key)
        if found is None:
            for first, wholes in self._runs:
                if 0 <= key - first < len(wholes):
                    whole, size = wholes[key - first], self._size(key)
                    if size < whole:
                        return 1, whole - size, whole
        return found

    def _met_more(self, key: int, row: int, more: list[tuple[int, Sequence[int]]],
                  own: Sequence[int], wholes: Sequence[int], time: int) -> None:
        """Objects that follow one in its piece: each the number of the one from `key`
        on, at `row`, and what it is; bytes of these ones, and of the pieces."""
        pieces = self._pieces
        objects = []
        for at, (type_, size, outcome, _) in more:
            number, left, whole = pieces.get(key + at) or (
                1, wholes[at] - own[at], wholes[at])
            if 0 < size <= left:
                objects.append((row + at, size, type_, _OUTCOMES[outcome], number))
                left -= size
            else:
                self.misfits += 1
                if not left:
                    continue
            pieces[key + at] = number + 1, left, whole
        if not objects:
            return
        of, sizes, types, fates, numbers = zip(*objects)
        samples = self._held.samples
        columns = Columns(*[[column[row] for row in of]
                            for column in samples.columns()])._replace(
            size=sizes, type=types, ended=[-1] * len(of))
        self._count_stacks(columns.stack)
        if self._has_lifetimes:
            columns = columns._replace(fate=fates, collected=[time] * len(of))
        if ALIVE in columns.fate:
            for place, number, *values in zip(of, numbers, *columns):
                if values[_FATE] == ALIVE:
                    self._old[key + place - row, number] = Row(*values)
            dead = [fate != ALIVE for fate in columns.fate]
            columns = columns.chosen(dead)
            of = tuple(compress(of, dead))
        if self._is_table:
            self._places.extend([place + 1 for place in of])
            self._late.extend(columns)
        else:
            self._ready.extend(map(Row._make, zip(*columns)))
            while len(self._ready) >= _TOGETHER:
                self._flush()

    def young(self, key: int, outcome: int, type_: int, size: int, time: int) -> None:
        """The next object of this sample has met its first minor collection.  Its
        `size` may be AS_SAMPLED."""
        if outcome >= _STILL_YOUNG and self.goes_on:
            return              # the next part says what becomes of it
        held = self._held
        row, number = held.row(key), 0
        sample = held.get(row) if row >= 0 else self._carried_young.get(key)
        if sample is None:
            self.misfits += 1
            return
        left = whole = sample.size
        piece = self._piece(key)
        if piece is not None:
            number, left, whole = piece
        elif held.met[row] if row >= 0 else key in self._carried_met:
            self.misfits += 1
            return
        elif row >= 0:
            held.met[row] = True
        else:
            self._carried_met.add(key)
        if size == AS_SAMPLED:
            size = whole
        fits = 0 < size <= left
        if fits:
            left -= size
        if left or piece is not None:
            self._pieces[key] = number + 1, left, whole
        fate = _OUTCOMES.get(outcome, UNKNOWN)
        if not fits:
            self.misfits += 1
            if number:
                return
            fate, type_, size = UNKNOWN, -1, whole
        object_ = sample._replace(size=size, type=type_, ended=-1)
        if self._has_lifetimes:
            object_ = object_._replace(
                fate=fate, collected=-1 if fate == PENDING else time)
        if not number and key > 0:
            held.set(row, object_)
            return
        if key > 0:
            self._count_stacks((sample.stack,))      # it is another row
        if object_.fate == ALIVE:
            self._old[key, number] = object_
        else:
            self._hand_on(key, object_)

    def end(self, key: int, number: int, fate: int, time: int) -> None:
        """This object of the key was FREED, or is LOST."""
        if not number:
            row, samples = self._held.row(key), self._held.samples
            if row >= 0 and samples.fate[row] == ALIVE:
                samples.fate[row], samples.ended[row] = fate, time
                return
        object_ = self._old.pop((key, number), None)
        if object_ is None:
            self.misfits += self._has_lifetimes
        else:
            # (_replace() takes three times as long)
            self._hand_on(key, Row._make((*object_[:_FATE], fate, object_.collected,
                                          time)))

    def finish(self) -> None:
        """Nothing more is said of those that wait."""
        for key in self._carried_young.keys() - self._carried_met:
            self._hand_on(key, self._carried_young[key])
        for (key, _), row in self._old.items():
            self._hand_on(key, row)
        if self._places:
            self._held.samples.insert(self._places, self._late)
        samples = self._held.samples
        for rows in ([Columns(*samples.columns())] if self._is_table
                     else pieces(samples)):
            self._rows.extend(rows)
        self._flush()
        self._held = Held(False)
        self._late = Samples()
        del self._places[:]
        self._carried_young.clear()
        self._old.clear()
        self._pieces.clear()
        self._runs.clear()
