"""The types in a profile, from the definition in PROFILE.rst; shares no code with
the reader."""
from __future__ import annotations

import collections
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(rb"alloc:([^:]*):3:(types|facts)")
GCS, PYTHON, STORAGE, INTERNAL = 1, 2, 3, 4


def numbers(payload: bytes) -> Iterator[int]:
    number = shift = 0
    for character in payload:
        digit = character - 0x40
        number |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            yield number
            number = shift = 0


def entries(payload: bytes) -> Iterator[list[int]]:
    words = numbers(payload)
    for count in words:
        yield [next(words) for _ in range(count)]


class Types:
    """Of one profile."""

    def __init__(self, path: Path) -> None:
        #: for each number, its names by their kinds
        self.names: dict[int, dict[int, str]] = {}
        #: and the GC's number of the type, plus 1
        self.gcs: dict[int, int] = {}
        #: how many objects were looked at, by number; 0: not known
        self.sampled: collections.Counter[int] = collections.Counter()
        for payload, kind in BLOCK.findall(gzip.decompress(path.read_bytes())):
            for entry in entries(payload):
                if kind == b"types":
                    self._named(*entry[:4], text=bytes(entry[4:]))
                elif entry[0] == 1:
                    self.sampled[entry[3]] += 1

    def _named(self, kind: int, number: int, gcs: int, size: int, *,
               text: bytes) -> None:
        names = self.names.setdefault(number, {})
        assert len(text) == size and kind not in names
        names[kind] = text.decode()
        self.gcs[number] = gcs

    def counts(self, kind: int = PYTHON) -> collections.Counter[str]:
        """Objects by the name of this kind."""
        found: collections.Counter[str] = collections.Counter()
        for number, count in self.sampled.items():
            if kind in self.names.get(number, {}):
                found[self.names[number][kind]] += count
        return found
