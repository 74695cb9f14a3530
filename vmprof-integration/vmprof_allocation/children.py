"""What a child finds that became this interpreter by exec, and its own profile."""
from __future__ import annotations

import os

from vmprof_allocation.processes import MAX_SEED, Processes
from vmprof_allocation.settings import Limit, Settings

# nothing that is not needed: see engines/base.py

#: of another process there may be a file, if the system has begun to count anew
_TRIES = 100


def unpack(value: str) -> tuple[Processes, Settings, str]:
    """The opposite of pack(), in a child, behind its parent's pid; 0: it is the
    first process, once more.  Its seed is another one."""
    (parent, run, interval, seed, gaps, lifetimes, per_second, share, rotate,
     native, knowledge, first) = value.split("\t", 11)
    limit = Limit(int(per_second), int(share))
    processes = Processes(first, run, int(parent))
    settings = Settings(
        int(interval), (int(seed) + (os.getpid() << 32)) & MAX_SEED,
        gaps,  # type: ignore[arg-type,unused-ignore]
        limit=limit if limit.per_second or limit.share else None,
        lifetimes=lifetimes == "1", rotate=float(rotate),
        native=native == "1")
    return processes, settings, knowledge


def make_own(processes: Processes) -> str | None:
    """Make this child's file, one that was not there, as native/hook/follow.c does;
    None: nobody waits for more, or there are too many."""
    if not os.path.exists(processes.first):
        return None
    for i in range(1, _TRIES + 1):
        path = "%s.%d%s%s" % (processes.path, os.getpid(), "-%d" % i * (i > 1),
                              processes.suffix)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            continue
        return path
    return None
