"""What had become of an object at a given moment."""
from __future__ import annotations

from vmprof_convert.model import (
    ALIVE,
    DIED,
    FREED,
    LOST,
    PENDING,
    PINNED,
    UNKNOWN,
    UNTOLD,
)

#: It died before its first minor collection; a major collection found it dead
#: later; none did, as far as that is known.
DIED_YOUNG, FREED_LATER, STILL_ALIVE = "died young", "freed later", "alive"
#: Likewise, and it was sampled in an earlier part of the profile, which is not here:
#: not allocated in this one
CARRIED = "alive, from an earlier part"
#: as users write them; all objects are allocated
FATES = {"allocated": None, "died-young": DIED_YOUNG, "freed-later": FREED_LATER,
         "alive": STILL_ALIVE}
#: Nobody knows: it was pinned; it was old, and lost; the objects of its piece
#: could not be told apart; no such thing was recorded.
WAS_PINNED, WAS_LOST, NOT_TOLD, NOT_RECORDED = (
    "pinned", "lost", "not told apart", "not recorded")

_AT_THE_END = {UNTOLD: NOT_RECORDED, PENDING: STILL_ALIVE, DIED: DIED_YOUNG,
               FREED: FREED_LATER, ALIVE: STILL_ALIVE, PINNED: WAS_PINNED,
               LOST: WAS_LOST, UNKNOWN: NOT_TOLD}


def state(fate: int, collected: int, ended: int, at: int | None = None) -> str:
    """Of an object that was born, at the end of the profile, or `at` so many
    nanoseconds after the start: the columns of model.Samples."""
    if at is not None and fate != UNTOLD and (
            # what happened later had not happened
            collected > at or (fate in (FREED, LOST) and ended > at)):
        return STILL_ALIVE
    return _AT_THE_END[fate]
