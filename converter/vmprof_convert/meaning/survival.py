"""How many major collections objects survived: that follows from when they were
promoted, when found dead, and when the collections were, which is known at the end."""
from __future__ import annotations

import array
import bisect
from collections.abc import Sequence

from vmprof_convert.meaning.estimator import Survived
from vmprof_convert.meaning.lifetimes import FREED_LATER, STILL_ALIVE, state
from vmprof_convert.profile.model import PENDING, Columns
from vmprof_convert.profile.probability import probability

#: later than any time
_NEVER = 2**63 - 1


class Lives:
    """Of the samples of one process."""

    def __init__(self, at: int | None) -> None:
        """`at`: see summary.Choice."""
        self._at = at
        #: of each: stack, type, whether it was freed, when it was promoted, and when it
        #: was found dead, or that nobody looks any more; and its probability
        self._stack, self._type = array.array("i"), array.array("i")
        self._is_freed = array.array("b")
        self._promoted, self._end = array.array("q"), array.array("q")
        self._p = array.array("d")

    def extend(self, rows: Columns, gaps: str) -> None:
        last = _NEVER if self._at is None else self._at + 1
        for stack, type_, fate, size, interval, collected, ended in zip(
                rows.stack, rows.type, rows.fate, rows.size, rows.interval,
                rows.collected, rows.ended):
            then = state(fate, collected, ended, self._at) if size else ""
            if then not in (FREED_LATER, STILL_ALIVE):
                continue
            if fate == PENDING:
                collected = last        # no collection has met it
            elif collected < 0:
                continue
            is_freed = then == FREED_LATER
            self._stack.append(stack)
            self._type.append(type_)
            self._is_freed.append(is_freed)
            self._promoted.append(collected)
            self._end.append(ended if is_freed else last)
            self._p.append(probability(size, interval, gaps))

    def survived(self, majors: Sequence[int],
                 ) -> dict[tuple[int, int, str], Survived]:
        """By stack, type and state; `majors`: when marking ended, by time."""
        result: dict[tuple[int, int, str], Survived] = {}
        for stack, type_, is_freed, promoted, end, p in zip(
                self._stack, self._type, self._is_freed, self._promoted, self._end,
                self._p):
            key = stack, type_, FREED_LATER if is_freed else STILL_ALIVE
            found = result.get(key)
            if found is None:
                found = result[key] = Survived()
            # the one that found it dead is none of them, nor is one that was over when
            # it was promoted
            found.add(max(bisect.bisect_left(majors, end)
                          - bisect.bisect_right(majors, promoted), 0), p)
        return result
