"""tracemalloc for PyPy: the live objects, and the lines that allocated them.

The functions and classes have the same names and meanings as in CPython's module
`tracemalloc`, with one difference: a sample of the allocations is traced.  Sizes and
counts are unbiased estimates, each with an error.  take_snapshot() excludes garbage;
get_traced_memory() includes dead objects that the garbage collector has not freed.

::

    from vmprof_allocation import tracemalloc

    tracemalloc.start(25)
    ...
    for statistic in tracemalloc.take_snapshot().statistics("lineno")[:10]:
        print(statistic, "+-", statistic.size_error)

install() makes ``import tracemalloc`` import this module.  The environment variable
VMPROF_TRACEMALLOC has the same effect, and also starts to trace.  Its value is the
number of frames, or this number and a sample interval, as in ``25,4k``.  Without this
variable, ``-X tracemalloc=25`` and PYTHONTRACEMALLOC have the same effect.
"""
from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.session import resident
from vmprof_allocation.tracemalloc.frames import Frame, Traceback
from vmprof_allocation.tracemalloc.snapshot import (
    BaseFilter,
    DomainFilter,
    Filter,
    Snapshot,
    Statistic,
    StatisticDiff,
    Trace,
)
from vmprof_allocation.tracemalloc.tracer import Tracer

__all__ = [
    "BaseFilter", "DomainFilter", "Filter", "Frame", "Snapshot", "Statistic",
    "StatisticDiff", "Trace", "Traceback", "clear_traces",
    "get_object_traceback", "get_traceback_limit", "get_traced_memory",
    "get_tracemalloc_memory", "install", "is_tracing", "reset_peak", "start",
    "stop", "take_snapshot",
]

#: variable that requests tracing; its value is "FRAMES" or "FRAMES,INTERVAL"
VARIABLE = "VMPROF_TRACEMALLOC"
PYTHON_VARIABLE = "PYTHONTRACEMALLOC"
EXIT_BAD_INPUT = 2
#: mean bytes between two samples if start() gets no `sample_interval`
default_interval: int | str = "16k"
#: largest number of frames, as in CPython
MAX_NFRAME = 65535

_tracer: Tracer | None = None
_limit = 1
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _alone(function: _Function) -> _Function:
    """Make a function exclude other threads, and ignore its own allocations."""
    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        with Undivided():
            tracer = _on()
            if tracer is None:
                return function(*arguments, **named)
            with tracer.ignored():      # objects of this package are not the program's
                return function(*arguments, **named)
    return wrapper  # type: ignore[return-value]


@_alone
def start(nframe: int = 1, *,
          sample_interval: int | str | None = None) -> None:
    """Start to trace.  If tracing is already on, change only the number of frames.

    Args:
        nframe: The number of innermost frames that a traceback keeps.
        sample_interval: Mean bytes between two samples, as a number or a text such as
            ``16k``.  With 1, all objects are traced, and all sizes are exact.  The
            default is the interval of install(), or 16k.

    Raises:
        AllocationSamplingError: This interpreter cannot be sampled, or is sampled
            already.
        TypeError: `nframe` is not an integer.
        ValueError: `nframe` is outside 1..65535.
    """
    global _tracer, _limit
    if not isinstance(nframe, int):
        raise TypeError("invalid number of frames %r: write an integer" % (nframe,))
    if not 1 <= nframe <= MAX_NFRAME:
        raise ValueError("invalid number of frames %d: it must be in 1..%d"
                         % (nframe, MAX_NFRAME))
    _limit = nframe
    if _tracer is not None and _tracer.is_on:
        _tracer.nframe = nframe
    else:
        _tracer = Tracer(nframe, default_interval if sample_interval is None
                         else sample_interval)


@_alone
def stop() -> None:
    """Stop tracing and discard all traces."""
    global _tracer
    tracer, _tracer = _tracer, None
    if tracer is not None:
        tracer.stop()


def _on() -> Tracer | None:
    """Return the active tracer, or None, as in a forked child."""
    return _tracer if _tracer is not None and _tracer.is_on else None


def is_tracing() -> bool:
    """Return whether this process traces its allocations."""
    return _on() is not None


def get_traceback_limit() -> int:
    """Return the number of frames of the last call of start()."""
    return _limit


@_alone
def clear_traces() -> None:
    """Discard the traces of all objects that were allocated before this call."""
    tracer = _on()
    if tracer is not None:
        tracer.clear()


@_alone
def get_traced_memory() -> tuple[int, int]:
    """Return the estimated live bytes and their peak; (0, 0) without tracing.

    The peak is the largest value after any minor collection.  The call runs a minor
    collection.
    """
    tracer = _on()
    return (0, 0) if tracer is None else tracer.bytes()


@_alone
def reset_peak() -> None:
    """Set the peak of the live bytes to their current value."""
    tracer = _on()
    if tracer is not None:
        tracer.reset_peak()


@_alone
def get_tracemalloc_memory() -> int:
    """Return the bytes of memory that tracing uses."""
    tracer = _on()
    return 0 if tracer is None else tracer.memory()


def take_snapshot() -> Snapshot:
    """Take a snapshot of the traces of the live objects.

    A heap snapshot finds the live objects, which takes 0.1 s per million objects of the
    program.  If no heap snapshot is possible, the result includes garbage, and a
    RuntimeWarning gives the reason.

    Raises:
        RuntimeError: nothing is traced.
    """
    tracer, problem = _on(), ""
    if tracer is not None:
        # other threads run meanwhile, and may fork, or stop the tracing
        with tracer.ignored():
            problem = tracer.end_garbage()
    snapshot = _take_snapshot()
    if problem and _on() is tracer:
        import warnings
        warnings.warn("the snapshot includes garbage: " + problem, RuntimeWarning,
                      stacklevel=2)
    return snapshot


@_alone
def _take_snapshot() -> Snapshot:
    tracer = _on()
    if tracer is None:
        raise RuntimeError(
            "cannot take a snapshot, because tracing is not on. Call "
            "tracemalloc.start() before")
    return Snapshot(tracer.traces(), _limit)


@_alone
def get_object_traceback(obj: object) -> Traceback | None:
    """Return the traceback of the allocation of `obj`, or None.

    The result is None if `obj` was not sampled, or if PyPy keeps no memory for `obj`,
    as for a number.
    """
    tracer = _on()
    found = None if tracer is None else tracer.traceback_of(obj)
    return None if found is None else Traceback(*found)


def install(sample_interval: int | str | None = None) -> None:
    """Make ``import tracemalloc`` import this module from now on.

    Args:
        sample_interval: The default for the parameter of this name of start().
    """
    global default_interval
    if sample_interval is not None:
        default_interval = sample_interval
    sys.modules["tracemalloc"] = sys.modules[__name__]


def _requested() -> tuple[str, str]:
    """Return the name and value of the option or variable that requests tracing.

    `VARIABLE` comes first.  CPython's option and variable follow in CPython's order.
    """
    if VARIABLE in os.environ:
        return VARIABLE, os.environ[VARIABLE]
    option = sys._xoptions.get("tracemalloc")
    if option is not None:
        return "-X tracemalloc", "1" if option is True else option
    return PYTHON_VARIABLE, os.environ.get(PYTHON_VARIABLE, "0")


def begin() -> None:
    """Start to trace if the environment or the command line requests it.

    `site` calls this function during its import.  Invalid values end the process,
    because the program must not run without the requested tracing.
    """
    if resident.is_of_command_line:
        return          # this process is sampled for a profile
    name, value = _requested()
    if value == "0" and name != VARIABLE:
        return          # as in CPython
    nframe, _, interval = value.partition(",")
    try:
        if not (nframe.isascii() and nframe.isdigit()):
            raise AllocationSamplingError(
                "invalid number of frames %s=%r; write for example 25, or 25,4k"
                % (name, value))
        install(interval or None)
        start(int(nframe))
    except (AllocationSamplingError, ValueError) as e:
        sys.stderr.write("vmprof: %s\n" % e)
        sys.stderr.flush()
        os._exit(EXIT_BAD_INPUT)
