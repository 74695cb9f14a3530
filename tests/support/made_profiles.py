"""Write vmprof logs byte by byte, as PROFILE.rst describes them.

Nothing is shared with the code that is tested.  A `Log` is written from the
top down::

    log = Log()
    main = log.function("main", 1, "app.py")
    log.settings(interval=1000)
    log.allocation([main], size=24, interval=1000, time=5)
    data = log.data()           # flushes the samples, writes the trailer

Stacks are lists of frames, outermost first: an address, for an interpreted
frame, or `jit(address)`, or `native(address)`.
"""
from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import Union

MEMORY, LINES, NATIVE, PYPY, REAL_TIME = 1, 2, 4, 8, 16
#: the thread of samples unless a test says otherwise; as it is the pid, this
#: is the main thread
PID = 4321
#: the start of the log, seconds since 1970
START = 1_700_000_000

(SETTINGS, TOTALS, FRAMES, NODES, TYPES, LABELS, OBJECTS, WAITING, ENDED, TICKS,
 COLLECTIONS, MARKED, SWEPT, MARKS, FIGURES, NAMES, HELD, HOLDERS,
 HELD_PATHS, HELD_OBJECTS, RAW, RAW_ENDED) = range(1, 23)
#: what became of an object
DIED, PROMOTED, NOT_RECORDED, NOT_KNOWN, YOUNG, YOUNG_NOT_KNOWN = range(6)

#: in place of a stack's node
LOST = -1

#: (kind, address)
Pair = tuple[int, int]
FrameSpec = Union[int, Pair]


def jit(address: int) -> Pair:
    """A Python frame that the JIT compiled."""
    return (3, address)


def machine_code(address: int) -> Pair:
    """The start of a piece of the JIT's machine code."""
    return (6, address)


def native(address: int) -> Pair:
    return (7, address)


def word(number: int) -> bytes:
    return struct.pack("<q", number)


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return word(len(data)) + data


# ________________________________________
# records


def _numbers(values: Sequence[int], bits: int) -> bytes:
    if bits >= 8:
        return struct.pack("<%d%s" % (len(values), {
            8: "B", 16: "H", 32: "I", 64: "q"}[bits]), *values)
    packed = bytearray()
    for start in range(0, len(values), 8 // bits):
        packed.append(sum(value << at * bits for at, value in enumerate(
            values[start:start + 8 // bits])))
    return bytes(packed)


def _width(most: int) -> int:
    """0, or the logarithm of the bits that it takes, plus 1."""
    return next(width for width in range(8)
                if most < 2**(2**(width - 1) if width else 0))


def column(values: Sequence[int], unit: int = 1) -> bytes:
    """In whichever way takes least."""
    if not values:
        return b"\0"
    steps = [after - before for before, after in zip(values, values[1:])]
    # beyond that, differences may not fit
    with_step = bool(steps) and max(values) - min(values) < 2**62 and (
        _width(max(steps) - min(steps)) < _width(max(values) - min(values)))
    if with_step:
        base, step = values[0], min(steps)
        numbers = [0, *(one - step for one in steps)]
    else:
        base, step = min(values), 0
        numbers = [value - base for value in values]
    if not any(numbers) or any(number % unit for number in numbers):
        unit = 1
    numbers = [number // unit for number in numbers]
    width = _width(max(numbers))
    if width == 7:
        return b"\7" + _numbers(values, 64)
    first = (width | 0x08 * (base != 0) | 0x10 * with_step | 0x20 * (unit != 1))
    return (bytes([first]) + word(base) * (base != 0) + word(step) * with_step
            + struct.pack("<H", unit) * (unit != 1)
            + (_numbers(numbers, 2**(width - 1)) if width else b""))


def record(kind: int, columns: Sequence[bytes], rows: int, texts: bytes = b"",
           version: int = 2) -> bytes:
    payload = struct.pack("<BBBBI", version, kind, len(columns), 0, rows)
    payload += b"".join(columns) + texts
    return b"A" + word(len(payload)) + payload


def table(kind: int, rows: Sequence[Sequence[int]], texts: bytes = b"") -> bytes:
    """A record of these rows."""
    return record(kind, [column(values) for values in zip(*rows)], len(rows), texts)


@dataclasses.dataclass
class _Sample:
    key: int
    time: int
    thread: int
    stack: int
    label: int
    memory: int
    size: int
    interval: int
    told: int = 0


#: no object of it is told of any more
_Row = tuple[int, ...]


class Log:
    """A log in the making; `self.bytes` is what was written so far."""

    def __init__(self, *, interpreter: str = "pypy", version: int = 6,
                 flags: int | None = None, period: int = 10_000):
        """`version` is that of vmprof's layout.  `flags` None: those of the
        interpreter; `period` in microseconds."""
        self.pypy = interpreter == "pypy"
        self.version = version
        self.flags = (PYPY if self.pypy else 0) if flags is None else flags
        self.keys = 0
        self.addresses = 0x1000
        #: numbers 2 to 7 of the totals
        self.allocated = self.lost = self.dropped = 0
        self.collections = self.pressures = self.surprises = 0
        self.last_time = 0
        #: rows of the next records, by kind, and their texts
        self.rows: dict[int, list[_Row]] = {kind: [] for kind in range(1, 24)}
        self.texts: dict[int, bytes] = {}
        #: samples of whose object nothing was told
        self.waiting: dict[int, _Sample] = {}
        #: keys of those that are in the profile as such
        self._written: set[int] = set()
        #: of which the first object was told
        self._told: dict[int, _Sample] = {}
        #: number of the last collection that was named, and its time
        self.collected = 0, 0
        self._collections: dict[int, tuple[int, int, int]] = {}
        self.last_type = 0
        self._label = 0
        self.facts: list[str] = []
        #: number of the node that these frames lead to; and of each frame
        self.nodes: dict[tuple[Pair, ...], int] = {(): 0}
        self.frames: dict[Pair, int] = {}
        name = interpreter.encode()
        self.bytes = bytearray(struct.pack("<5q", 0, 3, 0, period, 0))
        self.bytes += b"\x05" + struct.pack(
            ">hBB", version, self.flags, len(name)) + name
        self._time(0x06, START)

    def _time(self, marker: int, seconds: int) -> None:
        self.bytes += bytes([marker]) + struct.pack("<qq", seconds, 0) + bytes(8)

    def meta(self, key: str | bytes, value: str | bytes) -> None:
        self.bytes += b"\x07" + string(key) + string(value)

    def name(self, address: int, text: str | bytes) -> None:
        self.bytes += b"\x02" + word(address) + string(text)

    def function(self, name: str, line: int = 1, file: str = "app.py") -> int:
        """Name a Python function; returns its address, a new one."""
        self.addresses += 8
        self.name(self.addresses, "py:%s:%d:%s" % (name, line, file))
        return self.addresses

    def native_function(self, name: str) -> int:
        self.addresses += 8
        address = self.addresses + 1
        self.bytes += b"\x08" + word(address) + string("n:%s:0:-" % name)
        return address

    def record(self, kind: int, columns: Sequence[bytes] = (), rows: int = 0,
               texts: bytes = b"", version: int = 2) -> None:
        """At once, whatever it is."""
        self.bytes += record(kind, columns, rows, texts, version)

    def row(self, kind: int, *numbers: int, text: str | bytes | None = None) -> None:
        """Of the next record of this kind."""
        if text is not None:
            data = text.encode() if isinstance(text, str) else text
            self.texts[kind] = self.texts.get(kind, b"") + data
            numbers = (*numbers, len(data))
        self.rows[kind].append(numbers)

    def settings(self, **changes: object) -> None:
        """The record of settings; `changes` replace the values below."""
        values: dict[str, object] = {
            "engine": "hook", "interval": 1000, "gaps": "exponential",
            "seed": 1, "period": "", "pid": PID, **changes}
        if "facts" in changes:
            self.facts = str(changes["facts"]).split(",")
        self.settings_text(";".join("%s=%s" % pair for pair in values.items()))

    def settings_text(self, text: str) -> None:
        data = text.encode()
        self.record(SETTINGS, [column([len(data)])], 1, data)

    def pairs(self, frames: Sequence[FrameSpec]) -> tuple[Pair, ...]:
        return tuple((1, frame) if isinstance(frame, int) else frame
                     for frame in frames)

    def words(self, frames: Sequence[FrameSpec]) -> list[int]:
        """The stack in PyPy's layout, pairs from the innermost frame on."""
        return [number for pair in reversed(self.pairs(frames))
                for number in pair]

    def raw_stack(self, words: Iterable[int], thread: int, memory: int = 0,
                  stamp: int = 0, count: int = 1) -> None:
        """A stack sample of vmprof's; `words` as they are in the log."""
        words = list(words)
        self.bytes += b"\x01" + word(count) + word(len(words))
        self.bytes += struct.pack("<%dq" % len(words), *words) + word(thread)
        if self.flags & MEMORY:
            self.bytes += word(memory)
        if self.version == 7:
            self.bytes += word(stamp)

    def define(self, frames: Sequence[FrameSpec]) -> int:
        """The number of this stack's node, which is defined if it is new."""
        pairs = self.pairs(frames)
        for depth in range(1, len(pairs) + 1):
            if pairs[:depth] in self.nodes:
                continue
            pair = pairs[depth - 1]
            if pair not in self.frames:
                self.frames[pair] = len(self.frames) + 1
                self.row(FRAMES, *pair)
            self.nodes[pairs[:depth]] = len(self.nodes)
            self.row(NODES, self.nodes[pairs[:depth - 1]], self.frames[pair])
        return self.nodes[pairs]

    def allocation(self, frames: Sequence[FrameSpec] | None, *, size: int,
                   interval: int = 1000, time: int = 0, thread: int = PID,
                   memory: int = 0) -> None:
        """An allocation sample, `time` in nanoseconds; frames None: its stack
        got lost."""
        stack = LOST if frames is None else self.define(frames)
        self.sample(stack, size, interval, time, thread, memory)

    def sample(self, stack: int, size: int, interval: int, time: int,
               thread: int, memory: int = 0) -> None:
        """A sample with a number of define()'s, or LOST."""
        self.keys += 1
        self.last_time = max(self.last_time, time)
        self.waiting[self.keys] = _Sample(
            self.keys, time, thread, stack, self._label, memory, size, interval)

    def earlier(self, key: int, frames: Sequence[FrameSpec] | None, *, size: int,
                interval: int = 1000) -> None:
        """A sample of an earlier part, which no collection has met."""
        stack = LOST if frames is None else self.define(frames)
        self.waiting[key] = _Sample(key, -10, PID, stack, 0, 0, size,
                                    interval)

    def inherited(self, key: int, frames: Sequence[FrameSpec] | None, *, size: int,
                  interval: int = 1000, which: int = 0, type_: int = 0,
                  live_size: int = 0) -> None:
        """A sampled object of an earlier part, which is old."""
        stack = LOST if frames is None else self.define(frames)
        self.row(OBJECTS, key, which, 0, 0, stack, 0, 0, size, interval, type_,
                 PROMOTED, 0, live_size)

    def type(self, python: str = "", *, layout: str = "", owner: str = "",
             internal: str = "", gc: int = 0) -> int:
        """Name a type; returns its number, a new one.  `gc`: the GC's, plus 1."""
        self.last_type += 1
        for kind, name in ((1, layout), (2, python), (3, owner), (4, internal)):
            if name:
                self.row(TYPES, self.last_type, kind, gc - 1, text=name)
        return self.last_type

    def collection(self, time: int, number: int | None = None) -> None:
        """What is said from now on was true after this minor collection."""
        if number is None:
            self.collections += 1
            number = self.collections
        for known, (start, duration, _) in self._collections.items():
            if start + duration == time:
                number = known      # event() has said more of it
        self.collected = number, time
        self._told.clear()
        self.last_time = max(self.last_time, time)

    def young(self, key: int, outcome: int, type_: int = 0,
              size: int | None = None, live_size: int | None = None) -> None:
        sample = self.waiting.pop(key, None)
        if sample is not None:
            self._told[key] = sample
        self._object(self._told[key], outcome, type_, size or 0, live_size or 0)

    def _object(self, sample: _Sample, outcome: int, type_: int = 0, size: int = 0,
                live_size: int = 0) -> None:
        if "lifetimes" not in self.facts:
            outcome = NOT_RECORDED
        elif outcome not in (YOUNG, YOUNG_NOT_KNOWN):
            # there was one, whether more is said of it or not
            self._collections.setdefault(self.collected[0], (self.collected[1], 0, 0))
        self.row(OBJECTS, sample.key, sample.told, *_of(sample),
                 size or sample.size, sample.interval, type_, outcome,
                 0 if outcome in (YOUNG, YOUNG_NOT_KNOWN) else self.collected[0],
                 live_size)
        sample.told += 1

    def freed(self, key: int, which: int = 0) -> None:
        self.row(ENDED, key, which, 0, self.collected[1])

    def lose(self, key: int, which: int = 0) -> None:
        self.row(ENDED, key, which, 1, self.collected[1])

    def event(self, kind: int, time: int, duration: int, number: int) -> None:
        """Kind 1: a minor collection, before which so many bytes were allocated; 3: a
        major one."""
        if kind == 1:
            which = 10**6 + len(self._collections)
            if time <= self.collected[1] <= time + duration:
                # objects were met when it ended
                which, duration = self.collected[0], self.collected[1] - time
            self._collections[which] = time, duration, number
        else:
            self.row(MARKED, time, number, time - duration)

    def block(self, frames: Sequence[FrameSpec], *, size: int, interval: int = 1000,
              time: int = 0, type_: int = 0) -> int:
        """One of raw memory; returns its key."""
        self.keys += 1
        self.last_time = max(self.last_time, time)
        self.row(RAW, self.keys, 0, time, PID, self.define(frames), self._label, 0,
                 size, interval, type_, PROMOTED, 0, 0)
        return self.keys

    def given_back(self, key: int, time: int) -> None:
        self.row(RAW_ENDED, key, 0, 0, time)
        self.last_time = max(self.last_time, time)

    def mark(self, time: int, name: str) -> None:
        self.row(MARKS, time, text=name)
        self.last_time = max(self.last_time, time)

    def figure(self, kind: int, time: int, value: int) -> None:
        """Kind 1: resident bytes; 2, 3: of the GC's heap; 4: processor time; 6, 7:
        page faults; 8: private bytes; 9: the nursery's; 10: raw memory's, as malloc
        counts; 11: allocated bytes, at a mark."""
        self.row(FIGURES, kind, time, value)
        self.last_time = max(self.last_time, time)

    def thread(self, tid: int, name: str) -> None:
        self.row(NAMES, 1, tid, text=name)

    def command(self, line: str) -> None:
        self.row(NAMES, 2, 0, text=line)

    def held(self, number: int, time: int = 0, problem: int = 0, objects: int = 0,
             size: int = 0, rows: int = 0) -> None:
        """Somebody asked who holds what; `rows`: of the answer, at least."""
        self.row(HELD, number, time, problem, objects, size, 7000, 300000, 2**20, rows)
        self.last_time = max(self.last_time, time)

    def holder(self, number: int, set_: int, size: int, objects: int,
               *names: str) -> None:
        """Path, type, other paths; nothing: these hold it together."""
        self.row(HOLDERS, number, set_, 4096 * set_, size, objects,
                 text="\x1f".join(names))

    def held_object(self, number: int, frames: Sequence[FrameSpec], type_: int, *,
                    size: int, set_: int, how: int, interval: int = 1,
                    path: int = 0, live_size: int = 0) -> None:
        """A sampled object that was alive then; `path`: its step, or 0."""
        self.row(HELD_OBJECTS, number, self.define(frames), type_, size, interval,
                 set_, how, path, live_size)

    def held_step(self, number: int, step: int, before: int, size: int, label: str,
                  type_: str) -> None:
        """Of a path, from 1 on."""
        self.row(HELD_PATHS, number, step, before, size, text=label + "\x1f" + type_)

    def label_set(self, number: int, **pairs: str) -> None:
        self.row(LABELS, number, text="\x1f".join(
            "%s=%s" % pair for pair in pairs.items()))

    def label(self, number: int) -> None:
        """Of the samples that come; 0: none."""
        self._label = number

    def tick(self, frames: Sequence[FrameSpec] | None, *, time: int = 0,
             thread: int = PID, memory: int = 0) -> None:
        """A time sample in an allocation profile."""
        stack = LOST if frames is None else self.define(frames)
        self.last_time = max(self.last_time, time)
        self.row(TICKS, time, thread, stack, self._label, memory)

    def flush(self) -> None:
        """A batch with the rows that were not written yet."""
        if not {"types", "lifetimes"} & set(self.facts):
            for sample in self.waiting.values():
                self._object(sample, NOT_RECORDED)
            self.waiting.clear()
        for number, values in self._collections.items():
            self.row(COLLECTIONS, number, *values)
        self._collections.clear()
        self.bytes += table(TOTALS, [(
            self.last_time, self.allocated, self.lost, self.dropped,
            self.collections, self.pressures, self.surprises,
            min(self.waiting, default=0))])
        for kind, rows in self.rows.items():
            if rows:
                self.bytes += table(kind, rows, self.texts.get(kind, b""))
            rows.clear()
        self.texts.clear()
        new = [sample for sample in self.waiting.values()
               if sample.key not in self._written]
        self._written.update(sample.key for sample in new)
        if new:
            self.bytes += table(WAITING, [
                (sample.key, 0, *_of(sample), sample.size, sample.interval, 0,
                 YOUNG, 0, 0) for sample in new])

    def end(self) -> None:
        """Of what waits, nothing will be told."""
        for sample in self.waiting.values():
            self._object(sample, YOUNG)
        self.waiting.clear()

    def data(self) -> bytes:
        """The finished log, with its trailer."""
        self.end()
        if any(self.rows.values()) or self._collections:
            self.flush()
        self._time(0x03, START + 1)
        return bytes(self.bytes)


def _of(sample: _Sample) -> tuple[int, ...]:
    return (sample.time, sample.thread, sample.stack, sample.label, sample.memory)


def large(samples: int, depth: int, distinct: int, *,
          facts: bool = False) -> bytes:
    """An allocation profile of so many samples, over so many distinct stacks
    of this depth, that share their outer half.  With `facts` they are of three
    types, and one in ten becomes old and is freed two collections later.  Quick
    to make."""
    log = Log()
    outer = [log.function("outer%d" % i, i + 1) for i in range(depth // 2)]
    inner = [log.function("inner%d" % i, i + 1) for i in range(256)]
    log.settings(facts="types,lifetimes" if facts else "")
    for name in "one", "two", "three":
        log.type(name)
    stacks = [log.define(outer + [inner[(number >> 8 * (i % 3)) + i & 255]
                                  for i in range(depth - len(outer))])
              for number in range(distinct)]
    log.flush()
    fields: list[list[int]] = [[] for _ in range(13)]
    for start in range(0, samples, 1000):
        keys = range(start + 1, min(start + 1000, samples) + 1)
        log.last_time = keys[-1] * 1000
        log.collection(log.last_time)
        if facts:
            log.event(1, log.last_time, 0, 0)
        count = len(keys)
        fields = [
            list(keys), [0] * count, [key * 1000 for key in keys], [PID] * count,
            [stacks[key % distinct] for key in keys], [0] * count, [0] * count,
            [16 + key % 7 * 8 for key in keys], [1000] * count,
            [i % 3 + 1 if facts else 0 for i in range(count)],
            [int(i % 10 == 0) if facts else NOT_RECORDED for i in range(count)],
            [log.collected[0]] * count, [0] * count]
        log.keys = keys[-1]
        if facts:
            for old in range(start - 1999, start - 999, 10):
                if old > 0:
                    log.freed(old)
        log.flush()
        log.bytes += record(OBJECTS, [
            column(values, {2: 1000, 7: 8}.get(number, 1))
            for number, values in enumerate(fields)], count)
    return log.data()
