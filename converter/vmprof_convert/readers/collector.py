"""Samples on their way from a file to who wants them.

Where facts are recorded, a sample waits for them: until its object's first
minor collection, and those that became old until they are freed.  So what has
to be remembered is bounded by what is alive.
"""
from __future__ import annotations

import array
import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, count, islice
from operator import itemgetter

from vmprof_convert.profile.model import (
    ALIVE,
    DIED,
    PENDING,
    UNKNOWN,
    UNTOLD,
    Carried,
    Columns,
    Row,
    Rows,
    Samples,
)
from vmprof_convert.profile.stacks import Stacks
from vmprof_convert.profile.store import is_one
from vmprof_convert.readers.held import Held, Table
from vmprof_convert.readers.kept import Kept
from vmprof_convert.readers.runs import (
    Objects,
    Run,
    first_ones,
    of_pieces,
    rows_of,
    with_fate,
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
_OUTCOMES = {0: DIED, 1: ALIVE, 3: UNKNOWN, _STILL_YOUNG: PENDING}
#: for translate(): those of objects that a collection met
_FATES = bytes([DIED, ALIVE, UNKNOWN, UNKNOWN, *[0] * 252])
#: a size: that of the sample
AS_SAMPLED = -1
#: of what met() gets of an object: its type, its size, its outcome, and whether it is
#: not the first of its key
_FIELDS = tuple(map(operator.itemgetter, range(3)))
_type, _size, _outcome = _FIELDS
_is_more = operator.itemgetter(3)
_FATE = Row._fields.index("fate")
#: sizes of so many runs are remembered as they are
_MOST_RUNS = 64

#: rows that come one by one are handed on so many at a time
_TOGETHER = 2**10


class Collector:
    """Hands samples on, and keeps what a profile says of all of them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        #: if a table is made of all: where that is
        self._store = rows.store if isinstance(rows, Samples) else None
        #: another part of the profile follows the one that is read
        self.goes_on = False
        self._kept: Kept | None = None
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
        #: those that wait for facts, and all if a table is made of them, in their order
        if self._kept is not None:
            self._kept.clear()
        self._kept = None if self._store is None else Kept(self._store)
        self._held: Held | Kept = self._kept or Held()
        #: keys of samples of earlier parts, which are not read: 0 or less; those of
        #: them that were young, and which of these a collection met
        self._carried: set[int] = set()
        self._carried_young: dict[int, Row] = {}
        self._carried_met: set[int] = set()
        #: of those that the present collection met, what may hold another object: how
        #: many there were so far, and the bytes that are left, and of all
        self._pieces: dict[int, tuple[int, int, int]] = {}
        #: of these pieces, how many objects have a number, and did not fit
        self._skipped: dict[int, int] = {}
        #: as _pieces, of many that were told of together
        self._runs: list[Run] = []
        #: by key, and which of its objects: what is old, and is not held above
        self._old: dict[tuple[int, int], Row] = {}
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
            memories: Sequence[int], *, has_ticks: bool = True) -> None:
        """Samples, as columns; `has_ticks`: perhaps time samples, too."""
        number = len(stacks)
        self.count += number
        self._count_stacks(stacks)
        has_facts = self._has_types or self._has_lifetimes
        fates = array.array("b", [
            PENDING if self._has_lifetimes else UNTOLD]) * number
        met = bytes(number)
        if has_facts and has_ticks:
            # nothing becomes of time samples
            met = bytes([not size for size in sizes])
            fates = array.array("b", [
                fate if size else UNTOLD for fate, size in zip(fates, sizes)])
        nothing = array.array("q", [-1])
        rows = Columns(times, threads, stacks, sizes, intervals, memories,
                       array.array("i", [-1]) * number, fates, nothing * number,
                       nothing * number, array.array("q", [0]) * number)
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
              type_: int, is_old: bool, live_size: int) -> None:
        """A sample of an earlier part; its key is 0 or less."""
        if not self._has_lifetimes:
            return
        self._carried.add(key)
        row = Row(0, 0, stack, size, interval, 0)
        if is_old:
            self._old[key, which] = row._replace(type=type_, fate=ALIVE,
                                                 live_size=live_size)
        else:
            self._carried_young[key] = row._replace(fate=PENDING)

    def is_known(self, key: int) -> bool:
        """Of an earlier part, which is not read: there was more to say of it."""
        return key in self._carried

    def _hand_on(self, key: int, row: Row) -> None:
        if key > 0:
            self._ready.append(row)
            if len(self._ready) >= _TOGETHER:
                self._flush()
        else:
            self._rows.carry(Carried(row.stack, row.size, row.interval, row.type,
                                     row.fate, row.collected, row.ended,
                                     row.live_size))

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
        self._skipped.clear()

    def met(self, key: int, alike: Sequence[Sequence[int]], time: int) -> (
            tuple[int, int]):
        """As young(), of this key and those that follow, as in _FIELDS, the first of
        which is one of this key.  Returns how many keys that were, and how many of
        `alike`; none: nothing was done, as they are not alike, or do not fit."""
        more = bytes(map(_is_more, alike))
        part = self._held.find(key, more.count(0))
        if part is None:
            return 0, 0
        samples, met, row, number = part
        if number < more.count(0):
            # what is behind these is elsewhere
            ends = islice(compress(count(), first_ones(more)), number, None)
            more = more[:next(ends)]
            alike = alike[:len(more)]
        rows = slice(row, row + number)
        if met.find(1, row, row + number) >= 0:
            return 0, 0
        firsts = _objects(alike if number == len(more)
                          else list(compress(alike, first_ones(more))))
        own = wholes = samples.size[rows]
        if firsts.size.count(AS_SAMPLED) < number:
            own = array.array("q", [
                whole if size == AS_SAMPLED else size
                for size, whole in zip(firsts.size, wholes)])
            if min(own) <= 0 or any(map(operator.gt, own, wholes)):
                return 0, 0
        run = None
        if number < len(more):
            run = of_pieces(key, wholes, own, list(map(_size, alike)), more)
            if run is None:
                return 0, 0
        elif own is not wholes:
            run = Run(key, wholes, array.array("q", map(operator.sub, wholes, own)))
        samples.size[rows] = own
        met[rows] = b"\1" * number
        samples.type[rows] = firsts.type
        if self._has_lifetimes:
            samples.fate[rows] = firsts.fate
            samples.collected[rows] = array.array("q", [time]) * number
        if number < len(more):
            self._met_more(samples, key - row, rows_of(more, row),
                           _objects(list(compress(alike, more))), time)
        if run is not None:
            self._remember(run)
        return number, len(more)

    def _remember(self, run: Run) -> None:
        self._runs.append(run)
        if len(self._runs) > _MOST_RUNS:
            self._pieces.update(self._of_runs())
            self._runs.clear()

    def _of_runs(self) -> dict[int, tuple[int, int, int]]:
        """What of them may hold another object, as in _pieces."""
        return {key: piece for run in self._runs for key, piece in run.pieces()
                if key not in self._pieces}

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
            for run in self._runs:
                if 0 <= key - run.key < len(run.wholes):
                    return run.piece(key - run.key)
        return found

    def _met_more(self, samples: Table, before: int, rows: array.array[int],
                  objects: Objects, time: int) -> None:
        """Objects that follow one in its piece, which is in one of these `rows`; a key
        is its row, and so many `before`."""
        fates = objects.fate
        if self.stacks.full or self.lost:
            self._count_stacks(array.array("i", map(samples.stack.__getitem__, rows)))
        collected = array.array("q", [time]) * len(rows)
        old = with_fate(ALIVE, fates, rows)
        if not self._has_lifetimes:
            fates = array.array("b", [UNTOLD]) * len(rows)
            collected = array.array("q", [-1]) * len(rows)
            old = iter(())
        objects = objects._replace(fate=fates)
        if self._kept is not None:
            keys = array.array("q", map(before.__add__, rows))
            self._kept.add_late(keys, objects, collected,
                                array.array("q", [0]) * len(rows), old)
            return
        of_pieces = itemgetter(*rows, 0)
        times, threads, stacks, intervals, memories = [
            column[:1] * len(rows) if is_one(column)
            else array.array(column.typecode, of_pieces(column)[:-1])
            for column in (samples.time, samples.thread, samples.stack,
                           samples.interval, samples.memory)]
        columns = Columns(
            times, threads, stacks, objects.size, intervals, memories, objects.type,
            fates, collected, array.array("q", [-1]) * len(rows),
            array.array("q", [0]) * len(rows))
        dead = bytearray(b"\1" * len(rows))
        for at, number in old:
            dead[at] = False
            self._old[before + rows[at], number] = Row(*[
                column[at] for column in columns])
        self._rows.extend(columns.chosen(dead))

    def young(self, key: int, outcome: int, type_: int, size: int, time: int,
              live_size: int = 0) -> None:
        """The next object of this sample has met its first minor collection.  Its
        `size` may be AS_SAMPLED; `live_size`: see model.Samples."""
        if outcome >= _STILL_YOUNG and self.goes_on:
            return              # the next part says what becomes of it
        part, number = self._held.find(key), 0
        sample = (part.table.get(part.row) if part is not None
                  else self._carried_young.get(key))
        if sample is None:
            self.misfits += 1
            return
        left = whole = sample.size
        piece = self._piece(key)
        if piece is not None:
            number, left, whole = piece
        elif part.met[part.row] if part is not None else key in self._carried_met:
            self.misfits += 1
            return
        elif part is not None:
            part.met[part.row] = True
        else:
            self._carried_met.add(key)
        if size == AS_SAMPLED:
            size = whole
        fits = 0 < size <= left and live_size < size
        if fits:
            left -= size
        if left or piece is not None:
            self._pieces[key] = number + 1, left, whole
        fate = _OUTCOMES.get(outcome, UNKNOWN)
        if not fits:
            self.misfits += 1
            if number:
                self._skipped[key] = self._skipped.get(key, 0) + 1
                return
            fate, type_, size, live_size = UNKNOWN, -1, whole, 0
        object_ = sample._replace(size=size, type=type_, ended=-1,
                                  live_size=live_size)
        if self._has_lifetimes:
            object_ = object_._replace(
                fate=fate, collected=-1 if fate == PENDING else time)
        if not number and part is not None:
            part.table.set(part.row, object_)
            return
        if key > 0:
            self._count_stacks((sample.stack,))      # it is another row
        if key > 0 and self._kept is not None:
            self._kept.add_late((key,), Objects(
                array.array("q", (size,)), array.array("i", (type_,)),
                array.array("b", (object_.fate,))), (object_.collected,), (live_size,),
                [(0, number)] if object_.fate == ALIVE else (),
                self._skipped.get(key, 0))
        elif object_.fate == ALIVE:
            self._old[key, number] = object_
        else:
            self._hand_on(key, object_)

    def end(self, objects: Iterable[tuple[int, int]], fate: int, time: int) -> None:
        """These were FREED, or are LOST: of each its key, and which of its piece."""
        for object_ in self._held.end_all(objects, fate, time):
            old = self._old.pop(object_, None)
            if old is None:
                self.misfits += self._has_lifetimes
            else:
                # (_replace() takes three times as long)
                self._hand_on(object_[0], Row._make((*old[:_FATE], fate, old.collected,
                                                     time, old.live_size)))

    def finish(self) -> None:
        """Nothing more is said of those that wait."""
        for key in self._carried_young.keys() - self._carried_met:
            self._hand_on(key, self._carried_young[key])
        for (key, _), row in self._old.items():
            self._hand_on(key, row)
        for rows in self._held.rest():
            self._rows.extend(rows)
        self._flush()
        self._held = Held()
        self._kept = None
        self._carried_young.clear()
        self._old.clear()
        self._pieces.clear()
        self._runs.clear()


def _objects(alike: Sequence[Sequence[int]]) -> Objects:
    # (zip() of as many arguments takes longer)
    return Objects(
        array.array("q", list(map(_size, alike))),
        array.array("i", list(map(_type, alike))),
        array.array("b", bytes(map(_outcome, alike)).translate(_FATES)))
