"""--held: who holds what at the end of the program, before sampling ends; and of each
part of its profile (periodic_rotation.py)."""
from __future__ import annotations

import os
from time import monotonic, sleep

from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy
from vmprof_allocation.memory.room import refuse_if_short

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.session.session import Session

#: of the process that the command line samples: its children have ends of their own
_pid = os.getpid()
#: seconds for somebody else, who has asked before
_PATIENCE = 30.0


def look() -> None:
    """Raises AllocationSamplingError."""
    if os.getpid() != _pid:
        return
    try:
        refuse_if_short("who holds what is not looked at")
        # the session that was suspended goes on there (resident.py)
        from vmprof_allocation.session.session import current
        session = current()
        if session is None:
            raise AllocationSamplingError(
                "who holds what is not known: nothing is sampled at the program's end")
        in_turn(session)
    except AllocationSamplingError:
        raise
    except Exception as e:
        raise AllocationSamplingError(
            "who holds what at the program's end is not known: %r" % (e,)) from None


def in_turn(session: Session) -> None:
    """Session.held(), when nobody else looks any more.  Raises
    AllocationSamplingError."""
    until = monotonic() + _PATIENCE
    while True:
        try:
            session.held()
            return
        except SamplingBusy:
            if monotonic() > until:
                raise
            sleep(0.01)
