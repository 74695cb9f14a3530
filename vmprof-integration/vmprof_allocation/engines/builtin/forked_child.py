"""Children of a process that the builtin engine samples.

A forked child gets a separate profile before the program's next line: Python calls
session/resident.py in the child.  A child that becomes this interpreter by exec finds
VARIABLE in its environment.  The hook engine does both in C
(hook/process/sampled_child.c), and also sees environments that a program makes.
"""
from __future__ import annotations

import os

from vmprof_allocation.critical.descriptors import move_up
from vmprof_allocation.engines import thread_names
from vmprof_allocation.settings.processes import VARIABLE, make_own, unpack

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from vmprof_allocation.settings.processes import Processes
    from vmprof_allocation.settings.settings import Settings


class Following:
    """The settings that a sampled process passes to its children."""

    __slots__ = ("_packed",)

    def __init__(self, settings: Settings, processes: Processes) -> None:
        """Set the environment variable for children that are started by exec."""
        self._packed = processes.pack(settings, "")
        # only in the C library's environment, so that the program does not see it
        os.putenv(VARIABLE, self._of_parent(os.getpid()))

    def _of_parent(self, pid: int) -> str:
        return "%d\t%s" % (pid, self._packed)

    @staticmethod
    def end() -> None:
        """Remove the environment variable for children that are started by exec."""
        os.unsetenv(VARIABLE)

    def child(self, parent: int) -> ForkedChild | None:
        """Create a profile for this process, which is a forked child.

        Args:
            parent: pid of the parent.

        Returns:
            The profile and the settings.  None if the first process's profile was
            removed, or if the folder has too many profiles with this pid.

        Raises:
            OSError: The profile cannot be created.
        """
        processes, settings, _ = unpack(self._of_parent(parent))
        path = make_own(processes)
        return None if path is None else ForkedChild(path, settings, processes)


class ForkedChild:
    """The profile and the settings of a sampled forked child."""

    __slots__ = ("_exit", "fd", "inherited", "path", "processes", "settings")

    def __init__(self, path: str, settings: Settings, processes: Processes) -> None:
        """Open the profile at `path`."""
        self.path, self.settings, self.processes = path, settings, processes
        self.fd = move_up(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        #: IDs of the parent's threads, which `threading` may still list
        self.inherited = {thread for thread, _ in thread_names.of_threads()}
        #: os._exit() before end_at_exit(); None if it was not replaced
        self._exit: Callable[[int], object] | None = None

    def end_at_exit(self, stop: Callable[[], None]) -> None:
        """Also call `stop` before os._exit(), which ends multiprocessing's children."""
        self._exit = exit_ = os._exit

        def _exit(status: int) -> None:
            try:
                stop()
            finally:
                exit_(status)

        os._exit = _exit  # type: ignore[assignment]

    def close(self, has_samples: bool) -> None:
        """Close the profile.  Remove it if it has no samples."""
        if self._exit is not None:
            os._exit = self._exit  # type: ignore[assignment]
        os.close(self.fd)
        if not has_samples:
            os.unlink(self.path)
