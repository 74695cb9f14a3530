"""Analyse the memory of the whole process: resident memory, the GC's heap and malloc.

The sampler reads these metrics, so that they are exact and need no estimate
(model.Figure). growth() attributes the growth of the resident memory to stacks.
of_process() and of_malloc() return lines for the report. missed_requests() and
missed_frees() compare the samples of native memory with malloc's own count.
"""
from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.estimator import Estimate, weight_live_bytes
from vmprof_convert.profile.model import (
    DIED,
    HEAP,
    HEAP_HAS,
    MAJOR_FAULTS,
    NURSERY,
    PRIVATE,
    RAW_IN_USE,
    RESIDENT,
    Figure,
    Profile,
)
from vmprof_convert.text.units import format_bytes, format_number


def readings(profile: Profile, kind: str) -> list[Figure]:
    """Return the readings of the metric `kind`, in the order of time."""
    return [figure for figure in profile.figures if figure.kind == kind]


def most_until(read: Sequence[Figure]) -> list[Figure]:
    """Return the readings; the value of each is the largest value so far."""
    values = accumulate((figure.value for figure in read), max)
    return [figure._replace(value=value) for figure, value in zip(read, values)]


def untouched(profile: Profile, times: Sequence[int]) -> list[int]:
    """Return the bytes of the nursery that were never used until each of these times.

    The GC has got these bytes from the system, but they are not resident. A nursery may
    have hundreds of MiB (half of the processor's cache), and a program takes seconds to
    fill it for the first time.

    The result is the size of the nursery minus the largest number of bytes that were
    allocated between two minor collections. The exact number is smaller if a part was
    used before the sampling began. It is larger if large objects were allocated, which
    are outside of the nursery.

    Args:
        profile: the profile.
        times: times in nanoseconds, in ascending order.
    """
    nursery = readings(profile, NURSERY)
    size = nursery[-1].value if nursery else 0
    counted = sorted([(c.time, c.number, True) for c in profile.collections
                      if not c.is_major] +
                     [(moment.time, moment.allocated, False)
                      for moment in profile.moments])
    most = begin = at = 0
    result = []
    for time in times:
        while at < len(counted) and counted[at][0] <= time:
            _, allocated, is_collection = counted[at]
            most = max(most, allocated - begin)
            begin = allocated if is_collection else begin
            at += 1
        result.append(max(size - most, 0))
    return result


#: the largest number of nanoseconds before the end of the profile for a reading that
#: counts as a reading at the end
_NEAR = 10**9
#: the largest share of malloc's count that may be malloc's bookkeeping
_LEAST = 0.01
#: the bytes by which malloc's count may exceed twice the sampled bytes, because of the
#: bookkeeping of small blocks
_BOOKKEEPING = 4 << 20


class Growth(NamedTuple):
    """The growth of the resident memory, in bytes."""

    #: the number of readings, and the first and the last value
    readings: int
    first: int
    last: int
    #: the sum of all increases, and the sum of all decreases
    grown: int
    shrunk: int
    #: the part of the increases that is attributed to each stack and type
    parts: dict[tuple[int, int], float]
    #: the increases outside of the GC's heap, where the process grew by more than the
    #: GC got from the system. None if the GC's memory was not read
    outside: float | None
    #: the increases that exceed the bytes of all samples
    unexplained: float
    #: the time of the last reading: "at the end", or a description
    until: str


def growth(profile: Profile) -> Growth:
    """Attribute the growth of the resident memory to the stacks that allocated.

    The growth between two readings, without the growth outside of the GC's heap, is
    divided among the samples between the readings. Each sample gets a share in
    proportion to its bytes, and at most these bytes. A program may touch a block only
    after the reading that follows the sample. Therefore the remaining growth is divided
    among the remaining bytes of the samples between the two readings before. Objects
    that were not short-lived come first each time, because the program uses the nursery
    again and again.

    Growth counts as outside of the heap if the difference between the resident memory
    and the heap has grown since the first reading.

    Raises:
        ProfileError: The profile has fewer than two readings.
    """
    read = readings(profile, RESIDENT)
    if len(read) < 2:
        raise ProfileError(
            "resident memory was read %s in this run, and its growth needs two "
            "readings: it is read ten times a second" % (
                "once" if read else "not at all"))
    samples = profile.samples
    rows = sorted((row for row, size in enumerate(samples.size) if size),
                  key=samples.time.__getitem__)
    above = _above_heap(profile, read)
    at, grown, shrunk, outside, unexplained = 0, 0, 0, 0.0, 0.0
    # the part of the growth outside of the heap that has been counted
    counted = 0.0
    parts: dict[tuple[int, int], float] = {}
    # the tiers of the samples between the two previous readings, without the bytes that
    # already explained growth
    before_it: list[dict[tuple[int, int], float]] = []
    while at < len(rows) and samples.time[rows[at]] <= read[0].time:
        at += 1
    for number, (before, after) in enumerate(zip(read, read[1:]), 1):
        # the bytes of objects that survived, and of short-lived objects, by stack and
        # type
        tiers: list[dict[tuple[int, int], float]] = [{}, {}]
        while at < len(rows) and samples.time[rows[at]] <= after.time:
            row = rows[at]
            key = samples.stack[row], samples.type[row]
            sampled = tiers[samples.fate[row] == DIED]
            sampled[key] = sampled.get(key, 0.0) + weight_live_bytes(
                samples.size[row], samples.live_size[row], samples.interval[row],
                profile.gaps)
            at += 1
        change = after.value - before.value
        # The GC's memory rises and falls. An error here is corrected at a later
        # reading.
        not_counted = above[number] - above[0] - counted if above else 0.0
        if change < 0:
            shrunk -= change
            before_it = []
            counted += min(max(not_counted, change), 0.0)
            continue
        grown += change
        not_heaps = min(max(not_counted, 0.0), change)
        counted += not_heaps
        outside += not_heaps
        left: float = change - not_heaps
        for sampled in (*tiers, *before_it):
            bytes_ = sum(sampled.values())
            explained = min(bytes_, left)
            left -= explained
            for key, weight in sampled.items() if explained else ():
                part = weight / bytes_ * explained
                parts[key] = parts.get(key, 0.0) + part
                sampled[key] = weight - part
        unexplained += left
        before_it = tiers
    return Growth(len(read), read[0].value, read[-1].value, grown, shrunk, parts,
                  outside if above else None, unexplained, _when(profile, read[-1]))


def _above_heap(profile: Profile, read: Sequence[Figure]) -> list[float]:
    """Return by how much resident memory exceeds the memory that the GC has touched.

    The GC's memory is the maximum until each reading. It is not read while the GC
    sweeps; then the value is interpolated between two readings.

    Args:
        profile: the profile.
        read: the readings of resident memory.

    Returns:
        Bytes at each reading; empty if the GC's memory was not read.
    """
    heap = most_until(readings(profile, HEAP_HAS))
    if not heap:
        return []
    times = [figure.time for figure in heap]
    result = []
    for figure, untouched_ in zip(read, untouched(
            profile, [figure.time for figure in read])):
        at = bisect.bisect_right(times, figure.time)
        before, after = heap[max(at - 1, 0)], heap[min(at, len(heap) - 1)]
        share = max(figure.time - before.time, 0) / max(after.time - before.time, 1)
        result.append(figure.value - before.value + untouched_ - min(share, 1.0) * (
            after.value - before.value))
    return result


def peak(figures: Sequence[Figure]) -> Figure:
    """Return the largest reading; the first one if several are equal."""
    return max(figures, key=lambda figure: figure.value)


def _most(figure: Figure) -> str:
    """Return the report's words for the largest reading of a metric."""
    return "at most %s (at %.2f s)" % (format_bytes(figure.value), figure.time / 1e9)


def _last_read(figure: Figure) -> str:
    """Return the report's words for the time of a reading before the end."""
    return "when last read (at %.2f s)" % (figure.time / 1e9)


def _when(profile: Profile, last: Figure) -> str:
    """Return the text for the time of the last reading of resident memory.

    The text is "at the end" if the sampler has read resident memory at the end of the
    profile. The sampler has not if the process was killed, still runs, or has closed
    the sampler's files.
    """
    return "at the end" if _is_of_end(profile, last) else _last_read(last)


def _is_of_end(profile: Profile, last: Figure) -> bool:
    return profile.end_time is not None and profile.end - last.time < _NEAR


def raw_in_use_at_end(profile: Profile) -> int | None:
    """Return malloc's own count of the bytes that C code had in use at the end.

    Returns:
        None if the count was not read at the end, for example because the process was
        killed.
    """
    counted = readings(profile, RAW_IN_USE)
    return counted[-1].value if counted and _is_of_end(profile, counted[-1]) else None


def _each(profile: Profile) -> list[Profile]:
    """Return the profiles of a merged profile's processes, or the profile itself."""
    return [process.profile for process in profile.processes] or [profile]


def missed_requests(profile: Profile, alive: Estimate) -> float | None:
    """Return the growth of malloc's own count that the sampled blocks do not explain.

    Args:
        profile: The samples of native memory.
        alive: The bytes in use, estimated from all samples of the profile.

    Returns:
        Bytes; 0.0 if the blocks explain the growth; None if malloc's count is unknown.
    """
    grown = 0
    for process in _each(profile):
        counted = readings(process, RAW_IN_USE)
        at_end = raw_in_use_at_end(process)
        if not profile.is_raw or at_end is None or len(counted) < 2:
            return None
        grown += at_end - counted[0].value
    return grown - alive.high if grown > 2 * alive.high + _BOOKKEEPING else 0.0


def missed_frees(profile: Profile, alive: Estimate) -> float:
    """Return the bytes of native memory whose free() the sampler has missed.

    Args:
        profile: the samples of native memory.
        alive: the bytes in use, estimated from all samples of the profile.

    Returns:
        The bytes by which the lower end of `alive` exceeds malloc's own count. 0.0 if
        the lower end does not clearly exceed the count, or if the count is unknown.
    """
    counted = [raw_in_use_at_end(process) for process in _each(profile)]
    if not profile.is_raw or None in counted:
        return 0.0
    sum_ = sum(one or 0 for one in counted)
    too_many = alive.low - sum_
    return too_many if too_many > _LEAST * sum_ else 0.0


def in_brief(profile: Profile) -> str:
    """Return one line about resident memory, with the part of the GC or of malloc.

    The line is empty if resident memory was not read, or if there are several
    processes.
    """
    memory = readings(profile, RESIDENT)
    if not memory or profile.processes:
        return ""
    line = "memory: %s resident %s" % (format_bytes(memory[-1].value),
                                       _when(profile, memory[-1]))
    if profile.is_raw:
        counted = raw_in_use_at_end(profile)
        return line + (", %s of it in use by malloc's count" % format_bytes(counted)
                       if counted is not None else "")
    heap = readings(profile, HEAP_HAS)
    return line + (", %s of it the GC's" % format_bytes(
        min(max(heap[-1].value - untouched(profile, [memory[-1].time])[0], 0),
            memory[-1].value)) if heap else "")


def of_process(profile: Profile) -> list[str]:
    """Return lines about the process's resident memory, GC heap and malloc.

    Each line contains the peak and its time. Metrics that were not read have no line.
    """
    return _of_memory(profile) + _of_heap(profile) + of_malloc(profile)


def of_malloc(profile: Profile) -> list[str]:
    """Return one line about malloc's own count, or an empty list if it was not read."""
    counted = readings(profile, RAW_IN_USE)
    if not counted:
        return []
    # In a forked child, the sampler reads the count only at the end.
    before = "" if len(counted) == 1 else (
        "%s in use when sampling began, " % format_bytes(counted[0].value))
    return ["native memory, as malloc counts it: %s%s %s" % (
        before, format_bytes(counted[-1].value), _when(profile, counted[-1]))]


def _of_memory(profile: Profile) -> list[str]:
    memory = readings(profile, RESIDENT)
    if not memory:
        return []
    most, last = peak(memory), memory[-1]
    line = "resident memory: %s at the start, %s%s %s" % (
        format_bytes(memory[0].value),
        "" if most.value == last.value else _most(most) + ", ",
        format_bytes(last.value), _when(profile, last))
    alone = readings(profile, PRIVATE)
    if alone:
        line += "; not shared with other processes (USS): %s" % _until_last_read(alone)
    faults = readings(profile, MAJOR_FAULTS)
    count = faults[-1].value - faults[0].value if faults else 0
    if count > 0:
        line += "; %s had to be read from disk" % format_number(count, "page")
    return [line]


def _of_heap(profile: Profile) -> list[str]:
    heap, system, nursery = (readings(profile, kind)
                             for kind in (HEAP, HEAP_HAS, NURSERY))
    if not heap:
        return []
    line = "GC heap: %s in use" % _until_last_read(heap)
    if nursery:
        line += ", its nursery of %s included" % format_bytes(nursery[-1].value)
    if system:
        line += "; from the system, the GC had %s" % _most(peak(system))
    return [line]


def _until_last_read(figures: Sequence[Figure]) -> str:
    """Return the peak and the last reading of a metric that is read seldom.

    The GC's heap is not read while the GC sweeps, so that the last reading may be long
    before the end.
    """
    most, last = peak(figures), figures[-1]
    if len(figures) == 1:       # a single reading need not be the peak
        return "%s %s" % (format_bytes(last.value), _last_read(last))
    if most.value == last.value:
        return _most(most)
    return "%s, %s %s" % (_most(most), format_bytes(last.value), _last_read(last))


def in_numbers(profile: Profile) -> dict[str, dict[str, float]]:
    """Return the first, the largest and the last reading of each kind of memory.

    The values are bytes. The keys with "_at" contain the times in seconds.
    """
    result = {}
    for kind in RESIDENT, PRIVATE, HEAP, HEAP_HAS, NURSERY, RAW_IN_USE:
        read = readings(profile, kind)
        if read:
            found: dict[str, float] = {}
            for name, figure in (("first", read[0]), ("most", peak(read)),
                                 ("last", read[-1])):
                found[name], found[name + "_at"] = figure.value, figure.time / 1e9
            result[kind.replace("-", "_")] = found
    return result
