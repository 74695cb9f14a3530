"""Define the errors that a user may get; each has a complete message."""
from __future__ import annotations

import sys


class AllocationSamplingError(Exception):
    """Sampling is not possible, or the request is invalid.

    The message is one line for the user; the command line prints it and ends
    with exit code 2.
    """


class WrongType(AllocationSamplingError, TypeError):
    """A setting has an invalid type."""


class WrongValue(AllocationSamplingError, ValueError):
    """A setting has an invalid value."""


class SamplingBusy(AllocationSamplingError):
    """The sampling is just being started, stopped or changed, so nothing was done.

    The caller is a finalizer or a tracing function that interrupted this change, or
    another thread has just made the same request.
    """


class UnknownBuild(AllocationSamplingError):
    """The sampler does not support this build of PyPy; nothing was changed.

    The search did not find the nursery and the GC's functions with certainty.

    The attribute ``findings`` is a list of ``(what, value, ok)`` that `doctor` prints.
    """

    def __init__(self, message: str, findings: list[Finding] | None = None):
        """Create the error with its findings."""
        super().__init__(message)
        self.findings = findings or []


class Evidence:
    """The findings about this build of PyPy, which `doctor` prints."""

    def __init__(self) -> None:
        """Begin without findings."""
        self.findings: list[Finding] = []

    def found(self, what: str, value: str) -> None:
        """Add a finding that is as expected."""
        self.findings.append((what, value, True))

    def refuse(self, what: str, why: str) -> UnknownBuild:
        """Add a finding that makes sampling impossible, and return the error.

        Args:
            what: the name of the finding.
            why: the reason.
        """
        self.findings.append((what, why, False))
        return UnknownBuild(
            "this build of PyPy is not known: %s: %s; nothing was changed (`pypy-alloc "
            "doctor` prints all findings)"
            % (what, why), self.findings)


#: The first words of the values of some findings. NOT_KNOWN means that the search did
#: not find the answer. PASSING means that the reason has nothing to do with the build,
#: so that the result of the search is not stored.
NOT_KNOWN, PASSING = "not known", "not known this time"
#: name and value of a finding, and whether the value is as expected
Finding = tuple[str, str, bool]


def say(message: str) -> None:
    """Print one line for the user to the original stderr.

    The program may have replaced sys.stderr.
    """
    if sys.__stderr__ is not None:
        try:
            sys.__stderr__.write("vmprof: %s\n" % message)
            sys.__stderr__.flush()
        except (OSError, ValueError):
            pass        # stderr is closed
