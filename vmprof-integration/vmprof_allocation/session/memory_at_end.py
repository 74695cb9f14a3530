"""--memory: where the memory of the process is at the end of the program."""
from __future__ import annotations

import os

from vmprof_allocation.engines.memory_note import refusing
from vmprof_allocation.errors import AllocationSamplingError

#: of the process that began; nobody hears of problems of those that it forks
_pid = os.getpid()


def look() -> None:
    """Before anything else of ours takes memory at the end.  Raises
    AllocationSamplingError."""
    try:
        refusing(_look)
    except AllocationSamplingError:
        if os.getpid() == _pid:
            raise


def _look() -> None:
    # the session that was suspended goes on there (resident.py)
    from vmprof_allocation.session.session import current
    session = current()
    if session is not None:
        session.note_memory()
