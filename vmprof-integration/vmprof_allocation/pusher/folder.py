"""What is in the folder between a program that is sampled and its pusher: names and
bounds that both know.  See pusher/spool.py."""
from __future__ import annotations

import os

# nothing that is not needed: see engines/base.py

SUFFIX = ".vmprof"
#: what the pusher was asked for; no secrets
SETTINGS = "settings.json"
#: held by the pusher while it is there
LOCK = "lock"
#: how many windows a process dropped
DROPPED = ".dropped"

#: of what waits to be sent: at 15 seconds, 25 minutes of one process
MAX_WINDOWS = 100
MAX_BYTES = 16 * 2**20


def remove(folder: str) -> None:
    """With all that is in it; whoever else does the same does no harm."""
    try:
        for name in os.listdir(folder):
            try:
                os.unlink(os.path.join(folder, name))
            except FileNotFoundError:
                pass
        os.rmdir(folder)
    except OSError:
        pass                # it is gone, or another process puts something there
