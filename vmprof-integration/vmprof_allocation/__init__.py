"""Allocation sampling for PyPy.

On the command line::

    pypy3 -m vmprof --allocation-sampling 128k app.py

From code::

    import vmprof_allocation

    with vmprof_allocation.sample("app.vmprof", "128k"):
        work()

start() and stop() do the same without a block, and rotate() begins the next profile.
The profiles are for ``pypy-alloc report`` and its other commands, and for vmprof's own
tools. push() sends profiles to a server. Labels describe the program's current work::

    with vmprof_allocation.labels(endpoint="/users"):
        answer()

The word PYTEST_DONT_REWRITE prevents a warning of pytest that this module is imported
before pytest's plugins.
"""
from __future__ import annotations

from vmprof_allocation.critical.forks import Undivided as _Undivided
from vmprof_allocation.critical.interrupts import Uninterrupted as _Uninterrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.api import (
        AllocationSamplingError,
        Session,
        Statistics,
        UnknownBuild,
        mark,
        prepare,
        push,
        rotate,
        sample,
        start,
        stop,
    )
    from vmprof_allocation.session.labelling import labels

__all__ = ["AllocationSamplingError", "Session", "Statistics", "UnknownBuild",
           "labels", "mark", "prepare", "push", "rotate", "sample", "start", "stop"]


def __getattr__(name: str) -> object:
    """Import a name of __all__ when it is used for the first time."""
    # a program that the command line samples needs none of these names, so do not
    # import them at the start (engines/base.py)
    if name not in __all__:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    # a signal handler that uses one of the names would find an incomplete module
    with _Uninterrupted(), _Undivided():
        module: object
        if name == "labels":
            from vmprof_allocation.session import labelling as module
        else:
            from vmprof_allocation import api as module
    value: object = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return all names, including names that are not imported yet."""
    return sorted({*globals(), *__all__})
