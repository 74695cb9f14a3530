"""Find the moment at which the largest number of bytes was alive.

The option --at peak of the reports uses this module.
"""
from __future__ import annotations

import collections
from collections.abc import Iterable
from itertools import accumulate

from vmprof_convert.meaning.estimator import weight_live_bytes
from vmprof_convert.profile.model import ALIVE, FREED, LOST, Carried, Columns


class Changes:
    """The changes of the live bytes at each collection.

    It implements model.Rows. An object counts as alive from its first minor collection
    until a major collection finds it dead, or until the sampler loses it.
    """

    def __init__(self) -> None:
        """Start with no objects."""
        self.begin({})

    def begin(self, settings: dict[str, str]) -> None:
        """Discard all changes."""
        self._settings = settings
        #: the changes in bytes, by the nanoseconds since the start
        self.of_times: dict[int, float] = collections.defaultdict(float)

    def extend(self, rows: Columns) -> None:
        """Add samples."""
        for group, count in collections.Counter(zip(
                rows.fate, rows.collected, rows.ended, rows.size, rows.live_size,
                rows.interval)).items():
            self._add(count, *group)

    def carry(self, object_: Carried) -> None:
        """Add an inherited object, which was alive from the start."""
        # An object that was old at the start has a `collected` of -1.
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
    """Return the first moment at which the largest number of bytes was alive.

    Args:
        processes: for each process, its Changes.of_times, and its start in nanoseconds
            after the start of the first process.

    Returns:
        The nanoseconds after the start of the first process; None if no bytes were
        alive.
    """
    changes: dict[int, float] = collections.defaultdict(float)
    for of_times, begin in processes:
        for time, change in of_times.items():
            changes[time + begin] += change
    times = sorted(changes)
    alive = list(accumulate(changes[time] for time in times))
    most = max(alive, default=0.0)
    return times[alive.index(most)] if most > 0 else None
