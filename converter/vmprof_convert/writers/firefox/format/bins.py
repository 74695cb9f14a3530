"""Rows by the bins of time that they are in."""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence


def bins_of(times: Sequence[float], width: float) -> Iterator[tuple[int, int, int]]:
    """Of each bin of this width that has rows its number, and where they begin and end;
    the last moment may have two.  `times` ascend."""
    at = 0
    while at < len(times):
        number = int(times[at] / width)
        # there may be fewer rows than bins
        after = max(at + 1, bisect_left(times, (number + 1) * width, at))
        yield number, at, after
        at = after
