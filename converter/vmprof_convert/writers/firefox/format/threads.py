"""A thread, and its two tables of samples."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from vmprof_convert.writers.firefox.format import markers
from vmprof_convert.writers.firefox.format.columns import Column, Same
from vmprof_convert.writers.firefox.format.json_types import Json
from vmprof_convert.writers.firefox.format.markers import Marker

#: what the samples of a table are counted in
SAMPLES, BYTES = "samples", "bytes"


class Thread:
    """One track.  Times are milliseconds since the start, ascending; stacks
    are indices in the stack table."""

    def __init__(self, name: str, tid: Union[int, str], *, main: bool, pid: str,
                 process: str):
        """`tid`: a text for what is no thread.  `pid` and `process`: number and name
        of its process, of which it is the `main` one, or is not."""
        self.name = name
        self.tid = tid
        self.main = main
        self.pid = pid
        self._process = process
        self._sample_times: Sequence[float] = ()
        self._sample_stacks: Sequence[int] = ()
        self._sample_weights: Sequence[int] | None = None
        self._unit = SAMPLES
        #: of a table of allocations: columns, and where it ends
        self._allocations: Json = {}
        self._allocations_end = 0.0
        self._markers: list[Marker] = []
        self._marker_names: list[int] = []

    def set_samples(self, times: Sequence[float], stacks: Sequence[int],
                    weights: Sequence[int] | None = None,
                    unit: str = SAMPLES) -> None:
        """What the track is drawn from, and "Timings" adds up: time samples; or
        with `weights`, so many of `unit` each."""
        self._sample_times, self._sample_stacks = times, stacks
        self._sample_weights, self._unit = weights, unit

    def set_allocations(self, length: int, end: float, times: Column, stacks: Column,
                        weights: Column, addresses: Column | None = None) -> None:
        """So many, the last of them at the time `end`.
        `weights` are the bytes that each sample stands for.  With `addresses`, small
        numbers, a negative weight is the end of what has this address, and stood before
        it with the same weight."""
        self._allocations_end = end
        self._allocations = {
            "length": length, "time": times, "stack": stacks, "weight": weights,
            "weightType": "bytes"}
        # With memory addresses in it, the front end offers "retained memory".
        if addresses is not None:
            self._allocations.update(memoryAddress=addresses, threadId=Same(
                self.tid if isinstance(self.tid, int) else 0, length))

    def set_markers(self, markers: list[Marker], names: list[int]) -> None:
        """By time; `names`: where theirs are among the strings."""
        self._markers, self._marker_names = markers, names

    def end(self) -> float:
        """The time of the last thing in it."""
        return max([self._allocations_end, *self._sample_times[-1:], *(
            marker.start if marker.end is None else marker.end
              for marker in self._markers), 0.0])

    def build(self, *, first: bool = True) -> Json:
        """`first`: of the first process."""
        thread: Json = {
            "name": self.name,
            "isMainThread": self.main,
            # Firefox's own process is on top, and there is one of these.  All others
            # are sorted by how many samples they have, and this is how they are called
            "processType": "default" if first else "process " + self._process,
            "processName": self._process,
            "processStartupTime": 0,
            "processShutdownTime": None,
            "registerTime": 0,
            "unregisterTime": None,
            "pausedRanges": [],
            "pid": self.pid,
            "tid": self.tid,
            "samples": {
                "length": len(self._sample_stacks),
                "time": self._sample_times,
                "stack": self._sample_stacks,
                "weight": self._sample_weights,
                "weightType": self._unit,
            },
            "markers": markers.table(self._markers, self._marker_names),
        }
        # an empty table of allocations makes the front end's range of times NaN
        if self._allocations:
            thread["nativeAllocations"] = self._allocations
        return thread
