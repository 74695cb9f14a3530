"""Is what is estimated to be alive what the GC counts?

After each major collection has swept, the profile holds both: the bytes of all old
objects, as the GC's own counters have them, and the estimated bytes of those sampled
objects that are old and were not found dead (model.Swept).  What was allocated before
the sampling began is in the first number only, and nobody knows how much of it is still
there.  So the truth that the estimate is of lies between the GC's number less what the
heap was at the beginning, and the GC's number.

How far chance may put the estimate from a truth of T bytes follows from T, and not
from what was sampled: two samples in place of twenty would say that chance does little.
The variance is the sum of size**2 * (1 - p) / p over the objects, at most T * interval,
since p = 1 - exp(-size / interval) >= size / (size + interval).
"""
from __future__ import annotations

import bisect
import math

from vmprof_convert.profile.model import Profile, Swept
from vmprof_convert.text.units import format_bytes

#: quantile of the normal distribution for 99.9 %, two-sided: a remark that chance makes
#: would stand in one of a thousand reports
_Z = 3.29
#: what the GC counts beside objects (marks of cards, rounding to words): a share of its
#: number, and bytes
_SLACK, _SLACK_BYTES = 0.01, 2**16


def bounds(swept: Swept) -> tuple[float, float]:
    """Of the estimated bytes, if they agree with the GC: least and most."""
    slack = _SLACK * swept.heap + _SLACK_BYTES
    most = swept.heap + slack + _by_chance(swept.heap, swept.interval)
    # the skewness of a small number of samples (Cornish-Fisher), and half of a sample
    most += swept.interval * (_Z ** 2 + 2) / 6
    if swept.heap_at_begin < 0:
        return 0.0, most
    truth = max(swept.heap - swept.heap_at_begin - swept.not_known, 0)
    return max(truth - slack - _by_chance(truth, swept.interval), 0.0), most


def _last_comparable(profile: Profile) -> Swept | None:
    """Return the last numbers that no heap snapshot affects, or None.

    A snapshot ends objects in the profile that the GC still counts after its next
    sweep: those that the GC marked before, and those that wait for a finalizer.  So
    there may be no snapshot from the beginning of the previous marking on.
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
    return _Z * math.sqrt(truth * interval)


def contradiction(profile: Profile) -> str:
    """Return a line for the report if the two numbers contradict each other.

    Args:
        profile: of one process.

    Returns:
        "" if they agree, or if one is unknown.
    """
    last = _last_comparable(profile)
    if last is None:
        return ""
    # nothing may have been sampled yet at the one that the sampling began with
    least, most = bounds(last._replace(
        interval=max(last.interval, profile.interval)))
    if least <= last.alive <= most:
        return ""
    counted = "the GC itself counts %s of old objects at %.2f s" % (
        format_bytes(last.heap), last.time / 1e9)
    if last.alive > most:
        return ("wrong: %s are estimated to be alive, but %s: do not rely on what is "
                "said of alive objects, and please report this" % (
                    format_bytes(last.alive), counted))
    return ("wrong: only %s are estimated to be alive, but %s, and at most %s of them "
            "are from before the sampling: do not rely on what is said of alive "
            "objects, and please report this" % (
                format_bytes(last.alive), counted, format_bytes(last.heap_at_begin)))
