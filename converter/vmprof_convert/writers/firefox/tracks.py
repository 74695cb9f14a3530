"""The tracks that the Firefox Profiler shows, and their samples.

If there are several processes, the first track shows all of them together. Each process
has a track of all its threads, if there are several, and a track of each thread. The
names of the tracks distinguish a child from its parent (process_name() and `_CHILD`).
"""
from __future__ import annotations

import array
from collections.abc import Mapping, Sequence, Set
from itertools import compress
from typing import NamedTuple, Union

from vmprof_convert.profile.columns import gathered
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.names import names, process_name
from vmprof_convert.text.escape import printable

#: largest number of displayed characters of a name
MAX_NAME = 100
_CHILD = " (child)"


class Process(NamedTuple):
    """A process in the Profiler: a process of the run, or all processes together."""

    #: number and name of the process in the Profiler
    pid: str
    name: str
    #: profile of the process, None for all processes; and the start of the process in
    #: nanoseconds since the start of the first process
    profile: Profile | None
    begin: int
    #: kernel's number of each thread, by the number in the merged profile
    threads: Mapping[int, int]


class Track(NamedTuple):
    """A track: a thread, or all threads of a process."""

    process: Process
    name: str
    tid: Union[int, str]
    #: numbers of the threads in the merged profile
    numbers: Set[int]
    #: rows of the CPU samples, and of the allocation samples, by time
    ticks: Sequence[int]
    allocations: Sequence[int]


class Tracks:
    """The tracks of a profile."""

    def __init__(self, profile: Profile, weights: array.array[int],
                 product: str) -> None:
        """Prepare the tracks.

        Args:
            profile: The profile.
            weights: The bytes that each sample represents.
            product: The name of the process, if the profile has only one.
        """
        self._profile = profile
        self._weights = weights
        self._product = product
        self._names = names(profile)
        #: numbers of all threads
        self.threads = set(profile.samples.thread)
        self._ticks = profile.samples.ticks

    def _processes(self) -> list[Process]:
        """Return all processes together, if there are several; then each process."""
        profile = self._profile
        if not profile.processes:
            return [Process(str(profile.pid), self._product, profile, 0,
                             {tid: tid for tid in self.threads})]
        result = [Process("all", "All processes", None, 0, {
            number: tid for process in profile.processes
            for number, tid in process.threads.items()})]
        pids: set[str] = set()
        for process in profile.processes:
            pid = str(process.profile.pid)
            if pid in pids:
                # the kernel has reused the number
                pid += "-%d" % len(pids)
            pids.add(pid)
            result.append(Process(pid, printable(process_name(
                process.profile, process.source))[:MAX_NAME], process.profile,
                process.begin, process.threads))
        return result

    def all(self, everything: Sequence[int]) -> list[Track]:
        """Return all tracks.

        The track of all threads of a process comes first, if there are several. The
        other tracks follow, sorted by their allocated bytes.

        Args:
            everything: The rows of all samples by time.
        """
        profile = self._profile
        sizes = profile.samples.size
        rows: dict[int, tuple[Sequence[int], Sequence[int]]] = {}
        if len(self.threads) == 1 and self._ticks in (0, len(sizes)):
            number, = self.threads
            rows[number] = (everything, ()) if self._ticks else ((), everything)
        else:
            rows.update(self._split(everything))
        bytes_ = {number: sum(gathered(self._weights, allocations))
                  for number, (_, allocations) in rows.items()}

        def rank(number: int) -> tuple[int, int]:
            return -bytes_[number], -len(rows[number][0])

        first, *each = self._processes()
        each = sorted(
            (process for process in each if rows.keys() & process.threads.keys()),
            key=lambda process: tuple(map(sum, zip(*(
                rank(number) for number in process.threads if number in rows)))))
        tracks: list[Track] = []
        # Children have no CPU samples. Draw the track of all processes from CPU samples
        # only if all processes have some.
        is_timed = all(any(rows[number][0] for number in process.threads
                           if number in rows) for process in each)
        for process in first, *each:
            numbers = sorted(rows.keys() & process.threads.keys(),
                             key=lambda number: (*rank(number), number))
            before = len(tracks)
            if len(numbers) > 1 or process.profile is None:
                chosen = set(numbers)
                all_ = self._of_threads(chosen, everything)
                allocations = self.allocations(all_)
                ticks = self._time_samples(all_) if (
                    process.profile or is_timed or not allocations) else ()
                tracks.append(Track(
                    process, "All threads" if process.profile else process.name,
                    "all", chosen, ticks, allocations))
            if process.profile:
                tracks += [Track(process, self._thread_name(
                    number, process.threads[number]), process.threads[number],
                    {number}, *rows[number]) for number in numbers]
            if each and process.profile and process.profile.parent:
                # The Profiler names a process after its first track. The names would
                # not distinguish workers from their parent.
                tracks[before] = tracks[before]._replace(
                    name=tracks[before].name[:MAX_NAME - len(_CHILD)] + _CHILD)
        return tracks

    def _thread_name(self, number: int, tid: int) -> str:
        name = printable(self._names.get(number, ""))
        if name:
            return name[:MAX_NAME]
        # vmprof's own CPU samples do not record the thread
        return "Thread %d" % tid if tid else "All threads"

    def rows(self, processes: list[Process],
              everything: Sequence[int]) -> dict[str, Sequence[int]]:
        """Return the rows of the samples of each process, by `Process.pid`."""
        return {process.pid: self._of_threads(process.threads.keys(), everything)
                for process in processes}

    def _split(self, everything: Sequence[int]) -> (
            dict[int, tuple[Sequence[int], Sequence[int]]]):
        """Return the rows of CPU samples and of allocations for each thread."""
        samples = self._profile.samples
        split = {number: (array.array("i"), array.array("i"))
                 for number in self.threads}
        for row in everything:
            split[samples.thread[row]][samples.size[row] > 0].append(row)
        return dict(split)

    def are_of(self, numbers: Set[int], rows: Sequence[int]) -> list[bool]:
        """Return for each row whether it belongs to one of these threads."""
        threads_ = self._profile.samples.thread
        return [threads_[row] in numbers for row in rows]

    def _of_threads(self, numbers: Set[int], rows: Sequence[int]) -> Sequence[int]:
        if numbers >= self.threads:
            return rows
        return array.array("i", compress(rows, self.are_of(numbers, rows)))

    def allocations(self, rows: Sequence[int]) -> Sequence[int]:
        """Return the rows that are allocation samples."""
        return rows if not self._ticks else array.array("i", compress(
            rows, map(self._profile.samples.size.__getitem__, rows)))

    def _time_samples(self, rows: Sequence[int]) -> Sequence[int]:
        sizes = self._profile.samples.size
        return () if not self._ticks else array.array("i", (
            row for row in rows if not sizes[row]))
