"""Run a program whose runs are equal, except for the bytes of one function.

    equal_worker.py PROGRAM ROUNDS COUNT

The experiment `equal_runs` samples this script. PROGRAM is a program of worker.py, or
the script of a pyperformance program. After each round, planted() makes COUNT lists,
each of 480 bytes on average.
"""
from __future__ import annotations

import gc
import sys
from pathlib import Path

import programs

kept: list[object] = [None] * 64


def planted(count):
    """Make the given number of lists."""
    for i in range(count):
        kept[i & 63] = [None] * (10 + i % 90)


def main(program, rounds, count):
    """Run the program, with planted lists after each round."""
    run = (programs.main_of(Path(program)) if program.endswith(".py")
           else programs.load(program))
    for _ in range(rounds):
        run(1)
        planted(count)
    gc.collect()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
