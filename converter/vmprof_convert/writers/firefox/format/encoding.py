"""JSON, as text, in pieces."""
from __future__ import annotations

import array
import json
import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

from vmprof_convert.writers.firefox.format.columns import (
    Milliseconds,
    Same,
    Texts,
)

#: what is behind whole milliseconds, for each number of microseconds
_FRACTIONS = [("%.3f" % (number / 1e3))[1:].rstrip("0").ljust(2, "0") + ","
              for number in range(1000)]
#: so many numbers are written at once
PIECE = 2**15
#: texts that are remembered
_MOST = 2**16


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


# json itself takes twice as long


def text(numbers: Sequence[float]) -> str:
    """Of integers, or Milliseconds: with a comma behind each."""
    if not isinstance(numbers, Milliseconds):
        return ("%d," * len(numbers)) % tuple(numbers)
    microseconds = numbers.microseconds
    parts: list[Any] = [0] * (2 * len(microseconds))
    parts[::2] = map(operator.floordiv, microseconds, repeat(1000))
    parts[1::2] = map(_FRACTIONS.__getitem__,
                      map(operator.mod, microseconds, repeat(1000)))
    return ("%d%s" * len(microseconds)) % tuple(parts)


class Known(dict[int, str]):
    """As text(), of integers that come again."""

    def __missing__(self, number: int) -> str:
        if len(self) >= _MOST:
            self.clear()
        found = self[number] = text((number,))
        return found
