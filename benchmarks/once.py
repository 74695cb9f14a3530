"""One timed run of one program under one profiler, in a fresh process.

    once.py PROGRAM SECONDS ROUNDS PROFILER FILE

On PyPy or CPython; the profile goes to FILE.  With 0 ROUNDS it finds out how
many take so many SECONDS.  Prints what was measured as a line of JSON.  The
program runs warm before the clock starts, under the profiler, as it will.
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
    yield


@contextlib.contextmanager
def switched_off(file: str) -> Iterator[None]:
    """Allocation sampling was on, and is not any more."""
    with sampling("128k")(file):
        kept = [str(i) for i in range(100000)]
        del kept
    yield


def sampling(interval: str) -> Callable[
        [str], contextlib.AbstractContextManager[object]]:
    def start(file: str) -> contextlib.AbstractContextManager[object]:
        import vmprof_allocation
        return vmprof_allocation.sample(file, interval)
    return start


@contextlib.contextmanager
def cprofile(file: str) -> Iterator[None]:
    import cProfile
    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    profile.dump_stats(file)


def tracemalloc(frames: int) -> Callable[
        [str], contextlib.AbstractContextManager[None]]:
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
    """A sample each 512 KiB of the heap.  There is no server: nothing is kept."""
    import pyroscope as module
    module.configure(app_name="once", server_address="http://127.0.0.1:9",
                     cpu_enabled=False, mem_enabled=True,
                     mem_heap_sample_size=512 * 1024)
    yield
    module.shutdown()


PROFILERS: dict[str, Callable[
        [str], contextlib.AbstractContextManager[object]]] = {
    "nothing": nothing, "again nothing": nothing,
    # PyPy
    "off": switched_off, "allocations, 32k": sampling("32k"),
    "allocations, 128k": sampling("128k"), "allocations, 512k": sampling("512k"),
    "allocations, 4M": sampling("4M"), "allocations, auto": sampling("auto"),
    "vmprof, 1000/s": functools.partial(vmprof_time, per_second=1000),
    "cProfile": cprofile,
    # CPython; scalene starts the process itself
    "tracemalloc, 1 frame": tracemalloc(1),
    "tracemalloc, 25 frames": tracemalloc(25),
    "memray": memray(False), "memray, python allocators": memray(True),
    "scalene": nothing, "pyroscope, heap, 512k": pyroscope,
}


def main(program: str, seconds: float, rounds: int, profiler: str,
         file: str) -> None:
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
