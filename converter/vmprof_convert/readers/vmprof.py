"""Read vmprof's logs, with or without allocation samples, of any size.

One pass over the bytes, piece by piece: what is kept are the samples, or
what the caller makes of them, and the stacks, as the tree that they are.
Nothing here is recursive.  PROFILE.rst is the definition of the layout.
"""
from __future__ import annotations

import array
import dataclasses
import io
import itertools
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, Protocol, overload

from vmprof_convert.errors import ProfileError

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
_LAST_DIGIT = re.compile("[@-_]")
_NUMBERS = re.compile("([@-\x7f]*[@-_])?")
_NEW_THREAD, _NEW_INTERVAL, _NEW_MEMORY = 1, 2, 4

FLAG_MEMORY, FLAG_LINES, FLAG_PYPY = 1, 2, 8
KIND_INTERPRETED, KIND_JIT, KIND_MACHINE_CODE, KIND_NATIVE = 1, 3, 6, 7

#: vmprof's own limit
MAX_DEPTH = 2**16
#: a gzipped profile unpacks to no more bytes: what does is made to harm
MAX_UNPACKED = 2**32
#: no record is longer, nor a member of our kind: vmprof's buffers have 8 KiB,
#: ours 32, and meta data is what somebody typed
MAX_RECORD = 2**26
#: what is read and unpacked at once.  Small, because PyPy reserves it anew each
#: time
PIECE = 2**16
MAX_DIGITS = 2**12
#: bytes of vmprof's stacks that are known without looking at their frames
MAX_RAW_STACKS = 2**22

#: words of a stack that filled vmprof's record.  vmprof goes on to the next
#: frame while two of 1019 words are free, in steps of two: so with 1016 words
#: it went on, and with 1018 it stopped.  Of the frames that are inlined in a
#: piece of machine code it writes one if only one word is free, hence 1020.
#: (vmp_stack.c, MAX_STACK_DEPTH - 1; vmprof_get_custom_offset.h.)  The column
#: of resident memory has its own room.
FULL_RECORD = 1018

_WORD = struct.Struct("<q")
_STACK_HEAD = struct.Struct("<qq")
# a native function's name may contain colons (C++'s do)
_NAME = re.compile(r"([^:]*):(.*?):(-?[0-9]{1,9}):(.*)", re.DOTALL)


def _column() -> array.array[int]:
    return array.array("q")


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


class Rows(Protocol):
    """What becomes of the samples while a profile is read."""

    def begin(self, settings: dict[str, str]) -> None:
        """What was added before doesn't count; `settings` is filled before
        the first sample of ours."""

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int) -> None:
        """A sample; the columns of Samples."""

    def add_object(self, key: int, type_: int, survived: int) -> None:
        """What became of the object of sample number `key`, from 1 on, which
        may come later, or never."""


@dataclasses.dataclass
class Samples:
    """A table with one row per sample; all columns have the same length."""

    #: nanoseconds since the start; -1 where the log has no times
    time: array.array[int] = dataclasses.field(default_factory=_column)
    #: kernel's number of the thread; 0: not known
    thread: array.array[int] = dataclasses.field(default_factory=_column)
    #: index in Profile.stacks; -1: lost
    stack: array.array[int] = dataclasses.field(default_factory=_column)
    #: bytes; 0: a time sample
    size: array.array[int] = dataclasses.field(default_factory=_column)
    #: mean interval in bytes at that moment; 0: a time sample
    interval: array.array[int] = dataclasses.field(default_factory=_column)
    #: resident memory in KiB; 0: not known
    memory: array.array[int] = dataclasses.field(default_factory=_column)
    #: the object's type, as the GC numbers them; -1: not known
    type: array.array[int] = dataclasses.field(default_factory=_column)
    #: did the object survive the next minor collection? -1: not known
    survived: array.array[int] = dataclasses.field(default_factory=_column)

    def __post_init__(self) -> None:
        # of sampled objects: key, type, survived
        self._objects = _column()

    def __len__(self) -> int:
        return len(self.stack)

    def begin(self, settings: dict[str, str]) -> None:
        for field in dataclasses.fields(self):
            del getattr(self, field.name)[:]

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int) -> None:
        self.stack.append(stack)
        self.time.append(time)
        self.thread.append(thread)
        self.size.append(size)
        self.interval.append(interval)
        self.memory.append(memory)

    def add_object(self, key: int, type_: int, survived: int) -> None:
        self._objects.extend((key, type_, survived))

    def finish(self) -> None:
        """Fill in what became of the objects."""
        count = len(self)
        for column in (self.type, self.survived):
            column.extend([-1] * count)
        for i in range(0, len(self._objects), 3):
            # a process may be killed between an object and its sample
            if 1 <= self._objects[i] <= count:
                self.type[self._objects[i] - 1] = self._objects[i + 1]
                self.survived[self._objects[i] - 1] = self._objects[i + 2]


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
    #: 0.0: not known; None: the log has no end (the process was killed, or
    #: still runs)
    end_time: float | None
    meta: dict[str, str]
    #: settings of the allocation sampling; empty: there was none
    settings: dict[str, str]
    names: dict[int, str]
    #: distinct stacks, outermost frame first
    stacks: Sequence[tuple[Frame, ...]]
    #: empty if they went elsewhere: see read_into()
    samples: Samples
    moments: list[Moment]
    #: samples without a stack
    lost_stacks: int
    #: samples whose stack filled vmprof's record: outer frames are missing
    cut_stacks: int
    #: bytes at the end that make no whole record (only with salvage=True)
    torn: int = 0

    @property
    def gaps(self) -> str:
        return self.settings.get("gaps", "exponential")

    @property
    def children(self) -> int:
        """Processes that the program forked, and that were not sampled."""
        text = self.settings.get("children", "")
        return int(text) if re.fullmatch("[0-9]{1,18}", text) else 0

    @property
    def ended(self) -> str:
        """Why the profile ends before the program did; empty: it does not."""
        return "".join(c if c.isprintable() else "?"
                       for c in self.settings.get("ended", ""))

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


class Stacks(Sequence[tuple[Frame, ...]]):
    """Distinct stacks.  Most share their outer frames with others: a stack is
    a node of a tree, and its frames are made when they are asked for."""

    def __init__(self) -> None:
        # of each node; number 0 is the empty stack
        self._parent = array.array("i", [-1])
        self._frame = array.array("i", [-1])
        # open addressing, linear probing; a dict would take six times as much
        self._table = array.array("i", bytes(4 * 2**10))
        self._frames: list[Frame] = []
        self._frame_numbers: dict[tuple[int, int], int] = {}
        # of each stack
        self._nodes = array.array("i")
        #: node * 2 + whether it filled its record: stack
        self._numbers: dict[int, int] = {}
        #: how often each stack was sampled that filled its record
        self.full: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> tuple[Frame, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Frame, ...]]: ...

    def __getitem__(self, index: int | slice) -> (
            tuple[Frame, ...] | list[tuple[Frame, ...]]):
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        node = self._nodes[index]
        frames = []
        while node:
            frames.append(self._frames[self._frame[node]])
            node = self._parent[node]
        frames.reverse()
        return tuple(frames)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def number(self, node: int, words: int) -> int:
        """The number of the stack that ends with `node`, and had so many
        words in its record."""
        is_full = words >= FULL_RECORD
        key = node << 1 | is_full
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._nodes)
            self._nodes.append(node)
            if is_full:
                self.full[number] = 0
        return number

    def child(self, node: int, kind: int, address: int) -> int:
        """The node of one frame more, which is in no machine code: `kind` is
        its kind, or with other interpreters than PyPy minus its line."""
        number = self._frame_numbers.get((kind, address))
        if number is None:
            number = self._frame_numbers[kind, address] = len(self._frames)
            self._frames.append(
                Frame(address, _KINDS[kind], 0) if kind > 0 else
                # vmprof marks native addresses with the lowest bit
                Frame(address, "native" if address & 1 else "interpreted",
                      -kind))
        place = self._place(node, number)
        child = self._table[place]
        if not child:
            child = self._table[place] = len(self._parent)
            self._parent.append(node)
            self._frame.append(number)
            if 3 * child > 2 * len(self._table):
                self._grow()
        return child

    def _place(self, node: int, frame: int) -> int:
        """Where in the table this child of `node` is, or has to be."""
        table, parents, frames = self._table, self._parent, self._frame
        mask = len(table) - 1
        place = node * 0x9e3779b1 + frame * 0x85ebca77
        place = (place ^ place >> 15) & mask
        while child := table[place]:
            if parents[child] == node and frames[child] == frame:
                break
            place = place + 1 & mask
        return place

    def _grow(self) -> None:
        self._table = array.array("i", bytes(8 * len(self._table)))
        for child in range(1, len(self._parent)):
            place = self._place(self._parent[child], self._frame[child])
            self._table[place] = child

    def pypy_child(self, node: int, kind: int, address: int) -> int:
        """The node of one pair more of a PyPy stack, from the outermost on.

        A piece of the JIT's machine code writes its start (kind 6) and then
        the Python frames that are inlined at this point, innermost first
        (kind 3).  The outermost of them is the frame that the interpreter was
        running when it entered the machine code, if it entered it there: then
        this frame's own entry (kind 1) is the next one outwards, and the two
        are one.  If other machine code called it, then there is none, and the
        next piece follows.
        """
        if kind not in _KINDS:
            return node
        if kind == KIND_JIT and node:
            frame = self._frames[self._frame[node]]
            if frame.address == address and frame.kind == "interpreted":
                node = self._parent[node]
        return self.child(node, kind, address)

    def cut(self) -> int:
        """How many samples have lost their outermost frames.

        A stack that fills its record may just fit.  Then it begins where
        others do that had room left, with a function that nobody calls.
        """
        if not self.full:
            return 0
        called, entries = set(), set()
        for node in range(1, len(self._parent)):
            if self._parent[node]:
                called.add(self._frames[self._frame[node]].address)
        for stack, node in enumerate(self._nodes):
            if node and stack not in self.full:
                entries.add(self._entry(node))
        entries -= called
        return sum(count for stack, count in self.full.items()
                   if self._entry(self._nodes[stack]) not in entries)

    def _entry(self, node: int) -> int | None:
        """The address of the outermost function."""
        outermost = node
        while node:
            node, outermost = self._parent[node], node
        return self._frames[self._frame[outermost]].address if outermost else None


_KINDS = {KIND_INTERPRETED: "interpreted", KIND_JIT: "jit",
          KIND_NATIVE: "native"}


class _Pieces:
    """What a profile unpacks to, piece by piece, as an iterator."""

    def __init__(self, file: BinaryIO, salvage: bool,
                 progress: Callable[[int], None] | None):
        self._file = file
        self._salvage = salvage
        self._progress = progress
        self._unpacked = 0
        #: bytes of the file that were read
        self.done = 0
        #: bytes at the end that make no whole member
        self.torn = 0
        self._first = self._read(len(_MEMBER))

    def _read(self, size: int) -> bytes:
        """Fewer bytes than `size` only at the end of the file."""
        parts = []
        while size > 0:
            part = self._file.read(min(size, PIECE))
            if not part:
                break
            parts.append(part)
            size -= len(part)
            self.done += len(part)
        if self._progress is not None:
            self._progress(self.done)
        return b"".join(parts)

    def __iter__(self) -> Iterator[bytes]:
        try:
            if self._first == _MEMBER:
                yield from self._members()
            elif self._first[:2] == b"\x1f\x8b":
                # not written by us
                yield from self._unpack(self._packed())
            else:
                yield from self._packed()
        except zlib.error as e:
            raise ProfileError("damaged profile: %s" % e) from e

    def _packed(self) -> Iterator[bytes]:
        yield self._first
        while part := self._read(PIECE):
            yield part

    def _members(self) -> Iterator[bytes]:
        head = self._first
        while True:
            at = self.done - len(head)
            head += self._read(_MEMBER_HEAD.size - len(head))
            if not head:
                return
            if len(head) < _MEMBER_HEAD.size or not head.startswith(_MEMBER):
                break
            _, kind, _, length = _MEMBER_HEAD.unpack(head)
            if not _MEMBER_HEAD.size <= length:
                break
            if kind == _FOR_VMPROF:
                rest = self._pass_over(length - len(head))
            elif length > MAX_RECORD:
                rest = self._pass_over(length - len(head))
                if not rest:
                    raise ProfileError(
                        "damaged profile: a part of %d bytes at byte %d"
                        % (length, at))
            else:
                body = self._read(length - len(head))
                rest = length - len(head) - len(body)
                if not rest:
                    # as parts only: a member is there or not
                    yield from self._unpack(iter((head, body)))
            if rest:
                break
            head = b""
        self._pass_over(2**63)
        self.torn = self.done - at
        if not self._salvage:
            raise ProfileError(
                "the profile is cut off: its last part, at byte %d of %d, is "
                "not whole. Read what is before it with --salvage"
                % (at, self.done))

    def _pass_over(self, size: int) -> int:
        """Returns how many of `size` bytes there are not."""
        while size > 0:
            part = self._read(min(size, PIECE))
            if not part:
                break
            size -= len(part)
        return size

    def _unpack(self, packed: Iterator[bytes]) -> Iterator[bytes]:
        """`packed` is one gzip member or some."""
        def checked(piece: bytes) -> bytes:
            self._unpacked += len(piece)
            if self._unpacked > MAX_UNPACKED:
                raise ProfileError("the profile unpacks to more than %d bytes"
                                   % MAX_UNPACKED)
            return piece

        unpacker = zlib.decompressobj(wbits=31)
        for part in packed:
            while part:
                if unpacker.eof:
                    # gzip allows zeros behind a member
                    part = part.lstrip(b"\0")
                    if not part:
                        break
                    unpacker = zlib.decompressobj(wbits=31)
                yield checked(unpacker.decompress(part, PIECE))
                part = unpacker.unconsumed_tail or unpacker.unused_data
        while not unpacker.eof:
            # what the last piece had no room for
            piece = unpacker.decompress(b"", PIECE)
            if not piece:
                raise ProfileError("damaged profile: its packed data end "
                                   "too early")
            yield checked(piece)


class _Reader:
    def __init__(self, pieces: _Pieces, rows: Rows):
        self.pieces = iter(pieces)
        #: a part of the log, where in it we are, and where in the log it begins
        self.data = b""
        self.at = 0
        self.before = 0
        #: nothing follows
        self.is_last = False
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
        self.stacks = Stacks()
        # vmprof's samples, as long as there is nothing of ours: those that
        # stand beside ours are the same ones again
        self.rows = rows
        self.is_ours = False
        self.count = self.lost = 0
        rows.begin(self.settings)
        self.numbers = _Numbers()
        #: number in `stacks` of vmprof's stacks, as far as they are known
        self.raw_stacks: dict[bytes, int] = {}
        self.raw_size = 0
        #: number in `stacks` of each stack that was defined; and the nodes of
        #: the file's tree: each one's node in `stacks`, and its depth;
        #: and the file's frames, (kind, address)
        self.defined = array.array("q", [-1])
        self.nodes = array.array("q", [0])
        self.depths = array.array("i", [0])
        self.pairs: list[tuple[int, int]] = [(0, 0)]

    def damaged(self, what: str) -> ProfileError:
        return ProfileError("damaged profile: %s at byte %d"
                            % (what, self.before + self.at))

    def more(self) -> bool:
        """Have more of the log in `data`; False: there is no more."""
        if self.is_last:
            return False
        rest = self.data[self.at:]
        self.before += self.at
        self.at = 0
        parts, size = [rest], len(rest)
        # doubled, lest a long record be looked at again for each piece
        while size < 2 * len(rest) + 1:
            piece = next(self.pieces, None)
            if piece is None:
                self.is_last = True
                break
            parts.append(piece)
            size += len(piece)
        self.data = b"".join(parts)
        return size > len(rest)

    def pass_over(self) -> int:
        """Read what follows to its end; returns the bytes from `at` on."""
        size = len(self.data) - self.at
        for piece in self.pieces:
            size += len(piece)
        self.is_last = True
        return size

    def read_head(self) -> None:
        while len(self.data) < 40 and self.more():
            pass
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
    # where the next one begins; beyond the end of the data means that it is
    # not whole: then nothing was changed

    def _string(self, at: int) -> tuple[str, int]:
        (length,) = _WORD.unpack_from(self.data, at)
        end = at + 8 + length
        if length < 0:
            raise self.damaged("a string of %d bytes" % length)
        if end > len(self.data):
            return "", end
        return self.data[at + 8:end].decode("utf-8", "replace"), end

    def _time(self, at: int) -> tuple[float, int]:
        seconds, micro = _STACK_HEAD.unpack_from(self.data, at)
        return seconds + micro / 1e6, at + 24

    def read_start(self) -> int:
        time, end = self._time(self.at + 1)
        if end <= len(self.data):
            self.start_time = time
        return end

    def read_header(self) -> int:
        at = self.at
        if self.version:
            raise self.damaged("a second header")
        (version,) = struct.unpack_from(">h", self.data, at + 1)
        at += 3
        if version >= 4:
            flags = self.data[at]
            at += 1
        else:
            flags = FLAG_MEMORY if version == 3 else 0
        end = at + 1 + self.data[at]
        if end > len(self.data):
            return end
        if not 1 <= version <= 7:
            raise ProfileError("vmprof's layout version %d is not known; "
                               "this reads 1 to 7" % version)
        self.version = version
        self.interpreter = self.data[at + 1:end].decode("ascii", "replace")
        self.flags = flags
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
        if end + self.tail > len(data) or self.is_ours:
            return end + self.tail
        self.add(self.raw_stack(data[start:end]),
                 _WORD.unpack_from(data, end + self.tail - 8)[0]
                 if self.version == 7 else -1,
                 _WORD.unpack_from(data, end)[0], 0, 0,
                 _WORD.unpack_from(data, end + 8)[0] if self.has_memory else 0)
        return end + self.tail

    def add(self, stack: int, time: int, thread: int, size: int,
            interval: int, memory: int) -> None:
        self.count += 1
        if stack in self.stacks.full:
            self.stacks.full[stack] += 1
        elif stack < 0:
            self.lost += 1
        self.rows.add(stack, time, thread, size, interval, memory)

    def begin_ours(self) -> None:
        if not self.is_ours:
            self.is_ours = True
            self.count = self.lost = 0
            self.stacks = Stacks()
            self.raw_stacks.clear()
            self.rows.begin(self.settings)

    def raw_stack(self, raw: bytes) -> int:
        """The number of vmprof's stack."""
        number = self.raw_stacks.get(raw)
        if number is None:
            self.raw_size += len(raw)
            if self.raw_size > MAX_RAW_STACKS:
                self.raw_stacks.clear()
                self.raw_size = len(raw)
            number = self.raw_stacks[raw] = self.decode(raw)
        return number

    def decode(self, raw: bytes) -> int:
        words = struct.unpack("<%dq" % (len(raw) // 8), raw)
        node, stacks = 0, self.stacks
        if self.flags & FLAG_PYPY:
            # of an odd number, the last one is no frame
            for i in range(len(words) // 2 * 2 - 2, -1, -2):
                node = stacks.pypy_child(node, words[i], words[i + 1])
        elif self.flags & FLAG_LINES:
            for i in range(len(words) // 2 * 2 - 2, -1, -2):
                node = stacks.child(node, -abs(words[i]), words[i + 1])
        else:
            for word in reversed(words):
                node = stacks.child(node, 0, word)
        return stacks.number(node, len(words))

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
        if end <= len(self.data):
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
            self.begin_ours()
            for pair in payload.split(";"):
                key, _, value = pair.partition("=")
                self.settings[key] = value
        elif kind == "samples":
            self.begin_ours()
            self.read_samples(payload)
        elif kind == "objects":
            self.read_objects(payload)

    def read_numbers(self, payload: str, kind: str) -> Iterator[int]:
        if not _NUMBERS.fullmatch(payload):
            raise self.damaged("a block of %s that are none" % kind)
        return itertools.chain.from_iterable(self.some_numbers(payload))

    def some_numbers(self, payload: str) -> Iterator[Iterator[int]]:
        # not all at once: each is a string of its own
        at = 0
        while last := _LAST_DIGIT.search(payload, at + MAX_DIGITS):
            yield map(self.numbers.__getitem__,
                      _NUMBER.findall(payload, at, last.end()))
            at = last.end()
        yield map(self.numbers.__getitem__, _NUMBER.findall(payload, at))

    def read_samples(self, payload: str) -> None:
        numbers = self.read_numbers(payload, "samples")
        try:
            head = [next(numbers) for _ in range(8)]
            if head.pop() != self.count or max(head) >= 2**63:
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
                if (time | size | thread | interval | memory) >> 63:
                    raise ValueError
                self.add(self.defined[number >> 3], time, thread, size,
                         interval if size else 0, memory)
        except (ValueError, IndexError, OverflowError, StopIteration):
            raise self.damaged("a block of samples that are none") from None

    def read_definition(self, numbers: Iterator[int]) -> None:
        at, added = next(numbers), next(numbers)
        node, depth = self.nodes[at], self.depths[at]
        if depth + added > MAX_DEPTH:
            raise ValueError
        for _ in range(added):
            pair = next(numbers)
            if not pair:
                pair = len(self.pairs)
                kind, address = next(numbers), next(numbers)
                if kind >= 2**64 or address >= 2**64:
                    raise ValueError
                self.pairs.append((kind, address - (address >> 63 << 64)))
            node = self.stacks.pypy_child(node, *self.pairs[pair])
            depth += 1
            self.nodes.append(node)
            self.depths.append(depth)
        self.defined.append(self.stacks.number(node, 2 * depth))

    def read_objects(self, payload: str) -> None:
        numbers = self.read_numbers(payload, "objects")
        try:
            for key in numbers:
                fate = next(numbers)
                if (key | fate >> 1) >> 63:
                    raise ValueError
                self.rows.add_object(key, fate >> 1, fate & 1)
        except (StopIteration, ValueError):
            raise self.damaged("a block of objects that are none") from None

    def read_all(self, salvage: bool) -> int:
        """Returns the number of bytes at the end that are no whole record."""
        self.read_head()
        readers = {STACK: self.read_stack, NAME: self.read_name,
                   NATIVE_NAME: self.read_name, META: self.read_meta,
                   HEADER: self.read_header, TIME: self.read_start}
        while self.at < len(self.data) or self.more():
            marker = self.data[self.at]
            try:
                if marker in readers:
                    end = readers[marker]()
                elif marker == TRAILER:
                    end, time = self.at + 1, 0.0
                    if self.version >= 5:
                        time, end = self._time(self.at + 1)
                    if end <= len(self.data):
                        self.end_time = time
                else:
                    raise self.damaged("an unknown record 0x%02x" % marker)
            except (struct.error, IndexError):
                end = len(self.data) + 1
            if end > len(self.data):
                # read again from its beginning, as soon as it is there
                if end - self.at <= MAX_RECORD and self.more():
                    continue
                size = end - self.at
                rest = self.pass_over()
                if rest >= size:
                    raise self.damaged("a record of %d bytes" % size)
                if salvage:
                    return rest
                raise ProfileError(
                    "the profile is cut off: its last record, at byte %d of "
                    "%d, is not whole. Read what is before it with --salvage"
                    % (self.before + self.at, self.before + self.at + rest))
            self.at = end
            if marker == TRAILER:
                break
        # what is behind the end may still be damaged
        self.pass_over()
        if not self.version:
            raise ProfileError("not a vmprof profile: it has no header")
        return 0


def _read(file: BinaryIO, rows: Rows, salvage: bool,
          progress: Callable[[int], None] | None = None) -> Profile:
    pieces = _Pieces(file, salvage, progress)
    reader = _Reader(pieces, rows)
    torn = reader.read_all(salvage)
    return Profile(
        interpreter=reader.interpreter, version=reader.version,
        period=reader.period, start_time=reader.start_time,
        end_time=reader.end_time, meta=reader.meta, settings=reader.settings,
        names=reader.names, stacks=reader.stacks, samples=Samples(),
        moments=reader.moments, lost_stacks=reader.lost,
        cut_stacks=reader.stacks.cut(), torn=torn + pieces.torn)


def _read_table(file: BinaryIO, size: int, salvage: bool,
                progress: Callable[[int, int], None] | None) -> Profile:
    def told(done: int) -> None:
        if progress is not None:
            # of a pipe nobody knows how much it holds
            progress(done, max(done, size))

    samples = Samples()
    profile = _read(file, samples, salvage, told)
    samples.finish()
    profile.samples = samples
    return profile


def read_into(path: str | os.PathLike[str], rows: Rows, *,
              salvage: bool = False) -> Profile:
    """As read(), but the samples go to `rows`, and the profile's table of them
    is empty: for what needs no table of a million rows."""
    with open(path, "rb") as file:
        return _read(file, rows, salvage)


def read_bytes(data: bytes, *, salvage: bool = False,
               progress: Callable[[int, int], None] | None = None) -> Profile:
    """Decode a profile; see read()."""
    return _read_table(io.BytesIO(data), len(data), salvage, progress)


def read(path: str | os.PathLike[str], *, salvage: bool = False,
         progress: Callable[[int, int], None] | None = None) -> Profile:
    """Read the profile at `path`.

    `salvage` drops what is incomplete at the end, which otherwise is an
    error.  `progress(done, total)` is called now and then, with bytes of the
    file.  Raises ProfileError for anything that is not a profile, and OSError.
    """
    with open(path, "rb") as file:
        return _read_table(file, os.fstat(file.fileno()).st_size, salvage,
                           progress)
