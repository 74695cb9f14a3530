"""gcbench in a process of its own: four rounds after a warm one, which it
times itself.  Prints the seconds as JSON.  Usage: rounds.py CHURNS PHASE

What a sampler leaves on the heap before the program begins costs time in every
major collection, however few samples it takes.  Where these fall depends on
every byte that was allocated before: PHASE, 0 to 2**16, moves them, and in the
mean of several the accidents cancel out.
"""
import io
import json
import sys
import time
from contextlib import redirect_stdout

import gcbench

ROUNDS = 4


def main(churns, phase):
    kept = [[i] for i in range(phase % 5000)]
    for i in range(phase):
        str(i)
    del kept
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        with redirect_stdout(io.StringIO()):
            gcbench.main(churns)
        times.append(time.perf_counter() - start)
    print(json.dumps({"wall": sum(times[1:])}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
