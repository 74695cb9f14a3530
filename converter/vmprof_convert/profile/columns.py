"""Columns of a table: arrays of as many numbers as the table has rows."""
from __future__ import annotations

import array
import operator
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import itemgetter
from typing import TypeVar

#: in PyPy, compress() takes three times as long as a loop
_HAS_COMPRESS = sys.implementation.name == "cpython"
#: rows that are sorted at once: as objects, the numbers of all rows would take more
#: memory than the table
_BATCH = 2**16
#: and so many are picked at once
_TOGETHER = 2**12


_Number = TypeVar("_Number", int, float)


def is_one(numbers: array.array[_Number]) -> bool:
    """Whether they are all the same; there is at least one."""
    return numbers[0] == numbers[-1] == numbers[len(numbers) // 2] and (
        numbers == numbers[:1] * len(numbers))


def least(numbers: array.array[_Number]) -> _Number:
    """The smallest; there is at least one."""
    return numbers[0] if is_one(numbers) else min(numbers)


def those(column: Iterable[_Number], which: Iterable[int]) -> Iterator[_Number]:
    """The numbers of which it is true."""
    if _HAS_COMPRESS:
        return compress(column, which)
    return iter([number for number, is_one_of in zip(column, which) if is_one_of])


def chosen(column: array.array[_Number],
           which: Sequence[int]) -> array.array[_Number]:
    """As those()."""
    if column and is_one(column):
        return column[:1] * (len(which) - which.count(0))
    return array.array(column.typecode, those(column, which))


def gathered(column: array.array[int], rows: Sequence[int]) -> array.array[int]:
    """The numbers of these rows, in their order; the column itself, if they are all."""
    if isinstance(rows, range):
        return column if len(rows) == len(column) else column[rows.start:rows.stop]
    result = array.array(column.typecode)
    for start in range(0, len(rows), _TOGETHER):
        # (of a single row, there would be no tuple)
        result.extend(array.array(column.typecode, itemgetter(
            *rows[start:start + _TOGETHER], 0)(column)[:-1]))
    return result


def ascends(numbers: Iterable[int]) -> bool:
    return all(map(operator.le, numbers, islice(numbers, 1, None)))


def by_key(keys: array.array[int]) -> Sequence[int]:
    """The rows by their keys, and as they are where keys are the same; a range, if all
    are as they are."""
    if ascends(keys):
        return range(len(keys))
    # sorted a batch at a time, and then what is between two of some keys
    limits = sorted(keys[::_BATCH])
    parts = [array.array("i") for _ in range(len(limits) + 1)]
    for start in range(0, len(keys), _BATCH):
        rows = sorted(range(start, min(start + _BATCH, len(keys))),
                      key=keys.__getitem__)
        sorted_keys = list(map(keys.__getitem__, rows))
        at = 0
        for part, limit in zip(parts, [*limits, keys[rows[-1]] + 1]):
            after = bisect_left(sorted_keys, limit, at)
            part.extend(array.array("i", rows[at:after]))
            at = after
    result = array.array("i")
    for part in parts:
        result.extend(array.array("i", sorted(part, key=keys.__getitem__)))
    return result
