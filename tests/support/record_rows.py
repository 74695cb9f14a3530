"""Decodes the records of a profile from PROFILE.rst, independently of the converter."""
from __future__ import annotations

import collections
import struct
from collections.abc import Iterator
from typing import NamedTuple

HEAD = 40
#: kinds of records whose last column is the size of a text
_WITH_TEXTS = {1, 5, 6, 14, 16, 18, 19}

Row = tuple[int, ...]


class Record(NamedTuple):
    """A record of this project, or of vmprof with its negative marker as `kind`."""

    kind: int
    rows: list[Row]
    texts: list[bytes]
    #: the encoded record
    data: bytes


def _column(data: bytes, at: int, rows: int) -> tuple[list[int], int]:
    first = data[at]
    at += 1
    bits = (0, 1, 2, 4, 8, 16, 32, 64)[first & 7]
    base = step = 0
    unit = 1
    if first & 0x08:
        base, = struct.unpack_from("<q", data, at)
        at += 8
    if first & 0x10:
        step, = struct.unpack_from("<q", data, at)
        at += 8
    if first & 0x20:
        unit, = struct.unpack_from("<H", data, at)
        at += 2
    assert first < 0x40
    size = (rows * bits + 7) // 8
    all_ = int.from_bytes(data[at:at + size], "little")
    numbers = [all_ >> bits * row & (1 << bits) - 1 for row in range(rows)]
    if bits == 64:
        numbers = [number - (number >> 63 << 64) for number in numbers]
    if first & 0x10:
        values = [base]
        for number in numbers[1:]:
            values.append(values[-1] + step + unit * number)
        return values[:rows], at + size
    return [base + unit * number for number in numbers], at + size


def record(data: bytes) -> Record:
    """Decode a record; `data` begins with the record's marker."""
    version, kind, columns, nothing, rows = struct.unpack_from("<BBBBI", data, 9)
    assert (version, nothing) == (2, 0)
    at, found = 17, []
    for _ in range(columns):
        column, at = _column(data, at, rows)
        found.append(column)
    texts = []
    if kind in _WITH_TEXTS:
        for size in found[-1]:
            texts.append(data[at:at + size])
            at += size
    assert at == len(data)
    return Record(kind, list(zip(*found)), texts, data)


def _size(data: bytes, at: int) -> int:
    """Return the size in bytes of the record at the offset `at`.

    Raises struct.error or IndexError if the record is incomplete.
    """
    marker = data[at]
    if marker == 0x41:
        return 9 + int(struct.unpack_from("<q", data, at + 1)[0])
    if marker in (2, 8):
        return 17 + int(struct.unpack_from("<q", data, at + 9)[0])
    if marker == 5:
        return 5 + data[at + 4]
    if marker in (6, 3):
        return 25
    assert marker == 7
    size = 1
    for _ in range(2):
        size += 8 + int(struct.unpack_from("<q", data, at + size)[0])
    return size


def records(data: bytes, *, was_killed: bool = False) -> Iterator[Record]:
    """Yield all records; if the process was killed, the last one may be incomplete."""
    at = HEAD if data.startswith(struct.pack("<qq", 0, 3)) else 0
    while at < len(data):
        try:
            size = _size(data, at)
        except (struct.error, IndexError):
            size = len(data)
        if at + size > len(data):
            assert was_killed
            break
        part = data[at:at + size]
        yield record(part) if part[0] == 0x41 else Record(-part[0], [], [], part)
        at += size


def tables(data: bytes, *, was_killed: bool = False) -> dict[int, list[Row]]:
    """Return all rows of a profile by the kind of the record, in the file's order."""
    found: dict[int, list[Row]] = collections.defaultdict(list)
    for one in records(data, was_killed=was_killed):
        found[one.kind] += one.rows
    return found
