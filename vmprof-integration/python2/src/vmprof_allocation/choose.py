"""Choose the engine that samples this process.  Runs on PyPy 2.7."""
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
    """Return the file that Python 3 searches for the garbage collector.

    It is empty if this PyPy has the builtin engine.

    Raises:
        Refused: this PyPy cannot be sampled.
    """
    return "" if _sampling_vmprof() is not None else Process().path


def begin(fields, output):
    """Start a run, and return it; see sampler.Run.

    Raises:
        Refused: sampling is not possible.
    """
    vmprof = _sampling_vmprof()
    if vmprof is None:
        return HookRun(fields, output)
    return BuiltinRun(vmprof, fields, output)
