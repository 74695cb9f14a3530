"""JSON, as text, in pieces."""
from __future__ import annotations

import array
import bisect
import json
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

from vmprof_convert.profile.long_columns import Long, pieces_of
from vmprof_convert.writers.firefox.format.columns import (
    PIECE,
    Column,
    Milliseconds,
    Piece,
    Same,
)

#: what is behind whole milliseconds, for each number of microseconds
_FRACTIONS = [("%.3f" % (number / 1e3))[1:].rstrip("0").ljust(2, "0") + ","
              for number in range(1000)]
_THREE_DIGITS = ["%03d," % number for number in range(1000)]
#: in a millisecond, so many make it worth while to take them together
_NEAR = 8
#: characters of small pieces that are written together; texts that are remembered
_TEXT, _MOST = 2**16, 2**16


def encoded(value: object) -> Iterator[str]:
    """Raises ValueError for NaN and infinities, which JSON has not."""
    if isinstance(value, dict):
        yield "{"
        for number, (key, part) in enumerate(value.items()):
            yield "%s%s:" % ("," if number else "", json.dumps(key))
            yield from encoded(part)
        yield "}"
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, part in enumerate(value):
            yield "," if number else "["
            yield from encoded(part)
        yield "]"
    elif isinstance(value, Column):
        yield from _listed(_together(
            value.pieces(), _ascending if value.are_microseconds
            else _Texts().of if value.are_few else _integers))
    elif isinstance(value, Milliseconds):
        yield from _listed(map(_milliseconds, pieces_of(value.microseconds)))
    elif isinstance(value, Long):
        yield from _listed(map(_integers, value.pieces()))
    elif isinstance(value, array.array):
        yield from _listed(map(_floats if value.typecode == "d" else _integers,
                               pieces_of(value)))
    elif isinstance(value, Same):
        text = json.dumps(value.number, allow_nan=False)
        for start in range(0, value.times, PIECE):
            yield ("," if start else "[") + ",".join(
                [text] * min(PIECE, value.times - start))
        yield "]" if value.times else "[]"
    else:
        yield json.dumps(value, separators=(",", ":"), allow_nan=False)


def _listed(texts: Iterator[str]) -> Iterator[str]:
    """They have a comma behind each number."""
    before = "["
    for text in texts:
        if text:
            yield before + text[:-1]
            before = ","
    yield "[]" if before == "[" else "]"


def _together(pieces: Iterator[Piece], text_of: Callable[[Any], str]) -> Iterator[str]:
    """Few at once, of pieces that may be small."""
    texts, size = [], 0
    for piece in pieces:
        if isinstance(piece, Same):
            text = text_of([piece.number]) * piece.times
        else:
            text = text_of(piece) if piece else ""
        texts.append(text)
        size += len(text)
        if size >= _TEXT:
            yield "".join(texts)
            texts, size = [], 0
    yield "".join(texts)


# json itself takes twice as long, or three times


def _integers(numbers: Sequence[int]) -> str:
    if isinstance(numbers, range):
        return "".join(_following(numbers))
    return ("%d," * len(numbers)) % tuple(numbers)


def _following(numbers: range) -> Iterator[str]:
    """Of those from 0 on that follow one another."""
    at, end = numbers.start, numbers.stop
    while at < end:
        thousands, rest = divmod(at, 1000)
        some = min(1000 - rest, end - at)
        before = "%d" % thousands
        yield (before + before.join(_THREE_DIGITS[rest:rest + some]) if thousands
               else ("%d," * some) % tuple(range(at, at + some)))
        at += some


class _Texts(dict[int, str]):
    """Of numbers that come again."""

    def __missing__(self, number: int) -> str:
        if len(self) >= _MOST:
            self.clear()
        text = self[number] = "%d," % number
        return text

    def of(self, numbers: Sequence[int]) -> str:
        return "".join(map(self.__getitem__, numbers))


def _ascending(microseconds: Sequence[int]) -> str:
    """As milliseconds."""
    whole = range(microseconds[0] // 1000, microseconds[-1] // 1000 + 1)
    if len(whole) * _NEAR > len(microseconds):
        return _milliseconds(microseconds)
    parts = []
    at = 0
    for number in whole:
        first = number * 1000
        after = bisect.bisect_left(microseconds, first + 1000, at)
        if at < after:
            before = "%d" % number
            parts.append(before + before.join(map(_FRACTIONS.__getitem__, map(
                first.__rsub__, microseconds[at:after]))))
            at = after
    return "".join(parts)


def _milliseconds(microseconds: Sequence[int]) -> str:
    parts: list[Any] = [0] * (2 * len(microseconds))
    parts[::2] = map(operator.floordiv, microseconds, repeat(1000))
    parts[1::2] = map(_FRACTIONS.__getitem__,
                      map(operator.mod, microseconds, repeat(1000)))
    return ("%d%s" * len(microseconds)) % tuple(parts)


def _floats(numbers: array.array[float]) -> str:
    text = str(numbers.tolist())
    if "n" in text:
        raise ValueError("a number that JSON has not")
    return text[1:-1].replace(" ", "") + ","
