"""Where things are on the x axis: in time, or in bytes allocated."""
from __future__ import annotations

import array
import bisect
import operator
from collections.abc import Sequence
from itertools import accumulate, count, repeat

from vmprof_convert.analysis.by_stack import tick_seconds
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.columns import by_key, gathered
from vmprof_convert.profile.model import Profile
from vmprof_convert.writers.firefox.format.columns import Milliseconds

TIME, BYTES = "time", "bytes"
#: there are fewer bytes
MOST = 2.0**62

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
        self.samples = _times(profile, self.interval or DEFAULT_INTERVAL)
        self._times: Sequence[int] = ()
        self._bytes: list[int] = []
        if unit == BYTES:
            rows = [row for row in by_key(self.samples) if weights[row]]
            if not rows:
                raise ProfileError("there are no allocation samples, which an axis "
                                   "in bytes needs")
            self.interval = 0.0
            self._times = gathered(self.samples, rows)
            self._bytes = list(accumulate(weights[row] for row in rows))
            if self._bytes[-1] >= MOST:
                raise ProfileError("the samples stand for %d bytes, which is more than "
                                   "can be: the profile is damaged" % self._bytes[-1])
            places = array.array("q", map(self._place, self.samples))
            for row, place in zip(rows, self._bytes):
                places[row] = place
            self.samples = places

    def shown(self, places: Sequence[int]) -> Sequence[float]:
        """As the file has them."""
        return Milliseconds(places) if self.unit == TIME else places

    def at(self, nanoseconds: int) -> float:
        """A moment since the start, as the file has it."""
        # more digits make the file larger, and nobody sees them
        return self.shown([self.place(nanoseconds)])[0]

    def place(self, nanoseconds: int) -> int:
        """Of a moment since the start."""
        return self._place(nanoseconds // 1000)

    def _place(self, microseconds: int) -> int:
        if self.unit == TIME:
            return microseconds
        before = bisect.bisect_right(self._times, microseconds)
        return self._bytes[before - 1] if before else 0


def _interval(profile: Profile) -> float:
    """Milliseconds between two time samples."""
    ticks = profile.samples.ticks
    if not ticks:
        return 0.0
    if not profile.settings and profile.end_time and min(profile.samples.time) < 0:
        # Of the processor's time: while the program waits, there are no samples,
        # and nobody knows when that was.
        run = profile.end_time - profile.start_time
        if profile.start_time and 0 < run < _MAX_RUN:
            return run / ticks * 1e3
    return tick_seconds(profile) * 1e3 or DEFAULT_INTERVAL


def _times(profile: Profile, interval: float) -> array.array[int]:
    """The samples' times in microseconds since the start."""
    # Samples without times are spread evenly over the run, in the order of the
    # file: that is all that is known of them.
    stamps = profile.samples.time
    if min(stamps) >= 0:
        return array.array("q", map(operator.floordiv, stamps, repeat(1000)))
    # in picoseconds, lest what is left out of one is left out of each
    step = max(round(interval * 1e9), 1)
    untimed = map(operator.floordiv, count(0, step), repeat(10**6))
    return array.array("q", [
        stamp // 1000 if stamp >= 0 else next(untimed) for stamp in stamps])
