"""Counters: tracks of the allocation rate and of amounts of memory."""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence

from vmprof_convert.writers.firefox.format.bins import bins_of
from vmprof_convert.writers.firefox.format.json_types import Json

#: largest number of bins of a counter, and smallest width of a bin in milliseconds
MAX_BINS = 1000
MIN_BIN = 1.0


def _binned(times: Sequence[float], counts: Sequence[int],
            last: float) -> tuple[list[float], list[int]]:
    """Return the sums of counts in bins of equal width.

    Args:
        times: Milliseconds of each count, ascending.
        counts: The numbers to sum up.
        last: The end of the last bin in milliseconds, or a time within it.

    Returns:
        The starts of the bins in milliseconds, and their sums. The first bin is empty.
    """
    width = max(MIN_BIN, last / MAX_BINS)
    bins = [0] * (int(last / width) + 2)
    for number, at, after in bins_of(times, width):
        bins[number + 1] += sum(counts[at:after])
    return [i * width for i in range(len(bins))], bins


def _row(source: str, unit: str, label: str, **more: bool) -> Json:
    return {"type": "value", "source": source, "format": {"unit": unit},
            "label": label, **more}


@dataclasses.dataclass
class Counter:
    """A track of bytes over time, for one process."""

    name: str
    category: str
    description: str
    #: milliseconds since the start, ascending
    times: Sequence[float]
    #: changes in bytes since the preceding row
    counts: Sequence[int]
    display: Json
    #: number of the process, and index of its main thread
    pid: str = ""
    main_thread: int = 0

    @classmethod
    def rate(cls, times: Sequence[float], counts: Sequence[int]) -> Counter:
        """Return the track of the allocation rate.

        Args:
            times: Milliseconds, ascending, at least one.
            counts: Bytes that were allocated at these times.
        """
        # The front end divides by the time since the preceding row. Bins of equal width
        # prevent a division by 0.
        starts, bins = _binned(times, counts, times[-1])
        return cls(
            "allocation-rate", "Memory", "Bytes allocated, an estimate",
            starts, bins, {
                "graphType": "line-rate",
                "unit": "bytes",
                "color": "magenta",
                "markerSchemaLocation": None,
                "sortWeight": 5,
                "label": "Allocation rate",
                "tooltipRows": [
                    _row("rate", "bytes-per-second", "allocation rate"),
                    _row("accumulated", "bytes", "allocated so far"),
                    _row("committed-range-total", "bytes",
                         "allocated in the range shown"),
                    _row("selection-total", "bytes",
                         "allocated in the selection",
                         requiresPreviewSelection=True),
                ],
            })

    @classmethod
    def held(cls, times: Sequence[float], counts: Sequence[int],
             ends: Sequence[float], ended: Sequence[int], *,
             is_raw: bool = False, alive: str = "") -> Counter:
        """Return the track of the bytes that count as alive.

        Args:
            times: Milliseconds, ascending, at least one.
            counts: Bytes that were allocated at these times.
            ends: Milliseconds, ascending.
            ended: Bytes of the objects that ended at the times in `ends`.
            is_raw: Whether the bytes are native memory instead of the GC's heap.
            alive: lifetimes.alive_word() for the GC's heap, "" for native memory.
        """
        last = max(times[-1], ends[-1] if ends else 0.0)
        starts, bins = _binned(times, counts, last)
        for number, count in enumerate(_binned(ends, ended, last)[1]):
            bins[number] -= count
        name, description, label, color, weight = (
            "raw-memory", "Bytes that malloc returned and that were not freed, an "
                          "estimate",
            "Native memory in use", "teal", 12) if is_raw else (
            "held-memory", "Bytes of objects that neither a collection nor a heap "
            "snapshot had found dead, an estimate", "Memory (%s)" % alive, "green", 10)
        return cls(
            name, "Memory", description, starts, bins, {
                "graphType": "line-accumulated",
                "unit": "bytes",
                "color": color,
                "markerSchemaLocation": None,
                "sortWeight": weight,
                "label": label,
                "tooltipRows": [
                    _row("accumulated", "bytes", alive or "in use"),
                    _row("count-range", "bytes", "range in the graph"),
                ],
            })

    @classmethod
    def resident(cls, times: Sequence[float], sizes: Sequence[int]) -> Counter:
        """Return the track of the resident memory.

        Args:
            times: Milliseconds, ascending, at least one.
            sizes: Bytes at these times.
        """
        return cls._level(times, sizes, "resident-memory",
                          "Memory of the process in RAM", "Resident memory", 20,
                          "orange")

    @classmethod
    def private(cls, times: Sequence[float], sizes: Sequence[int]) -> Counter:
        """Return the track of the private memory (USS); see resident()."""
        return cls._level(times, sizes, "private-memory",
                          "Memory in RAM that no other process shares (USS)",
                          "Private memory", 30, "purple")

    @classmethod
    def heap(cls, times: Sequence[float], sizes: Sequence[int]) -> Counter:
        """Return the track of the bytes in use in the GC's heap; see resident()."""
        return cls._level(times, sizes, "gc-heap",
                          "Bytes in use in the GC's heap, including the whole nursery, "
                          "as the GC counts them", "GC heap", 15, "blue",
                          "in use in the GC's heap")

    @classmethod
    def _level(cls, times: Sequence[float], sizes: Sequence[int], name: str,
               description: str, label: str, weight: int, color: str,
               tooltip: str = "") -> Counter:
        # The front end shows values relative to the first row. A first row of 0 makes
        # it show the values themselves.
        counts = [0, sizes[0], *map(operator.sub, sizes[1:], sizes)]
        return cls(
            name, "Memory", description, [times[0], *times], counts, {
                "graphType": "line-accumulated",
                "unit": "bytes",
                "color": color,
                "markerSchemaLocation": None,
                "sortWeight": weight,
                "label": label,
                "tooltipRows": [
                    _row("accumulated", "bytes", tooltip or label.lower()),
                    _row("count-range", "bytes", "range in the graph"),
                ],
            })

    def build(self) -> Json:
        """Return the counter as a dict for JSON."""
        return {
            "name": self.name,
            "category": self.category,
            "description": self.description,
            "pid": self.pid,
            "mainThreadIndex": self.main_thread,
            "samples": {
                "length": len(self.times),
                "time": list(self.times),
                "count": list(self.counts),
            },
            "display": self.display,
        }
