"""Operations on columns: arrays that contain one number per row of a table.

profile/model.py keeps samples in such columns. The readers and the analysis use these
functions to select, sort and compare rows without an object per row.
"""
from __future__ import annotations

import array
import operator
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import itemgetter
from typing import TypeVar

#: On PyPy, compress() takes three times as long as a loop.
_HAS_COMPRESS = sys.implementation.name == "cpython"
#: Number of rows that by_key() sorts at once. The numbers of all rows as Python objects
#: would take more memory than the table.
_BATCH = 2**16
#: Number of rows that gathered() copies at once.
_TOGETHER = 2**12


_Number = TypeVar("_Number", int, float)


def is_one(numbers: array.array[_Number]) -> bool:
    """Return whether all numbers of a nonempty array are equal."""
    return numbers[0] == numbers[-1] == numbers[len(numbers) // 2] and (
        numbers == numbers[:1] * len(numbers))


def least(numbers: array.array[_Number]) -> _Number:
    """Return the smallest number of a nonempty array."""
    return numbers[0] if is_one(numbers) else min(numbers)


def those(column: Iterable[_Number], which: Iterable[int]) -> Iterator[_Number]:
    """Yield the numbers of a column whose flag in `which` is true."""
    if _HAS_COMPRESS:
        return compress(column, which)
    return iter([number for number, is_one_of in zip(column, which) if is_one_of])


def chosen(column: array.array[_Number],
           which: Sequence[int]) -> array.array[_Number]:
    """Return an array of the numbers whose flag in `which` is true."""
    if column and is_one(column):
        return column[:1] * (len(which) - which.count(0))
    return array.array(column.typecode, those(column, which))


def gathered(column: array.array[int], rows: Sequence[int]) -> array.array[int]:
    """Return an array of the numbers of a column at `rows`, in the order of `rows`.

    The result is the column itself if `rows` is a range over the whole column.
    """
    if isinstance(rows, range):
        return column if len(rows) == len(column) else column[rows.start:rows.stop]
    result = array.array(column.typecode)
    for start in range(0, len(rows), _TOGETHER):
        # the appended 0 makes itemgetter return a tuple even for a single row
        result.extend(array.array(column.typecode, itemgetter(
            *rows[start:start + _TOGETHER], 0)(column)[:-1]))
    return result


def ascends(numbers: Iterable[int]) -> bool:
    """Return whether no number is smaller than its predecessor."""
    return all(map(operator.le, numbers, islice(numbers, 1, None)))


def by_key(keys: array.array[int]) -> Sequence[int]:
    """Return the numbers of all rows, sorted by their keys.

    Rows with equal keys keep their order. The result is a range if the rows are already
    sorted.
    """
    if ascends(keys):
        return range(len(keys))
    # Sort a batch at a time and distribute its rows to key ranges. Then sort each
    # range.
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
