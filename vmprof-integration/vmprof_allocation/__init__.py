"""Allocation sampling for PyPy.

On the command line::

    pypy3 -m vmprof --allocation-sampling 128k app.py

From code::

    import vmprof_allocation

    with vmprof_allocation.sample("app.vmprof", "128k"):
        work()

or start() and stop(), and rotate() for one profile after another.  They are for
`vmprof-convert`, for ``python -m vmprof_allocation report``, and for vmprof's
own tools.  push() sends profiles to an engine.  Labels say what the program is doing::

    with vmprof_allocation.labels(endpoint="/users"):
        answer()

To pytest, which would warn that this is imported already: PYTEST_DONT_REWRITE.
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
    # programs that the command line samples need none of it: see engines/base.py
    if name not in __all__:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    # a handler that wants one of these, too, would find half a module
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
    return sorted({*globals(), *__all__})
