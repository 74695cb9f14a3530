"""Measure the cost of sampling native memory, in turns with and without it.

    pypy3 raw_worker.py PROGRAM SECONDS TURNS INTERVAL FILE

The experiment `raw_memory` runs this script. It prints, as JSON, the processor times of
the runs in each turn. Two runs of a turn ("plain" and "again") have allocation samples
at 128k. One run ("raw") also has samples of native memory at INTERVAL. "bytes" is the
number of bytes that the program requests from malloc in a run, or None if the number is
unknown. FILE is the prefix of the profiles' names.
"""
from __future__ import annotations

import array
import ctypes
import json
import random
import sqlite3
import sys
import time
import zlib
from typing import Any

import cffi

import vmprof_allocation

ffi = cffi.FFI()
ffi.cdef("void *malloc(size_t); void free(void *);")
TEXT = b"".join(b"%d " % (i * i) for i in range(20000))


def malloc_and_free(rounds: int) -> int:
    """Allocate and free 100 bytes by malloc, and return the sum of bytes."""
    # Look malloc up in each run.  A pointer from before the sampling started calls
    # malloc directly and bypasses the sampler.
    c: Any = ffi.dlopen(None)
    malloc, free = c.malloc, c.free
    for _ in range(rounds * 100000):
        free(malloc(100))
    return rounds * 100000 * 100


def malloc_large(rounds: int) -> int:
    """Allocate and free 10,000 bytes by malloc, and return the sum of bytes."""
    c: Any = ffi.dlopen(None)
    malloc, free = c.malloc, c.free
    for _ in range(rounds * 10000):
        free(malloc(10000))
    return rounds * 10000 * 10000


def ffi_new(rounds: int) -> int:
    """Allocate buffers by cffi, and return the sum of their bytes."""
    for _ in range(rounds * 2000):
        ffi.new("char[]", 1000)
    return rounds * 2000 * 1000


def ctypes_buffers(rounds: int) -> None:
    """Allocate buffers by ctypes."""
    for _ in range(rounds * 500):
        ctypes.create_string_buffer(1000)


def arrays(rounds: int) -> None:
    """Make arrays of 1000 bytes."""
    for _ in range(rounds * 500):
        array.array("b", TEXT[:1000])


def compress(rounds: int) -> None:
    """Compress a text with zlib."""
    for _ in range(rounds):
        zlib.compress(TEXT)


def queries(rounds: int) -> None:
    """Insert rows into a database of sqlite, and query it."""
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t(x)")
    for _ in range(rounds):
        connection.executemany("insert into t values(?)",
                               [("y" * 100,) for _ in range(200)])
        connection.execute("select count(*) from t where x > 'a'").fetchall()


def text(rounds: int) -> None:
    """Convert objects to JSON and back."""
    for _ in range(rounds * 20):
        json.loads(json.dumps([{"a": i, "b": str(i)} for i in range(100)]))


def main() -> None:
    """Find the number of rounds, measure all turns, and print the result."""
    program, seconds, turns, interval, path = sys.argv[1:]
    run = globals()[program]
    rounds, enough = 1, 0
    # The rounds have to take long enough twice, by the clock that measures the turns.
    # The first run can take long because the JIT has not compiled the loop yet, or
    # because another program runs.
    while enough < 2:
        begin = time.process_time()
        bytes_ = run(rounds)
        if time.process_time() - begin > float(seconds):
            enough += 1
        else:
            rounds, enough = 2 * rounds, 0
    found = []
    for _ in range(int(turns)):
        times: dict[str, float] = {}
        for which in random.sample(("plain", "again", "raw"), 3):
            with vmprof_allocation.sample(
                    path + which, "128k",
                    native_memory=interval if which == "raw" else None):
                begin = time.process_time()
                run(rounds)
                times[which] = time.process_time() - begin
        found.append(times)
    print(json.dumps({"turns": found, "bytes": bytes_}))


if __name__ == "__main__":
    main()
