"""The builtin engine: a PyPy 2.7 that was translated with our patches samples on its
own.  Runs on PyPy 2.7."""
import os

from vmprof_allocation.process import Refused
from vmprof_allocation.sampler import PROBLEMS, Run, incomplete

#: of the settings, what RPython's rvmprof/allocations.py knows
ALLOCATIONS = "interval", "gaps", "seed", "limit", "lifetimes"


class BuiltinRun(Run):
    def __init__(self, vmprof, fields, output):
        self._vmprof = vmprof
        super(BuiltinRun, self).__init__(fields, output)

    def prepare(self, knowledge):
        if self._vmprof.is_enabled():
            raise Refused("vmprof is already enabled in this process; call "
                          "vmprof.disable() first")

    def begin(self, fd, settings):
        try:
            self._vmprof.enable(
                fd, float(settings["period"] or 0), int(settings["memory"]), 0, 0, 0,
                allocations=";".join("%s=%s" % (name, settings[name])
                                     for name in ALLOCATIONS))
        except self._vmprof.VMProfError as e:
            raise Refused("vmprof refuses: %s" % e)

    def end(self):
        if not self._vmprof.is_enabled():
            return None         # begin() failed, or the program has disabled vmprof
        try:
            self._vmprof.disable()
        except self._vmprof.VMProfError as e:
            # it says what the system says of an errno
            return next((incomplete(error) for error in PROBLEMS
                         if os.strerror(error) == str(e)),
                        "the profile is not complete: %s" % e)
        return None

    def mark(self, name):
        self._vmprof.mark(name)
