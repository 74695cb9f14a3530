"""Write vmprof logs byte by byte, as PROFILE.rst describes them.

Nothing is shared with the code that is tested.  A `Log` is written from the
top down::

    log = Log()
    main = log.function("main", 1, "app.py")
    log.settings(interval=1000)
    log.allocation([main], size=24, interval=1000, time=5)
    data = log.data()           # flushes the facts, writes the trailer

Stacks are lists of frames, outermost first: an address, for an interpreted
frame, or `jit(address)`, or `native(address)`.
"""
from __future__ import annotations

import struct
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


class Log:
    """A log in the making; `self.bytes` is what was written so far."""

    def __init__(self, *, interpreter: str = "pypy", version: int = 6,
                 flags: int | None = None, period: int = 10_000):
        """`flags` None: those of the interpreter; `period` in microseconds."""
        self.pypy = interpreter == "pypy"
        self.version = version
        self.flags = (PYPY if self.pypy else 0) if flags is None else flags
        self.keys = 0
        self.addresses = 0x1000
        #: entries of the next facts block
        self.pending: list[str] = []
        #: number 2 to 7 of a facts block's first entry
        self.allocated = self.lost = self.dropped = 0
        self.collections = self.pressures = self.surprises = 0
        self.last_time = 0
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

    def block(self, kind: str, payload: str, version: str = "1") -> None:
        self.name(BLOCK_ADDRESS, "alloc:%s:%s:%s" % (payload, version, kind))

    def settings(self, **changes: object) -> None:
        """The block of settings; `changes` replace the values below."""
        values: dict[str, object] = {
            "carrier": "live", "interval": 1000, "gaps": "exponential",
            "seed": 1, "period": "", "pid": PID, **changes}
        self.block("settings", ";".join("%s=%s" % pair
                                        for pair in values.items()))

    def words(self, frames: Sequence[FrameSpec]) -> list[int]:
        """The stack in PyPy's layout, pairs from the innermost frame on."""
        pairs = [(1, frame) if isinstance(frame, int) else frame
                 for frame in reversed(frames)]
        return [number for pair in pairs for number in pair]

    def raw_stack(self, words: Iterable[int], thread: int, memory: int = 0,
                  stamp: int = 0, count: int = 1) -> None:
        """A stack sample; `words` as they are in the file."""
        words = list(words)
        self.bytes += b"\x01" + word(count) + word(len(words))
        self.bytes += struct.pack("<%dq" % len(words), *words) + word(thread)
        if self.flags & MEMORY:
            self.bytes += word(memory)
        if self.version == 7:
            self.bytes += word(stamp)

    def fact(self, key: int, time: int, thread: int, size: int,
             interval: int) -> None:
        self.last_time = max(self.last_time, time)
        self.pending.append("%x,%x,%x,%x,%x;" % (
            key, time, thread, size, interval))

    def allocation(self, frames: Sequence[FrameSpec] | None, *, size: int,
                   interval: int = 1000, time: int = 0, thread: int = PID,
                   memory: int = 0) -> None:
        """An allocation sample, `time` in nanoseconds; frames None: its stack
        got lost."""
        self.keys += 1
        if frames is not None:
            self.raw_stack(self.words(frames), -self.keys, memory)
        self.fact(self.keys, time, thread, size, interval)

    def tick(self, frames: Sequence[FrameSpec] | None, *, time: int = 0,
             thread: int = PID) -> None:
        """A time sample in an allocation profile."""
        self.allocation(frames, size=0, interval=0, time=time, thread=thread)

    def flush(self) -> None:
        """A block with the facts that were not written yet."""
        head = "%x,%x,%x,%x,%x,%x,%x;" % (
            self.last_time, self.allocated, self.lost, self.dropped,
            self.collections, self.pressures, self.surprises)
        self.block("facts", head + "".join(self.pending))
        self.pending.clear()

    def data(self) -> bytes:
        """The finished log, with its trailer."""
        if self.pending:
            self.flush()
        self._time(0x03, START + 1)
        return bytes(self.bytes)


def large(samples: int, depth: int, distinct: int) -> bytes:
    """An allocation profile of so many samples, over so many distinct stacks
    of this depth, that share their outer half.  Quick to make."""
    log = Log()
    outer = [log.function("outer%d" % i, i + 1) for i in range(depth // 2)]
    inner = [log.function("inner%d" % i, i + 1) for i in range(256)]
    log.settings()
    stacks = []
    for number in range(distinct):
        path = [inner[(number >> 8 * (i % 3)) + i & 255]
                for i in range(depth - len(outer))]
        words = log.words(outer + path)
        stacks.append(struct.pack("<%dq" % len(words), *words))
    head = b"\x01" + word(1) + word(2 * depth)
    for start in range(0, samples, 1000):
        for key in range(start + 1, min(start + 1000, samples) + 1):
            log.bytes += head + stacks[key % distinct] + word(-key)
            log.fact(key, key * 1000, PID, 16 + key % 7 * 8, 1000)
        log.flush()
    return log.data()
