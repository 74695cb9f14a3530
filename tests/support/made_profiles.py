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

What is written is the log that the file unpacks to; `member()` packs.
"""
from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Union

MEMORY, LINES, NATIVE, PYPY, REAL_TIME = 1, 2, 4, 8, 16
BLOCK_ADDRESS = -0x616C6C6F63
#: the thread of samples unless a test says otherwise; as it is the pid, this
#: is the main thread
PID = 4321
#: the start of the log, seconds since 1970
START = 1_700_000_000

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


def digits(*numbers: int) -> str:
    """Five bits each, the lowest first; all but a number's last with 32."""
    text = ""
    for number in numbers:
        while number >= 32:
            text += chr(0x60 + number % 32)
            number //= 32
        text += chr(0x40 + number)
    return text


def entry(*numbers: int) -> str:
    """Of a block of entries."""
    return digits(len(numbers), *numbers)


def text(name: str) -> tuple[int, ...]:
    """As in entries."""
    data = name.encode()
    return (len(data), *data)


def member(records: bytes, kind: bytes = b"r") -> bytes:
    """A part of the file; kind "s" is for vmprof's readers only."""
    deflate = zlib.compressobj(wbits=-15)
    packed = deflate.compress(records) + deflate.flush()
    tail = struct.pack("<II", zlib.crc32(records), len(records) % 2**32)
    return (b"\x1f\x8b\x08\x04" + bytes(4) + b"\0\xff"
            + struct.pack("<H2sHI", 8, b"V" + kind, 4,
                          20 + len(packed) + len(tail)) + packed + tail)


class Log:
    """A log in the making; `self.bytes` is what was written so far."""

    def __init__(self, *, interpreter: str = "pypy", version: int = 6,
                 flags: int | None = None, period: int = 10_000,
                 blocks: int = 3):
        """`version` is that of vmprof's layout, and `blocks` that of ours.
        `flags` None: those of the interpreter; `period` in microseconds."""
        self.pypy = interpreter == "pypy"
        self.version = version
        self.blocks = blocks
        self.flags = (PYPY if self.pypy else 0) if flags is None else flags
        self.keys = 0
        self.addresses = 0x1000
        #: digits of the next block of samples
        self.pending = ""
        #: number 2 to 7 of the block's head
        self.allocated = self.lost = self.dropped = 0
        self.collections = self.pressures = self.surprises = 0
        self.last_time = 0
        #: in this block: time, thread, interval and memory of the last sample
        self.last = [0, 0, 0, 0]
        #: samples before it
        self.written = 0
        #: digits of the next blocks of facts, types, events, marks, figures, names
        self.facts = self.types = self.events = self.marks = ""
        self.figures = self.names = self.labels = ""
        #: in this block of facts: time of the last collection, and last key
        self.last_fact = [0, 0]
        self.last_type = 0
        #: number of each stack
        self.defined: dict[tuple[Pair, ...], int] = {}
        #: number of the node that these frames lead to
        self.nodes: dict[tuple[Pair, ...], int] = {(): 0}
        #: what was defined last
        self.before: tuple[Pair, ...] = ()
        #: number of each frame
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

    def block(self, kind: str, payload: str,
              version: int | str | None = None) -> None:
        self.name(BLOCK_ADDRESS, "alloc:%s:%s:%s" % (
            payload, self.blocks if version is None else version, kind))

    def settings(self, **changes: object) -> None:
        """The block of settings; `changes` replace the values below."""
        values: dict[str, object] = {
            "engine": "hook", "interval": 1000, "gaps": "exponential",
            "seed": 1, "period": "", "pid": PID, **changes}
        self.block("settings", ";".join("%s=%s" % pair
                                        for pair in values.items()))

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

    def define(self, frames: tuple[Pair, ...]) -> int:
        """The number of this stack, which is defined if it is new."""
        if frames not in self.defined and self.blocks == 2:
            kept = 0
            while frames[:kept + 1] == self.before[:kept + 1] and (
                    kept < min(len(frames), len(self.before))):
                kept += 1
            self.pending += digits(
                0, kept, len(frames) - kept,
                *(number % 2**64 for pair in frames[kept:] for number in pair))
            self.before = frames
            self.defined[frames] = len(self.defined) + 1
        if frames not in self.defined:
            kept = len(frames)
            while frames[:kept] not in self.nodes:
                kept -= 1
            self.pending += digits(0, self.nodes[frames[:kept]],
                                   len(frames) - kept)
            for pair in frames[kept:]:
                if pair in self.frames:
                    self.pending += digits(self.frames[pair])
                else:
                    self.pending += digits(0, *(number % 2**64
                                                for number in pair))
                    self.frames[pair] = len(self.frames) + 1
            for depth in range(kept + 1, len(frames) + 1):
                self.nodes[frames[:depth]] = len(self.nodes)
            self.defined[frames] = len(self.defined) + 1
        return self.defined[frames]

    def allocation(self, frames: Sequence[FrameSpec] | None, *, size: int,
                   interval: int = 1000, time: int = 0, thread: int = PID,
                   memory: int = 0) -> None:
        """An allocation sample, `time` in nanoseconds; frames None: its stack
        got lost."""
        if time < self.last[0]:
            self.flush()        # the next block begins at 0
        stack = 0 if frames is None else self.define(self.pairs(frames))
        self.sample(stack, size, interval, time, thread, memory)

    def sample(self, stack: int, size: int, interval: int, time: int,
               thread: int, memory: int = 0) -> None:
        """A sample with a number of define()'s, or 0."""
        if not size:
            interval = self.last[2]
        new = [thread, interval, memory]
        flags = sum(1 << i for i in range(3) if new[i] != self.last[i + 1])
        self.pending += digits(
            stack * 8 + flags + 1, time - self.last[0], size,
            *(new[i] for i in range(3) if flags & 1 << i))
        self.last = [time, *new]
        self.last_time = max(self.last_time, time)
        self.keys += 1

    def type(self, python: str = "", *, layout: str = "", owner: str = "",
             internal: str = "", gc: int = 0) -> int:
        """Name a type; returns its number, a new one.  `gc`: the GC's."""
        self.last_type += 1
        for kind, name in ((1, layout), (2, python), (3, owner), (4, internal)):
            if name:
                self.types += entry(kind, self.last_type, gc, *text(name))
        return self.last_type

    def collection(self, time: int, number: int | None = None) -> None:
        """What is said from now on was true after this minor collection."""
        if time < self.last_fact[0]:
            self.flush()
        if number is None:
            self.collections += 1
            number = self.collections
        self.facts += entry(0, time - self.last_fact[0], number)
        self.last_fact[0] = time
        self.last_time = max(self.last_time, time)

    def _fact(self, kind: int, key: int, *more: int) -> None:
        difference = key - self.last_fact[1]
        self.last_fact[1] = key
        self.facts += entry(kind, 2 * difference if difference >= 0
                            else -2 * difference - 1, *more)

    def young(self, key: int, outcome: int, type_: int = 0,
              size: int | None = None, live_size: int | None = None) -> None:
        self._fact(1, key, outcome, type_, *(
            (size or 0, live_size) if live_size is not None
            else () if size is None else (size,)))

    def freed(self, key: int, which: int = 0) -> None:
        self._fact(2, key, *((which,) if which else ()))

    def lose(self, key: int, which: int = 0) -> None:
        self._fact(3, key, *((which,) if which else ()))

    def event(self, kind: int, time: int, duration: int, number: int) -> None:
        """Kind 1: a minor collection; 3: a major one."""
        self.events += entry(kind, time, duration, number)

    def mark(self, time: int, name: str) -> None:
        self.marks += entry(1, time, *text(name))
        self.last_time = max(self.last_time, time)

    def figure(self, kind: int, time: int, value: int) -> None:
        """Kind 1: resident bytes; 2, 3: of the GC's heap; 4: processor time; 6, 7:
        page faults; 8: private bytes; 9: the nursery's."""
        self.figures += entry(kind, time, value)
        self.last_time = max(self.last_time, time)

    def thread(self, tid: int, name: str) -> None:
        self.names += entry(1, tid, *text(name))

    def command(self, line: str) -> None:
        self.names += entry(2, *text(line))

    def label_set(self, number: int, **pairs: str) -> None:
        self.labels += entry(1, number, *text("\x1f".join(
            "%s=%s" % pair for pair in pairs.items())))

    def label(self, number: int) -> None:
        """Of the samples that come; 0: none."""
        self.labels += entry(2, self.keys + 1, number)

    def tick(self, frames: Sequence[FrameSpec] | None, *, time: int = 0,
             thread: int = PID) -> None:
        """A time sample in an allocation profile."""
        self.allocation(frames, size=0, interval=0, time=time, thread=thread)

    def flush(self) -> None:
        """A block with the samples that were not written yet."""
        if self.labels:
            self.block("labels", self.labels)
        self.labels = ""
        self.block("samples", digits(
            self.last_time, self.allocated, self.lost, self.dropped,
            self.collections, self.pressures, self.surprises, self.written)
            + self.pending)
        self.pending = ""
        self.last = [0, 0, 0, 0]
        self.written = self.keys
        for kind, payload in (("types", self.types), ("facts", self.facts),
                              ("gc", self.events), ("marks", self.marks),
                              ("figures", self.figures), ("names", self.names)):
            if payload:
                self.block(kind, payload)
        self.types = self.facts = self.events = self.marks = ""
        self.figures = self.names = ""
        self.last_fact = [0, 0]

    def data(self) -> bytes:
        """The finished log, with its trailer."""
        if (self.pending or self.facts or self.types or self.events
                or self.marks or self.figures or self.names or self.labels):
            self.flush()
        self._time(0x03, START + 1)
        return bytes(self.bytes)


def packed(log: bytes) -> bytes:
    """A file of members as long as they are in the writer's."""
    return b"".join(member(log[at:at + 2**16])
                    for at in range(0, len(log), 2**16))


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
    young = [entry(1, 2, int(not i), i % 3 + 1) for i in range(10)]
    stacks = []
    # a block is no longer than the writer's
    for number in range(distinct):
        path = [inner[(number >> 8 * (i % 3)) + i & 255]
                for i in range(depth - len(outer))]
        stacks.append(log.define(log.pairs(outer + path)))
        if len(log.pending) > 30000:
            log.flush()
    for start in range(0, samples, 1000):
        entries = [log.pending]
        for key in range(start + 1, min(start + 1000, samples) + 1):
            number, size = stacks[key % distinct] * 8 + 1, 16 + key % 7 * 8
            entries.append(
                digits(number, 1000, size) if key > start + 1 else
                digits(number + 3, key * 1000, size, PID, 1000))
        log.pending = "".join(entries)
        log.keys, log.last_time = key, key * 1000
        if facts:
            log.collection(log.last_time)
            log.young(start + 1, 1, 1)
            log.facts += "".join(young[i % 10] for i in range(1, key - start))
            log.last_fact[1] = key
            for old in range(start - 1999, start - 999, 10):
                if old > 0:
                    log.freed(old)
        log.flush()
    return log.data()
