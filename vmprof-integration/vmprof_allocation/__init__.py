"""Allocation sampling for PyPy.

On the command line::

    pypy3 -m vmprof --allocation-sampling 128k app.py

From code::

    import vmprof_allocation

    with vmprof_allocation.sample("app.vmprof", "128k"):
        work()

or start() and stop(), and rotate() for one profile after another.  They are for
`vmprof-convert`, for ``python -m vmprof_allocation report``, and for vmprof's
own tools.  push() sends profiles to an engine.

To pytest, which would warn that this is imported already: PYTEST_DONT_REWRITE.
"""
from __future__ import annotations

from vmprof_allocation.interrupts import Uninterrupted as _Uninterrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.api import (
        AllocationSamplingError,
        Session,
        Statistics,
        UnknownBuild,
        mark,
        push,
        rotate,
        sample,
        start,
        stop,
    )

__all__ = ["AllocationSamplingError", "Session", "Statistics", "UnknownBuild",
           "mark", "push", "rotate", "sample", "start", "stop"]


def __getattr__(name: str) -> object:
    # programs that the command line samples need none of it: see engines/base.py
    if name not in __all__:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    # a handler that wants one of these, too, would find half a module
    with _Uninterrupted():
        from vmprof_allocation import api
    value: object = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
