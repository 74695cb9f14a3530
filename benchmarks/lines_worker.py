"""A program in a fresh process, with lines or without: while the JIT compiles it, and
afterwards.

    lines_worker.py PROGRAM SECONDS ROUNDS CONFIGURATION FILE

CONFIGURATION is ``plain``, an interval, or an interval and ``,lines``; the profile goes
to FILE.  With 0 ROUNDS it finds out how many take so many SECONDS, and samples nothing.
Prints a line of JSON: what the first ROUNDS took (``first``), and the last of four
times as many (``last``).
"""
from __future__ import annotations

import contextlib
import io
import json
import sys

import programs
from timing import rounds_for, timed

TIMES = 4


def main(program: str, seconds: float, rounds: int, configuration: str,
         file: str) -> None:
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
