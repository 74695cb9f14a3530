"""Division of rows into bins of time, for counters and activity tracks."""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


def bins_of(times: Sequence[float], width: float) -> Iterator[tuple[int, int, int]]:
    """Yield the bins that have rows, in order.

    Rounding can split the rows of a bin into two results with the same number.

    Args:
        times: The times of the rows, ascending.
        width: The width of a bin in the same unit.

    Yields:
        The number of the bin, its first row, and the row after its last row.
    """
    at = 0
    while at < len(times):
        number = int(times[at] / width)
        # skip empty bins, because there may be fewer rows than bins
        after = max(at + 1, bisect_left(times, (number + 1) * width, at))
        yield number, at, after
        at = after
