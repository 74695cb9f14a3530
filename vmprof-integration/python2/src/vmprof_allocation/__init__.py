"""Allocation sampling for PyPy 2.7.  Runs on PyPy 2.7.

    pypy -m vmprof --allocation-sampling 128k app.py

or, from code,

    import vmprof_allocation
    with vmprof_allocation.sample("app.vmprof", "128k"):
        ...

The package of the same name for Python 3 does all work that needs no PyPy 2.7: it
checks the arguments, searches this build for the garbage collector (starter.py), and
makes the report.  Profiles and error messages are therefore the same.
"""
from vmprof_allocation import choose
from vmprof_allocation.process import Refused as AllocationSamplingError

__all__ = ["AllocationSamplingError", "Session", "mark", "rotate", "sample",
           "start", "stop"]

_started = []


class Session(object):
    """A run in this process, from start() to stop(); also a context manager."""

    def __init__(self, output, *settings):
        """Create the session; see sample() for the arguments."""
        self.output = output
        self._settings = settings
        self._run = None

    def start(self):
        """Start to sample.

        Raises:
            AllocationSamplingError: sampling is not possible.
        """
        from vmprof_allocation.starter import settings
        if self._run is not None:
            raise AllocationSamplingError("this session is already sampling")
        self._run = choose.begin(settings(*self._settings), self.output)

    def stop(self):
        """End the sampling; a second call has no effect.

        Raises:
            AllocationSamplingError: the profile is incomplete.
        """
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def rotate(self, output):
        """Raise AllocationSamplingError: only Python 3 can rotate profiles."""
        raise AllocationSamplingError(
            "cannot rotate a profile in PyPy 2.7. Stop the sampling, and start it "
            "again")

    @property
    def is_on(self):
        """Whether this session is sampling."""
        return self._run is not None

    def __enter__(self):
        """Start to sample."""
        self.start()
        return self

    def __exit__(self, kind, value, traceback):
        """End the sampling."""
        self.stop()


def sample(output, interval="128k", seed=None, gaps="exponential", period=None,
           lifetimes=True):
    """Return a session that writes allocation samples to `output`.

    Args:
        output: path of the profile.
        interval: mean number of bytes between two samples, or text such as "128k".  It
            may also be a limit that the interval follows: "auto", "auto:1000/s"
            (samples per second) or "auto:0.5%" (of the time).
        seed: seed of the gaps, 0 to 2**64 - 1, which makes a run repeatable.
        gaps: "exponential", or "fixed" for every `interval`-th byte.
        period: seconds between two CPU samples.  None for no CPU samples.
        lifetimes: record the outcomes of the sampled objects, if the engine can.

    When the session is entered, AllocationSamplingError is raised if sampling is not
    possible.
    """
    return Session(output, interval, seed, gaps, period, lifetimes)


def start(output, *settings, **by_name):
    """Start to sample until stop() is called.  See sample() for the arguments."""
    session = sample(output, *settings, **by_name)
    session.start()
    _started[:] = [session]
    return session


def rotate(output):
    """Raise AllocationSamplingError: only Python 3 can rotate profiles."""
    Session(output).rotate(output)


def stop():
    """End the sampling that start() began."""
    if not (_started and _started[0].is_on):
        raise AllocationSamplingError(
            "allocation sampling is not on; call start() first")
    _started.pop().stop()


def mark(name):
    """Give this moment a name in this process's profiles, if there are any."""
    from vmprof_allocation import sampler
    sampler.mark(name)
