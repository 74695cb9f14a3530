"""Time a program from within its process, for worker.py, lines_worker.py and once.py.

This module runs in PyPy and CPython.
"""
from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Main = Callable[[int], object]


def timed(main: Main, rounds: int) -> Json:
    """Run the program after a full collection, and return its times in seconds.

    Returns:
        The processor time as "cpu", and the elapsed time as "wall".
    """
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    main(rounds)
    # Read the clocks in reverse order, so that "wall" includes "cpu".
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": round(cpu, 6), "wall": round(wall, 6)}


def rounds_for(main: Main, seconds: float, warm_up: float = 0.0) -> int:
    """Return the number of rounds that take about the given number of seconds.

    Args:
        main: The program.
        seconds: The wanted duration.
        warm_up: The least time in seconds that the program has to run here.
    """
    rounds, tried = 1, 0.0
    while True:
        start = time.perf_counter()
        main(rounds)
        took = time.perf_counter() - start
        tried += took
        if took >= seconds / 2 and tried > warm_up:
            return max(1, round(rounds * seconds / took))
        if took < seconds / 2:
            rounds *= 2


@contextlib.contextmanager
def vmprof_time(file: str, per_second: int) -> Iterator[None]:
    """Take vmprof's own CPU samples within this context."""
    import _vmprof
    with open(file, "w+b") as out:
        _vmprof.enable(out.fileno(), 1 / per_second, 0, 0, 0, 0)
        yield
        _vmprof.disable()
