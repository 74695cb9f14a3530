"""What the package offers to programs: see there."""
from __future__ import annotations

import os

from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.engines.base import Statistics
from vmprof_allocation.errors import AllocationSamplingError, UnknownBuild
from vmprof_allocation.remote.control.prepared import prepare
from vmprof_allocation.session.session import Session, mark_all
from vmprof_allocation.settings.parsing import check_output, make_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.engines.base import Engine
    from vmprof_allocation.session.periodic_rotation import PeriodicRotation
    from vmprof_allocation.session.profile_file import ProfileFile
    from vmprof_allocation.session.session import Path
    from vmprof_allocation.settings.settings import Gaps

__all__ = ["AllocationSamplingError", "Session", "Statistics", "UnknownBuild",
           "mark", "prepare", "push", "rotate", "sample", "start", "stop"]

DEFAULT_INTERVAL = "128k"

_session: Session | None = None


class _Started(Session):
    """One that stop() ends."""

    def _start(self, engine: Engine, file: ProfileFile) -> None:
        global _session
        super()._start(engine, file)
        # still in the section: a handler may start and stop others before
        # start() returns, and this one would hide them from stop()
        _session = self


def sample(output: Path, interval: int | str = DEFAULT_INTERVAL, *,
           seed: int | None = None, gaps: Gaps = "exponential",
           period: float | None = None, lifetimes: bool = True,
           follow: bool = True, native: bool = False,
           lines: bool = False,
           raw_memory: int | str | None = None) -> Session:
    """A context manager that writes allocation samples to `output`.

    `interval`: mean number of bytes between two samples, or text such as
    ``128k``; or a limit, such as ``auto``, ``auto:1000/s`` (samples a second)
    or ``auto:0.5%`` (of the time), which the interval follows.  `seed` (0 to
    2**64 - 1) makes a run repeatable; `gaps` ``fixed`` takes exactly every
    `interval`-th byte, which aliases with loops.  `period`: seconds between
    two time samples, which are not taken otherwise.  `lifetimes`: find out what
    becomes of the sampled objects.  `follow`: sample the children of this process,
    too, where the engine can: process 123 writes ``app.123.vmprof`` beside
    ``app.vmprof``, if it has a sample; sampling that such a child begins takes its
    place.  `native`: with the functions of C code inside of the innermost Python
    one.  `lines`: with the line at which each function was, where that is known, of
    compiled code only if it is compiled meanwhile; takes time whenever PyPy compiles.
    `raw_memory`: sample what C code has of malloc, too, one sample in so many bytes,
    such as ``512k``.  Entered again, it begins the file anew.

    Raises AllocationSamplingError, here or on entry, if that can't be done;
    nothing was changed then.
    """
    return Session(make_settings(interval, seed, gaps, period,
                                 lifetimes=lifetimes, follow=follow, native=native,
                                 lines=lines, raw_memory=raw_memory),
                   check_output(output))


def start(output: Path, interval: int | str = DEFAULT_INTERVAL, *,
          seed: int | None = None, gaps: Gaps = "exponential",
          period: float | None = None, lifetimes: bool = True,
          follow: bool = True, native: bool = False,
          lines: bool = False,
          raw_memory: int | str | None = None) -> Session:
    """Begin what stop() ends; see sample()."""
    session = _Started(make_settings(interval, seed, gaps, period,
                                     lifetimes=lifetimes, follow=follow,
                                     native=native, lines=lines,
                                     raw_memory=raw_memory),
                       check_output(output))
    session.start()
    return session


def push(url: str, interval: int | str = "auto", *, every: float | None = None,
         service: str = "", version: str = "", lifetimes: bool = True,
         follow: bool = True) -> PeriodicRotation:
    """Sample until the end, or the stop() of what is returned, and send a profile to
    an engine `every` so many seconds (15, if nothing is said).

    `url` says which engine: ``otlp+http://localhost:4318`` (the OpenTelemetry
    collector), ``pyroscope+https://...`` or ``parca+http://...``.  `service` and
    `version`: what it is called there; without them, OTEL_SERVICE_NAME and
    OTEL_RESOURCE_ATTRIBUTES say it.  Headers with credentials come from
    VMPROF_PUSH_HEADERS, or from the file that VMPROF_PUSH_HEADERS_FILE names.  See
    sample() for the rest.

    Another process sends, and an engine that is slow or away costs this one nothing:
    what waits is bounded, and what can't wait any more is dropped, and counted.

    Raises AllocationSamplingError; nothing was changed then.
    """
    with Undivided():
        from vmprof_allocation.session.periodic_rotation import PeriodicRotation
        from vmprof_push import folder, start
        settings = make_settings(interval, lifetimes=lifetimes, follow=follow)
        first = start.start(settings, url, every, service, version)
        session = Session(settings, first)
        try:
            session.start()
            rotating = PeriodicRotation(session)
            rotating.begin()
        except BaseException:
            session.stop()
            folder.remove(os.path.dirname(first))
            raise
        return rotating


def mark(name: str) -> None:
    """Name this moment in the profile, for ``report --leaks``: what was allocated
    between two marks, and is still alive.  Whoever began the sampling: the
    command line, or this program.  Harmless if nobody did."""
    mark_all(name)


def rotate(output: Path) -> None:
    """What start() began goes on in another profile: see Session.rotate()."""
    _started_session().rotate(output)


def stop() -> None:
    """End what start() began.

    Raises AllocationSamplingError if nothing was begun, or if the profile
    could not be written to the end.
    """
    _started_session().stop()


def _started_session() -> Session:
    if _session is None or not _session.is_on:
        raise AllocationSamplingError(
            "allocation sampling is not on; call start() first")
    return _session
