"""The hook engine's profile ends, and the next one begins: native/hook/hook.h."""
from __future__ import annotations

import errno
import os

from vmprof_allocation.engines.ending import INCOMPLETE
from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from vmprof_allocation.settings.settings import Settings

#: Attempts to rotate.  One fails if another thread is inside the GC.
MOST_SAFEPOINTS = 100


def rotate(lib: Any, ended: Any, reach_safepoint: Callable[[], None], fd: int,
           settings: Settings, description: str) -> str:
    """Engine.rotate(); `ended` is room for an int of C's, `description` the next
    profile's settings."""
    if settings.in_memory:
        raise AllocationSamplingError(
            "what tracemalloc keeps is in memory, and has one part")
    try:
        error = lib.hook_rotate(fd, description.encode("ascii"))
        for _ in range(MOST_SAFEPOINTS):
            if error or lib.hook_rotated(ended) >= 0:
                break
            reach_safepoint()
    finally:
        # or else a later safepoint allocation of this thread would do it
        is_forgotten = lib.hook_forget_rotation()
    if not error:
        error = errno.EBUSY if is_forgotten else lib.hook_rotated(ended)
    if error == errno.ECANCELED:
        raise SamplingBusy("allocation sampling is just being ended")
    if error:
        raise AllocationSamplingError(
            "the next profile can't be written: %s; the present one goes on"
            % os.strerror(error))
    return INCOMPLETE.get(ended[0], os.strerror(ended[0])) if ended[0] else ""
