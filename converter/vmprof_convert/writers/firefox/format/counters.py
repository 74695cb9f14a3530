"""Tracks of numbers: the rate of allocation, and what memory there is."""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence

from vmprof_convert.writers.firefox.format.bins import bins_of
from vmprof_convert.writers.firefox.format.json_types import Json

#: how many bins the rate is drawn with, and how narrow one may be, in ms
MAX_BINS = 1000
MIN_BIN = 1.0


def _binned(times: Sequence[float], counts: Sequence[int],
            last: float) -> tuple[list[float], list[int]]:
    """Where bins of one width begin, up to the time `last`, and the sums of what came
    in each; the first one is empty."""
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
    """A track of bytes over time."""

    name: str
    category: str
    description: str
    #: milliseconds, ascending
    times: Sequence[float]
    #: bytes, each the change since the row before
    counts: Sequence[int]
    display: Json
    #: of the process, whose main thread is that one
    pid: str = ""
    main_thread: int = 0

    @classmethod
    def rate(cls, times: Sequence[float], counts: Sequence[int]) -> Counter:
        """Bytes allocated over time: `counts` at `times`, ascending, at least
        one."""
        # The front end divides by the time since the row before: the bins
        # have one width, as that time must not be 0.
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
            times: milliseconds, ascending, at least one.
            counts: bytes that were allocated at these times.
            ends: milliseconds, ascending.
            ended: bytes that ended at these times.
            is_raw: native memory, and not the GC's heap.
            alive: lifetimes.alive_word(), if it is the GC's heap.
        """
        last = max(times[-1], ends[-1] if ends else 0.0)
        starts, bins = _binned(times, counts, last)
        for number, count in enumerate(_binned(ends, ended, last)[1]):
            bins[number] -= count
        name, description, label, color, weight = (
            "raw-memory", "Bytes of malloc that were not given back, an estimate",
            "Raw memory in use", "teal", 12) if is_raw else (
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
        """Resident memory: `sizes` in bytes at `times`, ascending, at least
        one."""
        return cls._level(times, sizes, "resident-memory",
                          "Memory of the process in RAM", "Resident memory", 20,
                          "orange")

    @classmethod
    def private(cls, times: Sequence[float], sizes: Sequence[int]) -> Counter:
        """Private memory, which no other process has: as of resident memory."""
        return cls._level(times, sizes, "private-memory",
                          "What of the memory in RAM no other process has (USS)",
                          "Private memory", 30, "purple")

    @classmethod
    def heap(cls, times: Sequence[float], sizes: Sequence[int]) -> Counter:
        """What is in use of the GC's heap, as the GC counts it."""
        return cls._level(times, sizes, "gc-heap",
                          "What of the GC's heap is in use, with all of its nursery, "
                          "as the GC counts it", "GC heap", 15, "blue",
                          "in use in the GC's heap")

    @classmethod
    def _level(cls, times: Sequence[float], sizes: Sequence[int], name: str,
               description: str, label: str, weight: int, color: str,
               tooltip: str = "") -> Counter:
        # The front end counts from the first row on, whatever is in it: that has to be
        # nothing, or what it shows were not bytes, but bytes more than at first.
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
