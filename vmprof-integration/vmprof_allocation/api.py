"""The functions that the package offers to programs; see vmprof_allocation."""
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
    """A session that start() began and stop() ends."""

    def _start(self, engine: Engine, file: ProfileFile) -> None:
        global _session
        super()._start(engine, file)
        # Set _session while start() holds the lock. A signal handler may start and stop
        # other sessions before start() returns. If _session were set after that, stop()
        # would not find these sessions.
        _session = self


def sample(output: Path, interval: int | str = DEFAULT_INTERVAL, *,
           seed: int | None = None, gaps: Gaps = "exponential",
           period: float | None = None, lifetimes: bool = True,
           follow: bool = True, native: bool = False,
           lines: bool = False,
           raw_memory: int | str | None = None) -> Session:
    """Return a session that writes allocation samples to `output`.

    The session is a context manager. If it is entered again, it replaces the file.

    Args:
        output: path of the profile.
        interval: mean number of bytes between two samples, or text such as ``128k``.
            It may also be a limit, to which the sampler adapts the interval: ``auto``,
            ``auto:1000/s`` (samples per second) or ``auto:0.5%`` (of the run time).
        seed: seed of the gaps between samples, 0 to 2**64 - 1, which makes a run
            repeatable.
        gaps: ``exponential``, or ``fixed`` for every `interval`-th byte.  With fixed
            gaps, the samples of a loop may always come from the same line.
        period: seconds between two CPU samples. None for no CPU samples.
        lifetimes: record the outcomes of the sampled objects.
        follow: also sample the children of this process, if the engine can. Child 123
            writes ``app.123.vmprof`` next to ``app.vmprof``, if it has a sample. If the
            child starts its own sampling, the inherited sampling ends.
        native: record the functions of C code inside of the innermost Python function.
        lines: record the executed line of each function, if it is known. In compiled
            code, it is known only if PyPy compiles the code during the sampling.
            Recording lines takes time whenever PyPy compiles.
        raw_memory: interval for samples of native memory, such as ``512k``. None for no
            such samples.

    Raises:
        AllocationSamplingError: sampling is not possible, and the process is unchanged.
            The settings are checked here, and the rest when the session is entered.
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
    """Start to sample until stop() is called.  See sample() for the arguments."""
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
    """Sample this process, and send a profile to a server at regular intervals.

    Another process sends the profiles. If the server is slow or does not answer, this
    process is not delayed. The number and the bytes of waiting profiles are limited;
    profiles beyond these limits are dropped and counted.

    Headers with credentials come from the environment variable VMPROF_PUSH_HEADERS, or
    from the file that VMPROF_PUSH_HEADERS_FILE names.

    Args:
        url: address of the server: ``otlp+http://localhost:4318`` (the OpenTelemetry
            collector), ``pyroscope+https://...`` or ``parca+http://...``.
        interval: see sample().
        every: seconds between two profiles. None for 15 seconds.
        service: name of the service. If empty, OTEL_SERVICE_NAME and
            OTEL_RESOURCE_ATTRIBUTES name it.
        version: version of the service, from the same variables if empty.
        lifetimes: see sample().
        follow: see sample().

    Returns:
        An object whose stop() ends the sampling. Without stop(), the sampling ends with
        the process.

    Raises:
        AllocationSamplingError: sampling is not possible, and the process is unchanged.
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
    """Give the present moment a name in the profile, for the command ``leaks``.

    The report can show the objects that were allocated between two marks and are still
    alive. The mark is set in every session, whether the command line or the program
    started the session. Without a session, mark() has no effect.
    """
    mark_all(name)


def rotate(output: Path) -> None:
    """Rotate the profile of start().  See Session.rotate()."""
    _started_session().rotate(output)


def stop() -> None:
    """End the sampling that start() began.

    Raises:
        AllocationSamplingError: sampling is not on, or the end of the profile could not
            be written.
    """
    _started_session().stop()


def _started_session() -> Session:
    if _session is None or not _session.is_on:
        raise AllocationSamplingError(
            "allocation sampling is not on; call start() first")
    return _session
