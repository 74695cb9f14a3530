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

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from vmprof_allocation.settings.processes import Processes
    from vmprof_allocation.settings.settings import Settings


class Following:
    """While a process is sampled: what its children have to know."""

    __slots__ = ("_packed",)

    def __init__(self, settings: Settings, processes: Processes) -> None:
        self._packed = processes.pack(settings, "")
        # of the C library's environment alone: the program's os.environ stays as it is
        os.putenv(VARIABLE, self._of_parent(os.getpid()))

    def _of_parent(self, pid: int) -> str:
        return "%d\t%s" % (pid, self._packed)

    @staticmethod
    def end() -> None:
        os.unsetenv(VARIABLE)

    def child(self, parent: int) -> ForkedChild | None:
        """In a forked child of process `parent`; None: it gets no profile, as the first
        one is gone, or the folder is full of others.  Raises OSError."""
        processes, settings, _ = unpack(self._of_parent(parent))
        path = make_own(processes)
        return None if path is None else ForkedChild(path, settings, processes)


class ForkedChild:
    """What a forked child is sampled with."""

    __slots__ = ("_exit", "fd", "inherited", "path", "processes", "settings")

    def __init__(self, path: str, settings: Settings, processes: Processes) -> None:
        self.path, self.settings, self.processes = path, settings, processes
        self.fd = move_up(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        #: threads that are not in this process, but `threading` may still have them
        self.inherited = {thread for thread, _ in thread_names.of_threads()}
        self._exit: Callable[[int], object] | None = None

    def end_at_exit(self, stop: Callable[[], None]) -> None:
        """Call `stop` before os._exit(), too, which is how multiprocessing ends its
        children."""
        self._exit = exit_ = os._exit

        def _exit(status: int) -> None:
            try:
                stop()
            finally:
                exit_(status)

        os._exit = _exit  # type: ignore[assignment]

    def close(self, has_samples: bool) -> None:
        """It ends: without a sample there was nothing to tell."""
        if self._exit is not None:
            os._exit = self._exit  # type: ignore[assignment]
        os.close(self.fd)
        if not has_samples:
            os.unlink(self.path)
