"""Record a profile of programs with many stacks, for the experiment `formats`.

    formats_worker.py FILE INTERVAL ROUNDS [PROGRAM]

Without PROGRAM, the profile contains all programs in PROGRAMS.
"""
from __future__ import annotations

import contextlib
import io
import sys

import programs
import vmprof_allocation

PROGRAMS = ("pyperformance:django_template", "pyperformance:html5lib",
            "pyperformance:sympy")


def main(path: str, interval: str, rounds: int, *names: str) -> None:
    """Sample the programs for the given number of rounds."""
    with contextlib.redirect_stdout(io.StringIO()), \
            vmprof_allocation.sample(path, interval, seed=1):
        for name in names or PROGRAMS:
            programs.load(name)(rounds)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
