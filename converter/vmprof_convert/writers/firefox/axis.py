"""Where things are on the x axis: in time, or in bytes allocated."""
from __future__ import annotations

import array
import bisect
import operator
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, repeat

from vmprof_convert.analysis.by_stack import tick_seconds
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.long_columns import Long, made, picked
from vmprof_convert.profile.model import Profile
from vmprof_convert.writers.firefox.format.columns import Milliseconds

TIME, BYTES = "time", "bytes"

#: milliseconds between two time samples, for want of something better
DEFAULT_INTERVAL = 1.0
#: how long a run may be, in seconds: longer than anybody waits
_MAX_RUN = 1e8


class Axis:
    """Milliseconds since the start, or bytes allocated since then.  A place on it is a
    number of microseconds, or of bytes."""

    def __init__(self, profile: Profile, weights: Sequence[int], unit: str):
        """`weights`: bytes that each sample stands for.  Raises ProfileError if
        there are none."""
        self.unit = unit
        #: milliseconds between two time samples; 0.0: there are none
        self.interval = _interval(profile)
        #: the place of each sample
        self.samples: Sequence[int] = _times(profile, self.interval or DEFAULT_INTERVAL)
        self._times: Sequence[int] = ()
        self._bytes: list[int] = []
        if unit == BYTES:
            rows = sorted((row for row, weight in enumerate(weights) if weight),
                          key=self.samples.__getitem__)
            if not rows:
                raise ProfileError("there are no allocation samples, which an axis "
                                   "in bytes needs")
            self.interval = 0.0
            # (rows of several processes take turns)
            self._times = list(picked(self.samples, rows))
            self._bytes = list(accumulate(picked(weights, rows)))
            if self._bytes[-1] >= 2**63:
                raise ProfileError("the samples stand for %d bytes, which is more than "
                                   "can be: the profile is damaged" % self._bytes[-1])
            places = array.array("q", map(self._place, self.samples))
            for row, place in zip(rows, self._bytes):
                places[row] = place
            self.samples = made("q", profile.samples.store, (places,))

    def shown(self, places: Sequence[int]) -> Sequence[float]:
        """As the file has them."""
        return Milliseconds(places) if self.unit == TIME else places

    def at(self, nanoseconds: int) -> float:
        """A moment since the start, as the file has it."""
        # more digits make the file larger, and nobody sees them
        microseconds = nanoseconds // 1000
        return (microseconds / 1e3 if self.unit == TIME
                else self._place(microseconds))

    def all_at(self, nanoseconds: Iterable[int]) -> array.array[int]:
        """The places of many moments, of which few differ."""
        known = _Places((1).__mul__ if self.unit == TIME else self._place)
        return array.array("q", list(map(known.__getitem__, nanoseconds)))

    def _place(self, microseconds: int) -> int:
        before = bisect.bisect_right(self._times, microseconds)
        return self._bytes[before - 1] if before else 0


class _Places(dict[int, int]):
    """By nanoseconds."""

    def __init__(self, place: Callable[[int], int]) -> None:
        super().__init__()
        self._place = place

    def __missing__(self, nanoseconds: int) -> int:
        place = self[nanoseconds] = self._place(nanoseconds // 1000)
        return place


def _interval(profile: Profile) -> float:
    """Milliseconds between two time samples."""
    ticks = profile.samples.ticks
    if not ticks:
        return 0.0
    if not profile.settings and profile.end_time and _least(profile.samples.time) < 0:
        # Of the processor's time: while the program waits, there are no samples,
        # and nobody knows when that was.
        run = profile.end_time - profile.start_time
        if profile.start_time and 0 < run < _MAX_RUN:
            return run / ticks * 1e3
    return tick_seconds(profile) * 1e3 or DEFAULT_INTERVAL


def _least(stamps: Long) -> int:
    return min(map(min, stamps.pieces()), default=0)


def _times(profile: Profile, interval: float) -> Long:
    """The samples' times in microseconds since the start."""
    # Samples without times are spread evenly over the run, in the order of the
    # file: that is all that is known of them.
    stamps, store = profile.samples.time, profile.samples.store
    if _least(stamps) >= 0:
        return made("q", store, (list(map(operator.floordiv, piece, repeat(1000)))
                                 for piece in stamps.pieces()))
    count = sum(stamp < 0 for stamp in stamps)
    # in picoseconds, lest what is left out of one is left out of each
    step = max(round(interval * 1e9), 1)
    untimed = map(operator.floordiv, range(0, count * step, step), repeat(10**6))
    if count == len(stamps):
        return made("q", store, (untimed,))
    return made("q", store, ([stamp // 1000 if stamp >= 0 else next(untimed)
                              for stamp in piece] for piece in stamps.pieces()))
