"""When to try again: exponentially later, with full jitter, so that a fleet does not
come back at one moment."""
from __future__ import annotations

import random

#: seconds
FIRST, LONGEST = 1.0, 60.0
_MAX_DOUBLINGS = 16


class Backoff:
    def __init__(self, every: float, rng: random.Random | None = None) -> None:
        """`every`: seconds between two windows, to which it is in proportion if
        these are short."""
        self._first = min(FIRST, every)
        self._longest = min(LONGEST, 4 * every)
        self._failures = 0
        self._random = rng or random.SystemRandom()

    def failed(self, retry_after: float = 0.0) -> float:
        """Seconds to wait."""
        bound = min(self._longest, self._first * 2**min(
            self._failures, _MAX_DOUBLINGS))
        self._failures += 1
        return retry_after + self._random.uniform(0, bound)

    def succeeded(self) -> None:
        self._failures = 0
