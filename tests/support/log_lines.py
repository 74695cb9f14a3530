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
from vmprof_convert.model import Profile

START = 10**15                      # of the run, in nanoseconds
FLUSH_NS = 750000000
LARGEST_RECORD = 16384
#: of stacks that are known: places for them, and how often they are believed
KEYS, KEY_USES, KEYS_NS = 4096, 100, 10**9
TRAILER = b"\x03" + struct.pack("<qq8x", made_profiles.START + 1, 0)


def build_harness(directory: pathlib.Path) -> pathlib.Path:
    return build(directory, "log_harness", "shared/profile_log.c",
                 "shared/file_sink.c", "shared/stack_table.c",
                 "shared/gzip_member.c")


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
        self.objects = ""
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

    def object(self, key: int, type_: int, survived: int,
               time: int = 0) -> None:
        self.lines.append("object %d %d %d %d" % (key, START + time, type_,
                                                  survived))
        self.objects += digits(key, type_ * 2 + survived)

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
        if self.objects:
            log.block("objects", self.objects)
            self.objects = ""
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
