"""What the process's memory did between the moments that `report --leaks` compares.

Only the GC's objects are sampled.  What C code keeps (ctypes, cffi, array, mmap, C
extensions) is in the resident memory, which was read about ten times a second, and in
no leak.  So no verdict about leaks stands without this one beside it.

The memory that came *outside* of the GC's heap is what the process grew by, less what
the GC took of the system for the first time meanwhile, and of its nursery.  So what the
GC has counts with the most that it had until then: what it frees between two major
collections stays resident, or is back before the next one.  The process
grew by the smaller one of two figures: resident memory grows also by pages of files
that are read through mmap, and private memory (USS) also by pages that a forked process
shared with its parent until it wrote to them.  Neither is a leak, and neither is in the
other figure.  But private memory also shrinks, when a process is forked: then the
smaller figure hides a leak, and whether there is one is not known (`Memory.is_far`).
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

#: bytes at the three moments of the windows
Moments = tuple[float, float, float]

#: one part in so many of resident memory is the largest error of a difference: the
#: sampler records no change of less than 1/128 (RESIDENT_PART in
#: native/shared/figures.c), of resident memory and of the heap, at two moments each
_PART = 32
#: bytes: malloc, the JIT's machine code and the sampler's own tables grow by as much in
#: a second of a program that warms up
_LEAST = 2**21
#: in one window, a process grows at most so many times as fast as in the other
_STEADY = 3
#: nanoseconds from one reading to the next, about
_PAUSE = 10**8


class Memory(NamedTuple):
    """Of one process, or of several the sums."""

    resident: Moments
    #: None: it was not read from the first moment to the last one; it is read seldom
    private: Moments | None
    #: what the GC has touched of what it has of the system, or where that is not
    #: recorded what is in use of the heap; None: neither was read
    heap: Moments | None
    #: and the most of it until each of the moments
    most: Moments | None
    #: bytes that the process grew by outside of the GC's heap from one pause between
    #: readings after the first moment to one before the last: when memory between two
    #: readings came, nothing tells, so it may have come outside of the windows
    surely_outside: float
    #: bytes a second that it grew by outside of the GC's heap in each of the windows,
    #: as resident memory says
    rates: tuple[float, float]

    @property
    def grown(self) -> float:
        """Bytes that the process grew by; negative: it shrank."""
        grown = _change(self.resident)
        return grown if self.private is None else min(grown, _change(self.private))

    @property
    def explained(self) -> float:
        """Of what it grew by, the bytes that the GC's heap may have."""
        if self.most is None:
            return 0.0
        return max(min(_change(self.most), self.grown), 0.0)

    @property
    def outside(self) -> float:
        """Bytes that the process grew by outside of the GC's heap; where that was not
        read, all that it grew by."""
        return max(self.grown - self.explained, 0.0)

    @property
    def is_far(self) -> bool | None:
        """Whether it grew outside of the GC's heap by more than the readings' errors,
        and than what a program that keeps nothing grows by; and in both windows, as
        only a program that warms up, or malloc that keeps what was freed, does it in
        one.  None: resident memory did, and private memory did not, which also shrinks
        when a process is forked, or another one starts that has the same files
        mapped."""
        least = max(_LEAST, self.resident[0] / _PART)
        if self.surely_outside > least:
            return min(self.rates) > max(self.rates) / _STEADY
        if self.private is None or _change(self.resident) == self.grown:
            return False
        of_heap = _change(self.most) if self.most else 0.0
        return None if _change(self.resident) - of_heap > least else False


def memory_of(profile: Profile, windows: Windows) -> Memory | None:
    """None: resident memory was not read."""
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
    resident = _at(readings(profile, RESIDENT), times)
    if resident is None:
        return None
    read = readings(profile, HEAP_HAS)
    not_touched = [0, 0, 0]
    if read:
        # resident memory was read up to a pause before or after: what the GC touched
        # meanwhile is not to count as outside
        not_touched = untouched(profile, [times[0] - _PAUSE, times[1],
                                          times[2] + _PAUSE])
    else:
        read = readings(profile, HEAP)
    heap, most = (_less(_at(figures, times), not_touched)
                  for figures in (read, most_until(read)))
    return Memory(resident, _at_seldom(readings(profile, PRIVATE), times), heap, most,
                  0.0, (0.0, 0.0))


def _less(moments: Moments | None, less: Sequence[float]) -> Moments | None:
    if moments is None:
        return None
    first, middle, last = (value - part for value, part in zip(moments, less))
    return first, middle, last


def _rates(memory: Memory, nanoseconds: tuple[int, int]) -> tuple[float, float]:
    """Memory.rates: of resident memory, as private memory is read so seldom that what
    came in one of the windows seems to have come in both."""
    process, most = memory.resident, memory.most or (0.0, 0.0, 0.0)
    first, second = (
        1e9 * (process[number + 1] - process[number]
               - max(most[number + 1] - most[number], 0.0)) / max(time, 1)
        for number, time in enumerate(nanoseconds))
    return first, second


def memory_of_all(memories: Sequence[Memory | None]) -> Memory | None:
    """The sum; None: one of them is not known."""
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
    """The figure at each of these times.  The profile omits readings in which hardly
    anything changed, so that a value holds until shortly before the next one.  None if
    the first reading is later than the last of these times."""
    if not read or read[0].time >= times[-1]:
        return None
    first, middle, last = (_value(read, time, _PAUSE) for time in times)
    return first, middle, last


def _at_seldom(read: Sequence[Figure], times: Sequence[int]) -> Moments | None:
    """The figure at each of these times, if it is read seldom: interpolated between two
    readings, as it may have changed at any moment between them.  None if the readings
    do not reach from the first of these times to the last one."""
    if not read or read[0].time > times[0] or read[-1].time < times[-1]:
        return None
    first, middle, last = (_value(read, time, None) for time in times)
    return first, middle, last


def _value(read: Sequence[Figure], time: int, pause: int | None) -> float:
    if time <= read[0].time:
        return read[0].value
    for before, after in zip(read, read[1:]):
        if time <= after.time:
            begin = before.time if pause is None else max(
                before.time, after.time - pause)
            share = (time - begin) / (after.time - begin) if time > begin else 0.0
            return before.value + share * (after.value - before.value)
    return read[-1].value
