"""Write into a profile how much resident memory the process uses for each purpose."""
from __future__ import annotations

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.memory.room import refuse_if_short

# Import only necessary modules (base.py).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from vmprof_allocation.engines.base import Engine


def note(engine: Engine) -> None:
    """Write the setting `memory` of PROFILE.rst into the profile of a running engine.

    Raises:
        AllocationSamplingError: The memory cannot be measured.
    """
    refusing(lambda: _note(engine))


def refusing(read: Callable[[], None]) -> None:
    """Call `read`, which reads the uses of the resident memory.

    Raises:
        AllocationSamplingError: Too little memory is free, or `read` failed with any
            exception.
    """
    refuse_if_short("cannot read the uses of the resident memory")
    try:
        read()
    except AllocationSamplingError:
        raise
    except Exception as e:
        raise AllocationSamplingError(
            "cannot read the uses of the resident memory at the profile's end: "
            "%r" % (e,)
        ) from None


def _note(engine: Engine) -> None:
    from time import monotonic_ns

    from vmprof_allocation.memory import facts
    found = {"clock": monotonic_ns(), **facts.read(engine.gc_state())}
    engine.note("memory=" + ",".join("%s %d" % fact for fact in found.items()))
