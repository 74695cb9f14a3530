"""How a run ends whose engine is gone: all that stays of it in the process."""
from __future__ import annotations

# nothing that is not needed: see base.py


class Ending:
    """Of the run of an engine whose modules may be gone: see resident.py."""

    __slots__ = ()

    def ignore(self, ignored: bool) -> bool:
        """Engine.ignore()"""
        raise NotImplementedError

    def end(self) -> bool:
        """The profile ends.  Returns False if it is not complete; Engine.stop() of a
        restored engine then says why.  Or raises AllocationSamplingError."""
        raise NotImplementedError

    def forked(self) -> None:
        """This process is a forked child."""

    def end_child(self) -> None:
        """end() there; nobody hears of problems."""
