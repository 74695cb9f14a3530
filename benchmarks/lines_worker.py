"""Run a program in a fresh process, with or without line numbers.

    lines_worker.py PROGRAM SECONDS ROUNDS CONFIGURATION FILE

The experiment `lines` runs this script. CONFIGURATION is ``plain``, a sampling
interval, or a sampling interval and ``,lines``. The sampler writes the profile to FILE.

With 0 ROUNDS, the script samples nothing and prints the number of rounds that take
SECONDS. Otherwise, it runs ROUNDS rounds four times, and prints a line of JSON.
``first`` contains the times of the first run, while the JIT compiles the program.
``last`` contains the times of the fourth run.
"""
from __future__ import annotations

import contextlib
import io
import json
import sys

import programs
from timing import rounds_for, timed

#: The number of times that the rounds run.
TIMES = 4


def main(program: str, seconds: float, rounds: int, configuration: str,
         file: str) -> None:
    """Run the program in one configuration, and print the result."""
    with contextlib.redirect_stdout(io.StringIO()):
        run = programs.load(program)
        if not rounds:
            result: dict[str, object] = {"rounds": rounds_for(run, seconds)}
        else:
            interval, _, lines = configuration.partition(",")
            sampling: contextlib.AbstractContextManager[object]
            if interval == "plain":
                sampling = contextlib.nullcontext()
            else:
                import vmprof_allocation
                sampling = vmprof_allocation.sample(file, interval, lines=bool(lines))
            with sampling:
                took = [timed(run, rounds) for _ in range(TIMES)]
            result = {"first": took[0], "last": took[-1]}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
