"""Measure gcbench in its own process, in four rounds after a warm-up round.

The program prints, as JSON, the processor time of the four rounds in seconds, and the
number of their minor collections. The experiment `fresh` runs it.

    rounds.py CHURNS KEPT

A sampler leaves objects on the heap before the program begins. They cost time in every
major collection, even if the sampler takes few samples. This cost is small compared
with a random effect: the addresses of the code decide which loops the JIT joins.
Therefore, the same program allocates a quarter more in one process than in another, and
sometimes four times as much.

The number of minor collections distinguishes such processes. KEPT is a number of
strings of 1,000 characters, which live as long as the program. They change the
addresses of the code.
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
    """GC hooks of PyPy that count the minor collections."""

    minors = 0
    on_gc_collect_step = on_gc_collect = None

    def on_gc_minor(self, stats):
        """Add the minor collections that PyPy reports."""
        self.minors += stats.count


def round_of(churns):
    """Run gcbench once, without its output."""
    with redirect_stdout(io.StringIO()):
        gcbench.main(churns)


def main(churns, kept):
    """Warm up, measure the rounds, and print the result."""
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
