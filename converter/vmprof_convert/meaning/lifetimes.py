"""Determine the outcome of an object at a given moment.

A sample contains the number of its outcome (model.UNTOLD to model.UNKNOWN) and the
times of collections. This module converts them into the words that reports show. It
also determines whether live objects may include garbage.
"""
from __future__ import annotations

from vmprof_convert.profile.model import (
    ALIVE,
    ALLOCATED,
    DIED,
    FREED,
    LOST,
    PENDING,
    UNKNOWN,
    UNTOLD,
    Profile,
)

#: the outcomes of an object: it died before its first minor collection, a later
#: collection found it dead, or no known collection found it dead
DIED_YOUNG, FREED_LATER, STILL_ALIVE = "died young", "freed later", "alive"
#: the outcome of an inherited object, which was sampled in an earlier segment and is
#: alive. It counts as live, but not as allocated in this segment
CARRIED = "alive, from an earlier part"
#: The live objects are exact if at most this number of bytes was allocated after a
#: snapshot, or since a major collection began. After a snapshot, the limit is at least
#: this share of its live bytes. The end of the sampler itself allocates 80 kB.
_MOST_AFTER, _SHARE_AFTER = 2**18, 0.01
#: the outcomes as users write them; "allocated" selects all objects
FATES = {"allocated": None, "died-young": DIED_YOUNG, "freed-later": FREED_LATER,
         "alive": STILL_ALIVE}
#: unknown outcomes. The object was old, and the sampler lost it. Or the sampler could
#: not distinguish the objects of a batched allocation. Or outcomes were not recorded
WAS_LOST, NOT_TOLD, NOT_RECORDED = "lost", "not told apart", "not recorded"

_AT_THE_END = {UNTOLD: NOT_RECORDED, PENDING: STILL_ALIVE, DIED: DIED_YOUNG,
               FREED: FREED_LATER, ALIVE: STILL_ALIVE, LOST: WAS_LOST,
               UNKNOWN: NOT_TOLD}


def state(fate: int, collected: int, ended: int, at: int | None = None) -> str:
    """Return the outcome of an object at a moment after its allocation.

    Args:
        fate: the number of the outcome (model.UNTOLD to model.UNKNOWN).
        collected: the time of its first minor collection; see model.Samples.
        ended: the time at which it was freed or lost; see model.Samples.
        at: the moment, in nanoseconds since the start; None for the end of the profile.
    """
    if at is not None and fate != UNTOLD and (
            # Later events had not occurred at this moment.
            collected > at or (fate in (FREED, LOST) and ended > at)):
        return STILL_ALIVE
    return _AT_THE_END[fate]


def alive_word(is_exact: bool) -> str:
    """Return the report's word for the objects that count as alive.

    Args:
        is_exact: whether these objects include no garbage (see is_alive_exact()).
    """
    return "alive" if is_exact else "survived"


def is_alive_exact(profile: Profile, at: int | None = None) -> bool:
    """Return whether all objects that count as alive at a moment were reachable.

    In this case, a heap snapshot or a full major collection has determined the live
    objects, and the program has allocated hardly anything since. Otherwise all objects
    count as alive that no collection has freed, and some of them may be garbage.

    Args:
        profile: the profile of one process, or of several processes, which all need a
            snapshot or such a collection.
        at: the moment, in nanoseconds since the start; None for the end.
    """
    if profile.is_raw:
        return True
    if profile.processes:
        return all(is_alive_exact(process.profile,
                                  None if at is None else at - process.begin)
                   for process in profile.processes)
    return _is_after_snapshot(profile, at) or _is_after_collection(profile, at)


def _is_after_snapshot(profile: Profile, at: int | None) -> bool:
    snapshots = [one for one in profile.snapshots if at is None or one.time <= at]
    if not snapshots:
        return False
    last = snapshots[-1]
    return _allocated(profile, at) - last.allocated <= max(
        _MOST_AFTER, last.bytes * _SHARE_AFTER)


def _is_after_collection(profile: Profile, at: int | None) -> bool:
    """Return whether little was allocated since the last major collection began.

    The collection does not examine objects that become old while it marks.
    """
    before = [one for one in profile.collections if at is None or one.time <= at]
    began = max((one.time - one.marking for one in before if one.is_major),
                default=None)
    if began is None:
        return False
    # A major collection begins with a minor one, which has the number of allocated
    # bytes.
    allocated = max((one.number for one in before
                     if not one.is_major and one.time <= began), default=0)
    return _allocated(profile, at) - allocated <= _MOST_AFTER


def _allocated(profile: Profile, at: int | None) -> int:
    """Return the bytes that were allocated until `at`.

    The profile contains this number for each mark and for the end. At other times, the
    result is the next recorded number, which is up to a second later.
    """
    known = [(one.time, one.allocated) for one in profile.moments]
    known += [(one.time, one.value) for one in profile.figures if one.kind == ALLOCATED]
    last = max(known, default=(0, 0))
    return last[1] if at is None else min(
        (one for one in known if one[0] >= at), default=last)[1]
