"""Timing a program from inside of its process: what worker.py and once.py
share.  Runs in PyPy and CPython."""
from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
Main = Callable[[int], object]


def timed(main: Main, rounds: int) -> Json:
    """The seconds that so many rounds take, on the wall and of CPU, after a
    full collection."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    main(rounds)
    # in the order in which they were taken
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"cpu": round(cpu, 6), "wall": round(wall, 6)}


def rounds_for(main: Main, seconds: float, warm_up: float = 0.0) -> int:
    """How many rounds take about so many seconds; `warm_up`: for how many
    seconds the program is to run meanwhile, at the least."""
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
    """vmprof's own time samples."""
    import _vmprof
    with open(file, "w+b") as out:
        _vmprof.enable(out.fileno(), 1 / per_second, 0, 0, 0, 0)
        yield
        _vmprof.disable()
