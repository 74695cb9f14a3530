"""One timed run of one program, in a fresh PyPy.  overhead.py starts it.

Usage: driver.py PROGRAM ROUNDS MODE.  MODE is ``plain``, ``off``, or the mean
interval between two samples, such as ``128k``.  Prints what was measured, as
JSON.

Whatever the mode, the program runs warm first, and a full collection puts
the heap into the same state just before the clock starts.
"""
from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent / "programs"
#: the least number of rounds that run before the clock starts
WARM_UP = 10
#: interval of the sampling that is over when the ``off`` run starts
OFF_INTERVAL = "128k"

Main = Callable[[int], None]
Result = dict[str, Any]


def load(program: str) -> Main:
    sys.path.insert(0, str(PROGRAMS))
    main: Main = importlib.import_module(program).main
    return main


def heap() -> int | None:
    """Bytes on the GC's heap, with the nursery; None if it doesn't tell."""
    stats: Any = getattr(gc, "get_stats", lambda: None)()
    return getattr(getattr(stats, "_s", None), "total_gc_memory", None)


def clocked(main: Main, rounds: int) -> Result:
    """Seconds on the wall and of CPU (of all threads) that `rounds` take, and
    the heap in bytes before."""
    size = heap()
    wall, cpu = time.perf_counter(), time.process_time()
    main(rounds)
    # in the order in which they were taken
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return {"wall": wall, "cpu": cpu, "heap": size}


def plain(main: Main, rounds: int) -> Result:
    main(1)
    gc.collect()
    return clocked(main, rounds)


def switched_off(main: Main, rounds: int, profile: str) -> Result:
    """With a sampler that was started and stopped before."""
    import vmprof_allocation
    with vmprof_allocation.sample(profile, OFF_INTERVAL) as session:
        main(1)
        # else there was nothing to switch off
        assert session.statistics().samples
    gc.collect()
    return clocked(main, rounds)


def sampled(main: Main, rounds: int, profile: str, interval: str) -> Result:
    """The times of starting and stopping, in seconds, are apart."""
    import vmprof_allocation
    begin = time.perf_counter()
    session = vmprof_allocation.start(profile, interval)
    started = time.perf_counter()
    # as in the other modes; the sampler's buffers are in place then, too
    main(1)
    gc.collect()
    before = session.statistics()
    result = clocked(main, rounds)
    after = session.statistics()
    stopping = time.perf_counter()
    vmprof_allocation.stop()
    return {
        **result, "interval": session.settings.interval,
        "start": started - begin, "stop": time.perf_counter() - stopping,
        "samples": after.samples - before.samples,
        "lost": after.lost - before.lost,
        "surprises": after.surprises,
        "allocated": after.allocated - before.allocated,
        "minor_collections": after.collections - before.collections,
        "profile_bytes": Path(profile).stat().st_size,
    }


def run(program: str, rounds: int, mode: str) -> Result:
    main = load(program)
    # what the program prints is not ours to print
    with contextlib.redirect_stdout(io.StringIO()), \
            tempfile.TemporaryDirectory() as folder:
        profile = str(Path(folder) / "app.vmprof")
        main(max(WARM_UP, rounds // 2))
        if mode == "plain":
            return plain(main, rounds)
        if mode == "off":
            return switched_off(main, rounds, profile)
        return sampled(main, rounds, profile, mode)


def interpreter() -> Result:
    """Which PyPy this is; its nursery in bytes, as the GC itself has it."""
    version: Any = getattr(sys, "pypy_version_info", ())
    stats: Any = getattr(gc, "get_stats", lambda: None)()
    return {
        "implementation": platform.python_implementation(),
        "version": ".".join(map(str, version[:3])),
        "python": platform.python_version(),
        "nursery": getattr(getattr(stats, "_s", None), "nursery_size", None),
    }


if __name__ == "__main__":
    outcome = run(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    print(json.dumps({**interpreter(), **outcome}))
