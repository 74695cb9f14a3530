"""Write profiles byte by byte, as PROFILE.rst describes them, for tests of the readers.

This module shares no code with the tested programs. Call the methods of a `Log` in the
order of the file::

    log = Log()
    main = log.function("main", 1, "app.py")
    log.settings(interval=1000)
    log.allocation([main], size=24, interval=1000, time=5)
    data = log.data()           # flushes the samples, writes the trailer

Stacks are lists of frames, outermost first. A frame is an address for an interpreted
frame, or `jit(address)`, or `native(address)`.
"""
from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Sequence
from typing import Union

MEMORY, LINES, NATIVE, PYPY, REAL_TIME = 1, 2, 4, 8, 16
#: default thread of samples; it is the main thread, because it equals the pid
PID = 4321
#: start of the profile in seconds since 1970
START = 1_700_000_000

(SETTINGS, TOTALS, FRAMES, NODES, TYPES, LABELS, OBJECTS, WAITING, ENDED, TICKS,
 COLLECTIONS, MARKED, SWEPT, MARKS, FIGURES, NAMES, HELD, HOLDERS,
 HELD_PATHS, HELD_OBJECTS, RAW, RAW_ENDED) = range(1, 23)
#: outcomes of an object, in column 11 of records of kind 7
DIED, PROMOTED, NOT_RECORDED, NOT_KNOWN, YOUNG, YOUNG_NOT_KNOWN = range(6)

#: the node of a lost stack
LOST = -1

#: (kind of frame, address)
Pair = tuple[int, int]
FrameSpec = Union[int, Pair]


def jit(address: int) -> Pair:
    """Return a frame of a Python function that the JIT has compiled."""
    return (3, address)


def machine_code(address: int) -> Pair:
    """Return a frame that marks the begin of a part of the JIT's machine code."""
    return (6, address)


def native(address: int) -> Pair:
    """Return a native frame."""
    return (7, address)


def word(number: int) -> bytes:
    return struct.pack("<q", number)


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return word(len(data)) + data


# ________________________________________
# Records


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
    """Return the code of a column's smallest width for numbers from 0 to `most`."""
    return next(width for width in range(8)
                if most < 2**(2**(width - 1) if width else 0))


def column(values: Sequence[int], unit: int = 1) -> bytes:
    """Encode a column in the way that takes the fewest bytes."""
    if not values:
        return b"\0"
    steps = [after - before for before, after in zip(values, values[1:])]
    # in a larger range, the differences of steps may not fit into 64 bits
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
    """Encode a record."""
    payload = struct.pack("<BBBBI", version, kind, len(columns), 0, rows)
    payload += b"".join(columns) + texts
    return b"A" + word(len(payload)) + payload


def table(kind: int, rows: Sequence[Sequence[int]], texts: bytes = b"") -> bytes:
    """Return a record of a kind, with these rows and texts."""
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


#: the numbers of a row
_Row = tuple[int, ...]


class Log:
    """A profile in the making; `self.bytes` has the bytes written until now."""

    def __init__(self, *, interpreter: str = "pypy", version: int = 6,
                 flags: int | None = None, period: int = 10_000):
        """Begin a profile.

        Args:
            interpreter: The name of the interpreter.
            version: The version of vmprof's layout.
            flags: The flags in vmprof's header, or None for the interpreter's flags.
            period: Microseconds between two CPU samples.
        """
        self.pypy = interpreter == "pypy"
        self.version = version
        self.flags = (PYPY if self.pypy else 0) if flags is None else flags
        self.keys = 0
        self.addresses = 0x1000
        #: columns 2 to 7 of the record of totals
        self.allocated = self.lost = self.dropped = 0
        self.collections = self.pressures = self.surprises = 0
        self.last_time = 0
        #: rows and texts of the next records, by kind
        self.rows: dict[int, list[_Row]] = {kind: [] for kind in range(1, 24)}
        self.texts: dict[int, bytes] = {}
        #: samples without a row in a record of kind 7, by key
        self.waiting: dict[int, _Sample] = {}
        #: keys of the samples that have a row in a record of kind 8
        self._written: set[int] = set()
        #: samples that got a row of kind 7 since the last minor collection, by key
        self._told: dict[int, _Sample] = {}
        #: number and time of the last minor collection
        self.collected = 0, 0
        self._collections: dict[int, tuple[int, int, int]] = {}
        self.last_type = 0
        self._label = 0
        self.facts: list[str] = []
        #: number of the node by stack
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
        """Name a Python function, and return its address, which is new."""
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
        """Write a record at once, which may be invalid."""
        self.bytes += record(kind, columns, rows, texts, version)

    def row(self, kind: int, *numbers: int, text: str | bytes | None = None) -> None:
        """Add a row to the next record of this kind."""
        if text is not None:
            data = text.encode() if isinstance(text, str) else text
            self.texts[kind] = self.texts.get(kind, b"") + data
            numbers = (*numbers, len(data))
        self.rows[kind].append(numbers)

    def settings(self, **changes: object) -> None:
        """Write the record of settings; `changes` replace the values below."""
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
        """Return a stack in PyPy's layout: pairs, innermost frame first."""
        return [number for pair in reversed(self.pairs(frames))
                for number in pair]

    def raw_stack(self, words: Iterable[int], thread: int, memory: int = 0,
                  stamp: int = 0, count: int = 1) -> None:
        """Write a stack sample of vmprof, with `words` as its stack."""
        words = list(words)
        self.bytes += b"\x01" + word(count) + word(len(words))
        self.bytes += struct.pack("<%dq" % len(words), *words) + word(thread)
        if self.flags & MEMORY:
            self.bytes += word(memory)
        if self.version == 7:
            self.bytes += word(stamp)

    def define(self, frames: Sequence[FrameSpec]) -> int:
        """Return the number of a stack's node, and add a row for the node if it is new.
        """
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
        """Add an allocation sample.

        Args:
            frames: The stack, or None if it is lost.
            size: The size in bytes.
            interval: Mean bytes between two samples.
            time: Nanoseconds since the start.
            thread: The kernel's number of the thread.
            memory: Resident memory in KiB.
        """
        stack = LOST if frames is None else self.define(frames)
        self.sample(stack, size, interval, time, thread, memory)

    def sample(self, stack: int, size: int, interval: int, time: int,
               thread: int, memory: int = 0) -> None:
        """Add a sample with the stack's number from define(), or LOST."""
        self.keys += 1
        self.last_time = max(self.last_time, time)
        self.waiting[self.keys] = _Sample(
            self.keys, time, thread, stack, self._label, memory, size, interval)

    def earlier(self, key: int, frames: Sequence[FrameSpec] | None, *, size: int,
                interval: int = 1000) -> None:
        """Add a sample of an earlier segment, whose object is still young."""
        stack = LOST if frames is None else self.define(frames)
        self.waiting[key] = _Sample(key, -10, PID, stack, 0, 0, size,
                                    interval)

    def inherited(self, key: int, frames: Sequence[FrameSpec] | None, *, size: int,
                  interval: int = 1000, which: int = 0, type_: int = 0,
                  live_size: int = 0) -> None:
        """Add a sampled object of an earlier segment, which is old."""
        stack = LOST if frames is None else self.define(frames)
        self.row(OBJECTS, key, which, 0, 0, stack, 0, 0, size, interval, type_,
                 PROMOTED, 0, live_size)

    def type(self, python: str = "", *, layout: str = "", owner: str = "",
             internal: str = "", gc: int = 0) -> int:
        """Name a new type and return its number; `gc` is the GC's number plus 1."""
        self.last_type += 1
        for kind, name in ((1, layout), (2, python), (3, owner), (4, internal)):
            if name:
                self.row(TYPES, self.last_type, kind, gc - 1, text=name)
        return self.last_type

    def collection(self, time: int, number: int | None = None) -> None:
        """Begin a minor collection; it determines the outcomes that are added next."""
        if number is None:
            self.collections += 1
            number = self.collections
        for known, (start, duration, _) in self._collections.items():
            if start + duration == time:
                number = known      # event() has added its start and duration
        self.collected = number, time
        self._told.clear()
        self.last_time = max(self.last_time, time)

    def young(self, key: int, outcome: int, type_: int = 0,
              size: int | None = None, live_size: int | None = None) -> None:
        """Add the outcome of an object of the sample with this key."""
        sample = self.waiting.pop(key, None)
        if sample is not None:
            self._told[key] = sample
        self._object(self._told[key], outcome, type_, size or 0, live_size or 0)

    def _object(self, sample: _Sample, outcome: int, type_: int = 0, size: int = 0,
                live_size: int = 0) -> None:
        if "lifetimes" not in self.facts:
            outcome = NOT_RECORDED
        elif outcome not in (YOUNG, YOUNG_NOT_KNOWN):
            # a collection without a call of event() gets a row, too
            self._collections.setdefault(self.collected[0], (self.collected[1], 0, 0))
        self.row(OBJECTS, sample.key, sample.told, *_of(sample),
                 size or sample.size, sample.interval, type_, outcome,
                 0 if outcome in (YOUNG, YOUNG_NOT_KNOWN) else self.collected[0],
                 live_size)
        sample.told += 1

    def freed(self, key: int, which: int = 0) -> None:
        """Add the death of an old object, at the last collection."""
        self.row(ENDED, key, which, 0, self.collected[1])

    def lose(self, key: int, which: int = 0) -> None:
        """Add the loss of an old object, at the last collection."""
        self.row(ENDED, key, which, 1, self.collected[1])

    def event(self, kind: int, time: int, duration: int, number: int) -> None:
        """Add a collection.

        Args:
            kind: 1 for a minor collection, 3 for the marking of a major collection.
            time: The start of a minor collection, or the end of the marking.
            duration: Nanoseconds.
            number: Bytes allocated before a minor collection, or the number of major
                collections so far.
        """
        if kind == 1:
            which = 10**6 + len(self._collections)
            if time <= self.collected[1] <= time + duration:
                # the last call of collection() was the end of this collection
                which, duration = self.collected[0], self.collected[1] - time
            self._collections[which] = time, duration, number
        else:
            self.row(MARKED, time, number, time - duration)

    def block(self, frames: Sequence[FrameSpec], *, size: int, interval: int = 1000,
              time: int = 0, type_: int = 0) -> int:
        """Add a sampled block of native memory, and return its key."""
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
        """Add a value of a metric; PROFILE.rst (kind 15) lists the metrics."""
        self.row(FIGURES, kind, time, value)
        self.last_time = max(self.last_time, time)

    def thread(self, tid: int, name: str) -> None:
        self.row(NAMES, 1, tid, text=name)

    def command(self, line: str) -> None:
        self.row(NAMES, 2, 0, text=line)

    def held(self, number: int, time: int = 0, problem: int = 0, objects: int = 0,
             size: int = 0, rows: int = 0) -> None:
        """Add the result of search `number` for retainers.

        `rows` is the number of rows that the result claims to have.
        """
        self.row(HELD, number, time, problem, objects, size, 7000, 300000, 2**20, rows)
        self.last_time = max(self.last_time, time)

    def holder(self, number: int, set_: int, size: int, objects: int,
               *names: str) -> None:
        """Add a retainer.

        `names` are its path, type and other paths. A group of retainers has no names.
        """
        self.row(HOLDERS, number, set_, 4096 * set_, size, objects,
                 text="\x1f".join(names))

    def held_object(self, number: int, frames: Sequence[FrameSpec], type_: int, *,
                    size: int, set_: int, how: int, interval: int = 1,
                    path: int = 0, live_size: int = 0) -> None:
        """Add a sampled object that is alive.

        `path` is the last step of its reference path, or 0.
        """
        self.row(HELD_OBJECTS, number, self.define(frames), type_, size, interval,
                 set_, how, path, live_size)

    def held_step(self, number: int, step: int, before: int, size: int, label: str,
                  type_: str) -> None:
        """Add a step of a reference path; steps count from 1."""
        self.row(HELD_PATHS, number, step, before, size, text=label + "\x1f" + type_)

    def label_set(self, number: int, **pairs: str) -> None:
        self.row(LABELS, number, text="\x1f".join(
            "%s=%s" % pair for pair in pairs.items()))

    def label(self, number: int) -> None:
        """Set the label set of the following samples, or 0 for no labels."""
        self._label = number

    def tick(self, frames: Sequence[FrameSpec] | None, *, time: int = 0,
             thread: int = PID, memory: int = 0) -> None:
        """Add a CPU sample."""
        stack = LOST if frames is None else self.define(frames)
        self.last_time = max(self.last_time, time)
        self.row(TICKS, time, thread, stack, self._label, memory)

    def flush(self) -> None:
        """Write a batch with the rows that are not written yet."""
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
        """Add a row for each waiting sample, with the outcome that its object is young.
        """
        for sample in self.waiting.values():
            self._object(sample, YOUNG)
        self.waiting.clear()

    def data(self) -> bytes:
        """Return the finished profile, with its trailer."""
        self.end()
        if any(self.rows.values()) or self._collections:
            self.flush()
        self._time(0x03, START + 1)
        return bytes(self.bytes)


def _of(sample: _Sample) -> tuple[int, ...]:
    return (sample.time, sample.thread, sample.stack, sample.label, sample.memory)


def large(samples: int, depth: int, distinct: int, *,
          facts: bool = False) -> bytes:
    """Return a large allocation profile, quickly.

    Args:
        samples: The number of samples.
        depth: The number of frames of each stack; all stacks share the outer half.
        distinct: The number of distinct stacks.
        facts: Whether the objects have types (three different ones) and outcomes. One
            object in ten is promoted, and is freed two collections later.
    """
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
