"""The processes of a run: the first process and its children.

Each has a profile: ``app.vmprof`` for the first, ``app.123.vmprof`` for process 123.
In forked children, the sampling continues in C (hook/process/sampled_child.h), which
notifies session.py.  A child that becomes this interpreter by exec finds VARIABLE
(begin.py).
"""
from __future__ import annotations

import os

from vmprof_allocation.settings.settings import Settings

# import only what is needed: see engines/base.py

#: of the environment of a program that runs in this same interpreter
VARIABLE = "VMPROF_ALLOCATION_RUN"
MAX_SEED = 2**64 - 1
#: of another process there may be a file, if the system has begun to count anew
_TRIES = 100


class Processes:
    """What is common to all profiles of a run."""

    __slots__ = ("parent", "path", "run", "suffix")

    def __init__(self, output: str, run: str = "", parent: int = 0):
        """`output` is the first process's profile; `parent` a pid, or 0: this is
        the first."""
        path, self.suffix = os.path.splitext(os.path.abspath(output))
        #: without what comes behind the pid
        self.path = path
        #: the same in all of its profiles, and in no others
        self.run = run or "%016x" % _random()
        self.parent = parent

    @property
    def first(self) -> str:
        """The first process's profile."""
        return self.path + self.suffix

    def paths_of_child(self, pid: int) -> list[str]:
        """Return the possible paths of the profile of child `pid`, best one first.

        hook/process/sampled_child.c chooses among the same paths.
        """
        return ["%s.%d%s%s" % (self.path, pid, "-%d" % i * (i > 1), self.suffix)
                for i in range(1, _TRIES + 1)]

    def of_child(self, parent: int) -> Processes:
        """The same, in a forked child of process `parent`."""
        return Processes(self.first, self.run, parent)

    def pack(self, settings: Settings, knowledge: str) -> str:
        """VARIABLE's value for the children."""
        return "\t".join((self.run, settings.text(), knowledge, self.first))


def unpack(value: str) -> tuple[Processes, Settings, str]:
    """The opposite of pack(), in a child, behind its parent's pid; 0: it is the
    first process, once more.  Its seed is another one, and it takes no time samples,
    as a forked child does."""
    parent, run, text, knowledge, first = value.split("\t", 4)
    settings = Settings.parse(text)
    settings.seed = (settings.seed + (os.getpid() << 32)) & MAX_SEED
    settings.period = None
    return Processes(first, run, int(parent)), settings, knowledge


def make_own(processes: Processes) -> str | None:
    """Create a new file for this child, as hook/process/sampled_child.c does.

    Return its path.  Return None if the first process's profile is gone, or if too many
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
