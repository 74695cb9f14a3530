"""Name the profiles of a run: the profiles of the first process and of its children.

The first process writes ``app.vmprof``, and process 123 writes ``app.123.vmprof``. In
forked children, the sampling continues in C (hook/process/sampled_child.h), which
notifies session.py. A child that becomes this interpreter by exec finds the settings in
the environment variable VARIABLE (begin.py).
"""
from __future__ import annotations

import os

from vmprof_allocation.settings.settings import Settings

# keep imports to a minimum: see engines/base.py

#: environment variable with the settings for children that run the same interpreter
VARIABLE = "VMPROF_ALLOCATION_RUN"
MAX_SEED = 2**64 - 1
#: number of file names per pid, because the system may use a pid again
_TRIES = 100


class Processes:
    """The properties that all profiles of a run share."""

    __slots__ = ("parent", "path", "run", "suffix")

    def __init__(self, output: str, run: str = "", parent: int = 0):
        """Describe a run.

        Args:
            output: the profile of the first process.
            run: run ID; empty for a new run.
            parent: pid of the parent; 0 for the first process.
        """
        path, self.suffix = os.path.splitext(os.path.abspath(output))
        #: path of the profiles up to the pid and the suffix
        self.path = path
        #: run ID: the same in all profiles of the run, and in no other profile
        self.run = run or "%016x" % _random()
        self.parent = parent

    @property
    def first(self) -> str:
        """The path of the first process's profile."""
        return self.path + self.suffix

    def paths_of_child(self, pid: int) -> list[str]:
        """Return the possible paths of the profile of child `pid`, best one first.

        hook/process/sampled_child.c chooses among the same paths.
        """
        return ["%s.%d%s%s" % (self.path, pid, "-%d" % i * (i > 1), self.suffix)
                for i in range(1, _TRIES + 1)]

    def of_child(self, parent: int) -> Processes:
        """Return the properties of this run for a forked child of process `parent`."""
        return Processes(self.first, self.run, parent)

    def pack(self, settings: Settings, knowledge: str) -> str:
        """Return the value of VARIABLE for children, without the parent's pid."""
        return "\t".join((self.run, settings.text(), knowledge, self.first))


def unpack(value: str) -> tuple[Processes, Settings, str]:
    """Parse the value of VARIABLE in a child.

    Like a forked child, the child gets another seed, and takes no CPU samples.

    Args:
        value: the parent's pid, a tab, and the result of pack(). The pid is 0 if this
            is the first process, which runs another program now.

    Returns:
        The run, the settings, and the build profile of the interpreter.
    """
    parent, run, text, knowledge, first = value.split("\t", 4)
    settings = Settings.parse(text)
    settings.seed = (settings.seed + (os.getpid() << 32)) & MAX_SEED
    settings.period = None
    return Processes(first, run, int(parent)), settings, knowledge


def make_own(processes: Processes) -> str | None:
    """Create the file for the profile of this child.

    hook/process/sampled_child.c does the same in C.

    Returns:
        The path. None if the first process's profile was removed, or if all possible
        files exist.
    """
    if not os.path.exists(processes.first):
        return None
    for path in processes.paths_of_child(os.getpid()):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        return path
    return None


def _random() -> int:
    try:
        return int.from_bytes(os.urandom(8), "little")
    except NotImplementedError:     # there is no /dev
        import time
        return (os.getpid() << 40 ^ time.time_ns()) & MAX_SEED
