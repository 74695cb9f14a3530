"""--held: who holds what at the end of the program, before sampling ends; and of each
part of its profile (periodic_rotation.py)."""
from __future__ import annotations

import os
from time import monotonic, sleep

from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.session.session import Session

#: of the process that the command line samples: its children have ends of their own
_pid = os.getpid()
#: seconds for somebody else, who has asked before
_PATIENCE = 30.0
#: bytes of address space: PyPy aborts where it gets no more
_ROOM = 2**25


def look() -> None:
    """Raises AllocationSamplingError."""
    if os.getpid() != _pid:
        return
    try:
        _refuse_if_short()
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


def _refuse_if_short() -> None:
    """Raise AllocationSamplingError if the process may hardly get more memory."""
    try:
        with open("/proc/self/limits", encoding="ascii") as file:
            (limit,) = [line.split()[3] for line in file
                        if line.startswith("Max address space")]
        with open("/proc/self/statm", encoding="ascii") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return                  # it is tried
    left = max(0, int(limit) - taken) if limit.isdigit() else _ROOM
    if left < _ROOM:
        raise AllocationSamplingError(
            "who holds what is not looked at: the limit of the program's address space "
            "(RLIMIT_AS) leaves it %d MiB, and that takes up to %d" % (
                left >> 20, _ROOM >> 20))


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
