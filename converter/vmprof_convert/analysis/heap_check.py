"""Compare the estimated bytes of live objects with the GC's own count.

The report warns if the two contradict each other (contradiction()).

After each major collection has swept, the profile contains both (model.Swept). The GC's
own counters have the bytes of all old objects. The estimate has the bytes that the
sampled old objects represent, without the objects that were found dead. Only the GC's
number includes objects from before the sampling. It is unknown how many of these are
still alive. So the true value of the estimate lies between the GC's number minus the
heap at the beginning, and the GC's number.

The error of an estimate follows from the true value T, and not from the samples. If two
objects are sampled instead of twenty, their variance is too small. The true variance is
the sum of size**2 * (1 - p) / p over all objects. It is at most T * interval, because p
= 1 - exp(-size / interval) >= size / (size + interval).
"""
from __future__ import annotations

import bisect
import math

from vmprof_convert.profile.model import Profile, Swept
from vmprof_convert.text.units import format_bytes

#: the quantile of the normal distribution for 99.9 %, two-sided: one of a thousand
#: reports contains a warning by chance
_Z = 3.29
#: the largest part of the GC's number that is not objects (card marks, rounding to
#: words): this share of the number, plus these bytes
_SLACK, _SLACK_BYTES = 0.01, 2**16


def bounds(swept: Swept) -> tuple[float, float]:
    """Return the smallest and the largest estimate that agree with the GC's count."""
    slack = _SLACK * swept.heap + _SLACK_BYTES
    most = swept.heap + slack + _by_chance(swept.heap, swept.interval)
    # the skewness for a small number of samples (Cornish-Fisher), and half a sample
    most += swept.interval * (_Z ** 2 + 2) / 6
    if swept.heap_at_begin < 0:
        return 0.0, most
    truth = max(swept.heap - swept.heap_at_begin - swept.not_known, 0)
    return max(truth - slack - _by_chance(truth, swept.interval), 0.0), most


def _last_comparable(profile: Profile) -> Swept | None:
    """Return the last count of the GC that no heap snapshot affects, or None.

    A snapshot records unreachable objects as dead at once. The GC still counts some of
    them after its next sweep: objects that it has already marked, and objects that wait
    for a finalizer. So a count is comparable if no snapshot was taken since the
    beginning of the marking before the one that led to this count.
    """
    majors = [one for one in profile.collections if one.is_major]
    ends = [one.time for one in majors]
    for swept in reversed(profile.swept):
        marked = bisect.bisect_right(ends, swept.time)
        previous = majors[marked - 2] if marked >= 2 else None
        begin = previous.time - previous.marking if previous else 0
        if not any(begin <= one.time <= swept.time for one in profile.snapshots):
            return swept
    return None


def _by_chance(truth: int, interval: int) -> float:
    """Return the error of an estimate of `truth` bytes, at the quantile _Z."""
    return _Z * math.sqrt(truth * interval)


def contradiction(profile: Profile) -> str:
    """Return a line for the report if the GC's count contradicts the estimate.

    Args:
        profile: the profile of one process.

    Returns:
        "" if the count and the estimate agree, or if one of them is unknown.
    """
    last = _last_comparable(profile)
    if last is None:
        return ""
    # The initial interval may be larger than the intervals of all samples.
    least, most = bounds(last._replace(
        interval=max(last.interval, profile.interval)))
    if least <= last.alive <= most:
        return ""
    counted = "the GC itself counts %s of old objects at %.2f s" % (
        format_bytes(last.heap), last.time / 1e9)
    if last.alive > most:
        return ("wrong: %s are estimated to be alive, but %s: do not rely on the "
                "figures of live objects, and please report this" % (
                    format_bytes(last.alive), counted))
    return ("wrong: only %s are estimated to be alive, but %s, and at most %s of them "
            "are from before the sampling: do not rely on the figures of live "
            "objects, and please report this" % (
                format_bytes(last.alive), counted, format_bytes(last.heap_at_begin)))
