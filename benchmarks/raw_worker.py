"""Sums of what raw memory is sampled of, and what that takes: turns with and without in
one process.

    pypy3 raw_worker.py PROGRAM SECONDS TURNS INTERVAL FILE

prints JSON: for each turn the time of the program's rounds with allocation samples
alone (128k, and again), and with samples of raw memory at INTERVAL, too; and how many
bytes the program asked malloc for in a turn, where that is known.
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
    # looked up anew: a pointer from before leads past what samples
    c: Any = ffi.dlopen(None)
    malloc, free = c.malloc, c.free
    for _ in range(rounds * 100000):
        free(malloc(100))
    return rounds * 100000 * 100


def malloc_large(rounds: int) -> int:
    c: Any = ffi.dlopen(None)
    malloc, free = c.malloc, c.free
    for _ in range(rounds * 10000):
        free(malloc(10000))
    return rounds * 10000 * 10000


def ffi_new(rounds: int) -> int:
    for _ in range(rounds * 2000):
        ffi.new("char[]", 1000)
    return rounds * 2000 * 1000


def ctypes_buffers(rounds: int) -> None:
    for _ in range(rounds * 500):
        ctypes.create_string_buffer(1000)


def arrays(rounds: int) -> None:
    for _ in range(rounds * 500):
        array.array("b", TEXT[:1000])


def compress(rounds: int) -> None:
    for _ in range(rounds):
        zlib.compress(TEXT)


def queries(rounds: int) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t(x)")
    for _ in range(rounds):
        connection.executemany("insert into t values(?)",
                               [("y" * 100,) for _ in range(200)])
        connection.execute("select count(*) from t where x > 'a'").fetchall()


def text(rounds: int) -> None:
    for _ in range(rounds * 20):
        json.loads(json.dumps([{"a": i, "b": str(i)} for i in range(100)]))


def main() -> None:
    program, seconds, turns, interval, path = sys.argv[1:]
    run = globals()[program]
    rounds, enough = 1, 0
    # Twice, and by the clock that measures the turns: the first time can be long
    # because the loop is not compiled yet, or because another program runs.
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
                    raw_memory=interval if which == "raw" else None):
                begin = time.process_time()
                run(rounds)
                times[which] = time.process_time() - begin
        found.append(times)
    print(json.dumps({"turns": found, "bytes": bytes_}))


if __name__ == "__main__":
    main()
