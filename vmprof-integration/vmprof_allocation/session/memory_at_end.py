"""Record the memory counts at the end of the program, for the option --memory."""
from __future__ import annotations

import os

from vmprof_allocation.engines.memory_note import refusing
from vmprof_allocation.errors import AllocationSamplingError

#: The process that started the session. Errors in its forked children are not reported.
_pid = os.getpid()


def look() -> None:
    """Write the memory counts into the profile.

    This runs before the sampler's own work at the end takes memory.

    Raises:
        AllocationSamplingError: the counts cannot be read or written.
    """
    try:
        refusing(_look)
    except AllocationSamplingError:
        if os.getpid() == _pid:
            raise


def _look() -> None:
    # importing session continues a suspended session (resident.py)
    from vmprof_allocation.session.session import current
    session = current()
    if session is not None:
        session.note_memory()
