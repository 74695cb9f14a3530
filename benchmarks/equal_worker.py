"""One run of a program, for profiles of runs that are equal; or that are, but for what
one function makes.

    equal_worker.py PROGRAM ROUNDS COUNT

PROGRAM is as for worker.py, or the script of a program of pyperformance.  After each
round, planted() makes so many lists, of 480 bytes each on average.
"""
from __future__ import annotations

import gc
import sys
from pathlib import Path

import programs

kept: list[object] = [None] * 64


def planted(count):
    for i in range(count):
        kept[i & 63] = [None] * (10 + i % 90)


def main(program, rounds, count):
    run = (programs.main_of(Path(program)) if program.endswith(".py")
           else programs.load(program))
    for _ in range(rounds):
        run(1)
        planted(count)
    gc.collect()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
