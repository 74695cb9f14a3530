"""Names and limits of the folder into which a program writes and its pusher reads.

Both processes import this module.  spool.py describes the files with profiles.
"""
from __future__ import annotations

import contextlib
import os
import shutil

#: end of the name of a file with a profile
SUFFIX = ".vmprof"
#: file with the pusher's settings, which contain no secrets
SETTINGS = "settings.json"
#: file that the pusher locks while it runs
LOCK = "lock"

#: largest number of waiting segments: 25 minutes of one process at 15 seconds each
MAX_WINDOWS = 100
#: largest total size of the waiting segments, in bytes
MAX_BYTES = 16 * 2**20


def remove(folder: str) -> None:
    """Remove the folder with its contents.

    The folder is renamed first.  It disappears at once, even if the program writes
    into it during the removal.
    """
    gone = folder + ".gone"
    with contextlib.suppress(OSError):
        os.rename(folder, gone)
    shutil.rmtree(gone, ignore_errors=True)
