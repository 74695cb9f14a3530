"""Decoding of the records of an allocation profile (PROFILE.rst).

A record is a table of numbers, written column by column, and perhaps a text for each
row. readers/vmprof_log.py finds the records in the log. readers/contents.py and
readers/objects.py interpret them.
"""
from __future__ import annotations

import array
import struct
import sys
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from vmprof_convert.errors import ProfileError

#: marker of a record in the log
MARKER = ord("A")
#: version of the layout that this module reads
VERSION = 2

(SETTINGS, TOTALS, FRAMES, NODES, TYPES, LABELS, OBJECTS, WAITING, ENDED, TICKS,
 COLLECTIONS, MARKED, SWEPT, MARKS, FIGURES, NAMES, HELD, HOLDERS,
 HELD_PATHS, HELD_OBJECTS, RAW, RAW_ENDED,
 SNAPSHOTS) = range(1, 24)

#: Number of known columns of each kind. Records of newer profiles may have more columns
#: after these.
COLUMNS = {
    SETTINGS: 1, TOTALS: 8, FRAMES: 2, NODES: 2, TYPES: 4, LABELS: 2, OBJECTS: 13,
    WAITING: 13, ENDED: 4, TICKS: 5, COLLECTIONS: 4, MARKED: 3, SWEPT: 6, MARKS: 2,
    FIGURES: 3, NAMES: 3, HELD: 9, HOLDERS: 6, HELD_PATHS: 5,
    HELD_OBJECTS: 9, RAW: 13, RAW_ENDED: 4, SNAPSHOTS: 8}

#: head of a record: version, kind, number of columns, an unused byte, number of rows
_HEAD = struct.Struct("<BBBBI")
_BASE, _UNIT = struct.Struct("<q"), struct.Struct("<H")
#: Parts of a column's first byte: the width of the numbers, and flags for a base, a
#: step and a unit after this byte. With a step, each number is the difference between a
#: value and the sum of its predecessor and the step.
_WIDTH, _HAS_BASE, _HAS_STEP, _HAS_UNIT = 0x07, 0x08, 0x10, 0x20
#: largest number of rows that a writer puts into one record
_MOST_ROWS = 2**20



class Damaged(Exception):
    """An invalid record; the message names its kind or the invalid value.

    vmprof_log.Log converts it into a ProfileError with the position in the log.
    """


class Record:
    """A record whose columns are decoded at the first access."""

    __slots__ = ("_codes", "_columns", "_data", "_decoded", "kind", "rows")

    def __init__(self, kind: int, rows: int, columns: int, data: bytes) -> None:
        """Create a record.

        Args:
            kind: One of the kinds such as SETTINGS.
            rows: The number of rows.
            columns: The number of columns in the data.
            data: The bytes after the head of the record.
        """
        self.kind = kind
        self.rows = rows
        self._columns = columns
        self._data = data
        #: encodings of the columns; empty if they have not been read yet
        self._codes: list[_Code] = []
        self._decoded: dict[int, array.array[int]] = {}

    @property
    def size(self) -> int:
        """The number of bytes of the record without its head."""
        return len(self._data)

    def column(self, number: int) -> array.array[int]:
        """Return one of the known columns of this kind as 64-bit numbers.

        Raises:
            Damaged: The record is too short, or a number is too large.
        """
        column = self._decoded.get(number)
        if column is None:
            try:
                column = _values(self._data, self._all_codes()[number], self.rows)
            except OverflowError:
                raise self._damaged() from None
            self._decoded[number] = column
        return column

    def decoded(self) -> list[array.array[int]]:
        """Return all known columns of this kind.

        Raises:
            Damaged: The record is too short, or a number is too large.
        """
        return list(map(self.column, range(COLUMNS[self.kind])))

    def forget(self) -> None:
        """Free the memory of the decoded columns."""
        self._codes, self._decoded = [], {}

    def texts(self) -> Iterator[tuple[list[int], str]]:
        """Yield the numbers and the text of each row.

        The last known column contains the sizes of the texts. These sizes are not among
        the yielded numbers.

        Raises:
            Damaged: The record is too short, or a number is too large.
        """
        *numbers, sizes = self.decoded()
        at = self._codes[-1].end
        if min(sizes, default=0) < 0 or at + sum(sizes) > len(self._data):
            raise self._damaged()
        for row, size in enumerate(sizes):
            yield ([column[row] for column in numbers],
                   self._data[at:at + size].decode("utf-8", "replace"))
            at += size

    def _all_codes(self) -> list[_Code]:
        if not self._codes:
            codes, at = [], 0
            try:
                if self._columns < COLUMNS[self.kind]:
                    raise ValueError
                for _ in range(self._columns):
                    codes.append(_code(self._data, at, self.rows))
                    at = codes[-1].end
            except (IndexError, ValueError, struct.error):
                raise self._damaged() from None
            self._codes = codes
        return self._codes

    def _damaged(self) -> Damaged:
        return Damaged("an invalid record of kind %d" % self.kind)


def parse(payload: bytes) -> Record:
    """Return the record in `payload`, the bytes after the size of the record.

    Raises:
        Damaged: The head of the record is invalid.
        ProfileError: The record has another version, whose layout is unknown.
    """
    if len(payload) < 1:
        raise Damaged("a record without a version")
    if payload[0] != VERSION:
        raise ProfileError(
            "the profile has records of version %d; this vmprof-convert understands %d"
            % (payload[0], VERSION) + (
                ": install a newer vmprof-convert to read it"
                if payload[0] > VERSION else ": sample the program again"))
    if len(payload) < _HEAD.size:
        raise Damaged("a record that is cut off")
    _, kind, columns, _, rows = _HEAD.unpack_from(payload)
    if rows > _MOST_ROWS or not kind:
        raise Damaged("a record of kind %d with %d rows" % (kind, rows))
    return Record(kind, rows, columns, payload[_HEAD.size:])


# ________________________________________
# columns


def _spread(bits: int) -> list[bytes]:
    """Return the small numbers that each of the 256 values of a byte contains.

    The number in the lowest bits is the first one.

    Args:
        bits: The number of bits of each number: 1, 2 or 4.
    """
    mask = (1 << bits) - 1
    return [bytes(byte >> shift & mask for shift in range(0, 8, bits))
            for byte in range(256)]


_SPREAD = {bits: _spread(bits) for bits in (1, 2, 4)}


class _Code(NamedTuple):
    """The encoding of a column."""

    #: number of bits of a number
    bits: int
    base: int
    #: None if the numbers are not differences
    step: int | None
    unit: int
    #: position of the numbers in the data of the record
    start: int
    end: int


def _code(data: bytes, at: int, rows: int) -> _Code:
    """Return the encoding of the column that begins at the position `at`.

    Raises:
        ValueError: The data end within the column.
        IndexError: The data end before the column.
        struct.error: The data end within the column's parameters.
    """
    first = data[at]
    width = first & _WIDTH
    bits = 1 << width - 1 if width else 0
    base, step, unit = 0, None, 1
    at += 1
    if first & _HAS_BASE:
        (base,) = _BASE.unpack_from(data, at)
        at += _BASE.size
    if first & _HAS_STEP:
        (step,) = _BASE.unpack_from(data, at)
        at += _BASE.size
    if first & _HAS_UNIT:
        (unit,) = _UNIT.unpack_from(data, at)
        at += _UNIT.size
    end = at + (bits * rows + 7) // 8
    if end > len(data):
        raise ValueError
    return _Code(bits, base, step, unit, at, end)


def _values(data: bytes, code: _Code, rows: int) -> array.array[int]:
    """Decode a column.

    Raises:
        OverflowError: A value has more than 64 bits.
    """
    bits, base, step, unit, start, end = code
    if not bits:
        return (array.array("q", range(base, base + step * rows, step)) if step
                else array.array("q", [base]) * rows)
    packed = data[start:end] if bits >= 8 else b"".join(
        map(_SPREAD[bits].__getitem__, data[start:end]))[:rows]
    numbers = _widened(packed, max(bits // 8, 1))
    if step is not None:
        # Begin one step before the base, because the first number is added, too.
        steps = accumulate(([step + unit * number for number in numbers]
                            if step or unit != 1 else numbers), initial=base - step)
        next(steps)
        return array.array("q", steps)
    if not base and unit == 1:
        return numbers
    return array.array("q", [base + unit * number for number in numbers])


def _widened(packed: bytes, width: int) -> array.array[int]:
    """Return the numbers in `packed` as 64-bit numbers.

    The conversion of an array by array.array() would take seven times as long.

    Args:
        packed: Unsigned little-endian numbers.
        width: The number of bytes of each number.
    """
    result = array.array("q")
    if width == result.itemsize:
        result.frombytes(packed)
    else:
        wide = bytearray(len(packed) // width * result.itemsize)
        for byte in range(width):
            wide[byte::result.itemsize] = packed[byte::width]
        result.frombytes(wide)
    if sys.byteorder == "big":
        result.byteswap()
    return result
