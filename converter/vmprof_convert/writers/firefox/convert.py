"""Conversion of a profile into the Firefox Profiler's format.

cli/formats.py calls write(). The x axis is time or allocated bytes. Each process and
each thread has a track with its CPU samples, allocations and markers. Counters show the
memory of each process.
"""
from __future__ import annotations

import array
import gc
import operator
import posixpath
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import accumulate, chain, islice
from typing import BinaryIO, TypeVar, Union

from vmprof_convert.analysis.holder_tree import reached
from vmprof_convert.analysis.process_memory import readings
from vmprof_convert.analysis.summary import Summary, sum_up
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.estimator import weight_live_bytes, weight_objects
from vmprof_convert.meaning.lifetimes import alive_word, is_alive_exact
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.profile.columns import by_key, gathered, is_one
from vmprof_convert.profile.held import Held
from vmprof_convert.profile.model import HEAP, PRIVATE, RESIDENT, Profile, Samples
from vmprof_convert.text.escape import printable
from vmprof_convert.writers.firefox import activity, info, label_markers, lives, stacks
from vmprof_convert.writers.firefox.axis import BYTES, MOST, TIME, Axis
from vmprof_convert.writers.firefox.format import threads
from vmprof_convert.writers.firefox.format.builder import ProfileBuilder
from vmprof_convert.writers.firefox.format.counters import Counter
from vmprof_convert.writers.firefox.format.encoding import encoded
from vmprof_convert.writers.firefox.format.json_types import Json
from vmprof_convert.writers.firefox.format.threads import Thread
from vmprof_convert.writers.firefox.lives import NO_ENDS, Ends
from vmprof_convert.writers.firefox.stacks import Stacks
from vmprof_convert.writers.firefox.tracks import MAX_NAME, Process, Track, Tracks

__all__ = ["BYTES", "TIME", "convert", "encode", "query", "write"]

#: end of the dates that the front end can show, in seconds since 1970
END_OF_TIME = 253402300800.0
#: number of bins in tracks of objects and of retainers, whose times matter little
_BROAD_BINS = 50
#: name of the thread of retainers
HELD_BY = "Retainers"
#: name of the thread of native memory, next to the threads of the GC's heap
RAW_MEMORY = "Native memory (malloc)"
#: number of pieces of JSON text that are written at once; some are long, and many are
#: short
_TOGETHER = 2**5

_PRODUCTS = {"pypy": "PyPy", "cpython": "CPython"}

_T = TypeVar("_T")


def write(profile: Profile, out: BinaryIO,
          progress: Callable[[int, int], None] | None = None, *,
          unit: str = TIME, texts: Mapping[str, str] | None = None,
          missing_texts: int = 0) -> None:
    """Write `profile` to `out` as JSON; see convert() for the arguments."""
    # The conversion creates millions of tuples and no cycles. On CPython, the search
    # for cycles would take as long as all other work. PyPy's collector must stay on,
    # because it frees the pieces that were written.
    was_on = gc.isenabled() and sys.implementation.name == "cpython"
    if was_on:
        gc.disable()
    try:
        converted = convert(profile, progress, unit=unit, texts=texts,
                            missing_texts=missing_texts)
        pieces = encoded(converted)
        while some := list(islice(pieces, _TOGETHER)):
            out.write("".join(some).encode("ascii"))
    finally:
        if was_on:
            gc.enable()


def encode(profile: Json) -> bytes:
    """Return the JSON text of a converted profile.

    Raises:
        ValueError: The profile contains NaN or infinity, which JSON does not have.
    """
    return "".join(encoded(profile)).encode("ascii")


def convert(profile: Profile,
            progress: Callable[[int, int], None] | None = None, *,
            unit: str = TIME, texts: Mapping[str, str] | None = None,
            missing_texts: int = 0) -> Json:
    """Return the profile in the processed format as a dict for encoding.encoded().

    The function sorts the samples in `profile` by time. If the profile includes native
    memory (Profile.raw) and the axis is time, each process also has a thread and a
    counter of native memory.

    Args:
        profile: The profile.
        progress: A function that is called now and then with the number of converted
            stacks and the number of all stacks.
        unit: The unit of the x axis, TIME or BYTES.
        texts: The texts of the program's files by path, to include them in the file.
        missing_texts: The number of files whose text was requested and is missing.

    Raises:
        ProfileError: The profile has no samples.
    """
    if not len(profile.samples):
        raise ProfileError(
            "cannot convert the profile, because it has no samples" + (
                "; records of unknown kinds were skipped: %s"
                % profile.passed_over if profile.unknown else "") + (
                "; --native-memory writes a file of its native memory"
                if profile.raw_interval else ""))
    summary = sum_up(profile)
    profile.samples.sort()
    raw = profile.raw if unit == TIME and profile.raw and len(
        profile.raw.samples) else None
    if raw is not None:
        raw.samples.sort()
    with lives.split_shrunk(profile.samples):
        return _Conversion(profile, unit).run(summary, progress, texts, missing_texts,
                                              raw)


def query(profile: Profile) -> str:
    """Return a query for the Profiler's URL that makes the page open with allocations.

    The query is empty for a profile without allocation samples. Without the query, the
    page opens with CPU samples if there are any.
    """
    return "ctSummary=native-allocations" if any(profile.samples.size) else ""


class _Conversion:
    """The conversion of one profile."""

    def __init__(self, profile: Profile, unit: str,
                 builder: ProfileBuilder | None = None):
        """Prepare the conversion.

        Args:
            profile: The profile, sorted by time.
            unit: The unit of the x axis.
            builder: The builder of another profile's file to which this profile is
                added.
        """
        self._profile = profile
        self._weights = _Weights(profile.samples, profile.gaps, _bytes).rounded()
        self._axis = Axis(profile, self._weights, unit)
        self._ends = (lives.find_ends(profile.samples, self._axis, self._weights)
                      if profile.has_lifetimes else NO_ENDS)
        self._origins = Origins(profile)
        self._command = printable(profile.command)
        self._product = _PRODUCTS.get(profile.interpreter,
                                      profile.interpreter or "vmprof")
        self._tracks = Tracks(profile, self._weights, self._product)
        self._builder = builder or self._make_builder()

    def _make_builder(self) -> ProfileBuilder:
        profile = self._profile
        last = profile.moments[-1] if profile.moments else None
        return ProfileBuilder(
            product=(self._command or posixpath.basename(self._origins.main)
                     or self._product)[:MAX_NAME],
            interval=self._axis.interval,
            start=(profile.start_time * 1e3
                   if 0.0 < profile.start_time < END_OF_TIME else 0.0),
            end=self._axis.at(last.time) if last else 0.0,
            arguments=self._command or profile.meta.get("arguments", ""),
            system=profile.meta.get("os", ""), source="vmprof",
            unit="ms" if self._axis.unit == TIME else "bytes")

    def run(self, summary: Summary, progress: Callable[[int, int], None] | None,
            texts: Mapping[str, str] | None, missing_texts: int,
            raw: Profile | None) -> Json:
        profile, builder, times = self._profile, self._builder, self._axis.samples
        if texts:
            builder.set_sources(texts)
        # samples without times, which Axis places, may lie between other samples
        everything = by_key(times)
        tracks = self._tracks.all(everything)
        processes = list({track.process.pid: track.process
                          for track in tracks}.values())
        rows = self._tracks.rows(processes, everything)
        shown = self._axis.shown(times)
        end = max(builder.end, shown[everything[-1]])
        pauses = [activity.pauses(self._axis.shown(gathered(times, track.ticks)),
                                  self._axis.interval, end) for track in tracks]
        found = stacks.add(
            profile, builder, self._origins, progress,
            has_idle=any(track.allocations for track in tracks) or any(pauses)
            or any(map(_held, processes)))
        beside = None if raw is None else _RawMemory(raw, self._axis.unit, builder)
        unlabelled = 0
        for track, before in zip(tracks, pauses):
            thread = self._thread(track.process, track.name, track.tid)
            ticks = self._axis.shown(gathered(times, track.ticks))
            code = [found.code[profile.samples.stack[row]] for row in track.ticks]
            if before:
                thread.set_samples(*activity.with_pauses(
                    ticks, code, before, self._axis.interval, found.idle))
            elif track.ticks:
                thread.set_samples(ticks, code)
            else:
                self._draw(thread, track.allocations, profile.samples.stack,
                           gathered(self._weights, track.allocations), threads.BYTES,
                           end, found.idle, shown=found.code)
            self._set_allocations(thread, track, found)
            process = track.process
            markers = []
            if thread.main and process.profile:
                markers = lives.find_markers(
                    process.profile, process.begin, profile.samples,
                    rows[process.pid], self._axis, self._weights)
            if len(track.numbers) == 1:
                labels, too_many = label_markers.find(
                    profile, track.ticks, track.allocations, shown)
                markers = sorted(markers + labels, key=lambda marker: marker.start)
                unlabelled += too_many
            thread.set_markers(markers, [builder.string(marker.name)
                                         for marker in markers])
            builder.add_thread(thread)
            if beside is not None:
                beside.add(track.process.pid, end)
        if beside is not None:
            beside.add_others(end)
        for process in processes:
            self._add_held(process, end, found.idle)
        allocations = self._tracks.allocations(everything)
        if allocations:
            thread = self._thread(tracks[0].process, "Objects (number)", "objects")
            objects = _Weights(profile.samples, profile.gaps, _objects)
            self._draw(thread, allocations, found.typed, objects.of(allocations),
                       threads.SAMPLES, end, found.idle, _BROAD_BINS)
            builder.add_thread(thread)
        for process in processes:
            self._add_counters(process, rows[process.pid])
        info.describe(profile, summary, builder, missing_texts, unlabelled, raw)
        return builder.build()

    def _thread(self, process: Process, name: str, tid: Union[int, str]) -> Thread:
        return Thread(name, tid, main=not self._builder.has_process(process.pid),
                      pid=process.pid, process=process.name)

    def _draw(self, thread: Thread, rows: Sequence[int], stacks_: array.array[int],
              weights: Iterable[float], unit: str, end: float, idle: int,
              bins: int = activity.BINS, shown: Mapping[int, int] | None = None
              ) -> None:
        """Draw a track from its allocations; `weights` has a weight for each of `rows`.

        See activity.summarize() for the other arguments.
        """
        thread.set_samples(*activity.summarize(
            self._axis.shown(gathered(self._axis.samples, rows)),
            gathered(stacks_, rows), weights, end, idle, bins, shown), unit)

    def _add_held(self, process: Process, end: float, idle: int) -> None:
        """Add a thread that shows the retainers of the last heap snapshot."""
        held = _held(process)
        if held is None or process.profile is None:
            return
        tree = reached(process.profile, held).stacks
        at = self._axis.at(held.time + process.begin)
        thread = self._thread(process, HELD_BY, "held")
        thread.set_samples(*activity.summarize(
            [at] * len(tree), stacks.add_held(tree, self._builder),
            [stack.bytes for stack in tree], max(end, at), idle, _BROAD_BINS),
            threads.BYTES)
        self._builder.add_thread(thread)

    def _ends_of(self, numbers: Set[int]) -> Ends:
        """Return the ends of the objects that these threads allocated."""
        if numbers >= self._tracks.threads:
            return self._ends
        return self._ends.chosen(self._tracks.are_of(numbers, self._ends.rows))

    def _set_allocations(self, thread: Thread, track: Track, found: Stacks) -> None:
        rows = track.allocations
        if not rows:
            return
        if self._profile.has_lifetimes:
            lives.set_lives(thread, rows, self._ends_of(track.numbers), self._axis,
                            found.typed, self._weights, found.sites)
        else:
            times = self._axis.shown(gathered(self._axis.samples, rows))
            thread.set_allocations(
                len(rows), times[-1], times, gathered(found.typed, rows),
                gathered(self._weights, rows))

    def _add_counters(self, process: Process, rows: Sequence[int]) -> None:
        """Add the counters of a process; `rows` are its samples by time."""
        allocations = self._tracks.allocations(rows)
        births = (self._axis.shown(gathered(self._axis.samples, allocations)),
                  gathered(self._weights, allocations))
        # on an axis of bytes, the allocation rate is always 1
        if allocations and self._axis.unit == TIME:
            self._builder.add_counter(Counter.rate(*births), process.pid)
        if allocations and self._profile.has_lifetimes:
            ends = self._ends_of(process.threads.keys())
            self._builder.add_counter(Counter.held(
                *births, self._axis.shown(ends.moments),
                ends.sums(self._weights), is_raw=self._profile.is_raw,
                alive=self._alive_word(process)), process.pid)
        heap = self._read(process, HEAP)
        if heap:
            self._builder.add_counter(Counter.heap(*map(list, zip(*heap))),
                                      process.pid)
        resident = self._resident(process, rows)
        if resident:
            self._builder.add_counter(Counter.resident(*map(list, zip(*resident))),
                                      process.pid)
        alone = self._read(process, PRIVATE)
        if alone:
            self._builder.add_counter(Counter.private(*map(list, zip(*alone))),
                                      process.pid)

    def _alive_word(self, process: Process) -> str:
        """Return the word for the live objects of the process."""
        return "" if self._profile.is_raw else alive_word(
            is_alive_exact(process.profile or self._profile))

    def _read(self, process: Process, kind: str) -> list[tuple[float, int]]:
        """Return the places on the axis and the bytes of a memory metric."""
        profile = process.profile
        if profile is None:
            return []       # a sum would count shared memory for each process
        read = [(figure.time, figure.value) for figure in readings(profile, kind)]
        if read and read[-1][0] < profile.end and kind != HEAP:
            # The sampler omits readings while a metric hardly changes, so the last one
            # is valid until the end. But the heap changes during sweeping, when it is
            # not read.
            read.append((profile.end, read[-1][1]))
        return [(self._axis.at(time + process.begin), value) for time, value in read]

    def _resident(self, process: Process,
                  rows: Sequence[int]) -> list[tuple[float, int]]:
        """Return the places on the axis and the bytes of the resident memory.

        They come from the readings, or from the samples if there are no readings.
        """
        read = self._read(process, RESIDENT)
        if read or process.profile is None:
            return read
        memory = self._profile.samples.memory
        if not any(memory):
            return []
        times = self._axis.shown(self._axis.samples)
        return [(times[row], memory[row] * 1024) for row in rows if memory[row] > 0]


class _RawMemory(_Conversion):
    """The conversion of native memory, added to a file of the GC's heap.

    Each process has one thread, with the allocations of all its threads, and a counter.
    """

    def __init__(self, profile: Profile, unit: str, builder: ProfileBuilder) -> None:
        super().__init__(profile, unit, builder)
        #: track of each process that is not in the file yet, by Process.pid
        self._left: dict[str, Track] = {}
        for track in self._tracks.all(by_key(self._axis.samples)):
            self._left.setdefault(track.process.pid, track)
        self._found = stacks.add(profile, builder, self._origins, None, has_idle=True)

    def add(self, pid: str, end: float) -> None:
        """Add the thread and the counter of a process, unless they are in the file."""
        track = self._left.pop(pid, None)
        if track is None:
            return
        thread = self._thread(track.process, RAW_MEMORY, "malloc")
        self._draw(thread, track.allocations, self._profile.samples.stack,
                   gathered(self._weights, track.allocations), threads.BYTES, end,
                   self._found.idle, shown=self._found.code)
        self._set_allocations(thread, track, self._found)
        self._builder.add_thread(thread)
        ends = self._ends_of(track.numbers)
        self._builder.add_counter(Counter.held(
            self._axis.shown(gathered(self._axis.samples, track.allocations)),
            gathered(self._weights, track.allocations), self._axis.shown(ends.moments),
            ends.sums(self._weights), is_raw=True), pid)

    def add_others(self, end: float) -> None:
        """Add the processes that have no thread in the file yet."""
        for pid in list(self._left):
            self.add(pid, end)


def _held(process: Process) -> Held | None:
    """Return the retainers from the last heap snapshot, None without a valid answer."""
    last = process.profile.last_held if process.profile else None
    return last if last and not last.problem else None


def _bytes(size: int, live_size: int, interval: int, gaps: str) -> float:
    """Return the bytes that a row represents, after lives.split_shrunk()."""
    return weight_live_bytes(size, abs(live_size), interval, gaps)


def _objects(size: int, live_size: int, interval: int, gaps: str) -> float:
    """Return the number of objects that a row represents, after split_shrunk()."""
    return weight_objects(size, interval, gaps) if live_size >= 0 else 0.0


class _Weights(dict[tuple[int, int, int], float]):
    """A cache of the bytes or objects that samples represent.

    The keys are size, live size and interval. The value of a CPU sample is 0.0.
    """

    def __init__(self, samples: Samples, gaps: str,
                 weight_of: Callable[[int, int, int, str], float]) -> None:
        super().__init__()
        self._columns = samples.size, samples.live_size, samples.interval
        #: whether the weight depends only on the size, as in most profiles: the
        #: interval is constant, and no object was shrunk
        self._is_by_size = is_one(samples.live_size) and is_one(samples.interval)
        self._gaps = gaps
        self._weight_of = weight_of

    def __missing__(self, key: tuple[int, int, int]) -> float:
        weight = self[key] = self._weight_of(*key, self._gaps) if key[0] else 0.0
        return weight

    def of(self, rows: Sequence[int]) -> Iterator[float]:
        """Return the weight of each row."""
        size, live_size, interval = self._columns
        if self._is_by_size:
            sizes = gathered(size, rows)
            of_size = {one: self[one, live_size[0], interval[0]] for one in set(sizes)}
            return map(of_size.__getitem__, sizes)
        return map(self.__getitem__, zip(*(
            gathered(column, rows) for column in self._columns)))

    def rounded(self) -> array.array[int]:
        """Return the weights of all rows as integers.

        The sum of the first n weights has an error of at most one half, for every n. So
        the total is exact to the byte.
        """
        everything = range(len(self._columns[0]))
        try:
            sums = array.array("q", map(
                float.__round__, accumulate(self.of(everything))))
        except OverflowError:
            # the profile is damaged, because no machine has that much memory
            sums = array.array("q", (
                round(min(total, MOST)) for total in accumulate(self.of(everything))))
        return array.array("q", map(operator.sub, sums, chain((0,), sums)))
