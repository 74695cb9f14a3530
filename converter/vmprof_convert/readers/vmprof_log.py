"""The reader of vmprof's log, which is a sequence of records (PROFILE.rst).

The log is read in one pass, piece by piece. The reader keeps only the names and the
stacks, which are stored as a tree. It gives the sampler's records to a callback
(readers/__init__.py), and vmprof's own samples to a receiver. No function is recursive.
"""
from __future__ import annotations

import array
import re
import struct
import weakref
from collections.abc import Callable, Iterable, Sequence

from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import NATIVE, PYTHON, Columns, Function, Rows
from vmprof_convert.profile.stacks import Frame
from vmprof_convert.readers import pypy_stacks, records
from vmprof_convert.readers.contents import FULL_RECORD, MAX_DEPTH, Contents
from vmprof_convert.readers.records import Damaged, Record
from vmprof_convert.readers.rvmprof_samples import FULL_STACK, GcSamples, Sample

STACK, NAME, TRAILER, HEADER, TIME, META, NATIVE_NAME = 1, 2, 3, 5, 6, 7, 8
#: records with allocation samples of a PyPy without recorder (rvmprof_samples.py)
ALLOCATION, OBJECT, ALLOCATED = 11, 12, 13
#: Records of a branch of PyPy that samples allocations. One kind is a stack. The other
#: kind has the type, size class and outcome of an object.
_OF_BRANCH = 9, 10
FLAG_MEMORY, FLAG_LINES, FLAG_PYPY = 1, 2, 8

#: Largest size of a record in bytes. vmprof's buffers have 8 KiB and the sampler's 64
#: KiB, and users type the meta data.
MAX_RECORD = 2**26
#: size of the longest head in bytes; even the shortest profile has this size
_HEAD = 40
#: largest size in bytes of vmprof's stacks in the cache of raw stacks
MAX_RAW_STACKS = 2**22

_WORD, _SHORT_WORD = struct.Struct("<q"), struct.Struct("<i")
_TIME = struct.Struct("<qq")
_SECONDS = struct.Struct("<d")
#: address in the records of names that contained the sampler's records in old profiles
_FORMER_RECORDS = -0x616C6C6F63
# the name of a native function may contain colons, as in C++
_NAME = re.compile(r"([^:]*):(.*?):(-?[0-9]{1,9}):(.*)", re.DOTALL)


class Log:
    """The reader of one log."""

    def __init__(self, pieces: Iterable[bytes], contents: Contents, rows: Rows | None,
                 names: dict[int, str]):
        """Create a reader.

        Args:
            pieces: The bytes of the log.
            contents: The contents of the profile, whose table gets the stacks.
            rows: The receiver of vmprof's own samples, if the log has no records of the
                sampler. None ignores these samples.
            names: A dict that gets the names of functions, by their addresses.
        """
        self.pieces = iter(pieces)
        self.contents = contents
        self.rows = rows
        self.names = names
        #: a piece of the log, the current position in this piece, and the number of
        #: bytes before the piece
        self.data = b""
        self.at = 0
        self.before = 0
        #: whether `data` is the last piece
        self.is_last = False
        self.version = 0
        self.flags = 0
        self.interpreter = ""
        self.period = 0.0
        self.start_time = 0.0
        self.end_time: float | None = None
        self.meta: dict[str, str] = {}
        #: reader of rvmprof's allocation samples; None if the samples are ignored
        self.gc_samples = GcSamples(contents, rows) if rows is not None else None
        #: whether stack samples contain the resident memory
        self.has_memory = False
        #: whether to stop after the current record, although the log continues
        self.is_enough = False
        #: numbers of vmprof's stacks, by their words
        self.raw_stacks = _RawStacks(weakref.proxy(self))
        #: size in bytes of the head and the stack of a stack sample, by the head's
        #: bytes
        self.stack_sizes: dict[bytes, int] = {}
        #: Formats of C's `long`, which lengths and counts have, and of pointers. Both
        #: have eight bytes, except on Windows and on 32-bit machines.
        self.word = self.pointer = _WORD
        #: In version 7, whether the time precedes the stack. An unreleased vmprof wrote
        #: such logs. None until the first sample.
        self.has_time_first: bool | None = None

    def damaged(self, what: str) -> ProfileError:
        """Return an error that contains `what` and the position in the log."""
        return ProfileError("damaged profile: %s at byte %d"
                            % (what, self.before + self.at))

    def more(self) -> bool:
        """Append more of the log to `data`; return whether there was more."""
        if self.is_last:
            return False
        rest = self.data[self.at:]
        self.before += self.at
        self.at = 0
        parts, size = [rest], len(rest)
        # double the size, so that a long record is not examined again for each piece
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
        """Read the rest of the log; return the number of bytes from `at` on."""
        size = len(self.data) - self.at
        for piece in self.pieces:
            size += len(piece)
        self.is_last = True
        return size

    def read_head(self) -> None:
        """Read the five words at the beginning.

        Raises:
            ProfileError: The file is not a log of vmprof.
        """
        while len(self.data) < _HEAD and self.more():
            pass
        if len(self.data) < _HEAD:
            raise ProfileError("not a vmprof profile: %s" % (
                "the file is empty" if not self.data else
                "it has %d bytes, less than a head" % len(self.data)))
        self.word, self.pointer = _words(self.data)
        words = [self.word.unpack_from(self.data, i * self.word.size)[0]
                 for i in range(5)]
        if words[:3] != [0, 3, 0] or words[4] not in (0, 1):
            raise ProfileError(
                "not a vmprof profile: it begins with %s"
                % self.data[:16].hex(" "))
        self.period = words[3] / 1e6
        self.at = 5 * self.word.size

    # Each of these methods reads the record whose marker is at self.at, and returns the
    # position of the next record. If this position is after the end of the data, the
    # record is incomplete, and the method has not changed anything.

    def _string(self, at: int) -> tuple[str, int]:
        (length,) = self.word.unpack_from(self.data, at)
        start = at + self.word.size
        end = start + length
        if length < 0:
            raise self.damaged("a string of %d bytes" % length)
        if end > len(self.data):
            return "", end
        return self.data[start:end].decode("utf-8", "replace"), end

    def _time(self, at: int) -> tuple[float, int]:
        seconds, micro = _TIME.unpack_from(self.data, at)
        return seconds + micro / 1e6, at + 24

    def read_start(self) -> int:
        """Read the start time."""
        time, end = self._time(self.at + 1)
        if end <= len(self.data):
            self.start_time = time
        return end

    def read_header(self) -> int:
        """Read the header with the version, the flags and the interpreter's name."""
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
            raise ProfileError("unknown version %d of vmprof's layout; this "
                               "vmprof-convert reads 1 to 7" % version)
        self.version = version
        self.interpreter = self.data[at + 1:end].decode("ascii", "replace")
        self.flags = flags
        if self.interpreter == "pypy":
            self.flags |= FLAG_PYPY
        self.has_memory = bool(self.flags & FLAG_MEMORY)
        return end

    def read_stack(self) -> int:
        """Read one stack sample of any version."""
        if not self.version:
            raise self.damaged("a sample before the header")
        data, at = self.data, self.at + 1
        word, size = self.word, self.pointer.size
        time = -1
        (count,) = word.unpack_from(data, at)
        at += word.size
        if self.version == 7:
            if self.has_time_first is None:
                self.has_time_first = count != 1
            if self.has_time_first:
                at = self.at + 1
                time = self._nanoseconds(*_SECONDS.unpack_from(data, at))
                at += _SECONDS.size
                count = 1
        depth: int
        (depth,) = word.unpack_from(data, at)
        if count != 1 or not 0 <= depth <= MAX_DEPTH:
            raise self.damaged("a sample that counts %d, of depth %d"
                               % (count, depth))
        start = at + word.size
        end = start + size * depth
        # the words after the stack: thread, resident memory and time
        has_time = self.version == 7 and not self.has_time_first
        after = end + size * (1 + self.has_memory) + 8 * has_time
        if after > len(data) or self.contents.are_there:
            return after
        if has_time:
            (time,) = _WORD.unpack_from(data, after - 8)
        self._hand_on(
            [self.raw_stacks[data[start:end]]], [time if self._now < 0 else self._now],
            [self.pointer.unpack_from(data, end)[0]],
            [self.pointer.unpack_from(data, end + size)[0] if self.has_memory else 0])
        return after

    @property
    def _now(self) -> int:
        """The time of the latest allocation sample in nanoseconds, -1 without times."""
        return -1 if self.gc_samples is None else self.gc_samples.time

    def _hand_on(self, stacks: list[int], times: list[int], threads: Sequence[int],
                 memories: Sequence[int]) -> None:
        """Give some of vmprof's CPU samples to the receiver."""
        full = self.contents.stacks.full
        for stack in filter(full.__contains__, stacks):
            full[stack] += 1
        if self.rows is not None:
            self.rows.extend(Columns.of_ticks(
                array.array("q", times), array.array("q", threads),
                array.array("i", stacks), array.array("q", memories)))

    def read_stacks(self) -> int:
        """Read as many successive whole stack samples as `data` has, at least one.

        A log of vmprof consists almost only of stack samples, so this method avoids a
        call of read_stack() for each. It calls read_stack() for other versions of the
        log and for invalid samples.
        """
        if self.version in (0, 7) or self.contents.are_there:
            return self.read_stack()
        data, at, last = self.data, self.at, len(self.data)
        head, number = 1 + 2 * self.word.size, 1 + self.has_memory
        behind = number * self.pointer.size
        sizes, known = self.stack_sizes, self.raw_stacks
        stacks: list[int] = []
        rest: list[bytes] = []
        while True:
            # samples of the same depth have equal heads
            size = sizes.get(data[at:at + head])
            if size is None:
                size = self._stack_size(at)
            end = at + size
            # read_stack() reads an invalid sample and raises the error
            if not size or end + behind > last:
                break
            stacks.append(known[data[at + head:end]])
            at = end + behind
            rest.append(data[end:at])
        if not stacks:
            return self.read_stack()
        numbers = struct.unpack("<%d%s" % (
            len(rest) * number, self.pointer.format[1:]), b"".join(rest))
        self._hand_on(stacks, [self._now] * len(stacks), numbers[::number],
                      numbers[1::2] if self.has_memory else [0] * len(stacks))
        return at

    def _stack_size(self, at: int) -> int:
        """Return the size of the head and the stack of the sample at the position `at`.

        Returns:
            The size in bytes, or 0 if the sample is invalid or incomplete.
        """
        head = self.data[at:at + 1 + 2 * self.word.size]
        if len(head) < 1 + 2 * self.word.size or head[0] != STACK:
            return 0
        (count,) = self.word.unpack_from(head, 1)
        depth: int
        (depth,) = self.word.unpack_from(head, 1 + self.word.size)
        if count != 1 or not 0 <= depth <= MAX_DEPTH:
            return 0
        size = self.stack_sizes[head] = len(head) + depth * self.pointer.size
        return size

    def _nanoseconds(self, seconds: float) -> int:
        if not 0 <= seconds < 1e9:
            raise self.damaged("a sample at the time %r" % seconds)
        return round(seconds * 1e9)

    def decode(self, raw: bytes) -> int:
        """Add a stack to the table.

        Args:
            raw: The words of the stack, as vmprof writes them.

        Returns:
            The index of the stack in Contents.stacks.
        """
        words = struct.unpack("<%d%s" % (len(raw) // self.pointer.size,
                                         self.pointer.format[1:]), raw)
        stacks = self.contents.stacks
        node = 0
        if self.flags & FLAG_PYPY:
            node = pypy_stacks.decode(stacks, words)
        elif self.flags & FLAG_LINES:
            for i in range(len(words) // 2 * 2 - 2, -1, -2):
                node = stacks.child(node, words[i + 1], _kind(words[i + 1]),
                                    abs(words[i]))
        else:
            for word in reversed(words):
                node = stacks.child(node, word, _kind(word))
        return stacks.number(node, len(words) >= FULL_RECORD)

    def read_name(self) -> int:
        """Read the name of a function.

        Raises:
            ProfileError: The name contains a record of a former layout.
        """
        (address,) = self.pointer.unpack_from(self.data, self.at + 1)
        name, end = self._string(self.at + 1 + self.pointer.size)
        if end <= len(self.data):
            if address == _FORMER_RECORDS and name.startswith("alloc:"):
                raise ProfileError(
                    "a vmprof-allocation from before December 2026 wrote this profile, "
                    "whose layout is no longer supported: sample the program again")
            if self.data[self.at] == NAME or address not in self.names:
                # vmprof.disable() searches native names for all addresses. It finds
                # none for a Python function, which keeps its name.
                self.names[address] = name
        return end

    def read_meta(self) -> int:
        """Read a key and a value of the meta data."""
        key, at = self._string(self.at + 1)
        if at > len(self.data):
            return at
        value, end = self._string(at)
        if end <= len(self.data):
            self.meta[key] = value
            if self.gc_samples is not None:
                self.gc_samples.read_meta(key, value)
        return end

    def read_allocation(self) -> int:
        """Read an allocation sample of a PyPy without recorder."""
        start = self.at + 1 + 5 * self.pointer.size
        key, size, time, thread, depth = self._unpack(self.at + 1, 5)
        if size <= 0 or time < 0 or not 0 <= depth <= MAX_DEPTH:
            raise self.damaged("an allocation of %d bytes at the time %d, of depth %d"
                               % (size, time, depth))
        end = start + depth * self.pointer.size
        if end <= len(self.data) and self.gc_samples is not None:
            stack = self.raw_stacks[self.data[start:end]] if depth else -1
            if depth >= FULL_STACK:
                full = self.contents.stacks.full
                full[stack] = full.get(stack, 0) + 1
            self.gc_samples.add_sample(key, Sample(size, time, thread, stack))
        return end

    def read_object(self) -> int:
        """Read an object of an allocation sample of a PyPy without recorder."""
        key, type_, size = self._unpack(self.at + 1, 3)
        if size < 0:
            raise self.damaged("an object of %d bytes" % size)
        if self.gc_samples is not None:
            self.gc_samples.add_object(key, type_, size)
        return self.at + 1 + 3 * self.pointer.size

    def read_allocated(self) -> int:
        """Read the totals of a PyPy without recorder."""
        if self.gc_samples is not None:
            self.gc_samples.add_total(*self._unpack(self.at + 1, 3))
        return self.at + 1 + 3 * self.pointer.size

    def _unpack(self, at: int, count: int) -> tuple[int, ...]:
        """Return `count` words at the position `at`.

        Raises:
            struct.error: The words are incomplete.
        """
        return struct.unpack_from(
            "<%d%s" % (count, self.pointer.format[1:]), self.data, at)

    def read_record(self) -> int:
        """Read a record of the sampler and give it to the callback of read()."""
        (size,) = _WORD.unpack_from(self.data, self.at + 1)
        start = self.at + 1 + _WORD.size
        if size < 0:
            raise self.damaged("a record of %d bytes" % size)
        if start + size <= len(self.data):
            try:
                self.on_record(records.parse(self.data[start:start + size]))
            except Damaged as e:
                raise self.damaged(str(e)) from None
        end: int = start + size
        return end

    def read(self, on_record: Callable[[Record], None], salvage: bool) -> int:
        """Read the log to its trailer.

        Args:
            on_record: A function that is called with each record of the sampler. It may
                raise Damaged.
            salvage: Whether to ignore an incomplete end of the log.

        Returns:
            The number of bytes at the end that do not form a whole record.

        Raises:
            ProfileError: The log is invalid, or incomplete and `salvage` is false.
        """
        self.on_record = on_record
        self.read_head()
        readers = {STACK: self.read_stacks, NAME: self.read_name,
                   NATIVE_NAME: self.read_name, META: self.read_meta,
                   HEADER: self.read_header, TIME: self.read_start,
                   ALLOCATION: self.read_allocation, OBJECT: self.read_object,
                   ALLOCATED: self.read_allocated,
                   records.MARKER: self.read_record}
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
                elif marker in _OF_BRANCH and self.flags & FLAG_PYPY:
                    raise ProfileError(
                        "can't read the allocation samples of this profile (record "
                        "0x%02x at byte %d): a PyPy of the branch by Christoph Jung "
                        "and CF Bolz-Tereick wrote it. Convert it with their "
                        "vmprof-firefox-converter" % (marker, self.before + self.at))
                else:
                    raise self.damaged("an unknown record 0x%02x" % marker)
            except (struct.error, IndexError):
                end = len(self.data) + 1
            if end > len(self.data):
                # read the record again when more of the log is in memory
                if end - self.at <= MAX_RECORD and self.more():
                    continue
                size = end - self.at
                rest = self.pass_over()
                if rest >= size:
                    raise self.damaged("a record of %d bytes" % size)
                if salvage:
                    return rest
                raise ProfileError(
                    "the profile is cut off: its last record, at byte %d of %d, is "
                    "incomplete. Read the records before it with --salvage"
                    % (self.before + self.at, self.before + self.at + rest))
            self.at = end
            if marker == TRAILER or self.is_enough:
                break
        if self.is_enough:
            return 0
        # read the bytes after the trailer, because compressed data may be damaged there
        self.pass_over()
        if not self.version:
            raise ProfileError("not a vmprof profile: it has no header")
        return 0

    @property
    def has_own_clock(self) -> bool:
        """Whether the times of the samples are independent of the start time."""
        return self.version == 7 and not self.contents.are_there and self._now < 0


def functions(contents: Contents, names: dict[int, str]) -> dict[int, Function]:
    """Return the functions of all frames, by their addresses."""
    found: dict[int, Function] = {}
    for frame in contents.stacks.frames:
        if frame in pypy_stacks.LABELS:
            found[frame.address] = pypy_stacks.LABELS[frame]
        elif frame.address not in found:
            found[frame.address] = _function(frame, names.get(frame.address))
    return found


class _RawStacks(dict[bytes, int]):
    """A cache of the numbers of stacks, by the words of the stack."""

    def __init__(self, log: Log) -> None:
        """Create an empty cache; `log` is a weak reference, as it owns the cache."""
        super().__init__()
        self._log = log
        self._size = 0

    def __missing__(self, raw: bytes) -> int:
        self._size += len(raw)
        if self._size > MAX_RAW_STACKS:
            self.clear()
            self._size = len(raw)
        number = self[raw] = self._log.decode(raw)
        return number


def _words(head: bytes) -> tuple[struct.Struct, struct.Struct]:
    """Return the formats of C's `long` and of pointers on the machine of the log.

    The second word of the log is 3. The fifth word distinguishes 64-bit Windows from
    32-bit machines.
    """
    if _SHORT_WORD.unpack_from(head, 4)[0] != 3:
        return _WORD, _WORD
    return _SHORT_WORD, (_WORD if _SHORT_WORD.unpack_from(head, 16)[0]
                         else _SHORT_WORD)


def _kind(address: int) -> str:
    # in interpreters other than PyPy, native addresses have the lowest bit set
    return "native" if address & 1 else "interpreted"


def _function(frame: Frame, name: str | None) -> Function:
    match = _NAME.fullmatch(name) if name is not None else None
    if match is not None:
        language, function, line, file = match.groups()
        return Function(function, max(int(line), 0),
                        "" if file == "-" else file,
                        NATIVE if language == "n" else PYTHON)
    if name is None:
        name = "<unknown 0x%x>" % (frame.address & 2**64 - 1)
    return Function(name, 0, "", NATIVE if frame.kind == "native" else PYTHON)
