"""Find the GC's headers, marks and state in memory, by the effects of collections."""
from __future__ import annotations

import os
import threading
import time
from typing import Any

from vmprof_allocation.engines.hook.probe.memory import (
    TYPE,
    Memory,
    NotCertain,
    Types,
    gc,
)

#: The maximum offset of the GC's fields in bytes.
GC_SIZE = 0x400
#: The GC's states in the result of gc.collect_step(). One more state belongs to the
#: interpreter: its finalizers run while the GC waits for a new cycle.
WAITING, SWEEPING, FINALIZING = 0, 2, 3
#: The number of collector steps during which the GC's state and flags are compared.
STEPS = 60
#: The number of objects that are examined.
SOME = 20
#: The maximum capacity of a pipe in bytes.
PIPE = 2**22
#: The part of a header with the flags.
FLAGS = 2**64 - 1 & ~TYPE


class Probed:
    """A class whose instances are examined."""

    __slots__ = ("value",)

    def __init__(self, value: object = None):
        """Store a value."""
        self.value = value


_old_filler = b"y" * 10000


def _old(make: Any) -> list[Any]:
    """Return SOME new objects of make(i), which the GC has moved from the nursery."""
    things = [make(i) for i in range(SOME)]
    gc.collect()
    return things


def check_sizes(memory: Memory, types: Types) -> str:
    """Check that the sizes of objects agree.

    The sizes from the type table must agree with the GC's sizes, and with the distances
    of consecutive objects in the nursery.

    Returns:
        A description of the checked objects.

    Raises:
        NotCertain: a size differs.
    """
    things: list[Any] = [
        Probed(), [], [None] * 100, [1] * 33, {}, {1: 2, "a": object()}, {1, 2},
        1.5, 2**100, "a" * 333, b"b" * 1001, "\u20ac" * 77, (1, 2), (None,) * 50,
        range(7), check_sizes, Exception("x"), bytearray(77), slice(1, 2),
        frozenset([1.5]), 3 + 4j, type("Probed", (list,), {})()]
    gc.collect()
    known = 0
    for thing in things:
        known += _check_usage(types, thing, memory)
        for part in gc.get_rpy_referents(thing):
            known += _check_usage(types, part, memory)
    strings = [_old_filler[:i] for i in range(5, 50)]
    gc.collect()
    for string in strings:          # id() is the address of the string's characters
        (part,) = gc.get_rpy_referents(string)
        found = memory.words(id(string), 3)
        if (found[0] & TYPE != types.number_of(part)
                or found[2] != len(string)
                or types.size(found) != gc.get_rpy_memory_usage(part)):
            raise NotCertain("a string of %d characters begins with %s" % (
                len(string), found))
    return ("the sizes of %d objects agree with the GC; %d are consecutive"
            % (known + len(strings), _walk_new_objects(memory, types)))


def _check_usage(types: Types, thing: Any, memory: Memory) -> int:
    """Check the size of an object, and return 1."""
    entry = types.entry(types.number_of(thing))
    fixed = entry[memory.layout.type_fixed_size // 8]
    rest = gc.get_rpy_memory_usage(thing) - (fixed + 7 & ~7)
    if rest == 0:
        return 1
    item = entry[memory.layout.type_item_size // 8]
    if rest < 0 or not entry[types.bits // 8] & types.is_varsize or item == 0:
        raise NotCertain("%s has %d bytes according to the GC, but %d according to the "
                         "type table"
                         % (types.names[gc.get_rpy_type_index(thing)],
                            gc.get_rpy_memory_usage(thing), fixed))
    return 1


def _walk_new_objects(memory: Memory, types: Types) -> int:
    snapshot = memory.made_by(lambda: [
        [Probed(i), [i] * i, (i, i, "x"), {i: i}, i + 0.5, _old_filler[:i], {i},
         slice(i), -i << 70] for i in range(100)])
    found = [header & TYPE for header, _ in types.walk(snapshot)]
    number = types.number_of(snapshot.made[0][0])
    if found.count(number) != len(snapshot.made):
        raise NotCertain("%d new objects were made, but %d are in the nursery" % (
            len(snapshot.made), found.count(number)))
    return len(found)


def find_forwarded(memory: Memory, types: Types) -> int:
    """Return the word that a survivor of a minor collection leaves in the nursery.

    The new address of the survivor follows the word.

    Raises:
        NotCertain: the survivors leave different words.
    """
    # The next collection lets the GC allocate at the nursery's beginning again.  There,
    # `ahead` leaves room, so that new objects do not overwrite the examined memory.
    gc.collect_step()
    ahead = [_old_filler[:1000 + i] for i in range(200)]
    snapshot = memory.made_by(lambda: [Probed(i) for i in range(2 * SOME)])
    del snapshot.made[:SOME], ahead
    alive = snapshot.made
    gc.collect_step()
    words = memory.again(snapshot)
    number = types.number_of(snapshot.made[0])
    places = [(address - snapshot.start) // 8
              for header, address in types.walk(snapshot)
              if header & TYPE == number]
    found = [(words[at], words[at + 1]) for at in places]
    if len(places) != 2 * SOME:
        raise NotCertain("%d objects were made, but %d were found in the nursery" % (
            2 * SOME, len(places)))
    if (len({mark for mark, _ in found[SOME:]}) != 1
            or [to for _, to in found[SOME:]] != [id(t) for t in alive]):
        raise NotCertain("survivors have these words at their old addresses: "
                         "%s" % found[SOME:][:2])
    if any(mark & TYPE != number for mark, _ in found[:SOME]):
        raise NotCertain("dead objects have these words: %s" % found[:2])
    mark = found[SOME][0]
    if mark & TYPE in types.rows:
        raise NotCertain("the word 0x%x of a survivor is a header" % mark)
    return mark - 2**64 if mark >= 2**63 else mark


def find_state(memory: Memory) -> int:
    """Return the offset of the GC's state in the GC struct.

    The state is the only word that always agrees with gc.collect_step().

    Raises:
        NotCertain: no word, or more than one, agrees.
    """
    gc.collect()
    candidates = set(range(0, GC_SIZE, 8))
    seen = set()
    for _ in range(STEPS):
        step = gc.collect_step()
        found = memory.words(memory.gc, GC_SIZE // 8)
        state = step.newstate if step.newstate <= FINALIZING else WAITING
        seen.add(state)
        candidates = {c for c in candidates if found[c // 8] == state}
    if len(candidates) != 1 or len(seen) != FINALIZING + 1:
        raise NotCertain("%d words agree with the GC's state, which was %s" % (
            len(candidates), sorted(seen)))
    (offset,) = candidates
    return offset


def _step_to(state: int) -> None:
    for _ in range(1000):
        if gc.collect_step().newstate == state:
            return
    raise NotCertain("the GC does not reach the state %d" % state)


def find_visited(memory: Memory) -> int:
    """Return the header bit of old objects that marking has reached.

    Raises:
        NotCertain: no bit, or more than one, has the expected values.
    """
    gc.collect()
    _step_to(WAITING)
    alive, dead = _old(Probed), _old(Probed)
    at, at_dead = [id(t) for t in alive], [id(t) for t in dead]
    _step_to(WAITING)
    before = [memory.word(a) for a in at + at_dead]
    del dead
    _step_to(SWEEPING)
    marked = [memory.word(a) for a in at]
    unmarked = [memory.word(a) for a in at_dead]
    _step_to(WAITING)
    after = [memory.word(a) for a in at]
    if {h & TYPE for h in before + marked + unmarked + after} != {
            before[0] & TYPE}:
        raise NotCertain("the type in the header of an old object changed")
    bits = FLAGS
    for header in marked:
        bits &= header
    for header in before + unmarked + after:
        bits &= ~header
    return _one_bit(bits, "marking")


def find_old(memory: Memory, types: Types) -> int:
    """Return the header bit of unchanged old objects.

    The bit is set if no reference was stored into the old object since the last
    collection.  Young objects never have this bit.

    Raises:
        NotCertain: no bit, or more than one, has the expected values.
    """
    things = _old(Probed)
    bits = FLAGS
    for _ in range(STEPS):
        gc.collect_step()
        for header in [memory.word(id(thing)) for thing in things]:
            bits &= header
    snapshot = memory.made_by(lambda: [Probed(i) for i in range(2 * SOME)])
    for header, _ in types.walk(snapshot):
        bits &= ~header
    return _one_bit(bits, "growing old")


def find_pinned(memory: Memory) -> int:
    """Return the header bit of pinned objects.

    C code reads a pinned young object while other threads run, so the object must not
    move.

    Raises:
        NotCertain: no bit, or more than one, has the expected values.
    """
    reader, writer = os.pipe()
    size = 3000
    end = threading.Event()
    try:
        os.set_blocking(writer, False)
        try:
            for _ in range(PIPE // len(_old_filler)):
                os.write(writer, _old_filler)
        except BlockingIOError:
            pass
        os.set_blocking(writer, True)
        number = memory.word(id(_old_filler)) & TYPE

        def write() -> None:
            os.write(writer, _old_filler[:size - 7] + b"%07d" % size)
            end.set()

        start = int(memory.free[0])
        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        time.sleep(0.05)
        found = [a for a in range(start, int(memory.free[0]), 8)
                 if memory.word(a) & TYPE == number
                 and memory.word(a + 16) == size]
        during = [memory.word(a) for a in found]
        if end.is_set() or len(found) != 1:
            raise NotCertain("%d bytes objects of a running write() are in the "
                             "nursery" % len(found))
    finally:
        os.set_blocking(reader, False)
        for _ in range(2 * PIPE // len(_old_filler)):
            try:
                os.read(reader, len(_old_filler))
            except BlockingIOError:
                if end.is_set():
                    break
                time.sleep(0.001)
    end.wait(1)
    after = [memory.word(a) for a in found]
    os.close(reader)
    os.close(writer)
    if after[0] & TYPE != number:
        raise NotCertain("the bytes object of a running write() has moved")
    return _one_bit(during[0] & ~after[0], "writing")


def _one_bit(bits: int, what: str) -> int:
    if not bits or bits & bits - 1:
        raise NotCertain("%s sets the bits 0x%x" % (what, bits))
    return bits
