"""Allocation sampling for PyPy 2.7.  Runs on PyPy 2.7.

    pypy -m vmprof --allocation-sampling 128k app.py

or, from code,

    import vmprof_allocation
    with vmprof_allocation.sample("app.vmprof", "128k"):
        ...

The package of the same name for Python 3 does all work that needs no PyPy 2.7
(starter.py): it parses the arguments, searches this build of PyPy for the garbage
collector, and makes the report.  So the profile and the error messages are the same as
with Python 3.
"""
from vmprof_allocation import choose
from vmprof_allocation.process import Refused as AllocationSamplingError

__all__ = ["AllocationSamplingError", "Session", "mark", "rotate", "sample",
           "start", "stop"]

_started = []


class Session(object):
    """Sampling from start() to stop(), in the process that called start().

    It is also a context manager, which calls both.
    """

    def __init__(self, output, *settings):
        """Store the arguments of sample(), without a check."""
        self.output = output
        self._settings = settings
        self._run = None

    def start(self):
        """Start to sample this process.  Raises AllocationSamplingError."""
        from vmprof_allocation.starter import settings
        if self._run is not None:
            raise AllocationSamplingError("this session is already sampling")
        self._run = choose.begin(settings(*self._settings), self.output)

    def stop(self):
        """Stop the sampling, and close the profile.  A second call does nothing.

        Raises:
            AllocationSamplingError: the profile is not complete.
        """
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def rotate(self, output):
        """Raise AllocationSamplingError; this method exists only in Python 3."""
        raise AllocationSamplingError(
            "cannot rotate a profile in PyPy 2.7. Stop the sampling, and start it "
            "again")

    @property
    def is_on(self):
        """Whether start() was called, and stop() was not."""
        return self._run is not None

    def __enter__(self):
        """Call start()."""
        self.start()
        return self

    def __exit__(self, kind, value, traceback):
        """Call stop()."""
        self.stop()


def sample(output, interval="128k", seed=None, distribution="exponential", period=None,
           lifetimes=True):
    """Return a context manager that writes allocation samples to `output`.

    The context manager raises AllocationSamplingError if it cannot sample.

    Args:
        output: the path of the profile.
        interval: the mean number of bytes between two samples, or text such as "128k";
            or a limit such as "auto", "auto:1000/s" (samples per second) or "auto:0.5%"
            (of the run time).
        seed: 0 to 2**64 - 1; the same seed chooses the same samples.
        distribution: "exponential", or "fixed" to sample every `interval`-th byte.
        period: seconds between two CPU samples, or None for no CPU samples.
        lifetimes: whether to record the outcomes of the sampled objects.
    """
    return Session(output, interval, seed, distribution, period, lifetimes)


def start(output, *settings, **by_name):
    """Start to sample until stop(), and return the Session; see sample()."""
    session = sample(output, *settings, **by_name)
    session.start()
    _started[:] = [session]
    return session


def rotate(output):
    """Raise AllocationSamplingError; this function exists only in Python 3."""
    Session(output).rotate(output)


def stop():
    """Stop the sampling that start() started.  Raises AllocationSamplingError."""
    if not (_started and _started[0].is_on):
        raise AllocationSamplingError(
            "allocation sampling is not on; call start() first")
    _started.pop().stop()


def mark(name):
    """Record a mark: a name for the present time.  Does nothing without a profile."""
    from vmprof_allocation import sampler
    sampler.mark(name)
