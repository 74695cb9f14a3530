"""The x axis of the Profiler: time, or allocated bytes."""
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
#: a profile with this number of allocated bytes or more is damaged
MOST = 2.0**62

#: milliseconds between two CPU samples if the interval is unknown
DEFAULT_INTERVAL = 1.0
#: longest plausible run in seconds
_MAX_RUN = 1e8


class Axis:
    """The places of samples on the x axis.

    A place is a number of microseconds since the start, or of bytes that were allocated
    since the start.
    """

    def __init__(self, profile: Profile, weights: Sequence[int], unit: str):
        """Compute the places of all samples.

        Args:
            profile: The profile.
            weights: The bytes that each sample represents.
            unit: TIME or BYTES.

        Raises:
            ProfileError: The unit is BYTES, and the profile has no allocation samples,
                or these represent MOST bytes or more.
        """
        self.unit = unit
        #: milliseconds between two CPU samples, 0.0 without CPU samples
        self.interval = _interval(profile)
        #: place of each sample
        self.samples = _times(profile, self.interval or DEFAULT_INTERVAL)
        self._times: Sequence[int] = ()
        self._bytes: list[int] = []
        if unit == BYTES:
            rows = [row for row in by_key(self.samples) if weights[row]]
            if not rows:
                raise ProfileError("the profile has no allocation samples, which an "
                                   "axis in bytes needs")
            self.interval = 0.0
            self._times = gathered(self.samples, rows)
            self._bytes = list(accumulate(weights[row] for row in rows))
            if self._bytes[-1] >= MOST:
                raise ProfileError("the samples represent %d bytes, which is "
                                   "impossible: the profile is damaged"
                                   % self._bytes[-1])
            places = array.array("q", map(self._place, self.samples))
            for row, place in zip(rows, self._bytes):
                places[row] = place
            self.samples = places

    def shown(self, places: Sequence[int]) -> Sequence[float]:
        """Return places in the unit of the file: milliseconds or bytes."""
        return Milliseconds(places) if self.unit == TIME else places

    def at(self, nanoseconds: int) -> float:
        """Return the place of a time since the start, in the unit of the file."""
        # microseconds suffice: more digits are not visible and enlarge the file
        return self.shown([self.place(nanoseconds)])[0]

    def place(self, nanoseconds: int) -> int:
        """Return the place of a time since the start, in microseconds or bytes."""
        return self._place(nanoseconds // 1000)

    def _place(self, microseconds: int) -> int:
        if self.unit == TIME:
            return microseconds
        before = bisect.bisect_right(self._times, microseconds)
        return self._bytes[before - 1] if before else 0


def _interval(profile: Profile) -> float:
    """Return the milliseconds between two CPU samples, 0.0 without CPU samples."""
    ticks = profile.samples.ticks
    if not ticks:
        return 0.0
    if not profile.settings and profile.end_time and min(profile.samples.time) < 0:
        # The timer counted processor time. While the program waited, there were no
        # samples, and the times of these pauses are unknown.
        run = profile.end_time - profile.start_time
        if profile.start_time and 0 < run < _MAX_RUN:
            return run / ticks * 1e3
    return tick_seconds(profile) * 1e3 or DEFAULT_INTERVAL


def _times(profile: Profile, interval: float) -> array.array[int]:
    """Return the times of all samples in microseconds since the start."""
    # Only the order of samples without times is known. They are spread evenly over the
    # run.
    stamps = profile.samples.time
    if min(stamps) >= 0:
        return array.array("q", map(operator.floordiv, stamps, repeat(1000)))
    # counted in picoseconds, so that rounding errors do not add up
    step = max(round(interval * 1e9), 1)
    untimed = map(operator.floordiv, count(0, step), repeat(10**6))
    return array.array("q", [
        stamp // 1000 if stamp >= 0 else next(untimed) for stamp in stamps])
