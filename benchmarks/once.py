"""Run a program once under one profiler, in a fresh process of PyPy or CPython.

    once.py PROGRAM SECONDS ROUNDS PROFILER FILE

The experiment `profilers` runs this script. The profiler writes its profile to FILE.
With 0 ROUNDS, the script first finds the number of rounds that take SECONDS. The
program warms up under the profiler before the clock starts. The script prints a line of
JSON: the times in seconds, the rounds, and the size of the profile in bytes.
"""
from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
from collections.abc import Callable, Iterator

import programs
from timing import rounds_for, timed, vmprof_time


@contextlib.contextmanager
def nothing(_: str) -> Iterator[None]:
    """Run without a profiler."""
    yield


@contextlib.contextmanager
def switched_off(file: str) -> Iterator[None]:
    """Run after allocation sampling was on and has stopped."""
    with sampling("128k")(file):
        kept = [str(i) for i in range(100000)]
        del kept
    yield


def sampling(interval: str) -> Callable[
        [str], contextlib.AbstractContextManager[object]]:
    """Return a context manager that samples allocations at a sampling interval."""

    def start(file: str) -> contextlib.AbstractContextManager[object]:
        import vmprof_allocation
        return vmprof_allocation.sample(file, interval)
    return start


@contextlib.contextmanager
def cprofile(file: str) -> Iterator[None]:
    """Profile with cProfile."""
    import cProfile
    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    profile.dump_stats(file)


def tracemalloc(frames: int) -> Callable[
        [str], contextlib.AbstractContextManager[None]]:
    """Return a context manager that traces allocations with this number of frames."""

    @contextlib.contextmanager
    def start(file: str) -> Iterator[None]:
        import tracemalloc as module
        module.start(frames)
        yield
        snapshot = module.take_snapshot()
        module.stop()
        snapshot.dump(file)
    return start


def memray(python: bool) -> Callable[
        [str], contextlib.AbstractContextManager[object]]:
    """Return a context manager that tracks allocations with memray.

    Args:
        python: Whether to track Python's own allocators, too.
    """

    def start(file: str) -> contextlib.AbstractContextManager[object]:
        import memray as module
        if os.path.exists(file):
            os.unlink(file)
        tracker: contextlib.AbstractContextManager[object] = module.Tracker(
            file, trace_python_allocators=python)
        return tracker
    return start


@contextlib.contextmanager
def pyroscope(_: str) -> Iterator[None]:
    """Sample the heap with pyroscope, once per 512 KiB.

    No server runs at the address to which pyroscope sends, so the samples are lost.
    """
    import pyroscope as module
    module.configure(app_name="once", server_address="http://127.0.0.1:9",
                     cpu_enabled=False, mem_enabled=True,
                     mem_heap_sample_size=512 * 1024)
    yield
    module.shutdown()


PROFILERS: dict[str, Callable[
        [str], contextlib.AbstractContextManager[object]]] = {
    "nothing": nothing, "again nothing": nothing,
    # Profilers on PyPy.
    "off": switched_off, "allocations, 32k": sampling("32k"),
    "allocations, 128k": sampling("128k"), "allocations, 512k": sampling("512k"),
    "allocations, 4M": sampling("4M"), "allocations, auto": sampling("auto"),
    "vmprof, 1000/s": functools.partial(vmprof_time, per_second=1000),
    "cProfile": cprofile,
    # Profilers on CPython.  scalene starts the process itself.
    "tracemalloc, 1 frame": tracemalloc(1),
    "tracemalloc, 25 frames": tracemalloc(25),
    "memray": memray(False), "memray, python allocators": memray(True),
    "scalene": nothing, "pyroscope, heap, 512k": pyroscope,
}


def main(program: str, seconds: float, rounds: int, profiler: str,
         file: str) -> None:
    """Warm up, run the program once, and print the result."""
    with contextlib.redirect_stdout(io.StringIO()):
        run = programs.load(program)
        if not rounds:
            rounds = rounds_for(run, seconds)
        is_pypy = sys.implementation.name == "pypy"
        if is_pypy:
            run(2 * rounds)
        with PROFILERS[profiler](file):
            run(rounds if is_pypy else 1)
            result = timed(run, rounds)
    size = os.path.getsize(file) if os.path.exists(file) else 0
    print(json.dumps({**result, "rounds": rounds, "profile": size}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4],
         sys.argv[5])
