"""The facts of a profile, read by PROFILE.rst and by nothing that converts."""
from __future__ import annotations

import collections
import gzip
import pathlib
import re
import zlib
from collections.abc import Iterator

DIED, PROMOTED, NOT_KNOWN, STILL_YOUNG = 0, 1, 3, 4
#: kinds of names
GCS, PYTHON = 1, 2
BLOCK = re.compile(rb"alloc:([^:]*):3:([a-z][a-z0-9-]*)")


def numbers(payload: bytes) -> list[int]:
    result, value, shift = [], 0, 0
    for byte in payload:
        digit = byte - 0x40
        value |= (digit & 31) << shift
        shift += 5
        if digit < 32:
            result.append(value)
            value = shift = 0
    assert shift == 0
    return result


def entries(values: list[int]) -> Iterator[list[int]]:
    at = 0
    while at < len(values):
        yield values[at + 1:at + 1 + values[at]]
        at += 1 + values[at]
    assert at == len(values)


def whole_members(data: bytes) -> bytes:
    """What the gzip members hold, without one at the end that is not whole: a
    process may be killed while the kernel copies it."""
    result = b""
    while data:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(data)
        if not unpacker.eof:
            break
        result += text
        data = unpacker.unused_data
    return result


class FactBlocks:
    def __init__(self, path: pathlib.Path, *, was_killed: bool = False) -> None:
        #: of the samples, from key 1 on; 0: a time sample
        self.sizes: list[int] = []
        #: the head of the last block of samples
        self.head = [0] * 8
        #: of each key: (outcome, type, size or None)
        self.young: dict[int, list[tuple[int, int, int | None]]] \
            = collections.defaultdict(list)
        self.freed: set[tuple[int, int]] = set()
        self.lost: set[tuple[int, int]] = set()
        #: bytes that an object takes, which was allocated with more
        self.shrunk: dict[tuple[int, int], int] = {}
        #: minor collections, in the order of the facts
        self.collections: list[int] = []
        #: (GC's number, name), by number and kind
        self.types: dict[int, dict[int, tuple[int, str]]] \
            = collections.defaultdict(dict)
        #: (time, name)
        self.marks: list[tuple[int, str]] = []
        #: (kind, what it is about)
        self.events: list[tuple[int, int]] = []
        data = path.read_bytes()
        for payload, kind in BLOCK.findall(
                whole_members(data) if was_killed else gzip.decompress(data)):
            if kind == b"samples":
                self._samples(numbers(payload))
            elif kind in (b"facts", b"types", b"gc", b"marks"):
                for entry in entries(numbers(payload)):
                    getattr(self, "_" + kind.decode())(entry)
                self._key = 0
        self._check()

    _key = 0

    def _samples(self, values: list[int]) -> None:
        self.head = values[:8]
        assert self.head[7] == len(self.sizes)
        at = 8
        while at < len(values):
            if values[at] == 0:         # defines a stack
                at, frames = at + 3, values[at + 2]
                for _ in range(frames):
                    at += 1 if values[at] else 3
            else:
                flags = values[at] - 1 & 7
                self.sizes.append(values[at + 2])
                at += 3 + bin(flags).count("1")
        assert at == len(values)

    def _facts(self, entry: list[int]) -> None:
        about, first, *rest = entry
        if about == 0:
            self.collections.append(rest[0])
            return
        self._key += first // 2 if first % 2 == 0 else -(first + 1) // 2
        if about == 1:
            outcome, type_, *size = rest
            if len(size) > 1:
                assert outcome in (PROMOTED, STILL_YOUNG)
                self.shrunk[self._key, len(self.young[self._key])] = size.pop()
            assert type_ == 0 or type_ in self.types
            self.young[self._key].append(
                (outcome, type_, size[0] if size and size[0] else None))
        else:
            ended = self.freed if about == 2 else self.lost
            pair = self._key, rest[0] if rest else 0
            assert pair not in ended
            ended.add(pair)

    def _types(self, entry: list[int]) -> None:
        kind, number, gcs, size, *text = entry
        assert len(text) == size and kind not in self.types[number]
        self.types[number][kind] = gcs - 1, bytes(text).decode()

    def _gc(self, entry: list[int]) -> None:
        kind, _, _, value, *_ = entry
        self.events.append((kind, value))

    def _marks(self, entry: list[int]) -> None:
        kind, time, size, *text = entry
        assert kind == 1 and len(text) == size
        self.marks.append((time, bytes(text).decode()))

    def _check(self) -> None:
        """What ends was promoted; and was not said of twice."""
        for key, which in self.freed | self.lost:
            assert self.young[key][which][0] == PROMOTED
        assert not self.freed & self.lost
        for (key, which), live_size in self.shrunk.items():
            assert 0 < live_size < self.size(key, self.young[key][which][2])

    def objects(self) -> Iterator[tuple[int, int, tuple[int, int, int | None]]]:
        for key, objects in self.young.items():
            for which, object_ in enumerate(objects):
                yield key, which, object_

    def size(self, key: int, own: int | None) -> int:
        return own or self.sizes[key - 1]

    def alive(self) -> set[tuple[int, int]]:
        return {(key, which) for key, which, (outcome, _, _) in self.objects()
                if outcome == PROMOTED} - self.freed - self.lost

    def type_name(self, number: int) -> str:
        """As the GC calls it, without its fields; empty: not known."""
        return self.types[number][GCS][1].partition(" {")[0] if number else ""

    def class_name(self, number: int) -> str:
        """As the program calls it; empty: it is not an instance."""
        return self.types[number][PYTHON][1] \
            if number and PYTHON in self.types[number] else ""
