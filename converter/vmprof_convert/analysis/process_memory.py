"""What was read of the whole process, in two lines."""
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
    """Those of one kind, by time."""
    return [figure for figure in profile.figures if figure.kind == kind]


def most_until(read: Sequence[Figure]) -> list[Figure]:
    """The largest until each of these readings."""
    values = accumulate((figure.value for figure in read), max)
    return [figure._replace(value=value) for figure, value in zip(read, values)]


def untouched(profile: Profile, times: Sequence[int]) -> list[int]:
    """Bytes of the nursery in which nothing was allocated until each of these times,
    which ascend.  The GC has them of the system, but they are in no figure of the
    process's memory: a nursery may be of hundreds of MiB (half of the processor's
    cache), and a program takes seconds to fill it for the first time.

    All of it but what was allocated at most between two minor collections: there may be
    fewer, if some was touched before the sampling began, or more, as large objects are
    elsewhere.
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


#: nanoseconds; between a reading and the end of the profile there are less
_NEAR = 10**9
#: of what malloc has in use, a smaller share may be its bookkeeping
_LEAST = 0.01
#: likewise, of what it has come to have in use, beside as much again as was asked for:
#: that of small blocks
_BOOKKEEPING = 4 << 20


class Growth(NamedTuple):
    """Of resident memory, in bytes."""

    #: how often it was read, and what it was at first and at last
    readings: int
    first: int
    last: int
    #: what it grew by where it grew, and shrank by where it shrank
    grown: int
    shrunk: int
    #: of what it grew by: for each stack and type, what counts for it
    parts: dict[tuple[int, int], float]
    #: what the GC's heap can't have: the process grew by more than the GC took of the
    #: system; None: what that has was not read
    outside: float | None
    #: and what is more than all that was sampled meanwhile
    unexplained: float
    #: "at the end", or when that was
    until: str


def growth(profile: Profile) -> Growth:
    """Attribute the growth of the resident memory to the stacks that allocated.

    The growth between two readings, without the memory outside of the GC's heap, is
    divided among the samples taken between the readings, in proportion to their bytes
    and up to their bytes.  A program may touch a block only after the reading that
    follows its sample: the rest of the growth is divided among the unexplained bytes of
    the samples before the first of the two readings.  In each case, objects that were
    not short-lived come first, because the nursery is used again and again.

    The growth is outside of the heap as far as the difference between the resident
    memory and the heap has grown, too, since the first reading.

    Raises:
        ProfileError: The profile has fewer than two readings.
    """
    read = readings(profile, RESIDENT)
    if len(read) < 2:
        raise ProfileError(
            "resident memory was read %s in this run, and what it grew by takes two "
            "readings: it is read ten times a second" % (
                "once" if read else "not at all"))
    samples = profile.samples
    rows = sorted((row for row, size in enumerate(samples.size) if size),
                  key=samples.time.__getitem__)
    above = _above_heap(profile, read)
    at, grown, shrunk, outside, unexplained = 0, 0, 0, 0.0, 0.0
    # of the growth of that difference, what was counted
    counted = 0.0
    parts: dict[tuple[int, int], float] = {}
    # the tiers of the interval before, without the bytes that explained its growth
    before_it: list[dict[tuple[int, int], float]] = []
    while at < len(rows) and samples.time[rows[at]] <= read[0].time:
        at += 1
    for number, (before, after) in enumerate(zip(read, read[1:]), 1):
        # those that survived, and those that died young
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
        # the GC has now more, and now less: what was counted is right again later on
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
    """By how much resident memory is more than the most that the GC has touched until
    then, at each of these readings of it; empty: what the GC has was not read.  It is
    not read while the GC sweeps: then it counts as in proportion between two
    readings."""
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
    """Of equal ones, the first."""
    return max(figures, key=lambda figure: figure.value)


def _most(figure: Figure) -> str:
    return "at most %s (at %.2f s)" % (format_bytes(figure.value), figure.time / 1e9)


def _last_read(figure: Figure) -> str:
    return "when last read (at %.2f s)" % (figure.time / 1e9)


def _when(profile: Profile, last: Figure) -> str:
    """The last one of resident memory.  It is read once more when the profile ends, but
    of who was killed, or runs on, or has closed our files."""
    return "at the end" if _is_of_end(profile, last) else _last_read(last)


def _is_of_end(profile: Profile, last: Figure) -> bool:
    return profile.end_time is not None and profile.end - last.time < _NEAR


def raw_in_use_at_end(profile: Profile) -> int | None:
    """Bytes that C code had in use, by malloc's own count, when the profile ended;
    None: that was not read, as of a process that was killed."""
    counted = readings(profile, RAW_IN_USE)
    return counted[-1].value if counted and _is_of_end(profile, counted[-1]) else None


def _each(profile: Profile) -> list[Profile]:
    """Of several processes, their own profiles."""
    return [process.profile for process in profile.processes] or [profile]


def missed_requests(profile: Profile, alive: Estimate) -> float | None:
    """Return the growth of malloc's own count that the sampled blocks do not explain.

    Args:
        profile: The samples of native memory.
        alive: The bytes in use, by all samples of the profile.

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
    """How many bytes of raw memory more are `alive`, by all samples of the profile and
    beyond doubt, than malloc itself has in use: so many at least were given back
    unseen.  0: none, or it is not known."""
    counted = [raw_in_use_at_end(process) for process in _each(profile)]
    if not profile.is_raw or None in counted:
        return 0.0
    sum_ = sum(one or 0 for one in counted)
    too_many = alive.low - sum_
    return too_many if too_many > _LEAST * sum_ else 0.0


def in_brief(profile: Profile) -> str:
    """Resident memory at the end, and how much of it is the GC's; empty: it was not
    read, or of several processes."""
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
    """Its resident memory, the heap of its GC, and what else malloc has in use: the
    peak and when; nothing of what was not read."""
    return _of_memory(profile) + _of_heap(profile) + of_malloc(profile)


def of_malloc(profile: Profile) -> list[str]:
    """What malloc itself counts; nothing, if that was not read, or of several
    processes."""
    counted = readings(profile, RAW_IN_USE)
    if not counted:
        return []
    # (of a forked child, it is read at its end alone)
    before = "" if len(counted) == 1 else (
        "%s in use when sampling began, " % format_bytes(counted[0].value))
    return ["raw memory, as malloc counts it: %s%s %s" % (
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
    """What is read seldom, or not while the GC sweeps: that may be long before the
    end."""
    most, last = peak(figures), figures[-1]
    if len(figures) == 1:       # of one, nobody knows whether it was the most
        return "%s %s" % (format_bytes(last.value), _last_read(last))
    if most.value == last.value:
        return _most(most)
    return "%s, %s %s" % (_most(most), format_bytes(last.value), _last_read(last))


def in_numbers(profile: Profile) -> dict[str, dict[str, float]]:
    """Of each kind of memory that was read: bytes when it was read first, when they
    were most, and when it was read last; and when that was, in seconds."""
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
