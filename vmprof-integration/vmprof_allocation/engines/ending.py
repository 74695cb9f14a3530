"""The interface that ends a run after the engine's modules were unloaded.

An `Ending` is the only object of the engine that remains in the process
(session/resident.py).
"""
from __future__ import annotations

import errno

# Import only necessary modules (base.py).

#: reasons, by errno, why a profile could not be written completely
INCOMPLETE = {errno.EFBIG: "it has reached the size limit for files of this process "
                           "(ulimit -f)",
              errno.EBADF: "the program closed its file",
              errno.EPIPE: "the reader of the pipe has ended",
              errno.ETIMEDOUT: "the reader of the pipe no longer reads"}


class Ending:
    """The end of a run, usable after the engine's modules were unloaded."""

    __slots__ = ()

    def ignore(self, ignored: bool) -> bool:
        """Do the same as Engine.ignore()."""
        raise NotImplementedError

    def end(self) -> bool:
        """End the sampling, and finish the profile.

        Returns:
            False if only the end of the process can finish the profile.

        Raises:
            AllocationSamplingError: The profile is incomplete.
        """
        raise NotImplementedError

    def forked(self) -> None:
        """Prepare this object for a forked child, in which it is called."""

    def end_child(self) -> None:
        """Do the same as end() in a forked child, without reporting problems."""
