"""The choice of an engine.  Runs on PyPy 2.7."""
from vmprof_allocation.builtin import BuiltinRun
from vmprof_allocation.hook import HookRun
from vmprof_allocation.process import Process


def _sampling_vmprof():
    """Return PyPy's module `_vmprof`, or None if it cannot sample allocations.

    engines/choose.py does the same for Python 3.
    """
    try:
        import _vmprof
    except ImportError:
        return None
    return _vmprof if hasattr(_vmprof, "alive_allocations") else None


def library():
    """Return the path of PyPy's library, which Python 3 searches for the GC.

    If this PyPy has our patches, no search is necessary, and the path is empty.  Raises
    Refused.
    """
    return "" if _sampling_vmprof() is not None else Process().path


def begin(fields, output):
    """Start a run, and return it; see sampler.Run.  Raises Refused."""
    vmprof = _sampling_vmprof()
    if vmprof is None:
        return HookRun(fields, output)
    return BuiltinRun(vmprof, fields, output)
