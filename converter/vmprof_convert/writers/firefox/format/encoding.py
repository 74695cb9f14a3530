"""Encoding of a profile as JSON text, in pieces, to save memory."""
from __future__ import annotations

import array
import json
from collections.abc import Iterable, Iterator, Sequence

from vmprof_convert.writers.firefox.format.columns import (
    Milliseconds,
    Same,
    Texts,
)

#: number of numbers that are written at once
PIECE = 2**15
#: largest number of texts in a cache of the class Known
_MOST = 2**16


def encoded(value: object) -> Iterator[str]:
    """Yield the JSON text of a value; columns (columns.py) are written as lists.

    Raises:
        ValueError: The value contains NaN or infinity, which JSON does not have.
    """
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
    elif isinstance(value, Texts):
        yield from _listed(value.make())
    elif isinstance(value, Same):
        one = "%d," % value.number
        yield from _listed(one * min(PIECE, value.times - start)
                           for start in range(0, value.times, PIECE))
    elif isinstance(value, (Milliseconds, array.array)):
        yield from _listed(text(value[start:start + PIECE])
                           for start in range(0, len(value), PIECE))
    else:
        yield json.dumps(value, separators=(",", ":"), allow_nan=False)


def _listed(texts: Iterable[str]) -> Iterator[str]:
    before = "["
    last = ""
    for piece in filter(None, texts):
        yield before + last
        before, last = "", piece
    yield before + last[:-1] + "]"


# The following functions need half of the time that the module json needs.


def text(numbers: Sequence[float]) -> str:
    """Return the text of some numbers, with a comma after each.

    Args:
        numbers: Integers, or Milliseconds. Milliseconds are written as microseconds
            with the exponent -3.
    """
    if isinstance(numbers, Milliseconds):
        return ("%de-3," * len(numbers)) % tuple(numbers.microseconds)
    return ("%d," * len(numbers)) % tuple(numbers)


class Known(dict[int, str]):
    """A cache of the results of text() for single integers."""

    def __missing__(self, number: int) -> str:
        """Return the text of an integer, and remember it."""
        if len(self) >= _MOST:
            self.clear()
        found = self[number] = text((number,))
        return found
