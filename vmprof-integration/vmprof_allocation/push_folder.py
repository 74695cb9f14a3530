"""What is in the folder between a program that is sampled and its pusher: names and
bounds that both know.  See pusher/spool.py."""
from __future__ import annotations

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
