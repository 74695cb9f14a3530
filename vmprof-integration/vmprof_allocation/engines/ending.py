"""How a run ends whose engine is gone: all that stays of it in the process."""
from __future__ import annotations

import errno

# nothing that is not needed: see base.py

#: why a profile could not be written to its end
INCOMPLETE = {errno.EFBIG: "files of this process may not be larger (ulimit -f)",
              errno.EBADF: "the program closed its file",
              errno.EPIPE: "its reader has left",
              errno.ETIMEDOUT: "its reader reads no more"}


class Ending:
    """Of the run of an engine whose modules may be gone: see resident.py."""

    __slots__ = ()

    def ignore(self, ignored: bool) -> bool:
        """Engine.ignore()"""
        raise NotImplementedError

    def end(self) -> bool:
        """The profile ends; returns False if only the end of the process can do that.
        Raises AllocationSamplingError if it is not complete."""
        raise NotImplementedError

    def forked(self) -> None:
        """This process is a forked child."""

    def end_child(self) -> None:
        """end() there; nobody hears of problems."""
