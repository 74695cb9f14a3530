"""The records of an allocation profile: tables of numbers, a column at a time, and
texts.  PROFILE.rst is the definition."""
from __future__ import annotations

import array
import struct
import sys
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from vmprof_convert.errors import ProfileError

#: the marker of a record in the log
MARKER = ord("A")
#: the version of the layout that is read
VERSION = 2

(SETTINGS, TOTALS, FRAMES, NODES, TYPES, LABELS, OBJECTS, WAITING, ENDED, TICKS,
 COLLECTIONS, MARKED, SWEPT, MARKS, FIGURES, NAMES, HELD, HOLDERS,
 HELD_PATHS, HELD_OBJECTS, RAW, RAW_ENDED,
 SNAPSHOTS) = range(1, 24)

#: columns of each kind; behind them, newer profiles may have more
COLUMNS = {
    SETTINGS: 1, TOTALS: 8, FRAMES: 2, NODES: 2, TYPES: 4, LABELS: 2, OBJECTS: 13,
    WAITING: 13, ENDED: 4, TICKS: 5, COLLECTIONS: 4, MARKED: 3, SWEPT: 6, MARKS: 2,
    FIGURES: 3, NAMES: 3, HELD: 9, HOLDERS: 6, HELD_PATHS: 5,
    HELD_OBJECTS: 9, RAW: 13, RAW_ENDED: 4, SNAPSHOTS: 8}

#: version, kind, columns, nothing, rows
_HEAD = struct.Struct("<BBBBI")
_BASE, _UNIT = struct.Struct("<q"), struct.Struct("<H")
#: in the first byte of a column: the width, and what stands behind this byte.  With a
#: step, the numbers are what each value is more than the one before and the step
_WIDTH, _HAS_BASE, _HAS_STEP, _HAS_UNIT = 0x07, 0x08, 0x10, 0x20
#: no writer's record has more rows
_MOST_ROWS = 2**20



class Damaged(Exception):
    """The record is none; the message says of which kind."""


class Record:
    """One of them.  Its columns are decoded when they are asked for."""

    __slots__ = ("_codes", "_columns", "_data", "_decoded", "kind", "rows")

    def __init__(self, kind: int, rows: int, columns: int, data: bytes) -> None:
        """`columns`: so many it has; `data`: what is behind its head."""
        self.kind = kind
        self.rows = rows
        self._columns = columns
        self._data = data
        #: of the columns, where they are known
        self._codes: list[_Code] = []
        self._decoded: dict[int, array.array[int]] = {}

    @property
    def size(self) -> int:
        """Its bytes, without the head."""
        return len(self._data)

    def column(self, number: int) -> array.array[int]:
        """One of the columns that this kind has: 64-bit numbers.  Raises Damaged."""
        column = self._decoded.get(number)
        if column is None:
            try:
                column = _values(self._data, self._all_codes()[number], self.rows)
            except OverflowError:
                raise self._damaged() from None
            self._decoded[number] = column
        return column

    def decoded(self) -> list[array.array[int]]:
        """All columns that this kind has.  Raises Damaged."""
        return list(map(self.column, range(COLUMNS[self.kind])))

    def forget(self) -> None:
        """Give back the memory of what was decoded."""
        self._codes, self._decoded = [], {}

    def texts(self) -> Iterator[tuple[list[int], str]]:
        """Of each row, the numbers but for the last one, which is the size of a text,
        and that text.  Raises Damaged."""
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
        return Damaged("a record of kind %d that is none" % self.kind)


def parse(payload: bytes) -> Record:
    """A record, of what stands behind its size.  Raises Damaged, or ProfileError if it
    is of another version: nothing is known of it then."""
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
    """What the numbers of so many bits in each byte are, the lowest first."""
    mask = (1 << bits) - 1
    return [bytes(byte >> shift & mask for shift in range(0, 8, bits))
            for byte in range(256)]


_SPREAD = {bits: _spread(bits) for bits in (1, 2, 4)}


class _Code(NamedTuple):
    """How the numbers of a column are written."""

    #: of a number
    bits: int
    base: int
    #: None: the numbers are no differences
    step: int | None
    unit: int
    #: where the numbers are
    start: int
    end: int


def _code(data: bytes, at: int, rows: int) -> _Code:
    """Of the column that begins there."""
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
    """Raises OverflowError for numbers of more than 64 bits."""
    bits, base, step, unit, start, end = code
    if not bits:
        return (array.array("q", range(base, base + step * rows, step)) if step
                else array.array("q", [base]) * rows)
    packed = data[start:end] if bits >= 8 else b"".join(
        map(_SPREAD[bits].__getitem__, data[start:end]))[:rows]
    numbers = _widened(packed, max(bits // 8, 1))
    if step is not None:
        # the first one is of nothing, and so takes the step back
        steps = accumulate(([step + unit * number for number in numbers]
                            if step or unit != 1 else numbers), initial=base - step)
        next(steps)
        return array.array("q", steps)
    if not base and unit == 1:
        return numbers
    return array.array("q", [base + unit * number for number in numbers])


def _widened(packed: bytes, width: int) -> array.array[int]:
    """The numbers of so many bytes each.  (An array of another array's numbers asks for
    one after the other, which takes seven times as long.)"""
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
