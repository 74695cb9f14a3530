"""--held: who holds what at the end of the program, before sampling ends."""
from __future__ import annotations

import os

#: of the process that the command line samples: its children have ends of their own
_pid = os.getpid()


def look() -> None:
    """Raises AllocationSamplingError."""
    if os.getpid() != _pid:
        return
    # the session that was suspended goes on there (resident.py)
    from vmprof_allocation.session.session import current
    session = current()
    if session is not None:
        session.held()
