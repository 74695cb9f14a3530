"""The builtin engine, for a PyPy 2.7 with our patches.  Runs on PyPy 2.7."""
import os

from vmprof_allocation.process import Refused
from vmprof_allocation.sampler import PROBLEMS, Run, incomplete

#: names of the settings that RPython's rvmprof/allocations.py accepts
ALLOCATIONS = "interval", "gaps", "seed", "limit", "lifetimes"


class BuiltinRun(Run):
    """A run with the builtin engine; see Run."""

    def __init__(self, vmprof, fields, output):
        """Start to sample with the module `_vmprof`; see Run.__init__()."""
        self._vmprof = vmprof
        super(BuiltinRun, self).__init__(fields, output)

    def prepare(self, knowledge):
        """Raise Refused if vmprof is enabled."""
        if self._vmprof.is_enabled():
            raise Refused("vmprof is already enabled in this process; call "
                          "vmprof.disable() first")

    def begin(self, fd, settings):
        """Enable vmprof with allocation samples.  Raises Refused."""
        try:
            self._vmprof.enable(
                fd, float(settings["period"] or 0), int(settings["memory"]), 0, 0, 0,
                allocations=";".join("%s=%s" % (name, settings[name])
                                     for name in ALLOCATIONS))
        except self._vmprof.VMProfError as e:
            raise Refused("cannot start the sampling: vmprof reports: %s" % e)

    def end(self):
        """Disable vmprof; see Run.end()."""
        if not self._vmprof.is_enabled():
            return None         # begin() failed, or the program has disabled vmprof
        try:
            self._vmprof.disable()
        except self._vmprof.VMProfError as e:
            # the exception has no errno, but only its text
            return next((incomplete(error) for error in PROBLEMS
                         if os.strerror(error) == str(e)),
                        "the profile is not complete: %s" % e)
        return None

    def mark(self, name):
        """Record a mark in the profile; see Run.mark()."""
        self._vmprof.mark(name)
