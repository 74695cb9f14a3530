"""The errors that a user may meet, each with a message that is complete."""
from __future__ import annotations

import sys


class AllocationSamplingError(Exception):
    """Sampling can't be started, or the request makes no sense.

    The message is one line for the user; the command line prints it and ends
    with exit code 2.
    """


class WrongType(AllocationSamplingError, TypeError):
    """A setting of a type that makes no sense."""


class WrongValue(AllocationSamplingError, ValueError):
    """A setting of a value that makes no sense."""


class SamplingBusy(AllocationSamplingError):
    """Sampling is just being started or stopped, by code that this was called
    from (a finalizer, a tracing function), or somebody else has just asked for the
    same: nothing was done."""


class UnknownBuild(AllocationSamplingError):
    """This PyPy's nursery was not found beyond doubt; nothing was touched.

    ``findings`` is a list of ``(what, value, ok)``, as `doctor` prints them.
    """

    def __init__(self, message: str, findings: list[Finding] | None = None):
        super().__init__(message)
        self.findings = findings or []


class Evidence:
    """What was looked for in this build, and what was found."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def found(self, what: str, value: str) -> None:
        self.findings.append((what, value, True))

    def refuse(self, what: str, why: str) -> UnknownBuild:
        """The refusal because of `what`; it is one of the findings."""
        self.findings.append((what, why, False))
        return UnknownBuild(
            "this build of PyPy is not known: %s: %s; nothing was changed "
            "(`python -m vmprof_allocation doctor` prints all that was found)"
            % (what, why), self.findings)


#: what a finding begins with that says no more; and one that is not about the build,
#: and is not kept
NOT_KNOWN, PASSING = "not known", "not known this time"
#: what was looked for, what was found, whether it is good
Finding = tuple[str, str, bool]


def say(message: str) -> None:
    """One line for the user.  sys.stderr may be something of the program's."""
    if sys.__stderr__ is not None:
        try:
            sys.__stderr__.write("vmprof: %s\n" % message)
            sys.__stderr__.flush()
        except (OSError, ValueError):
            pass        # it is closed
