"""From a profile to the Firefox Profiler's format."""
from __future__ import annotations

import json
import operator
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import BinaryIO, TypeVar

from vmprof_convert.errors import ProfileError
from vmprof_convert.estimator import weight_bytes
from vmprof_convert.model import NATIVE, PYTHON, Frame, Profile
from vmprof_convert.program import Program
from vmprof_convert.writers.firefox import categories
from vmprof_convert.writers.firefox.builder import ProfileBuilder
from vmprof_convert.writers.firefox.categories import Category
from vmprof_convert.writers.firefox.counters import Counter
from vmprof_convert.writers.firefox.extra import Entry
from vmprof_convert.writers.firefox.json_types import Json
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
    index = _stacks(profile, builder, progress)
    stacks = list(map(index.__getitem__, samples.stack))

    rows = _rows_by_thread(profile, times)
    for tid in sorted(rows, key=lambda tid: str(tid) != pid):
        time_rows, allocation_rows = rows[tid]
        thread = Thread(_thread_name(tid, pid), tid,
                        main=not builder.has_threads)
        thread.set_time_samples(_pick(times, time_rows),
                                _pick(stacks, time_rows))
        thread.set_allocations(_pick(times, allocation_rows),
                               _pick(stacks, allocation_rows),
                               _pick(weights, allocation_rows))
        builder.add_thread(thread)

    everything = _ascending(list(range(len(times))), times)
    allocations = [row for row in everything if samples.size[row]]
    if allocations:
        builder.add_counter(Counter.rate(_pick(times, allocations),
                                         _pick(weights, allocations)))
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


def _stacks(profile: Profile, builder: ProfileBuilder,
            progress: Callable[[int, int], None] | None) -> list[int]:
    """The builder's index of each of the profile's stacks; and then, so that
    it is number -1, that of a lost one if there are any."""
    program = Program(profile)
    frame_index = _FrameIndex(program, builder).__getitem__
    stacks = []
    total = len(profile.stacks)
    step = total // 100 + 1
    for number in range(total):
        if progress is not None and number % step == 0:
            progress(number, total)
        stacks.append(list(map(frame_index, program.stack(number))))
    if -1 in profile.samples.stack:
        stacks.append(list(map(frame_index, program.stack(-1))))
    result = builder.set_stacks(stacks)
    if progress is not None:
        progress(total, total)
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
