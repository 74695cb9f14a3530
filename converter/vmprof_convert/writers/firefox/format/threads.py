"""A thread of the Profiler: a track with CPU samples, allocations and markers."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Union

from vmprof_convert.writers.firefox.format import markers
from vmprof_convert.writers.firefox.format.columns import Column, Same
from vmprof_convert.writers.firefox.format.json_types import Json
from vmprof_convert.writers.firefox.format.markers import Marker

#: units of the weights of samples
SAMPLES, BYTES = "samples", "bytes"


class Thread:
    """One track, of a thread or of several.

    Times are milliseconds since the start, ascending. Stacks are indices in the table
    of stacks.
    """

    def __init__(self, name: str, tid: Union[int, str], *, main: bool, pid: str,
                 process: str):
        """Create a track without samples.

        Args:
            name: The name of the track.
            tid: The number of the thread, or a text for a track of several threads.
            main: Whether this is the main thread of its process.
            pid: The number of the process.
            process: The name of the process.
        """
        self.name = name
        self.tid = tid
        self.main = main
        self.pid = pid
        self._process = process
        self._sample_times: Sequence[float] = ()
        self._sample_stacks: Sequence[int] = ()
        self._sample_weights: Sequence[int] | None = None
        self._unit = SAMPLES
        #: columns of the table of allocations, and time of its last row
        self._allocations: Json = {}
        self._allocations_end = 0.0
        self._markers: list[Marker] = []
        self._marker_names: list[int] = []

    def set_samples(self, times: Sequence[float], stacks: Sequence[int],
                    weights: Sequence[int] | None = None,
                    unit: str = SAMPLES) -> None:
        """Set the samples from which the track is drawn and "Timings" is summed up.

        Args:
            times: The time of each sample.
            stacks: The stack of each sample.
            weights: The weight of each sample, None for CPU samples.
            unit: The unit of the weights.
        """
        self._sample_times, self._sample_stacks = times, stacks
        self._sample_weights, self._unit = weights, unit

    def set_allocations(self, length: int, end: float, times: Column, stacks: Column,
                        weights: Column, addresses: Column | None = None) -> None:
        """Set the table of allocations.

        Args:
            length: The number of rows.
            end: The time of the last row.
            times: The time of each row.
            stacks: The stack of each row.
            weights: The bytes that each sample represents. A negative weight is the end
                of an earlier row with the same address and the positive weight.
            addresses: Small numbers that identify objects, None if no ends are known.
        """
        self._allocations_end = end
        self._allocations = {
            "length": length, "time": times, "stack": stacks, "weight": weights,
            "weightType": "bytes"}
        # if the table has memory addresses, the front end offers "retained memory"
        if addresses is not None:
            self._allocations.update(memoryAddress=addresses, threadId=Same(
                self.tid if isinstance(self.tid, int) else 0, length))

    def set_markers(self, markers: list[Marker], names: list[int]) -> None:
        """Set the markers.

        Args:
            markers: The markers by time.
            names: The index of each marker's name in the table of strings.
        """
        self._markers, self._marker_names = markers, names

    def end(self) -> float:
        """Return the time of the last sample, allocation or marker."""
        return max([self._allocations_end, *self._sample_times[-1:], *(
            marker.start if marker.end is None else marker.end
              for marker in self._markers), 0.0])

    def build(self, *, first: bool = True) -> Json:
        """Return the thread as a dict for JSON.

        Args:
            first: Whether the thread belongs to the first process.
        """
        thread: Json = {
            "name": self.name,
            "isMainThread": self.main,
            # The process of type "default" is on top, as Firefox's own process. The
            # front end sorts the other processes by their number of samples, and shows
            # this text as their name.
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
        # with an empty table of allocations, the front end gets a range of times of NaN
        if self._allocations:
            thread["nativeAllocations"] = self._allocations
        return thread
