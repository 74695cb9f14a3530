"""The moment at which most was alive."""
from __future__ import annotations

import collections
from collections.abc import Iterable
from itertools import accumulate

from vmprof_convert.meaning.estimator import weight_live_bytes
from vmprof_convert.profile.model import ALIVE, FREED, LOST, Carried, Columns


class Changes:
    """Adds up by how many bytes what is alive changes at each collection
    (model.Rows).  What survived its first minor collection is alive from that
    collection on; until a major collection finds it dead, or its trace is lost."""

    def __init__(self) -> None:
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        self._settings = settings
        #: bytes, by nanoseconds after the start
        self.of_times: dict[int, float] = collections.defaultdict(float)

    def extend(self, rows: Columns) -> None:
        for group, count in collections.Counter(zip(
                rows.fate, rows.collected, rows.ended, rows.size, rows.live_size,
                rows.interval)).items():
            self._add(count, *group)

    def carry(self, object_: Carried) -> None:
        # alive from the start on
        fate, collected = object_.fate, max(object_.collected, 0)
        self._add(1, fate, collected, object_.ended, object_.size, object_.live_size,
                  object_.interval)

    def _add(self, count: int, fate: int, collected: int, ended: int, size: int,
             live_size: int, interval: int) -> None:
        if fate not in (ALIVE, FREED, LOST) or not size:
            return
        weight = count * weight_live_bytes(
            size, live_size, interval, self._settings.get("gaps", "exponential"))
        self.of_times[collected] += weight
        if fate != ALIVE:
            self.of_times[ended] -= weight


def time_of_peak(processes: Iterable[tuple[dict[int, float], int]]) -> int | None:
    """Of processes, their Changes.of_times and when they began: the first moment, in
    nanoseconds after the start, at which most bytes were alive in all of them
    together.  None: nothing ever was."""
    changes: dict[int, float] = collections.defaultdict(float)
    for of_times, begin in processes:
        for time, change in of_times.items():
            changes[time + begin] += change
    times = sorted(changes)
    alive = list(accumulate(changes[time] for time in times))
    most = max(alive, default=0.0)
    return times[alive.index(most)] if most > 0 else None
