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
VERSION = 1

(SETTINGS, TOTALS, FRAMES, NODES, TYPES, LABELS, OBJECTS, WAITING, ENDED, TICKS,
 COLLECTIONS, MARKED, SWEPT, MARKS, FIGURES, NAMES, HELD, HOLDERS,
 HELD_PATHS, HELD_OBJECTS) = range(1, 21)

#: columns of each kind; behind them, newer profiles may have more
COLUMNS = {
    SETTINGS: 1, TOTALS: 7, FRAMES: 2, NODES: 2, TYPES: 4, LABELS: 2, OBJECTS: 13,
    WAITING: 13, ENDED: 4, TICKS: 5, COLLECTIONS: 4, MARKED: 3, SWEPT: 6, MARKS: 2,
    FIGURES: 3, NAMES: 3, HELD: 9, HOLDERS: 6, HELD_PATHS: 5,
    HELD_OBJECTS: 9}

#: and how many of the last of these may be missing, in the first profiles
_OPTIONAL = {MARKED: 1}

#: version, kind, columns, nothing, rows
_HEAD = struct.Struct("<BBBBI")
_BASE, _UNIT = struct.Struct("<q"), struct.Struct("<H")
#: in the first byte of a column: the width, and what stands behind this byte.  With a
#: step, the numbers are what each value is more than the one before and the step
_WIDTH, _HAS_BASE, _HAS_STEP, _HAS_UNIT = 0x07, 0x08, 0x10, 0x20
#: of the widths from 8 bits on
_TYPECODES = {8: "B", 16: "H", 32: "I", 64: "q"}
#: no writer's record has more rows
_MOST_ROWS = 2**20



class Damaged(Exception):
    """The record is none; the message says of which kind."""


class Record(NamedTuple):
    """One of them, not decoded yet."""

    kind: int
    rows: int
    columns: int
    #: behind the head
    data: bytes

    def decoded(self) -> list[array.array[int]]:
        """The columns that this kind has, each an array of 64-bit numbers.  Raises
        Damaged."""
        return self._decoded()[0]

    def column(self, number: int) -> array.array[int]:
        """One of them alone."""
        try:
            at = 0
            for _ in range(number):
                at = _behind(self.data, at, self.rows)
            return _column(self.data, at, self.rows)[0]
        except (IndexError, ValueError, OverflowError, struct.error):
            raise Damaged(self._what()) from None

    def texts(self) -> Iterator[tuple[list[int], str]]:
        """Of each row, the numbers but for the last one, which is the size of a text,
        and that text.  Raises Damaged."""
        columns, at = self._decoded()
        *numbers, sizes = columns
        if min(sizes, default=0) < 0 or at + sum(sizes) > len(self.data):
            raise Damaged(self._what())
        for row, size in enumerate(sizes):
            yield ([column[row] for column in numbers],
                   self.data[at:at + size].decode("utf-8", "replace"))
            at += size

    def _decoded(self) -> tuple[list[array.array[int]], int]:
        """And where they end."""
        found, at = [], 0
        wanted = COLUMNS[self.kind]
        try:
            if self.columns < wanted - _OPTIONAL.get(self.kind, 0):
                raise ValueError
            for number in range(self.columns):
                if number < wanted:
                    column, at = _column(self.data, at, self.rows)
                    found.append(column)
                else:
                    at = _behind(self.data, at, self.rows)
        except (IndexError, ValueError, OverflowError, struct.error):
            raise Damaged(self._what()) from None
        return found, at

    def _what(self) -> str:
        return "a record of kind %d that is none" % self.kind


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
                if payload[0] > VERSION else ""))
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


def _behind(data: bytes, at: int, rows: int) -> int:
    """Where the column ends that begins there."""
    return _code(data, at, rows).end


def _column(data: bytes, at: int, rows: int) -> tuple[array.array[int], int]:
    """Its values, and where it ends."""
    bits, base, step, unit, start, end = _code(data, at, rows)
    if not bits:
        return (array.array("q", range(base, base + step * rows, step)) if step
                else array.array("q", [base]) * rows), end
    if bits < 8:
        numbers = array.array(
            "B", b"".join(map(_SPREAD[bits].__getitem__, data[start:end]))[:rows])
    else:
        numbers = array.array(_TYPECODES[bits], data[start:end])
        if sys.byteorder == "big":
            numbers.byteswap()
    if step is not None:
        # the first one is of nothing, and so takes the step back
        steps = accumulate(([step + unit * number for number in numbers]
                            if step or unit != 1 else numbers), initial=base - step)
        next(steps)
        return array.array("q", steps), end
    if base or unit != 1:
        return array.array("q", [base + unit * number for number in numbers]), end
    return numbers if bits == 64 else array.array("q", numbers), end
