"""The waiting time before a failed request is repeated: exponential, with full jitter.

The jitter spreads the requests of many processes whose server was unavailable.
"""
from __future__ import annotations

import random

#: upper limits of the first waiting time and of all waiting times, in seconds
FIRST, LONGEST = 1.0, 60.0
#: limit of the exponent, which keeps the power finite after many failures
_MAX_DOUBLINGS = 16


class Backoff:
    """The state of the exponential backoff: the number of failures in a row."""

    def __init__(self, every: float, rng: random.Random | None = None) -> None:
        """Derive the limits from the time between two segments.

        Args:
            every: Seconds between two segments.  If segments are short, the limits are
                `every` and 4 times `every` instead of `FIRST` and `LONGEST`.
            rng: The source of random numbers.  The system's source is the default.
        """
        self._first = min(FIRST, every)
        self._longest = min(LONGEST, 4 * every)
        self._failures = 0
        self._random = rng or random.SystemRandom()

    def failed(self, retry_after: float = 0.0) -> float:
        """Count a failure, and return the number of seconds to wait.

        The time is `retry_after`, the server's request, plus a uniformly distributed
        time.  The upper limit of the latter doubles with each failure.
        """
        bound = min(self._longest, self._first * 2**min(
            self._failures, _MAX_DOUBLINGS))
        self._failures += 1
        return retry_after + self._random.uniform(0, bound)

    def succeeded(self) -> None:
        """Reset the number of failures."""
        self._failures = 0
