"""Lines for native/log_harness.c, which calls profile_log.c, and what is to come
of them.

What the file is to unpack to is put together by made_profiles.py, from the
definition in PROFILE.rst.
"""
from __future__ import annotations

import collections
import gzip
import pathlib
import struct
import subprocess
from collections.abc import Sequence

import made_profiles
from made_profiles import FrameSpec, digits
from native_build import build
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile

START = 10**15                      # of the run, in nanoseconds
FLUSH_NS = 750000000
LARGEST_RECORD = 16384
#: of stacks that are known: places for them, and how often they are believed
KEYS, KEY_USES, KEYS_NS = 4096, 100, 10**9
TRAILER = b"\x03" + struct.pack("<qq8x", made_profiles.START + 1, 0)


def build_harness() -> pathlib.Path:
    return build("log_harness", "shared/profile_log.c",
                 "shared/file_sink.c", "shared/stack_table.c",
                 "shared/gzip_member.c", "shared/facts.c")


def members(data: bytes, kind: bytes) -> list[bytes]:
    """What the file's members of this kind unpack to; the file holds nothing
    else than members."""
    found, at = [], 0
    while at < len(data):
        assert data[at + 12:at + 13] == b"V"
        (size,) = struct.unpack_from("<I", data, at + 16)
        if data[at + 13:at + 14] == kind:
            found.append(gzip.decompress(data[at:at + size]))
        at += size
    assert at == len(data)
    return found


def stacks_for_vmprof(data: bytes) -> collections.Counter[tuple[int, ...]]:
    """The words of each of vmprof's stack samples."""
    counts: collections.Counter[tuple[int, ...]] = collections.Counter()
    for part in members(data, b"s"):
        at = 0
        while at < len(part):
            marker, count, depth = struct.unpack_from("<cqq", part, at)
            words = struct.unpack_from("<%dq" % (depth + 1), part, at + 17)
            assert (marker, count, words[-1]) == (b"\x01", 1, 0)
            counts[words[:-1]] += 1
            at += 17 + 8 * (depth + 1)
    return counts


def name(address: int, text: bytes) -> bytes:
    return b"\x02" + made_profiles.word(address) + made_profiles.string(text)


def stack_record(words: Sequence[int], *tail: int) -> bytes:
    words = list(words)
    return b"\x01" + struct.pack(
        "<%dq" % (len(words) + 2 + len(tail)), 1, len(words), *words, *tail)


class Facts:
    """Three payloads, as PROFILE.rst defines them."""

    def __init__(self) -> None:
        self.clock = 0, 0
        self.take()

    def take(self) -> list[tuple[str, str]]:
        """What there is; and then there is none."""
        waiting = [pair for pair in getattr(self, "payloads", {}).items()
                   if pair[1]]
        self.payloads = {"types": "", "facts": "", "gc": ""}
        self.key = self.time = 0
        self.has_clock = False
        return waiting

    def entry(self, block: str, *numbers: int) -> None:
        self.payloads[block] += digits(len(numbers), *numbers)

    def collection(self, time: int, collections: int) -> None:
        self.clock = time, collections
        self.has_clock = False

    def about(self, kind: int, key: int, *rest: int) -> None:
        if not self.has_clock:
            self.entry("facts", 0, self.clock[0] - self.time, self.clock[1])
            self.time = self.clock[0]
            self.has_clock = True
        d = key - self.key
        self.entry("facts", kind, 2 * d if d >= 0 else -2 * d - 1, *rest)
        self.key = key

    def type(self, number: int, kind: int, gcs: int, name: bytes) -> None:
        self.entry("types", kind, number, gcs + 1, len(name), *name)


class Log:
    """The lines for log_harness, and what is to come of them."""

    def __init__(self, opening: str, version: int = 6,
                 flags: int = made_profiles.PYPY) -> None:
        """`version` and `flags` of vmprof's header."""
        self.lines = [opening]
        self.answers = [0]          # what the harness is to print
        self.expected = made_profiles.Log(version=version, flags=flags)
        head = bytes(self.expected.bytes)
        self.expected.bytes.clear()
        #: what each member unpacks to
        self.flushes: list[bytes] = []
        self.stacks: list[tuple[int, ...]] = []
        self.keys: dict[int, tuple[int, tuple[int, ...]]] = {}
        self.facts = Facts()
        self.records(head)

    def records(self, data: bytes) -> None:
        self.lines.append("bytes " + data.hex())
        self.expected.bytes += data

    def stack(self, frames: Sequence[FrameSpec]) -> int:
        words = self.expected.words(frames)
        self.lines.append("stack " + stack_record(words, 0).hex())
        self.last = self.expected.define(self.expected.pairs(frames))
        self.answers.append(self.last)
        self.stacks.append(tuple(words))
        return self.last

    def remember(self, key: int) -> None:
        """The stack that came last."""
        self.lines.append("remember %d %d" % (key, self.last))
        # the one that was in this place is forgotten
        self.keys = {k: v for k, v in self.keys.items() if (k - key) % KEYS}
        self.keys[key] = self.last, self.stacks[-1]

    def known(self, key: int) -> int:
        number, words = self.keys[key]
        self.lines.append("known %d %d" % (key, START))
        self.answers.append(number)
        self.stacks.append(words)
        return number

    def not_known(self, key: int, time: int = 0) -> None:
        self.lines.append("known %d %d" % (key, START + time))
        self.answers.append(0)

    def sample(self, stack: int, time: int, thread: int = 1, size: int = 16,
               interval: int = 10) -> int:
        self.lines.append("sample %d %d %d %d %d" % (
            stack, START + time, thread, size, interval))
        self.expected.sample(stack, size, interval, time, thread)
        self.answers.append(self.expected.keys)
        return self.expected.keys

    def collection(self, time: int, collections: int) -> None:
        self.lines.append("collection %d %d" % (START + time, collections))
        self.facts.collection(time, collections)

    def young(self, key: int, outcome: int, type_: int, size: int = 0,
              live_size: int = 0) -> None:
        self.lines.append("young %d %d %d %d %d" % (
            key, outcome, type_, size, live_size))
        self.facts.about(1, key, outcome, type_, *(
            [size, live_size] if live_size else [size] if size else []))

    def freed(self, key: int, which: int = 0) -> None:
        self.lines.append("freed %d %d" % (key, which))
        self.facts.about(2, key, *[which] if which else [])

    def lost(self, key: int, which: int = 0) -> None:
        self.lines.append("lost %d %d" % (key, which))
        self.facts.about(3, key, *[which] if which else [])

    def type(self, number: int, kind: int, gcs: int, name: str) -> None:
        self.lines.append("type %d %d %d %s" % (number, kind, gcs, name))
        self.facts.type(number, kind, gcs, name.encode())

    def event(self, kind: int, time: int, duration: int, value: int) -> None:
        self.lines.append("event %d %d %d %d" % (kind, START + time, duration,
                                                 value))
        self.facts.entry("gc", kind, time, duration, value)

    def due(self, time: int, answer: bool) -> None:
        self.lines.append("due %d" % (START + time))
        self.answers.append(answer)

    def settings(self, text: str) -> None:
        self.lines.append("settings " + text)
        self.expected.block("settings", text)
        self._member()

    def flush(self, time: int, *totals: int, command: str = "flush") -> None:
        log = self.expected
        if totals:
            (log.allocated, log.lost, log.dropped, log.collections,
             log.pressures, log.surprises) = totals
            self.lines.append("totals %d %d %d %d %d %d" % totals)
        self.lines.append("%s %d" % (command, START + time))
        log.last_time = time
        log.flush()
        for kind, payload in self.facts.take():
            log.block(kind, payload)
        self._member()

    def _member(self) -> None:
        self.flushes.append(bytes(self.expected.bytes))
        self.expected.bytes.clear()

    def close(self, error: int = 0) -> None:
        self.records(TRAILER)
        self.lines.append("close")
        self.answers.append(error)
        self._member()

    def run(self, harness: pathlib.Path, fd: int | None = None) -> None:
        done = subprocess.run([harness], input="\n".join(self.lines) + "\n",
                              text=True, capture_output=True,
                              pass_fds=[] if fd is None else [fd])
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert list(map(int, done.stdout.split())) == self.answers

    def check(self, data: bytes) -> Profile:
        """Is this the file?"""
        assert members(data, b"r") == self.flushes
        return readers.read_bytes(data)


def new_log(tmp_path: pathlib.Path, version: int = 6,
            flags: int = made_profiles.PYPY) -> tuple[Log, pathlib.Path]:
    file = tmp_path / "profile"
    return Log("open %s %d" % (file, START), version, flags), file
