"""Where things are on the x axis: in time, or in bytes allocated."""
from __future__ import annotations

import array
import bisect
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from vmprof_convert.errors import ProfileError
from vmprof_convert.model import Profile
from vmprof_convert.stack_values import tick_seconds

TIME, BYTES = "time", "bytes"

#: milliseconds between two time samples, for want of something better
DEFAULT_INTERVAL = 1.0
#: how long a run may be, in seconds: longer than anybody waits
_MAX_RUN = 1e8


class Axis:
    """Milliseconds since the start, or bytes allocated since then."""

    def __init__(self, profile: Profile, weights: Sequence[int], unit: str):
        """`weights`: bytes that each sample stands for.  Raises ProfileError if
        there are none."""
        self.unit = unit
        #: milliseconds between two time samples; 0.0: there are none
        self.interval = _interval(profile)
        milliseconds = _times(profile, self.interval or DEFAULT_INTERVAL)
        self._times: list[float] = []
        self._bytes: list[int] = []
        if unit == BYTES:
            rows = sorted((row for row, weight in enumerate(weights) if weight),
                          key=milliseconds.__getitem__)
            if not rows:
                raise ProfileError("there are no allocation samples, which an axis "
                                   "in bytes needs")
            self.interval = 0.0
            self._times = [milliseconds[row] for row in rows]
            self._bytes = list(accumulate(weights[row] for row in rows))
        #: of each sample
        self.samples: Sequence[float] = milliseconds if unit == TIME else array.array(
            "q", map(self._place, milliseconds))
        if isinstance(self.samples, array.array) and unit == BYTES:
            for row, place in zip(rows, self._bytes):
                self.samples[row] = place

    def at(self, nanoseconds: int) -> float:
        """The place of a moment since the start."""
        milliseconds = _milliseconds(nanoseconds)
        return milliseconds if self.unit == TIME else self._place(milliseconds)

    def all_at(self, nanoseconds: Iterable[int]) -> list[float]:
        """Likewise of many moments, of which few differ."""
        known = _Places(self.at)
        return list(map(known.__getitem__, nanoseconds))

    def _place(self, milliseconds: float) -> int:
        before = bisect.bisect_right(self._times, milliseconds)
        return self._bytes[before - 1] if before else 0


class _Places(dict[int, float]):
    def __init__(self, at: Callable[[int], float]) -> None:
        super().__init__()
        self._at = at

    def __missing__(self, nanoseconds: int) -> float:
        place = self[nanoseconds] = self._at(nanoseconds)
        return place


def _milliseconds(nanoseconds: int) -> float:
    # more digits make the file larger, and nobody sees them
    return nanoseconds // 1000 / 1e3


def _interval(profile: Profile) -> float:
    """Milliseconds between two time samples."""
    sizes = profile.samples.size
    ticks = sizes.count(0)
    if not ticks:
        return 0.0
    if not profile.settings and min(profile.samples.time) < 0 and profile.end_time:
        # Of the processor's time: while the program waits, there are no samples,
        # and nobody knows when that was.
        run = profile.end_time - profile.start_time
        if profile.start_time and 0 < run < _MAX_RUN:
            return run / ticks * 1e3
    return tick_seconds(profile) * 1e3 or DEFAULT_INTERVAL


def _times(profile: Profile, interval: float) -> array.array[float]:
    """The samples' times in milliseconds since the start."""
    # Samples without times are spread evenly over the run, in the order of the
    # file: that is all that is known of them.
    stamps = profile.samples.time
    if not stamps or min(stamps) >= 0:
        return array.array("d", [stamp // 1000 / 1e3 for stamp in stamps])
    if max(stamps) < 0:
        return array.array("d", map(interval.__mul__, range(len(stamps))))
    times = array.array("d")
    untimed = 0
    for stamp in stamps:
        if stamp < 0:
            times.append(untimed * interval)
            untimed += 1
        else:
            times.append(_milliseconds(stamp))
    return times
