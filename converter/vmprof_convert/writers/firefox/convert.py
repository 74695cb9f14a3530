"""From a profile to the Firefox Profiler's format."""
from __future__ import annotations

import bisect
import json
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import BinaryIO, NamedTuple, TypeVar

from vmprof_convert import lifetimes, type_names
from vmprof_convert.errors import ProfileError
from vmprof_convert.estimator import weight_bytes
from vmprof_convert.model import (
    ALIVE,
    FREED,
    LOST,
    NATIVE,
    PINNED,
    PYTHON,
    Frame,
    Profile,
)
from vmprof_convert.program import Program
from vmprof_convert.type_names import TypeNames
from vmprof_convert.writers.firefox import categories
from vmprof_convert.writers.firefox.builder import ProfileBuilder
from vmprof_convert.writers.firefox.categories import Category
from vmprof_convert.writers.firefox.counters import Counter
from vmprof_convert.writers.firefox.extra import Entry
from vmprof_convert.writers.firefox.json_types import Json
from vmprof_convert.writers.firefox.markers import Marker
from vmprof_convert.writers.firefox.threads import Thread

#: milliseconds between two time samples, for want of something better
DEFAULT_INTERVAL = 1.0
#: what a period may be, in seconds; others are damage
MIN_PERIOD, MAX_PERIOD = 1e-6, 60.0
#: the first moment behind the dates that the front end can show, in seconds
END_OF_TIME = 253402300800.0

_PRODUCTS = {"pypy": "PyPy", "cpython": "CPython"}

_T = TypeVar("_T")


def write(profile: Profile, out: BinaryIO,
          progress: Callable[[int, int], None] | None = None) -> None:
    """Write `profile` to `out`, as JSON; see convert()."""
    out.write(encode(convert(profile, progress)))


def encode(profile: Json) -> bytes:
    """JSON.  Raises ValueError for NaN and infinities, which JSON has not."""
    return json.dumps(profile, separators=(",", ":"),
                      allow_nan=False).encode("ascii")


def convert(profile: Profile,
            progress: Callable[[int, int], None] | None = None) -> Json:
    """The profile in the processed format, ready for json.dump.

    `progress(done, total)` is called now and then, with numbers of stacks.
    Raises ProfileError if there are no samples.
    """
    samples = profile.samples
    if not len(samples):
        raise ProfileError(
            "the profile has no samples: there is nothing to convert" + (
                "; blocks of kinds that are not known here were passed over: %s"
                % profile.passed_over if profile.unknown else ""))
    pid = profile.settings.get("pid", "")
    last = profile.moments[-1] if profile.moments else None
    interval = _interval(profile)
    builder = ProfileBuilder(
        product=_PRODUCTS.get(profile.interpreter,
                              profile.interpreter or "vmprof"),
        pid=pid or "0", interval=interval,
        start=(profile.start_time * 1e3
               if 0.0 < profile.start_time < END_OF_TIME else 0.0),
        end=last.time / 1e6 if last else 0.0,
        arguments=profile.meta.get("arguments", ""),
        system=profile.meta.get("os", ""), source="vmprof")

    times = _times(profile, interval)
    weights = _weights(profile)
    stacks, sites = _stacks(profile, builder, progress)
    ends = _ends(profile, times, weights) if profile.has_lifetimes else {}

    rows = _rows_by_thread(profile, times)
    for tid in sorted(rows, key=lambda tid: str(tid) != pid):
        time_rows, allocation_rows = rows[tid]
        thread = Thread(_thread_name(tid, pid), tid,
                        main=not builder.has_threads)
        thread.set_time_samples(_pick(times, time_rows),
                                _pick(stacks, time_rows))
        if profile.has_lifetimes:
            entries = _lives(allocation_rows, times, stacks, weights, ends, sites)
            thread.set_allocations(*map(list, zip(*entries)) if entries
                                   else ([], [], []))
        else:
            thread.set_allocations(_pick(times, allocation_rows),
                                   _pick(stacks, allocation_rows),
                                   _pick(weights, allocation_rows))
        if thread.main:
            markers = _markers(profile, weights)
            thread.set_markers(markers, [builder.string(marker.name)
                                         for marker in markers])
        builder.add_thread(thread)

    everything = _ascending(list(range(len(times))), times)
    allocations = [row for row in everything if samples.size[row]]
    if allocations:
        builder.add_counter(Counter.rate(_pick(times, allocations),
                                         _pick(weights, allocations)))
        if profile.has_lifetimes:
            changes = sorted([
                *((times[row], weights[row]) for row in allocations),
                *((end.time, -weights[row]) for row, end in ends.items())],
                key=lambda change: change[0])
            builder.add_counter(Counter.held(*map(list, zip(*changes))))
    resident = [row for row in everything if samples.memory[row] > 0]
    if resident:
        builder.add_counter(Counter.resident(
            _pick(times, resident),
            [samples.memory[row] * 1024 for row in resident]))
    _describe(profile, builder, sum(weights))
    return builder.build()


def _pick(column: Sequence[_T], rows: list[int]) -> list[_T]:
    return list(map(column.__getitem__, rows))


def _interval(profile: Profile) -> float:
    """Milliseconds between two time samples."""
    seconds = profile.period
    if profile.settings:
        # the head's period means something in a stock profile only
        try:
            seconds = float(profile.settings.get("period", ""))
        except ValueError:
            return DEFAULT_INTERVAL
    if not MIN_PERIOD <= seconds < MAX_PERIOD:
        return DEFAULT_INTERVAL
    return seconds * 1e3


def _times(profile: Profile, interval: float) -> list[float]:
    """The samples' times in milliseconds since the start."""
    # Samples without times are spread evenly, one per period, in the order of
    # the file: what is known of them is their order, and that a period of the
    # processor's time lies between two of them.
    times = []
    untimed = 0
    for stamp in profile.samples.time:
        if stamp < 0:
            times.append(untimed * interval)
            untimed += 1
        else:
            times.append(stamp / 1e6)
    return times


def _weights(profile: Profile) -> list[int]:
    """The bytes that each sample stands for; 0: a time sample.

    Rounded so that the sum of the first n, for every n, is off by at most
    half a byte: the total is right to the byte.
    """
    samples = profile.samples
    pairs = list(zip(samples.size, samples.interval))
    weight = {pair: weight_bytes(*pair, profile.gaps) if pair[0] else 0.0
              for pair in set(pairs)}
    sums = list(map(round, accumulate(map(weight.__getitem__, pairs))))
    return list(map(operator.sub, sums, [0, *sums]))


class _FrameIndex(dict[Frame, int]):
    """The builder's index of each of the program's frames."""

    def __init__(self, program: Program, builder: ProfileBuilder):
        super().__init__()
        self._program = program
        self._builder = builder

    def __missing__(self, frame: Frame) -> int:
        function = self._program.function(frame)
        index = self._builder.frame(
            self._builder.function(function.name, function.file, function.line,
                                   python=function.kind == PYTHON),
            _category(function.kind, frame.kind), frame.line)
        self[frame] = index
        return index


def _category(function: str, frame: str) -> Category:
    """Of a frame of this kind, in a function of this kind: all frames of a
    function must agree, but for the subcategory."""
    if function == PYTHON:
        return {"interpreted": categories.INTERPRETED,
                "jit": categories.JIT}.get(frame, categories.PYTHON)
    return categories.NATIVE if function == NATIVE else categories.OTHER


class _End(NamedTuple):
    """Of an object."""

    time: float
    #: what ended it: a name of _SITES
    site: str


#: Where objects end, as far as that is known: deallocations have no stack.
_MINOR, _MAJOR, _OUT_OF_SIGHT = _SITES = (
    "[minor collection]", "[major collection]", "[not followed any further]")


def _ends(profile: Profile, times: list[float],
          weights: list[int]) -> dict[int, _End]:
    """By row.  What nobody followed ends where it got out of sight: so what
    does not end is what the table shows as alive."""
    samples = profile.samples
    result = {}
    for row, (fate, collected, ended) in enumerate(zip(
            samples.fate, samples.collected, samples.ended)):
        then = lifetimes.state(fate, collected, ended)
        # the front end takes a weight of 0 for a birth
        if (then in (lifetimes.STILL_ALIVE, lifetimes.NOT_RECORDED)
                or not weights[row]):
            continue
        site = {lifetimes.DIED_YOUNG: _MINOR,
                lifetimes.FREED_LATER: _MAJOR}.get(then, _OUT_OF_SIGHT)
        # in a damaged profile it may be before the birth
        result[row] = _End(max(times[row], (
            ended if ended >= 0 else collected) / 1e6), site)
    return result


def _lives(rows: list[int], times: list[float], stacks: list[int],
           weights: list[int], ends: dict[int, _End], sites: dict[str, int],
           ) -> list[tuple[float, int, int, int]]:
    """Births and ends of these rows: time, stack, weight, address."""
    births = [(times[row], stacks[row], weights[row], row) for row in rows]
    deaths = [(ends[row].time, sites[ends[row].site], -weights[row], row)
              for row in rows if row in ends]
    # at one time births come first, as the sort leaves them there
    return sorted(births + deaths, key=operator.itemgetter(0))


def _stacks(profile: Profile, builder: ProfileBuilder,
            progress: Callable[[int, int], None] | None,
            ) -> tuple[list[int], dict[str, int]]:
    """The builder's index of each sample's stack; below its function stands the
    type of the object, where types are recorded.  And that of each of _SITES."""
    program = Program(profile)
    frame_index = _FrameIndex(program, builder).__getitem__
    samples = profile.samples
    # time samples are of nothing
    types = ([type_ if size else None for type_, size in
              zip(samples.type, samples.size)] if profile.has_types
             else [None] * len(samples))
    type_frame = _TypeFrames(profile, builder).__getitem__
    # the lost one last
    distinct = sorted(set(zip(samples.stack, types)), key=lambda pair: (
        pair[0] < 0, pair[0], -2 if pair[1] is None else pair[1]))
    stacks = []
    step = len(distinct) // 100 + 1
    number, frames = None, []
    for done, (stack, type_) in enumerate(distinct):
        if progress is not None and done % step == 0:
            progress(done, len(distinct))
        if stack != number:
            number, frames = stack, list(map(frame_index, program.stack(stack)))
        stacks.append(frames if type_ is None else [*frames, type_frame(type_)])
    sites = _SITES if profile.has_lifetimes else ()
    stacks += [[builder.frame(builder.function(site, python=False),
                              categories.COLLECTOR)] for site in sites]
    result = builder.set_stacks(stacks)
    index = dict(zip(distinct, result))
    if progress is not None:
        progress(len(distinct), len(distinct))
    return (list(map(index.__getitem__, zip(samples.stack, types))),
            dict(zip(sites, result[len(distinct):])))


class _TypeFrames(dict[int, int]):
    """The builder's index of a frame for each type of objects."""

    def __init__(self, profile: Profile, builder: ProfileBuilder):
        super().__init__()
        self._names = TypeNames(profile)
        self._builder = builder

    def __missing__(self, number: int) -> int:
        name, kind = self._names.shown(number)
        index = self._builder.frame(
            self._builder.function(name, python=False), _TYPES.get(
                kind, categories.TYPE))
        self[number] = index
        return index


_TYPES = {type_names.CLASS: categories.CLASS,
          type_names.STORAGE: categories.STORAGE,
          type_names.INTERNAL: categories.INTERNAL,
          type_names.LAYOUT: categories.INTERNAL}


def _markers(profile: Profile, weights: list[int]) -> list[Marker]:
    """Collections, and what the program marked, by time."""
    samples = profile.samples
    minors = [c for c in profile.collections if not c.is_major]
    majors = [c for c in profile.collections if c.is_major]
    promoted = _by_event([c.time + c.duration for c in minors], (
        (collected, weight) for fate, collected, weight in zip(
            samples.fate, samples.collected, weights)
        if fate in (ALIVE, FREED, LOST, PINNED)))
    freed = _by_event([c.time for c in majors], (
        (ended, weight) for fate, ended, weight in zip(
            samples.fate, samples.ended, weights) if fate == FREED))
    result = [
        *(Marker("MinorCollection", "Minor collection", c.time / 1e6,
                 (c.time + c.duration) / 1e6,
                 {"allocated": c.number, "promoted": bytes_},
                 categories.COLLECTOR) for c, bytes_ in zip(minors, promoted)),
        *(Marker("MajorCollection", "Major collection", c.time / 1e6,
                 (c.time + c.duration) / 1e6 if c.duration else None,
                 {"number": c.number, "freed": bytes_}, categories.COLLECTOR)
          for c, bytes_ in zip(majors, freed)),
        *(Marker("Mark", "Mark", mark.time / 1e6, None, {"text": mark.name})
          for mark in profile.marks)]
    return sorted(result, key=lambda marker: marker.start)


def _by_event(times: list[int], parts: Iterable[tuple[int, int]]) -> list[int]:
    """For each of the events at these times, the sum of the parts, each a time
    and a number, that it is nearest to."""
    result = [0] * len(times)
    for time, number in parts:
        at = bisect.bisect_left(times, time)
        if at == len(times) or (at and time - times[at - 1] < times[at] - time):
            at -= 1
        if at >= 0:
            result[at] += number
    return result


def _rows_by_thread(profile: Profile, times: list[float],
                    ) -> dict[int, tuple[list[int], list[int]]]:
    """For each thread, in the order in which they appear, the rows of its
    time samples and those of its allocation samples, by time."""
    rows: dict[int, tuple[list[int], list[int]]] = {}
    for row, (tid, size) in enumerate(
            zip(profile.samples.thread, profile.samples.size)):
        pair = rows.get(tid)
        if pair is None:
            pair = rows[tid] = ([], [])
        pair[size > 0].append(row)
    return {tid: (_ascending(pair[0], times), _ascending(pair[1], times))
            for tid, pair in rows.items()}


def _ascending(rows: list[int], times: list[float]) -> list[int]:
    return sorted(rows, key=times.__getitem__)


def _thread_name(tid: int, pid: str) -> str:
    if str(tid) == pid:
        return "MainThread"
    # PyPy's own time samples don't tell which thread they met
    return "Thread %d" % tid if tid else "All threads"


def _describe(profile: Profile, builder: ProfileBuilder,
              estimate: int) -> None:
    """Fill the panel "Profile info"."""
    samples = profile.samples
    allocations = sum(map(bool, samples.size))
    last = profile.moments[-1] if profile.moments else None
    if allocations or profile.settings:
        entries = [
            Entry("Allocation samples", "integer", allocations),
            Entry("Allocated, estimated from the samples", "bytes", estimate)]
        if last:
            entries.append(Entry("Allocated, counted by the GC", "bytes",
                                 last.allocated))
        builder.add_extra("Allocation samples", entries)
    entries = [
        Entry("Samples whose stack got lost", "integer",
              profile.lost_stacks),
        Entry("Samples whose stack was deeper than vmprof records", "integer",
              profile.cut_stacks),
        Entry("Child processes that were not sampled", "integer",
              profile.children),
        Entry("Cut off at the end", "bytes", profile.torn)]
    if last:
        entries += [
            Entry("Time samples dropped", "integer", last.dropped),
            Entry("Memory pressures, each hides some bytes from the GC's count",
                  "integer", last.pressures),
            Entry("Times the GC changed its state unseen", "integer",
                  last.surprises),
            Entry("Minor collections", "integer", last.collections)]
    if profile.unknown:
        entries.append(Entry("Blocks of kinds that are not known, passed over",
                             "string", profile.passed_over))
    if profile.ended:
        entries.append(Entry("Why the profile ends before the program did",
                             "string", profile.ended))
    builder.add_extra("Losses", entries)
    if profile.settings:
        builder.add_extra("Settings", [
            Entry(key, "string", value)
            for key, value in profile.settings.items()
            if key not in ("children", "ended")])
