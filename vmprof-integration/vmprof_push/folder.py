"""What is in the folder between a program that is sampled and its pusher: names and
bounds that both know.  See spool.py."""
from __future__ import annotations

import contextlib
import os
import shutil

SUFFIX = ".vmprof"
#: what the pusher was asked for; no secrets
SETTINGS = "settings.json"
#: held by the pusher while it is there
LOCK = "lock"

#: of what waits to be sent: at 15 seconds, 25 minutes of one process
MAX_WINDOWS = 100
MAX_BYTES = 16 * 2**20


def remove(folder: str) -> None:
    """With all that is in it: at once, as the program may write there meanwhile."""
    gone = folder + ".gone"
    with contextlib.suppress(OSError):
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
