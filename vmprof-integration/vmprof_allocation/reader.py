"""Read vmprof's logs, with or without allocation samples, of any size.

One pass over the bytes.  A program has far fewer distinct stacks than
samples: each is decoded once.  Nothing here is recursive.  PROFILE.rst is the
definition of the layout.
"""
from __future__ import annotations

import array
import dataclasses
import gzip
import io
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from vmprof_allocation.errors import ProfileError

STACK, NAME, TRAILER, HEADER, TIME, META, NATIVE_NAME = 1, 2, 3, 5, 6, 7, 8
BLOCK_ADDRESS = -0x616C6C6F63
BLOCK_VERSION = "3"

#: how a member of our kind of gzip file begins: then come its kind, 04 00,
#: and its size in 32 bits
_MEMBER = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x08\0V"
_MEMBER_HEAD = struct.Struct("<13scHI")
#: the kind that repeats the samples for vmprof's readers
_FOR_VMPROF = b"s"

#: digits of a number (PROFILE.rst): all but the last have the sixth bit set
_NUMBER = re.compile("[`-\x7f]*[@-_]")
_NEW_THREAD, _NEW_INTERVAL, _NEW_MEMORY = 1, 2, 4

FLAG_MEMORY, FLAG_LINES, FLAG_PYPY = 1, 2, 8
KIND_INTERPRETED, KIND_JIT, KIND_MACHINE_CODE, KIND_NATIVE = 1, 3, 6, 7

#: vmprof's own limit
MAX_DEPTH = 2**16
#: a gzipped profile unpacks to no more bytes: what does is made to harm
MAX_UNPACKED = 2**32

#: bytes of a stack that vmprof cut, in a record of at most 1019 words, of
#: which the last ones may not have been enough for one frame more
FULL_RECORD = range(8 * 1016, 8 * 1020)

_WORD = struct.Struct("<q")
_STACK_HEAD = struct.Struct("<qq")
# a native function's name may contain colons (C++'s do)
_NAME = re.compile(r"([^:]*):(.*?):(-?[0-9]{1,9}):(.*)", re.DOTALL)


class Frame(NamedTuple):
    """One frame of a stack."""

    #: address: identifies the function, see Profile.function()
    address: int
    #: "interpreted", "jit" or "native"
    kind: str
    #: executed line; 0: not known
    line: int


class Function(NamedTuple):
    name: str
    #: line of the definition; 0: not known
    line: int
    #: "" for functions that have none
    file: str
    #: vmprof's language tag: "py", "n" for native
    language: str


@dataclasses.dataclass
class Samples:
    """A table with one row per sample; all columns have the same length."""

    #: nanoseconds since the start; -1 where the log has no times
    time: array.array[int]
    #: kernel's number of the thread; 0: not known
    thread: array.array[int]
    #: index in Profile.stacks; -1: lost
    stack: array.array[int]
    #: bytes; 0: a time sample
    size: array.array[int]
    #: mean interval in bytes at that moment; 0: a time sample
    interval: array.array[int]
    #: resident memory in KiB; 0: not known
    memory: array.array[int]
    #: the object's type, as the GC numbers them; -1: not known
    type: array.array[int]
    #: did the object survive the next minor collection? -1: not known
    survived: array.array[int]

    def __len__(self) -> int:
        return len(self.stack)


class Moment(NamedTuple):
    """What was true of the run at one moment: the head of a block of
    samples."""

    time: int
    allocated: int
    lost: int
    dropped: int
    collections: int
    pressures: int
    surprises: int


@dataclasses.dataclass
class Profile:
    interpreter: str
    #: of the log's layout
    version: int
    #: seconds between two time samples
    period: float
    #: seconds since 1970; 0.0: not known
    start_time: float
    #: None: the log has no end (the process was killed, or still runs)
    end_time: float | None
    meta: dict[str, str]
    #: settings of the allocation sampling; empty: there was none
    settings: dict[str, str]
    names: dict[int, str]
    #: distinct stacks, outermost frame first
    stacks: list[tuple[Frame, ...]]
    samples: Samples
    moments: list[Moment]
    #: allocation samples without a stack
    lost_stacks: int
    #: samples whose stack filled vmprof's record: outer frames are missing
    cut_stacks: int
    #: bytes at the end that make no whole record (only with salvage=True)
    torn: int = 0

    @property
    def gaps(self) -> str:
        return self.settings.get("gaps", "exponential")

    def function(self, address: int) -> Function:
        name = self.names.get(address)
        if name is None:
            return Function("<unknown 0x%x>" % (address & 2**64 - 1), 0, "", "")
        match = _NAME.fullmatch(name)
        if match is None:
            return Function(name, 0, "", "")
        language, function, line, file = match.groups()
        return Function(function, max(int(line), 0),
                        "" if file == "-" else file, language)


class _Numbers(dict[str, int]):
    """What digits mean.  Most numbers are small and come again."""

    def __missing__(self, digits: str) -> int:
        number = 0
        for digit in reversed(digits):
            number = number << 5 | ord(digit) & 31
        if len(digits) <= 3:
            self[digits] = number
        return number


class _Reader:
    def __init__(self, data: bytes, progress: Callable[[int, int], None] | None):
        self.data = data
        self.at = 0
        self.progress = progress
        self.version = 0
        self.flags = 0
        self.interpreter = ""
        self.period = 0.0
        self.start_time = 0.0
        self.end_time: float | None = None
        self.meta: dict[str, str] = {}
        self.settings: dict[str, str] = {}
        self.names: dict[int, str] = {}
        self.moments: list[Moment] = []
        self.raw_stacks: dict[bytes, int] = {}
        self.frames = _Frames()
        # one row per stack sample of vmprof's, in the order of the file
        self.stock = Samples(*(array.array("q") for _ in range(8)))
        # one row per sample in our blocks, likewise
        self.ours = Samples(*(array.array("q") for _ in range(8)))
        self.numbers = _Numbers()
        # index in raw_stacks of each stack that was defined; the nodes of the
        # tree that they are, (the node outwards, number of the frame); and the
        # frames, (kind, address)
        self.defined = array.array("q", [-1])
        self.nodes: list[tuple[int, int]] = [(0, 0)]
        self.pairs: list[tuple[int, int]] = [(0, 0)]
        # of sampled objects: key, type, survived
        self.objects = array.array("q")

    def damaged(self, what: str) -> ProfileError:
        return ProfileError("damaged profile: %s at byte %d of %d"
                            % (what, self.at, len(self.data)))

    def read_head(self) -> None:
        if len(self.data) < 40:
            raise ProfileError("not a vmprof profile: %s" % (
                "the file is empty" if not self.data else
                "it has %d bytes, less than a head" % len(self.data)))
        words = struct.unpack_from("<5q", self.data)
        if words[:3] != (0, 3, 0) or words[4] != 0:
            raise ProfileError(
                "not a vmprof profile of a 64-bit Linux system: it begins "
                "with %s" % self.data[:8].hex(" "))
        self.period = words[3] / 1e6
        self.at = 40

    # each of these reads one record whose marker is at self.at, and returns
    # where the next one begins; beyond the end of the data means: cut off

    def _string(self, at: int) -> tuple[str, int]:
        (length,) = _WORD.unpack_from(self.data, at)
        end = at + 8 + length
        if length < 0:
            raise self.damaged("a string of %d bytes" % length)
        return self.data[at + 8:end].decode("utf-8", "replace"), end

    def _time(self, at: int) -> tuple[float, int]:
        seconds, micro = _STACK_HEAD.unpack_from(self.data, at)
        return seconds + micro / 1e6, at + 24

    def read_header(self) -> int:
        at = self.at
        if self.version:
            raise self.damaged("a second header")
        (self.version,) = struct.unpack_from(">h", self.data, at + 1)
        at += 3
        if self.version >= 4:
            self.flags = self.data[at]
            at += 1
        else:
            self.flags = FLAG_MEMORY if self.version == 3 else 0
        end = at + 1 + self.data[at]
        self.interpreter = self.data[at + 1:end].decode("ascii", "replace")
        if not 1 <= self.version <= 7:
            raise ProfileError("vmprof's layout version %d is not known; "
                               "this reads 1 to 7" % self.version)
        if self.interpreter == "pypy":
            self.flags |= FLAG_PYPY
        # the words behind a stack: thread, memory, time stamp
        self.has_memory = bool(self.flags & FLAG_MEMORY)
        self.tail = 8 * (1 + self.has_memory + (self.version == 7))
        return end

    def read_stack(self) -> int:
        data, at = self.data, self.at
        count: int
        depth: int
        count, depth = _STACK_HEAD.unpack_from(data, at + 1)
        if not self.version:
            raise self.damaged("a sample before the header")
        if count != 1 or not 0 <= depth <= MAX_DEPTH:
            raise self.damaged("a sample that counts %d, of depth %d"
                               % (count, depth))
        start = at + 17
        end = start + 8 * depth
        if end + self.tail > len(data):
            return end + self.tail
        self.stock.stack.append(self.stack_index(data[start:end]))
        self.stock.thread.append(_WORD.unpack_from(data, end)[0])
        self.stock.memory.append(_WORD.unpack_from(data, end + 8)[0]
                                 if self.has_memory else 0)
        self.stock.time.append(
            _WORD.unpack_from(data, end + self.tail - 8)[0]
            if self.version == 7 else -1)
        return end + self.tail

    def stack_index(self, raw: bytes) -> int:
        return self.raw_stacks.setdefault(raw, len(self.raw_stacks))

    def read_name(self) -> int:
        (address,) = _WORD.unpack_from(self.data, self.at + 1)
        name, end = self._string(self.at + 9)
        if end <= len(self.data):
            if address == BLOCK_ADDRESS:
                self.read_block(name)
            else:
                self.names[address] = name
        return end

    def read_meta(self) -> int:
        key, at = self._string(self.at + 1)
        if at > len(self.data):
            return at
        value, end = self._string(at)
        self.meta[key] = value
        return end

    def read_block(self, text: str) -> None:
        parts = text.split(":")
        if len(parts) != 4:
            raise self.damaged("a block that is none")
        _, payload, version, kind = parts
        if version != BLOCK_VERSION:
            return
        if kind == "settings":
            for pair in payload.split(";"):
                key, _, value = pair.partition("=")
                self.settings[key] = value
        elif kind == "samples":
            self.read_samples(payload)
        elif kind == "objects":
            self.read_objects(payload)

    def read_numbers(self, payload: str, kind: str) -> Iterator[int]:
        digits = _NUMBER.findall(payload)
        if sum(map(len, digits)) != len(payload):
            raise self.damaged("a block of %s that are none" % kind)
        return map(self.numbers.__getitem__, digits)

    def read_samples(self, payload: str) -> None:
        table = self.ours
        numbers = self.read_numbers(payload, "samples")
        try:
            head = [next(numbers) for _ in range(8)]
            if head.pop() != len(table) or max(head) >= 2**63:
                raise ValueError
            self.moments.append(Moment(*head))
            thread = interval = memory = time = 0
            for number in numbers:
                if not number:
                    self.read_definition(numbers)
                    continue
                number -= 1
                time += next(numbers)
                size = next(numbers)
                if number & _NEW_THREAD:
                    thread = next(numbers)
                if number & _NEW_INTERVAL:
                    interval = next(numbers)
                if number & _NEW_MEMORY:
                    memory = next(numbers)
                if size and not interval:
                    raise ValueError
                table.stack.append(self.defined[number >> 3])
                table.time.append(time)
                table.thread.append(thread)
                table.size.append(size)
                table.interval.append(interval if size else 0)
                table.memory.append(memory)
        except (ValueError, IndexError, OverflowError, StopIteration):
            raise self.damaged("a block of samples that are none") from None

    def read_definition(self, numbers: Iterator[int]) -> None:
        node, added = next(numbers), next(numbers)
        if node >= len(self.nodes):
            raise ValueError
        for _ in range(added):
            pair = next(numbers)
            if not pair:
                pair = len(self.pairs)
                self.pairs.append((next(numbers), next(numbers)))
            self.nodes.append((node, pair))
            node = len(self.nodes) - 1
        words: list[int] = []
        while node:
            node, pair = self.nodes[node]
            words += self.pairs[pair]
        if len(words) > 2 * MAX_DEPTH:
            raise ValueError
        try:
            raw = struct.pack("<%dQ" % len(words), *words)
        except struct.error:
            raise ValueError from None
        self.defined.append(self.stack_index(raw))

    def read_objects(self, payload: str) -> None:
        numbers = self.read_numbers(payload, "objects")
        try:
            for key in numbers:
                fate = next(numbers)
                self.objects.extend((key, fate >> 1, fate & 1))
        except (StopIteration, OverflowError):
            raise self.damaged("a block of objects that are none") from None

    def read_all(self, salvage: bool) -> int:
        """Returns the number of bytes at the end that are no whole record."""
        data, size = self.data, len(self.data)
        self.read_head()
        readers = {STACK: self.read_stack, NAME: self.read_name,
                   NATIVE_NAME: self.read_name, META: self.read_meta,
                   HEADER: self.read_header}
        next_report = 0
        while self.at < size:
            if self.at >= next_report and self.progress is not None:
                self.progress(self.at, size)
                next_report = self.at + size // 200
            marker = data[self.at]
            try:
                if marker in readers:
                    end = readers[marker]()
                elif marker == TIME:
                    self.start_time, end = self._time(self.at + 1)
                elif marker == TRAILER:
                    end = self.at + 1
                    if self.version >= 5:
                        self.end_time, end = self._time(self.at + 1)
                    if end <= size:
                        break
                else:
                    raise self.damaged("an unknown record 0x%02x" % marker)
            except (struct.error, IndexError):
                end = size + 1
            if end > size:
                if salvage:
                    return size - self.at
                raise ProfileError(
                    "the profile is cut off: its last record, at byte %d of "
                    "%d, is not whole. Read what is before it with --salvage"
                    % (self.at, size))
            self.at = end
        if not self.version:
            raise ProfileError("not a vmprof profile: it has no header")
        if self.progress is not None:
            self.progress(size, size)
        return 0

    # ________________________________________

    def samples(self) -> Samples:
        """Ours, or if there are none, vmprof's: those that stand beside ours
        are the same ones again."""
        is_ours = bool(self.settings or self.moments)
        table = self.ours if is_ours else self.stock
        count = len(table)
        for column in (table.type, table.survived):
            column.extend([-1] * count)
        if not is_ours:
            for column in (table.size, table.interval):
                column.extend([0] * count)
        for i in range(0, len(self.objects), 3):
            # a process may be killed between an object and its sample
            if 1 <= self.objects[i] <= count:
                table.type[self.objects[i] - 1] = self.objects[i + 1]
                table.survived[self.objects[i] - 1] = self.objects[i + 2]
        return table

    def cut_stacks(self, samples: Samples) -> int:
        """How many stack samples fill vmprof's record of 8 KiB."""
        full = {index for raw, index in self.raw_stacks.items()
                if len(raw) in FULL_RECORD}
        return sum(index in full for index in samples.stack) if full else 0

    def decode(self, raw: bytes) -> tuple[Frame, ...]:
        words = struct.unpack("<%dq" % (len(raw) // 8), raw)
        if self.flags & FLAG_PYPY:
            return _decode_pypy(words, self.frames)
        if self.flags & FLAG_LINES:
            pairs = zip(words[0::2], words[1::2])
            frames = [_plain(address, -line if line < 0 else line)
                      for line, address in pairs]
        else:
            frames = [_plain(address, 0) for address in words]
        return tuple(reversed(frames))


def _plain(address: int, line: int) -> Frame:
    # vmprof marks native addresses with the lowest bit
    return Frame(address, "native" if address & 1 else "interpreted", line)


class _Frames(dict[tuple[int, int], Frame]):
    """The frame of each pair (kind, address) in PyPy's stacks: one object,
    however many stacks it is in."""

    def __missing__(self, pair: tuple[int, int]) -> Frame:
        kind, address = pair
        frame = self[pair] = Frame(address, _KINDS[kind], 0)
        return frame


_KINDS = {KIND_INTERPRETED: "interpreted", KIND_JIT: "jit",
          KIND_NATIVE: "native"}


def _decode_pypy(words: tuple[int, ...], known: _Frames) -> tuple[Frame, ...]:
    """(kind, address) pairs, innermost first, to frames, outermost first.

    A piece of the JIT's machine code writes its start (kind 6) and then the
    Python frames that are inlined at this point, innermost first (kind 3).
    The outermost of them is the frame that the interpreter was running when
    it entered the machine code, if it entered it there: then this frame's
    own entry (kind 1) follows, and the two are one.  If other machine code
    called it, then there is none, and the next piece follows.
    """
    kinds, addresses = words[0::2], words[1::2]
    if kinds.count(KIND_INTERPRETED) == len(addresses) == len(kinds):
        # most stacks: nothing is left out
        return tuple(map(known.__getitem__,
                         zip(kinds[::-1], addresses[::-1])))
    frames: list[Frame] = []
    before = (0, 0)
    for pair in zip(kinds, addresses):
        kind, address = pair
        if kind in _KINDS:
            if kind != KIND_INTERPRETED or before != (KIND_JIT, address):
                frames.append(known[pair])
            # not frames[-1]: of a recursion only one frame is that one
            before = pair
    frames.reverse()
    return tuple(frames)


def read_bytes(data: bytes, *, salvage: bool = False,
               progress: Callable[[int, int], None] | None = None) -> Profile:
    """Decode a profile; see read()."""
    torn = 0
    if data[:2] == b"\x1f\x8b":
        data, torn = _unpack(data, salvage)
    reader = _Reader(data, progress)
    torn += reader.read_all(salvage)
    samples = reader.samples()
    return Profile(
        interpreter=reader.interpreter, version=reader.version,
        period=reader.period, start_time=reader.start_time,
        end_time=reader.end_time, meta=reader.meta, settings=reader.settings,
        names=reader.names,
        stacks=[reader.decode(raw) for raw in reader.raw_stacks],
        samples=samples, moments=reader.moments,
        lost_stacks=samples.stack.count(-1),
        cut_stacks=reader.cut_stacks(samples), torn=torn)


def _unpack(data: bytes, salvage: bool) -> tuple[bytes, int]:
    """Returns what is in a gzip file, and the number of bytes at its end that
    make no whole member."""
    parts, size, at = [], 0, 0
    try:
        while data.startswith(_MEMBER, at):
            if at + _MEMBER_HEAD.size > len(data):
                break
            _, kind, _, length = _MEMBER_HEAD.unpack_from(data, at)
            if length < _MEMBER_HEAD.size or at + length > len(data):
                break
            if kind != _FOR_VMPROF:
                parts.append(_unpack_some(data[at:at + length], size))
                size += len(parts[-1])
            at += length
        if at == len(data):
            return b"".join(parts), 0
        if at or data.startswith(_MEMBER):
            if salvage:
                return b"".join(parts), len(data) - at
            raise ProfileError(
                "the profile is cut off: its last part, at byte %d of %d, is "
                "not whole. Read what is before it with --salvage"
                % (at, len(data)))
        return _unpack_some(data, 0), 0     # not written by us
    except (OSError, EOFError, zlib.error) as e:
        raise ProfileError("damaged profile: %s" % e) from e


def _unpack_some(data: bytes, before: int) -> bytes:
    parts = []
    file = gzip.GzipFile(fileobj=io.BytesIO(data))
    while part := file.read(2**24):
        parts.append(part)
        before += len(part)
        if before > MAX_UNPACKED:
            raise ProfileError("the profile unpacks to more than %d bytes"
                               % MAX_UNPACKED)
    return b"".join(parts)


def read(path: str | os.PathLike[str], *, salvage: bool = False,
         progress: Callable[[int, int], None] | None = None) -> Profile:
    """Read the profile at `path`.

    `salvage` drops what is incomplete at the end, which otherwise is an
    error.  `progress(done, total)` is called now and then, with bytes.
    Raises ProfileError for anything that is not a profile, and OSError.
    """
    with open(path, "rb") as file:
        data = file.read()
    return read_bytes(data, salvage=salvage, progress=progress)
