"""gcbench in a process of its own: four rounds after a warm one.  Prints, as JSON,
the seconds of a processor that they took, and how many minor collections they had.
Usage: rounds.py CHURNS KEPT

What a sampler leaves on the heap before the program begins costs time in every
major collection, however few samples it takes.  That is small beside what chance
does: which loops the JIT joins depends on where code lies in memory, and the same
program allocates a quarter more in one process than in another, at times four times
as much.  The number of minor collections tells such processes apart.  KEPT strings of
1,000 characters, which live as long as the program, move the code.
"""
import gc
import io
import json
import sys
import time
from contextlib import redirect_stdout

import gcbench

ROUNDS = 4


class Hooks:
    minors = 0
    on_gc_collect_step = on_gc_collect = None

    def on_gc_minor(self, stats):
        self.minors += stats.count


def round_of(churns):
    with redirect_stdout(io.StringIO()):
        gcbench.main(churns)


def main(churns, kept):
    held = ["x" * 1000 + str(i) for i in range(kept)]
    round_of(churns)
    hooks = Hooks()
    gc.hooks.set(hooks)     # type: ignore[attr-defined]    # PyPy's
    start = time.process_time()
    for _ in range(ROUNDS):
        round_of(churns)
    cpu = time.process_time() - start
    gc.hooks.reset()        # type: ignore[attr-defined]
    assert len(held) == kept
    print(json.dumps({"cpu": cpu, "minors": hooks.minors}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
