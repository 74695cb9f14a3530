"""The choice of an engine."""
from __future__ import annotations

from vmprof_allocation.critical.interrupts import Uninterrupted
from vmprof_allocation.engines.base import Engine
from vmprof_allocation.errors import UnknownBuild

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def choose(knowledge: str = "", *, hook: bool = False) -> Engine:
    """The engine for this process, ready to start.  `knowledge`: see
    Engine.prepare(); `hook`: see find().

    Raises AllocationSamplingError where there is none.
    """
    engine = find(hook=hook)
    try:
        engine.prepare(knowledge)
    except UnknownBuild:
        vmprof = None if hook else vmprof_with_samples()
        if vmprof is None:
            raise
        with Uninterrupted():
            from vmprof_allocation.engines.builtin import samples
            engine = samples.engine(vmprof)
        engine.prepare()
    return engine


def find(*, hook: bool = False) -> Engine:
    """The one for this process, whatever it does: the builtin one if it is there, and
    unless it is to do what only the hook engine can (`hook`: Settings.needs_hook)."""
    engine: Engine
    vmprof = None if hook else sampling_vmprof()
    # a handler that starts, too, would find half a module
    with Uninterrupted():
        if vmprof is not None:
            from vmprof_allocation.engines.builtin import engine as builtin
            engine = builtin.engine(vmprof)
        else:
            from vmprof_allocation.engines.hook import engine as of_hook
            engine = of_hook.engine()
    return engine


def sampling_vmprof() -> Any:
    """PyPy's module `_vmprof`, or None if it can't sample allocations."""
    try:
        import _vmprof
    except ImportError:
        return None
    return _vmprof if hasattr(_vmprof, "alive_allocations") else None


def vmprof_with_samples() -> Any:
    """PyPy's module `_vmprof`, or None if it can't even sample allocations without what
    becomes of them.  The hook engine, which can do more, is asked before."""
    try:
        import _vmprof
        takes = _vmprof.enable.__code__.co_varnames
    except (ImportError, AttributeError):
        return None
    return _vmprof if "allocations" in takes else None
