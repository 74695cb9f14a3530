"""What had become of an object at a given moment, and who says so."""
from __future__ import annotations

from vmprof_convert.profile.model import (
    ALIVE,
    DIED,
    FREED,
    LOST,
    PENDING,
    UNKNOWN,
    UNTOLD,
    Profile,
)

#: It died before its first minor collection; a major collection found it dead
#: later; none did, as far as that is known.
DIED_YOUNG, FREED_LATER, STILL_ALIVE = "died young", "freed later", "alive"
#: It was sampled in an earlier part of the profile, which is not here, and is alive:
#: not allocated in this part
CARRIED = "alive, from an earlier part"
#: of STILL_ALIVE, and of CARRIED: the last major collection found it alive.  The rest
#: may be garbage, which nobody has looked for since
JUDGED, CARRIED_JUDGED = "alive, judged", "alive, from an earlier part, judged"
#: The largest number of bytes, and the largest share of the live bytes, that is
#: allocated after a snapshot at the end.  The end of the sampler itself takes 80 kB.
_MOST_AFTER, _SHARE_AFTER = 2**18, 0.01
#: later than any time
_NEVER = 2**63 - 1
#: as users write them; all objects are allocated
FATES = {"allocated": None, "died-young": DIED_YOUNG, "freed-later": FREED_LATER,
         "alive": STILL_ALIVE}
#: Nobody knows: it was old, and lost; the objects of its piece could not be told
#: apart; no such thing was recorded.
WAS_LOST, NOT_TOLD, NOT_RECORDED = "lost", "not told apart", "not recorded"

_AT_THE_END = {UNTOLD: NOT_RECORDED, PENDING: STILL_ALIVE, DIED: DIED_YOUNG,
               FREED: FREED_LATER, ALIVE: STILL_ALIVE, LOST: WAS_LOST,
               UNKNOWN: NOT_TOLD}


def state(fate: int, collected: int, ended: int, at: int | None = None) -> str:
    """Of an object that was born, at the end of the profile, or `at` so many
    nanoseconds after the start: the columns of model.Samples."""
    if at is not None and fate != UNTOLD and (
            # what happened later had not happened
            collected > at or (fate in (FREED, LOST) and ended > at)):
        return STILL_ALIVE
    return _AT_THE_END[fate]


class Judged:
    """Which of the objects that count as alive, at the end of the profile, its last
    major collection found alive: those that were old before its marking began.  That is
    done in steps, between which the program runs, and what becomes old meanwhile is
    kept for this time, garbage or not.  Of raw memory it is
    known of all that is in use."""

    def __init__(self, profile: Profile) -> None:
        self._last = _judged_until(profile)
        #: of several processes, each has collections of its own
        self._of_thread: dict[int, int] = {}
        for process in profile.processes:
            last = _judged_until(process.profile)
            # these are on the clock of their process
            self._of_thread.update(dict.fromkeys(
                process.threads, last + process.begin if last >= 0 else last))
        #: of which thread what was carried over is, nobody knows
        self._least = min(self._of_thread.values(), default=self._last)

    def includes(self, fate: int, collected: int, thread: int) -> bool:
        """An object that is alive: columns of model.Samples."""
        return fate == ALIVE and collected < self._of_thread.get(thread, self._last)

    def includes_carried(self, fate: int, collected: int) -> bool:
        return fate == ALIVE and collected < self._least


def alive_word(is_exact: bool) -> str:
    """Return the word for the objects that count as alive.

    Args:
        is_exact: whether a heap snapshot decided (see is_alive_exact()).  Otherwise
            some of the objects may be garbage.
    """
    return "alive" if is_exact else "survived"


def is_alive_exact(profile: Profile, at: int | None = None) -> bool:
    """Return whether a heap snapshot decided which objects count as alive.

    Otherwise all objects count as alive that no collection has freed.

    Args:
        profile: of one process, or of several ones, which all need a snapshot.
        at: the moment, in nanoseconds since the start; None for the end.
    """
    if profile.is_raw:
        return True
    if profile.processes:
        return all(is_alive_exact(process.profile,
                                  None if at is None else at - process.begin)
                   for process in profile.processes)
    snapshots = [one for one in profile.snapshots if at is None or one.time <= at]
    if not snapshots:
        return False
    last = snapshots[-1]
    # the moments are up to a second apart
    allocated = next((moment.allocated for moment in profile.moments
                      if at is not None and moment.time >= at),
                     max((moment.allocated for moment in profile.moments), default=0))
    return allocated - last.allocated <= max(_MOST_AFTER, last.bytes * _SHARE_AFTER)


def _judged_until(profile: Profile) -> int:
    """Return the time of the last heap snapshot, or of the last major collection.

    The time of a major collection is the time when it began to mark.  Without either,
    the result is -1.
    """
    if profile.is_raw:
        return _NEVER
    return max([-1, *(one.time - one.marking for one in profile.collections
                      if one.is_major), *(one.time for one in profile.snapshots)])
