"""Allocation sampling for PyPy 2.7.  Runs on PyPy 2.7.

    pypy -m vmprof --allocation-sampling 128k app.py

or, from code,

    import vmprof_allocation
    with vmprof_allocation.sample("app.vmprof", "128k"):
        ...

The profile, and what is said of wrong arguments, are those of the package of the
same name for Python 3, which does here all that needs no PyPy 2.7: it reads the
arguments, looks for the garbage collector in this build (starter.py), and makes
the report.
"""
from vmprof_allocation import choose
from vmprof_allocation.process import Refused as AllocationSamplingError

__all__ = ["AllocationSamplingError", "Session", "mark", "rotate", "sample",
           "start", "stop"]

_started = []


class Session(object):
    """Samples from start() to stop(), in the process that called start().
    A context manager that does both."""

    def __init__(self, output, *settings):
        self.output = output
        self._settings = settings
        self._run = None

    def start(self):
        from vmprof_allocation.starter import settings
        if self._run is not None:
            raise AllocationSamplingError("this session samples already")
        self._run = choose.begin(settings(*self._settings), self.output)

    def stop(self):
        """Harmless if it was called before.  Raises AllocationSamplingError if
        the profile is not complete."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def rotate(self, output):
        """Only in Python 3."""
        raise AllocationSamplingError(
            "in PyPy 2.7, no other profile can begin while it samples; stop, and "
            "start again")

    @property
    def is_on(self):
        return self._run is not None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, value, traceback):
        self.stop()


def sample(output, interval="128k", seed=None, gaps="exponential", period=None,
           lifetimes=True):
    """A context manager that writes allocation samples to `output`.

    `interval`: mean number of bytes between two samples, or text such as
    "128k"; or a limit, such as "auto", "auto:1000/s" (samples a second) or
    "auto:0.5%" (of the time).  `seed` (0 to 2**64 - 1) makes a run repeatable;
    `gaps` "fixed" takes exactly every `interval`-th byte.  `period`: seconds
    between two time samples, which are not taken otherwise.

    Raises AllocationSamplingError on entry, if that can't be done.
    """
    return Session(output, interval, seed, gaps, period, lifetimes)


def start(output, *settings, **by_name):
    """Begin what stop() ends; see sample()."""
    session = sample(output, *settings, **by_name)
    session.start()
    _started[:] = [session]
    return session


def rotate(output):
    """Only in Python 3."""
    Session(output).rotate(output)


def stop():
    """End what start() began."""
    if not (_started and _started[0].is_on):
        raise AllocationSamplingError(
            "allocation sampling is not on; call start() first")
    _started.pop().stop()


def mark(name):
    """Name this moment in the profile, in this process; harmless if there is
    none."""
    from vmprof_allocation import sampler
    sampler.mark(name)
