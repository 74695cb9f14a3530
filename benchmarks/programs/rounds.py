"""gcbench in a process of its own: four rounds after a warm one, which it
times itself.  Prints the seconds as JSON; usage: rounds.py [SHARE OF A ROUND]

What a sampler leaves on the heap before the program begins costs time in every
major collection, however few samples it takes.
"""
import io
import json
import sys
import time
from contextlib import redirect_stdout

import gcbench

ROUNDS, CHURNS = 4, 12


def main(churns):
    times = []
    for _ in range(ROUNDS + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        with redirect_stdout(io.StringIO()):
            gcbench.main(churns)
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = map(sum, zip(*times[1:]))
    print(json.dumps({"wall": wall, "cpu": cpu}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else CHURNS)
