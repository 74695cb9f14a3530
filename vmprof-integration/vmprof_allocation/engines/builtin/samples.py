"""The builtin engine of a PyPy that has only the first patches about allocations.

The first patches are submission B of pypy-branch/PULL_REQUEST.rst.  A PyPy with them
records stacks, sizes and the GC's types in vmprof's own buffers.  choose() uses this
engine if the hook engine cannot sample.
"""
from __future__ import annotations

import os

from vmprof_allocation.engines.base import Statistics
from vmprof_allocation.engines.builtin.engine import BuiltinEngine
from vmprof_allocation.errors import AllocationSamplingError

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vmprof_allocation.settings.processes import Processes
    from vmprof_allocation.settings.settings import Settings

#: note about this engine at the beginning of a run
REMARK = ("this PyPy was translated with only the first part of the patches, and "
          "samples with its builtin engine: it records no outcomes of objects, and "
          "samples no children")
#: upper limit of seeds; this PyPy accepts seeds below 2**63 - 8
SEEDS = 2**62


def _refusal(what: str, do: str = "Omit it") -> AllocationSamplingError:
    return AllocationSamplingError(
        "this PyPy was translated with only the first part of the patches, and does "
        "not support %s. %s, or translate PyPy with all patches" % (what, do))


class SamplesEngine(BuiltinEngine):
    """The builtin engine without marks, labels, outcomes and children."""

    def capabilities(self) -> tuple[str, ...]:
        """Return the capabilities: see Engine.capabilities()."""
        return "names", "time-samples", "types"

    def start(self, fd: int, settings: Settings,
              processes: Processes | None = None) -> None:
        """Start to sample: see Engine.start()."""
        if settings.limit is not None:
            raise _refusal("a limit of samples (auto)",
                           "Write an interval, such as --allocation-sampling 128k")
        for wanted, what in (
                (settings.gaps != "exponential", "fixed gaps"),
                (settings.native, "native frames (--native)"),
                (settings.rotate, "a second profile (--rotate)"),
                (processes is not None and processes.parent,
                 "profiles of children")):
            if wanted:
                raise _refusal(what)
        super().start(fd, settings)

    def _enable(self, fd: int, settings: Settings,
                processes: Processes | None) -> None:
        self._vmprof.enable(
            fd, settings.period or 0.0, int(settings.memory), 0, 0, 0,
            allocations="interval=%d;seed=%d" % (settings.interval,
                                                 settings.seed % SEEDS))
        self._pid = os.getpid()
        self._fd = fd

    def _name_threads(self) -> None:
        pass

    def set_interval(self, interval: int) -> None:
        """Refuse: this PyPy cannot change the interval of a run."""
        raise _refusal("another interval while it samples",
                       "Stop the sampling, and start it with the new interval")

    def rotate(self, fd: int, settings: Settings, processes: Processes | None,
               part: int) -> str:
        """Refuse: this PyPy cannot rotate a profile."""
        raise _refusal("a second profile while it samples",
                       "Stop the sampling, and start it again")

    def define_label(self, text: str) -> int:
        """Return 0: this PyPy has no labels."""
        return 0

    def label(self, number: int) -> None:
        """Do nothing: this PyPy has no labels."""

    def mark(self, name: str) -> None:
        """Do nothing: this PyPy has no marks."""

    def ignore(self, ignored: bool) -> bool:
        """Return False: this PyPy samples all threads."""
        return False

    def state(self) -> None:
        """Return None: no other engine object can continue."""

    def statistics(self) -> Statistics:
        """Refuse: this PyPy has no statistics."""
        raise _refusal("statistics", "Stop the sampling, and read the profile")


_engine: SamplesEngine | None = None


def engine(vmprof: Any) -> SamplesEngine:
    """Return the engine of this process.

    Args:
        vmprof: The module from choose.vmprof_with_samples().
    """
    global _engine
    if _engine is None:
        _engine = SamplesEngine(vmprof)
    return _engine
