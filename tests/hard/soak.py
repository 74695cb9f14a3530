"""Run random sessions of the sampler among threads, collections, forks and signals.

    soak.py SEED SESSIONS

This program runs on PyPy with our package. After each session, it checks that every
changed byte is restored, and that no descriptor, thread or writable page remains. It
also checks that the profile is complete, with all samples and a total that agrees with
the GC's count. It prints the faults and the number of sessions, and exits with 1 after
a fault.
"""
from __future__ import annotations

import _thread
import ctypes
import gc
import math
import os
import random
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import greenlet

import vmprof_allocation
from vmprof_allocation.engines.choose import sampling_vmprof
from vmprof_allocation.engines.hook import engine as hook
from vmprof_allocation.engines.hook.discovery import process
from vmprof_allocation.settings.parsing import make_settings
from vmprof_convert import readers

Random = random.Random
OUT = "soak.vmprof"
RATES = (64, 512, 4096, 65536, 1 << 20, 1 << 40, "auto", "auto:5000/s",
         "auto:5%")

_problems: list[str] = []


def problem(text: str) -> None:
    """Print a fault, and count it."""
    _problems.append(text)
    print("problem: %s" % text, flush=True)


# ____________________________________________________________
# State of the process

class State:
    """Properties of the process that must be the same before and after a session."""

    def __init__(self) -> None:
        self.place: Any = None
        if sampling_vmprof() is None:
            engine = hook.engine()
            engine.prepare()
            self.place = engine._place
        # call these functions once, because the dynamic linker then changes their
        # pointers
        os.write(1, b"")
        os.lseek(os.open(os.devnull, os.O_RDONLY), 0, 0)
        os.close(os.dup(1))
        with vmprof_allocation.sample(OUT, "1k"):
            make_strings(10000)
        self.before = self.look()

    def look(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "descriptors": sorted(os.listdir("/proc/self/fd")),
            "handlers": signals()}
        if self.place is not None:
            layout, buffer = self.place.layout, self.place.ffi.buffer
            found["code"] = [
                bytes(buffer(self.place.ffi.cast(
                    "char *", self.place.base + entry), 32))
                for entry in layout.entry]
            found["imports"] = [self.place.word(slot)[0]
                                for slot in layout.slot if slot]
            found["top is real"] = (
                self.place.word(layout.nursery_top)[0] % 8 == 0)
            found["executable and writable"] = [
                (m.start, m.end) for m in process.read_maps()
                if "w" in m.permissions and "x" in m.permissions
                and m.path == self.place.path]
        return found

    def check(self, session: str) -> None:
        now = self.look()
        for name, value in self.before.items():
            if now[name] != value:
                problem("%s: %s were %s, are %s" % (
                    session, name, value, now[name]))


def signals() -> list[str]:
    with open("/proc/self/status") as file:
        return [line.strip() for line in file
                if line.startswith(("SigIgn", "SigCgt"))]


# ____________________________________________________________
# Work of the program

def make_strings(count: int) -> list[str]:
    return [str(i) for i in range(count)]


def small(rnd: Random) -> None:
    [(i, str(i)) for i in range(rnd.randrange(20000))]


def large(rnd: Random) -> None:
    bytearray(rnd.randrange(1, 3000000))
    [None] * rnd.randrange(1, 400000)
    b"x" * rnd.randrange(130000, 140000)


def deep(rnd: Random) -> None:
    def recurse(depth: int) -> list[int]:
        return recurse(depth - 1) if depth else [1] * rnd.randrange(50)
    try:
            # one time in 21, recurse up to the recursion limit
        recurse(rnd.choice((10, 100, 300, 1000) * 5 + (100000,)))
    except RecursionError:
        pass


def raising(rnd: Random) -> None:
    for i in range(rnd.randrange(3000)):
        try:
            raise ValueError(str(i))
        except ValueError as e:
            assert e.__traceback__


def collect(rnd: Random) -> None:
    rnd.choice((gc.collect, lambda: gc.collect(0), gc.collect_step))()  # type: ignore


class Node:
    dead = 0

    def __init__(self) -> None:
        self.other: Any = None

    def __del__(self) -> None:
        make_strings(3)
        Node.dead += 1


def finalizers(rnd: Random) -> None:
    for _ in range(200):
        one, two = Node(), Node()
        one.other, two.other = two, one
        weakref.ref(one, lambda ref: make_strings(2))


def pinned(rnd: Random) -> None:
    """Write young bytes objects, which the GC pins while a system call reads them."""
    for i in range(20):
        os.write(_pipe[1], (b"%d" % i) * rnd.randrange(1, 9000))


def callbacks(rnd: Random) -> None:
    """Let C code call Python code, which allocates."""
    def compare(one: Any, two: Any) -> int:
        make_strings(3)
        return int(one[0]) - int(two[0])
    pointer = ctypes.POINTER(ctypes.c_int)
    array = (ctypes.c_int * 50)(*(rnd.randrange(1000) for _ in range(50)))
    ctypes.CDLL(None).qsort(
        array, 50, 4, ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)(compare))
    if sorted(array) != list(array):
        problem("qsort")


def pressure(rnd: Random) -> None:
    gc_module: Any = __import__("__pypy__")
    gc_module.add_memory_pressure(rnd.randrange(1, 50000000))


def greenlets(rnd: Random) -> None:
    def one() -> None:
        for i in range(100):
            make_strings(i)
            other.switch()

    def two() -> None:
        while True:
            make_strings(1)
            first.switch()
    first, other = greenlet.greenlet(one), greenlet.greenlet(two)
    first.switch()


def fork(rnd: Random) -> None:
    """Fork a child that is not sampled, or in three of ten cases samples itself."""
    samples = rnd.random() < 0.3
    child = os.fork()
    if child == 0:
        code = 1
        try:
            make_strings(5000)
            gc.collect()
            if samples:
                name = "%s.%d" % (OUT, os.getpid())
                with vmprof_allocation.sample(name, "256"):
                    make_strings(1000)
                os.unlink(name)
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if status:
        problem("a child's status is %d" % status)


WORK: tuple[Callable[[Random], None], ...] = (
    small, small, small, large, deep, raising, collect, finalizers, pinned,
    callbacks, pressure, greenlets)

_pipe = os.pipe()


def drain() -> None:
    while os.read(_pipe[0], 65536):
        pass


# ____________________________________________________________
# Sessions

def check_profile(name: str, counted: Any, is_fixed: bool) -> None:
    """Check the profile of a session.

    `is_fixed` is true if the samples depend only on the counted allocations.
    """
    if os.path.getsize(OUT) > 300000:
        return
    profile = readers.read(OUT)
    if profile.end_time is None:
        problem("%s: the profile has no end" % name)
    sizes = [(size, interval) for size, interval in zip(
        profile.samples.size, profile.samples.interval) if size]
    # a batched allocation is one sample, and may have several rows
    if not counted.samples <= len(sizes) <= 8 * counted.samples:
        problem("%s: %d rows of samples, %d counted" % (
            name, len(sizes), counted.samples))
    if is_fixed and not counted.pressures and len(sizes) > 200:
        total = variance = 0.0
        for size, interval in sizes:
            chance = -math.expm1(-size / interval)
            total += size / chance
            variance += (size / chance) ** 2 * (1 - chance)
        if abs(total - counted.allocated) > 7 * variance ** 0.5 + 1000:
            problem("%s: estimated %.0f +- %.0f, the GC counted %d" % (
                name, total, variance ** 0.5, counted.allocated))


def one_session(rnd: Random, number: int, state: State) -> None:
    """Run a session with random settings and work, and check its end."""
    going = [True]

    def work(seed: float) -> None:
        own = Random(seed)
        while going[0]:
            rnd_choice(own)(own)

    threads = [threading.Thread(target=work, args=(rnd.random(),))
               for _ in range(rnd.choice((0, 0, 1, 2, 4)))]
    for thread in threads:
        thread.start()
    if rnd.random() < 0.3:
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    rate = rnd.choice(RATES)
    period = rnd.choice((None, None, 0.0005, 0.01))
    gaps: Any = "exponential" if isinstance(rate, str) else rnd.choice(
        ("exponential", "exponential", "fixed"))
    name = "session %d (rate %s, gaps %s, period %s, %d threads)" % (
        number, rate, gaps, period, len(threads))
    sampling = vmprof_allocation.Session(
        make_settings(rate, rnd.randrange(2**32), gaps, period,
                      rnd.random() < 0.1), OUT)
    is_fixed = gaps == "exponential" and not isinstance(rate, str)
    sampling.start()
    for _ in range(rnd.randrange(40)):
        (fork if not threads and rnd.random() < 0.1
         else rnd_choice(rnd))(rnd)
        if rnd.random() < 0.2 and gaps != "fixed":
            sampling.set_interval(rnd.choice((512, 4096, 1 << 20, 1 << 62)))
            is_fixed = False
    engine: Any = sampling._engine
    sampling.stop()
    counted = engine.statistics()
    signal.setitimer(signal.ITIMER_REAL, 0)
    if counted.surprises:
        problem("%s: %d surprises" % (name, counted.surprises))
    going[0] = False
    for thread in threads:
        thread.join()
    state.check(name)
    if number % 4 == 0:
        check_profile(name, counted, is_fixed)


def rnd_choice(rnd: Random) -> Callable[[Random], None]:
    return rnd.choice(WORK)


def main() -> int:
    seed, sessions = map(int, sys.argv[1:])
    rnd = Random(seed)
    _thread.start_new_thread(drain, ())
    signal.signal(signal.SIGALRM, lambda *ignored: make_strings(200))
    state = State()
    for number in range(sessions):
        one_session(rnd, number, state)
    os.unlink(OUT)
    print("%d sessions, %d problems" % (sessions, len(_problems)), flush=True)
    return int(bool(_problems))


if __name__ == "__main__":
    # os._exit() does not wait for the thread that reads the pipe
    code = main()
    sys.stdout.flush()
    os._exit(code)
