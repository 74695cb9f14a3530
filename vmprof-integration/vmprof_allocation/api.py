"""What the package offers to programs: see there."""
from __future__ import annotations

from vmprof_allocation.engines.base import Statistics
from vmprof_allocation.errors import AllocationSamplingError, UnknownBuild
from vmprof_allocation.parsing import make_settings
from vmprof_allocation.session import Session, mark_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.session import Path
    from vmprof_allocation.settings import Gaps

__all__ = ["AllocationSamplingError", "Session", "Statistics", "UnknownBuild",
           "mark", "sample", "start", "stop"]

DEFAULT_INTERVAL = "128k"

_session: Session | None = None


def sample(output: Path, interval: int | str = DEFAULT_INTERVAL, *,
           seed: int | None = None, gaps: Gaps = "exponential",
           period: float | None = None, lifetimes: bool = True) -> Session:
    """A context manager that writes allocation samples to `output`.

    `interval`: mean number of bytes between two samples, or text such as
    ``128k``; or a limit, such as ``auto``, ``auto:1000/s`` (samples a second)
    or ``auto:0.5%`` (of the time), which the interval follows.  `seed` (0 to
    2**64 - 1) makes a run repeatable; `gaps` ``fixed`` takes exactly every
    `interval`-th byte, which aliases with loops.  `period`: seconds between
    two time samples, which are not taken otherwise.  `lifetimes`: find out what
    becomes of the sampled objects.  Entered again, it begins
    the file anew.

    Raises AllocationSamplingError, here or on entry, if that can't be done;
    nothing was changed then.
    """
    if output is None:
        raise AllocationSamplingError(
            "the output None is no file; write for example \"app.vmprof\"")
    return Session(make_settings(interval, seed, gaps, period,
                                 lifetimes=lifetimes), output)


def start(output: Path, interval: int | str = DEFAULT_INTERVAL, *,
          seed: int | None = None, gaps: Gaps = "exponential",
          period: float | None = None, lifetimes: bool = True) -> Session:
    """Begin what stop() ends; see sample()."""
    global _session
    session = sample(output, interval, seed=seed, gaps=gaps, period=period,
                     lifetimes=lifetimes)
    if _session is None or not _session.is_on:
        # before it is on: what is on, stop() can end
        _session = session
    session.start()
    _session = session      # another thread may have tried meanwhile
    return session


def mark(name: str) -> None:
    """Name this moment in the profile, for ``report --leaks``: what was allocated
    between two marks, and is still alive.  Whoever began the sampling: the
    command line, or this program.  Harmless if nobody did."""
    mark_all(name)


def stop() -> None:
    """End what start() began.

    Raises AllocationSamplingError if nothing was begun, or if the profile
    could not be written to the end.
    """
    if _session is None or not _session.is_on:
        raise AllocationSamplingError(
            "allocation sampling is not on; call start() first")
    _session.stop()
