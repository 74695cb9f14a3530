"""JSON, as text, in pieces."""
from __future__ import annotations

import array
import json
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

from vmprof_convert.writers.firefox.format.columns import (
    PIECE,
    Column,
    Milliseconds,
    Same,
)

#: what is behind whole milliseconds, for each number of microseconds
_FRACTIONS = [("%.3f" % (number / 1e3))[1:].rstrip("0").ljust(2, "0") + ","
              for number in range(1000)]


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
        yield from _listed(value.pieces(), _milliseconds if value.are_microseconds
                           else _integers)
    elif isinstance(value, Milliseconds):
        yield from _listed(iter((value.microseconds,)), _milliseconds)
    elif isinstance(value, array.array):
        yield from _listed(iter((value,)),
                           _floats if value.typecode == "d" else _integers)
    elif isinstance(value, Same):
        text = json.dumps(value.number, allow_nan=False)
        for start in range(0, value.times, PIECE):
            yield ("," if start else "[") + ",".join(
                [text] * min(PIECE, value.times - start))
        yield "]" if value.times else "[]"
    else:
        yield json.dumps(value, separators=(",", ":"), allow_nan=False)


def _listed(pieces: Iterator[Sequence[Any]],
            text_of: Callable[[Any], str]) -> Iterator[str]:
    """`text_of` has a comma behind each number."""
    before = "["
    for piece in pieces:
        for start in range(0, len(piece), PIECE):
            # a list of all numbers takes five times as much as the array that they are
            yield before + text_of(piece[start:start + PIECE])[:-1]
            before = ","
    yield "[]" if before == "[" else "]"


# json itself takes twice as long, or three times


def _integers(numbers: Sequence[int]) -> str:
    return ("%d," * len(numbers)) % tuple(numbers)


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
