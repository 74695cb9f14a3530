"""The rotation of the hook engine's profile, by native/hook/hook.h."""
from __future__ import annotations

import errno
import os

from vmprof_allocation.engines.ending import INCOMPLETE
from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy

# no import of typing at run time: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from vmprof_allocation.settings.settings import Settings

#: The number of attempts to rotate.  An attempt fails if another thread is in the GC.
MOST_SAFEPOINTS = 100


def rotate(lib: Any, ended: Any, reach_safepoint: Callable[[], None], fd: int,
           settings: Settings, description: str) -> str:
    """End the profile, and begin the next one: see Engine.rotate().

    Args:
        lib: the native half.
        ended: a cffi pointer to an int, which receives the errno of the ended profile.
        reach_safepoint: a function that enters the GC.
        fd: the file of the next profile.
        settings: the settings of the run.
        description: the settings in the next profile.

    Returns:
        The reason why the profile that ended is incomplete, or "".

    Raises:
        AllocationSamplingError: the next profile cannot be written; the present one
            continues.
        SamplingBusy: the sampling is being ended.
    """
    if settings.in_memory:
        raise AllocationSamplingError(
            "cannot rotate the data of tracemalloc, which are in memory")
    try:
        error = lib.hook_rotate(fd, description.encode("ascii"))
        for _ in range(MOST_SAFEPOINTS):
            if error or lib.hook_rotated(ended) >= 0:
                break
            reach_safepoint()
    finally:
        # a request that remained would rotate at a later safepoint allocation
        is_forgotten = lib.hook_forget_rotation()
    if not error:
        error = errno.EBUSY if is_forgotten else lib.hook_rotated(ended)
    if error == errno.ECANCELED:
        raise SamplingBusy("allocation sampling is just being ended")
    if error:
        raise AllocationSamplingError(
            "cannot write the next profile: %s; the present profile continues"
            % os.strerror(error))
    return INCOMPLETE.get(ended[0], os.strerror(ended[0])) if ended[0] else ""
