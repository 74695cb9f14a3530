"""Makes input for native/log_harness.c, which calls profile_log.c, and checks the
output.
"""
from __future__ import annotations

import collections
import pathlib
import struct
import subprocess
from collections.abc import Sequence

import made_profiles
import record_rows
from made_profiles import FrameSpec
from native_build import build
from record_rows import Row
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile

START = 10**15                      # start of the profile, in nanoseconds
FLUSH_NS = 750000000
LARGEST_RECORD = 16384
#: limits of profile_log.c's table of known stacks: the number of entries, and the uses
#: and the age after which an entry is discarded
KEYS, KEY_USES, KEYS_NS = 4096, 100, 10**9
LOST = -1
TRAILER = b"\x03" + struct.pack("<qq8x", made_profiles.START + 1, 0)


def build_harness() -> pathlib.Path:
    return build("log_harness", "shared/profile_log.c", "shared/records.c",
                 "shared/file_sink.c", "shared/stack_tree.c", "shared/code_names.c")


def name(address: int, text: bytes) -> bytes:
    return b"\x02" + made_profiles.word(address) + made_profiles.string(text)


def stack_record(words: Sequence[int], *tail: int) -> bytes:
    words = list(words)
    return b"\x01" + struct.pack(
        "<%dq" % (len(words) + 2 + len(tail)), 1, len(words), *words, *tail)


class Log:
    """Lines for log_harness, and the profile that they must produce."""

    def __init__(self, opening: str, version: int = 6,
                 flags: int = made_profiles.PYPY) -> None:
        """Begin with the line `opening`.

        `version` and `flags` are fields of vmprof's header.
        """
        self.lines = [opening]
        # the numbers that the harness must print
        self.answers = [0]
        #: rows and texts of each kind, and vmprof's records
        self.rows: dict[int, list[Row]] = collections.defaultdict(list)
        self.texts: dict[int, list[bytes]] = collections.defaultdict(list)
        self.vmprofs: list[bytes] = []
        self.flushes = 0
        #: expected number of each stack's node in the profile
        self.stacks: dict[tuple[int, ...], int] = {}
        self.nodes: dict[tuple[tuple[int, int], ...], int] = {(): 0}
        self.keys: dict[int, int] = {}
        self.head = bytes(made_profiles.Log(version=version, flags=flags).bytes)
        self.lines.append("bytes " + self.head.hex())

    def records(self, data: bytes) -> None:
        self.lines.append("bytes " + data.hex())
        self.vmprofs.append(data)

    def stack(self, frames: Sequence[FrameSpec]) -> int:
        """Add a stack, and return its expected number in the profile."""
        made = made_profiles.Log()
        pairs = made.pairs(frames)
        self.lines.append("stack " + stack_record(made.words(frames), 0).hex())
        for depth in range(1, len(pairs) + 1):
            self.nodes.setdefault(pairs[:depth], len(self.nodes))
        self.last = self.nodes[pairs]
        self.answers.append(self.last)
        return self.last

    def remember(self, key: int) -> None:
        """Add a line that makes `key` identify the last stack."""
        self.lines.append("remember %d" % key)
        # the table of keys has one entry for all keys with the same remainder
        self.keys = {k: v for k, v in self.keys.items() if (k - key) % KEYS}
        self.keys[key] = self.last

    def known(self, key: int) -> int:
        self.lines.append("known %d %d" % (key, START))
        self.answers.append(self.keys[key])
        return self.keys[key]

    def not_known(self, key: int, time: int = 0) -> None:
        self.lines.append("known %d %d" % (key, START + time))
        self.answers.append(LOST)

    def row(self, kind: int, time: int, *numbers: int) -> None:
        self.lines.append("row %d %d %s" % (
            kind, START + time, " ".join(map(str, numbers))))
        self.rows[kind].append(numbers)

    def text(self, kind: int, time: int, text: bytes, *numbers: int) -> None:
        self.lines.append("text %d %d %s %s" % (
            kind, START + time, text.hex() or "-", " ".join(map(str, numbers))))
        self.rows[kind].append((*numbers, len(text)))
        self.texts[kind].append(text)

    def object(self, key: int, time: int, **changes: int) -> None:
        """Add a sampled object with default values, except for `changes`."""
        names = ("key", "which", "time", "thread", "stack", "label", "memory", "size",
                 "interval", "type", "outcome", "collection", "live_size")
        row = {**dict.fromkeys(names, 0), "key": key, "time": time // 1000 * 1000,
               "thread": 1, "stack": LOST, "size": 16, "interval": 10, **changes}
        self.row(made_profiles.OBJECTS, time, *(row[name] for name in names))

    def due(self, time: int, answer: bool) -> None:
        self.lines.append("due %d" % (START + time))
        self.answers.append(answer)

    def settings(self, text: str) -> None:
        self.lines.append("settings " + text)
        self.rows[made_profiles.SETTINGS].append((len(text.encode()),))
        self.texts[made_profiles.SETTINGS].append(text.encode())

    def flush(self, time: int, *totals: int) -> None:
        if totals:
            self.lines.append("totals %d %d %d %d %d %d" % totals)
        self.lines.append("flush %d" % (START + time))
        self.flushes += 1

    def close(self, error: int = 0) -> None:
        self.records(TRAILER)
        self.lines.append("close")
        self.answers.append(error)

    def run(self, harness: pathlib.Path, fd: int | None = None) -> None:
        """Run the harness, and check the numbers that it prints."""
        done = subprocess.run([harness], input="\n".join(self.lines) + "\n",
                              text=True, capture_output=True,
                              pass_fds=[] if fd is None else [fd])
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert list(map(int, done.stdout.split())) == self.answers

    def check(self, data: bytes) -> Profile:
        """Check that a file contains exactly the added rows, in their order.

        Totals and stacks are exempt. Returns the decoded profile.
        """
        rows: dict[int, list[Row]] = collections.defaultdict(list)
        texts: dict[int, list[bytes]] = collections.defaultdict(list)
        vmprofs = []
        for record in record_rows.records(data):
            rows[record.kind] += record.rows
            texts[record.kind] += record.texts
            if record.kind in (-2, -3):
                vmprofs.append(record.data)
        assert data.startswith(self.head)
        for kind in {*rows, *self.rows} - {
                made_profiles.TOTALS, made_profiles.FRAMES, made_profiles.NODES}:
            if kind > 0:
                assert rows[kind] == self.rows[kind], kind
                assert texts[kind] == self.texts[kind]
        assert b"".join(vmprofs) == b"".join(self.vmprofs)
        self.check_stacks(rows)
        return readers.read_bytes(data)

    def check_stacks(self, rows: dict[int, list[Row]]) -> None:
        """Check that the file has each frame and node once, and no unused stack."""
        frames = rows[made_profiles.FRAMES]
        assert len(frames) == len(set(frames))
        paths: list[tuple[Row, ...]] = [()]
        for parent, frame in rows[made_profiles.NODES]:
            assert 0 < frame <= len(frames)
            paths.append((*paths[parent], frames[frame - 1]))
        assert {path: number for number, path in enumerate(paths)} == self.nodes


def new_log(tmp_path: pathlib.Path, version: int = 6,
            flags: int = made_profiles.PYPY) -> tuple[Log, pathlib.Path]:
    """Return a log for a new file, and the path of the file."""
    file = tmp_path / "profile"
    return Log("open %s %d" % (file, START), version, flags), file
