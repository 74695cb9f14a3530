"""Made profiles of several runs of one program, to test the comparison of profiles."""
from __future__ import annotations

import math

from made_heap import Heap
from made_profiles import Log
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile


def a_log(seed: int, interval: int = 2000, *, more: int = 0, leak: int = 0) -> Log:
    """Return random samples of a program that does the same in each run.

    Args:
        seed: Seed of the sampling.
        interval: Mean bytes between two samples.
        more: Number of additional objects that `grows` allocates.
        leak: Number of additional objects that `leaks` allocates and that stay alive.
    """
    heap = Heap(interval=interval, seed=seed)
    for number in range(2000):
        heap.allocate("main f", ("list", 64 + number % 3 * 16, 100))
        heap.allocate("main g h", ("app.Node", 320, 1e12 if number % 20 == 0 else 10))
    for _ in range(more):
        heap.allocate("main grows", ("str", 400, 10))
    for _ in range(leak):
        heap.allocate("main leaks", ("str", 400, math.inf))
    heap.collect()
    return heap.log


def a_run(seed: int, interval: int = 2000, *, more: int = 0, leak: int = 0) -> Profile:
    """Return a_log() as a decoded profile."""
    return readers.read_bytes(a_log(seed, interval, more=more, leak=leak).data())
