"""Measure the memory of a process between the moments that `leaks` compares.

The sampler samples only objects of the GC. The memory that C code keeps (ctypes, cffi,
array, mmap, C extensions) is part of the resident memory, but of no leak. The sampler
reads the resident memory about ten times per second. Therefore each result about leaks
is shown together with the growth of the process.

The growth *outside* of the GC's heap is the growth of the process minus two parts. The
first one is the memory that the GC got from the system for the first time. The second
one is the newly used part of the nursery. For this purpose, the GC's memory is the
maximum until the moment in question. Memory that the GC frees between two major
collections stays resident, or is used again before the next one.

The growth of the process is the smaller one of the growth of resident memory and of
private memory (USS). Resident memory also grows by pages of files that are read through
mmap. Private memory also grows by pages that a forked process shared with its parent
until it wrote to these pages. Neither is a leak, and each affects only one of the two
numbers. But private memory also shrinks when a process is forked. Then the smaller
number hides a leak, and the result is unknown (`Memory.is_far`).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vmprof_convert.analysis.leaks.windows import Windows
from vmprof_convert.analysis.process_memory import most_until, readings, untouched
from vmprof_convert.profile.model import (
    HEAP,
    HEAP_HAS,
    PRIVATE,
    RESIDENT,
    Figure,
    Profile,
)

#: the bytes at the three moments that bound the two windows (windows.py)
Moments = tuple[float, float, float]

#: Resident memory divided by this number is the largest error of a difference. The
#: sampler omits changes of less than 1/128 (RESIDENT_PART in native/shared/figures.c),
#: of resident memory and of the heap, at two moments each.
_PART = 32
#: the bytes by which malloc, the JIT's machine code and the sampler's own tables grow
#: in one second while a program warms up
_LEAST = 2**21
#: the largest ratio between the growth rates of the two windows in a process that leaks
_STEADY = 3
#: the approximate time in nanoseconds between two readings
_PAUSE = 10**8


class Memory(NamedTuple):
    """The memory of one process, or the sums of several processes, in bytes."""

    resident: Moments
    #: the private memory, which is read seldom; None without a reading before the first
    #: moment and a reading after the last moment
    private: Moments | None
    #: the part of the GC's memory that the GC has touched; None if the GC's memory was
    #: not read. If a profile only has the used part of the heap, this part instead
    heap: Moments | None
    #: the maximum of `heap` until each of the moments
    most: Moments | None
    #: the bytes by which the process grew outside of the GC's heap, from 100 ms after
    #: the first moment to 100 ms before the last. Growth between two readings may have
    #: occurred outside of the windows, so that 100 ms at both ends are omitted
    surely_outside: float
    #: the bytes per second by which resident memory grew outside of the GC's heap in
    #: each window
    rates: tuple[float, float]

    @property
    def grown(self) -> float:
        """Return the growth of the process in bytes; negative if it shrank."""
        grown = _change(self.resident)
        return grown if self.private is None else min(grown, _change(self.private))

    @property
    def explained(self) -> float:
        """Return the part of the growth that may belong to the GC's heap, in bytes."""
        if self.most is None:
            return 0.0
        return max(min(_change(self.most), self.grown), 0.0)

    @property
    def outside(self) -> float:
        """Return the growth outside of the GC's heap, in bytes.

        If the GC's heap was not read, this is the whole growth.
        """
        return max(self.grown - self.explained, 0.0)

    @property
    def is_far(self) -> bool | None:
        """Return whether the process clearly grew outside of the GC's heap.

        The growth has to exceed the errors of the readings, and the growth of a program
        that keeps nothing. It also has to occur in both windows. A program that warms
        up, or whose malloc keeps freed memory, grows in only one window.

        Returns:
            None if resident memory grew and private memory did not. Private memory also
            shrinks when the process is forked, or when another process maps the same
            files.
        """
        least = max(_LEAST, self.resident[0] / _PART)
        if self.surely_outside > least:
            return min(self.rates) > max(self.rates) / _STEADY
        if self.private is None or _change(self.resident) == self.grown:
            return False
        of_heap = _change(self.most) if self.most else 0.0
        return None if _change(self.resident) - of_heap > least else False


def memory_of(profile: Profile, windows: Windows) -> Memory | None:
    """Return the memory of a process; None if resident memory was not read.

    Args:
        profile: the profile of the process.
        windows: the three compared moments of the process.
    """
    first, middle, last = (windows.times[number] for number in (
        windows.first, windows.middle, windows.last))
    found = _between(profile, [first, middle, last])
    if found is None or last - first <= 2 * _PAUSE:
        return found
    found = found._replace(rates=_rates(found, (middle - first, last - middle)))
    inner = _between(profile, [first + _PAUSE, middle, last - _PAUSE])
    return found._replace(
        surely_outside=min(inner.outside, found.outside) if inner else 0.0)


def _between(profile: Profile, times: Sequence[int]) -> Memory | None:
    """Return the memory at three moments, without `surely_outside` and `rates`.

    Returns None if resident memory was not read before the last of the moments.
    """
    resident = _at(readings(profile, RESIDENT), times)
    if resident is None:
        return None
    read = readings(profile, HEAP_HAS)
    not_touched = [0, 0, 0]
    if read:
        # Resident memory was read up to 100 ms before or after these moments. Memory
        # that the GC touched in this time must not count as outside.
        not_touched = untouched(profile, [times[0] - _PAUSE, times[1],
                                          times[2] + _PAUSE])
    else:
        read = readings(profile, HEAP)
    heap, most = (_less(_at(figures, times), not_touched)
                  for figures in (read, most_until(read)))
    return Memory(resident, _at_seldom(readings(profile, PRIVATE), times), heap, most,
                  0.0, (0.0, 0.0))


def _less(moments: Moments | None, less: Sequence[float]) -> Moments | None:
    """Subtract a number of bytes from the memory at each moment."""
    if moments is None:
        return None
    first, middle, last = (value - part for value, part in zip(moments, less))
    return first, middle, last


def _rates(memory: Memory, nanoseconds: tuple[int, int]) -> tuple[float, float]:
    """Return the growth rates of resident memory (see Memory.rates).

    Private memory is read so seldom that growth in one window would seem to occur in
    both.
    """
    process, most = memory.resident, memory.most or (0.0, 0.0, 0.0)
    first, second = (
        1e9 * (process[number + 1] - process[number]
               - max(most[number + 1] - most[number], 0.0)) / max(time, 1)
        for number, time in enumerate(nanoseconds))
    return first, second


def memory_of_all(memories: Sequence[Memory | None]) -> Memory | None:
    """Return the summed memory of all processes; None if it is unknown for one."""
    known = [memory for memory in memories if memory is not None]
    if not known or len(known) < len(memories):
        return None
    private, heap, most = (
        None if None in column else _sum([one for one in column if one is not None])
        for column in ([memory.private for memory in known],
                       [memory.heap for memory in known],
                       [memory.most for memory in known]))
    return Memory(_sum([memory.resident for memory in known]), private, heap, most,
                  sum(memory.surely_outside for memory in known),
                  (sum(memory.rates[0] for memory in known),
                   sum(memory.rates[1] for memory in known)))


def _change(moments: Moments) -> float:
    return moments[2] - moments[0]


def _sum(all_: Sequence[Moments]) -> Moments:
    first, middle, last = map(sum, zip(*all_))
    return first, middle, last


def _at(read: Sequence[Figure], times: Sequence[int]) -> Moments | None:
    """Return the memory at three times, for memory that is read ten times per second.

    The profile omits readings that hardly differ from the previous one. So a value is
    valid until shortly before the next one. Returns None if the first reading is not
    earlier than the last one of the three times.
    """
    if not read or read[0].time >= times[-1]:
        return None
    first, middle, last = (_value(read, time, _PAUSE) for time in times)
    return first, middle, last


def _at_seldom(read: Sequence[Figure], times: Sequence[int]) -> Moments | None:
    """Return the memory at three times, for memory that is read seldom.

    The result is interpolated between two readings, because the memory may have changed
    at any time between them. Returns None if the first reading is later than the first
    time, or the last reading is earlier than the last time.
    """
    if not read or read[0].time > times[0] or read[-1].time < times[-1]:
        return None
    first, middle, last = (_value(read, time, None) for time in times)
    return first, middle, last


def _value(read: Sequence[Figure], time: int, pause: int | None) -> float:
    """Return the memory at one time, interpolated between two readings.

    Args:
        read: the readings, in the order of their times.
        time: the time in nanoseconds.
        pause: the nanoseconds before a reading in which the memory may have changed;
            None for the whole time since the previous reading.
    """
    if time <= read[0].time:
        return read[0].value
    for before, after in zip(read, read[1:]):
        if time <= after.time:
            begin = before.time if pause is None else max(
                before.time, after.time - pause)
            share = (time - begin) / (after.time - begin) if time > begin else 0.0
            return before.value + share * (after.value - before.value)
    return read[-1].value
