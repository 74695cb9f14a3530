"""--memory: where the memory of the process is when its profile ends."""
from __future__ import annotations

import os

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.memory.room import refuse_if_short

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from vmprof_allocation.engines.base import Engine

#: of the process that began; nobody hears of problems of those that it forks
_pid = os.getpid()


def look() -> None:
    """At the program's end.  Raises AllocationSamplingError."""
    try:
        _refusing(_look)
    except AllocationSamplingError:
        if os.getpid() == _pid:
            raise


def note(engine: Engine) -> None:
    """Write it into the profile: PROFILE.rst, `memory`.  Raises
    AllocationSamplingError."""
    was_ignored = engine.ignore(True)
    try:
        _refusing(lambda: _note(engine))
    finally:
        engine.ignore(was_ignored)


def _refusing(read: Callable[[], None]) -> None:
    refuse_if_short("where the memory is was not read")
    try:
        read()
    except AllocationSamplingError:
        raise
    except Exception as e:
        raise AllocationSamplingError(
            "where the memory is when the profile ends is not known: %r" % (e,)
        ) from None


def _look() -> None:
    # the session that was suspended goes on there (resident.py)
    from vmprof_allocation.session.session import current
    session = current()
    if session is not None:
        session.note_memory()


def _note(engine: Engine) -> None:
    from time import monotonic_ns

    from vmprof_allocation.memory import facts
    found = {"clock": monotonic_ns(), **facts.read(engine.gc_state())}
    engine.note("memory=" + ",".join("%s %d" % fact for fact in found.items()))
