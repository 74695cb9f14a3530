"""Run the program pypy-alloc, as ``python -m vmprof_allocation``."""
from __future__ import annotations

import sys

from vmprof_allocation.commands.program import main

if __name__ == "__main__":
    sys.exit(main())
