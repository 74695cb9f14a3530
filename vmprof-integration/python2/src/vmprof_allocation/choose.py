"""The choice of an engine.  Runs on PyPy 2.7."""
from vmprof_allocation.builtin import BuiltinRun
from vmprof_allocation.hook import HookRun
from vmprof_allocation.process import Process


def _sampling_vmprof():
    """PyPy's module `_vmprof`, or None if it can't sample allocations; as
    engines/choose.py says for Python 3."""
    try:
        import _vmprof
    except ImportError:
        return None
    return _vmprof if hasattr(_vmprof, "alive_allocations") else None


def library():
    """The file in which Python 3 is to look for the garbage collector; empty: this
    PyPy samples on its own.  Raises Refused."""
    return "" if _sampling_vmprof() is not None else Process().path


def begin(fields, output):
    """A run that has begun; see sampler.Run.  Raises Refused."""
    vmprof = _sampling_vmprof()
    if vmprof is None:
        return HookRun(fields, output)
    return BuiltinRun(vmprof, fields, output)
