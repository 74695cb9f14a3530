"""Choose the engine that samples this process (base.py)."""
from __future__ import annotations

from vmprof_allocation.critical.interrupts import Uninterrupted
from vmprof_allocation.engines.base import Engine
from vmprof_allocation.errors import UnknownBuild

# Import only necessary modules (engines/base.py).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def choose(knowledge: str = "", *, hook: bool = False) -> Engine:
    """Choose the engine for this process, and prepare it.

    Args:
        knowledge: The argument of Engine.prepare().
        hook: Whether only the hook engine has the required features, as in find().

    Raises:
        AllocationSamplingError: No engine can sample this process.
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
    """Choose the engine for this process, without preparing it.

    The builtin engine is preferred if this PyPy has it.

    Args:
        hook: Whether the settings need the hook engine (Settings.needs_hook).
    """
    engine: Engine
    vmprof = None if hook else sampling_vmprof()
    # A signal handler that also starts sampling would find a half-imported module.
    with Uninterrupted():
        if vmprof is not None:
            from vmprof_allocation.engines.builtin import engine as builtin
            engine = builtin.engine(vmprof)
        else:
            from vmprof_allocation.engines.hook import engine as of_hook
            engine = of_hook.engine()
    return engine


def sampling_vmprof() -> Any:
    """Return PyPy's module `_vmprof`, or None if it cannot sample allocations."""
    try:
        import _vmprof
    except ImportError:
        return None
    return _vmprof if hasattr(_vmprof, "alive_allocations") else None


def vmprof_with_samples() -> Any:
    """Return PyPy's module `_vmprof`, or None if it cannot sample allocations.

    A module that records no outcomes of objects suffices, unlike in sampling_vmprof().
    choose() tries the hook engine first, because it records more.
    """
    try:
        import _vmprof
        takes = _vmprof.enable.__code__.co_varnames
    except (ImportError, AttributeError):
        return None
    return _vmprof if "allocations" in takes else None
