"""Keep objects in one of ten ways, and print the number of bytes that are kept.

    liveness_worker.py KIND leaks|steady SEED SECONDS
    liveness_worker.py service leaks SEED SECONDS
    liveness_worker.py snapshots held|marked THOUSANDS TIMES

The experiment `liveness` runs this script. The first form simulates 100 requests per
second. Each request makes garbage, replaces a recent object, and keeps some objects.
After a tenth of the run, a steady program replaces the oldest of the kept objects.
make_kept(), make_recent() and make_base() make the planted objects.

The program measures the bytes of each object when it makes the object. It prints, as
JSON, the bytes that are alive at the end, and a log. The log contains pairs of the
elapsed seconds and the bytes that were kept until then.

The second form computes all the time: it makes 2 MB of garbage and keeps 20 kB per
request. The third form takes snapshots of a heap of THOUSANDS of objects.
"""
from __future__ import annotations

import gc as _gc
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar

import cffi

#: PyPy's module, which has functions that other interpreters lack.
gc: Any = _gc
ffi = cffi.FFI()

#: The number of requests per second, and the share of the run after which a steady
#: program drops objects.
RATE, FILLED = 100, 0.1
#: The least number of bytes that are kept at the end, and the ratio of the largest
#: number to the least.
LEAST, RATIO = 2e6, 16
THREADS = 4


class Node:
    """An object with three fields that are None."""

    def __init__(self) -> None:
        """Make an empty node."""
        self.left = self.right = self.value = None


#: The number of GC objects of which an object of this kind consists.  The first
#: reference of each GC object leads to the next one.
PARTS = {"bytearray": 3, "list": 3, "text": 2, "node": 1}


def size_of(thing: Any, parts: int) -> int:
    """Return the sum of the bytes of an object's parts.

    Args:
        thing: The first part. The first reference of each part leads to the next one.
        parts: The number of parts.
    """
    total: int = gc.get_rpy_memory_usage(thing)
    for _ in range(parts - 1):
        thing = gc.get_rpy_referents(thing)[0]
        total += gc.get_rpy_memory_usage(thing)
    return total


# functions that allocate objects whose live bytes are known

def make_kept(program: Program) -> Any:
    """Make an object that the program keeps, and store its size in the program."""
    size = program.draw_size()
    if program.thing == "bytearray":
        thing: Any = bytearray(size)
    elif program.thing == "list":
        thing = [None] * (size // 8)
    elif program.thing == "text":
        thing = "x" * size
    else:
        thing = Node()
    # This call forces compiled code to make the object here, and not in a caller.
    if gc.get_rpy_memory_usage(thing) > 0:
        program.last_size = size_of(thing, PARTS[program.thing])
    return thing


def make_recent(size: int) -> bytearray:
    """Make an object that the program replaces soon."""
    return bytearray(size)


def make_base(size: int) -> bytearray:
    """Make an object that lives as long as the program."""
    return bytearray(size)


def make_buffer(program: Program) -> Any:
    """Make a buffer of native memory, and store its size in the program."""
    program.last_size = program.draw_size()
    return ffi.new("char[]", program.last_size)


def make_garbage(count: int) -> int:
    """Make strings that are dropped at once, and return their number."""
    return len(list(map(str, range(count))))


# ____________________________________________________________
# the objects that keep another one

class Handler:
    """An object whose bound method serves as a callback."""

    def __init__(self, thing: Any) -> None:
        """Keep an object."""
        self.thing = thing

    def on_event(self) -> Any:
        """Return the object that the handler keeps."""
        return self.thing


class Registry:
    """A class whose attribute keeps objects."""

    entries: ClassVar[dict[int, Any]] = {}


class Cache:
    """An ordered dict of entries that is never trimmed."""

    def __init__(self) -> None:
        """Make an empty cache."""
        self.entries: OrderedDict[int, Any] = OrderedDict()


def fail(thing: Any) -> None:
    """Raise an exception whose traceback refers to the frame with `thing`."""
    raise ValueError(len(str(type(thing))))


def exception(thing: Any) -> Exception:
    """Return an exception that keeps `thing`."""
    try:
        fail(thing)
    except ValueError as e:
        return e
    raise AssertionError


def closure(thing: Any) -> Callable[[], Any]:
    """Return a function that keeps `thing`."""

    def read() -> Any:
        return thing
    return read


def generator(thing: Any) -> Any:
    """Keep `thing` in the generator's frame."""
    yield None
    yield thing


def waiting(thing: Any) -> Any:
    """Return a suspended generator that keeps `thing`."""
    suspended = generator(thing)
    next(suspended)
    return suspended


TABLE: dict[int, Any] = {}
CALLBACKS: dict[int, Any] = {}
FAILURES: dict[int, Any] = {}
CLOSURES: dict[int, Any] = {}
GENERATORS: dict[int, Any] = {}
BUFFERS: dict[int, Any] = {}
CACHE = Cache()
#: The event for which threads wait at the end.  The main thread never sets it.
NEVER = threading.Event()

#: For each kind, the function that makes an object which keeps another one, and the
#: dict that keeps this object.  The dict is None if it is a local variable of the
#: thread.
KINDS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "module dict": (lambda thing: thing, TABLE),
    "cache": (lambda thing: thing, CACHE.entries),
    "callbacks": (lambda thing: Handler(thing).on_event, CALLBACKS),
    "threads": (lambda thing: thing, None),
    "exceptions": (exception, FAILURES),
    "closures": (closure, CLOSURES),
    "class attributes": (lambda thing: thing, Registry.entries),
    "generators": (waiting, GENERATORS),
    "C memory": (lambda thing: thing, BUFFERS),
    "nothing": (lambda thing: None, None),
}


class Program:
    """One thread of the program, and the number of bytes that it keeps."""

    def __init__(self, kind: str, is_leak: bool, seed: str, seconds: float,
                 threads: int) -> None:
        """Draw the numbers and sizes of the objects."""
        rng = self.rng = random.Random(seed)
        self.kind, self.is_leak = kind, is_leak
        self.requests = int(RATE * seconds)
        self.garbage = rng.choice((300, 1000, 3000))
        self.thing = rng.choice(sorted(PARTS))
        self.size = 64 if self.thing == "node" else int(64 * 256 ** rng.random())
        bytes_ = LEAST * RATIO ** rng.random() / threads
        if kind == "C memory":
            self.size = 1000 + self.size
        # A node takes 56 bytes, and the object that keeps it takes more.
        bytes_ = min(bytes_, 40000 * (self.size + 60) / threads)
        self.each = bytes_ / (self.size + 60) / self.requests / (
            1 if is_leak else FILLED)
        self.base = int(LEAST * RATIO ** rng.random() / threads / 4000)
        self.bytes = dict.fromkeys(("make_kept", "make_recent", "make_base"), 0)
        #: The number of objects made, and the number that a steady program keeps.
        self.count = 0
        self.bound = int(self.each * FILLED * self.requests) + 1
        #: The bytes of the object in each slot of the container.
        self.sizes: dict[int, int] = {}
        self.last_size = 0
        self.log = [(0.0, 0)]
        self.is_done = threading.Event()

    def draw_size(self) -> int:
        """Return a random size in bytes around the program's mean size."""
        return self.rng.randrange(self.size // 2, 3 * self.size // 2)

    def keep(self, container: dict[int, Any]) -> None:
        """Make an object and put it into the container."""
        # A steady program replaces values.  If it removed them, PyPy's dict would still
        # refer to up to a fifth of them.
        slot = self.count if self.is_leak else self.count % self.bound
        self.count += 1
        if self.kind == "C memory":
            if slot in container:
                ffi.release(container[slot])
            kept = make_buffer(self)
        else:
            kept = KINDS[self.kind][0](make_kept(self))
        if kept is not None:
            container[slot] = kept
            self.bytes["make_kept"] += self.last_size - self.sizes.get(slot, 0)
            self.sizes[slot] = self.last_size

    def work(self) -> None:
        """Answer all requests, and keep the objects alive afterwards."""
        container = KINDS[self.kind][1]
        if container is None:
            container = {}
        base = list(map(make_base, [4000] * self.base))
        recent: list[Any] = [None] * 50
        # A request makes a whole number of objects, which is `each` on average.
        due = 0.0
        begin = time.monotonic()
        for request in range(self.requests):
            make_garbage(self.garbage)
            recent[request % 50] = make_recent(self.rng.randrange(1000, 60000))
            due += self.each * 2 * self.rng.random()
            while due >= 1:
                due -= 1
                self.keep(container)
            now = time.monotonic() - begin
            self.log.append((now, self.bytes["make_kept"]))
            time.sleep(max(0.0, (request + 1) / RATE - now))
        self.bytes["make_base"] = sum(size_of(one, 3) for one in base)
        self.bytes["make_recent"] = sum(size_of(one, 3) for one in recent)
        self.stay(container, base, recent)

    def stay(self, *kept: object) -> None:
        """Keep the local variables: in the module, or in a thread that waits."""
        self.is_done.set()
        if threading.current_thread() is threading.main_thread():
            STAYS.append(kept)
        else:
            NEVER.wait()


STAYS: list[object] = []


def plant(kind: str, is_leak: bool, seed: str, seconds: float) -> None:
    """Run a program in one thread or in several, and print the bytes that it keeps."""
    count = THREADS if kind == "threads" else 1
    programs = [Program(kind, is_leak, "%s %s %d" % (kind, seed, number), seconds,
                        count) for number in range(count)]
    if count == 1:
        programs[0].work()
    else:
        for program in programs:
            threading.Thread(target=program.work, daemon=True).start()
        for program in programs:
            program.is_done.wait()
    print(json.dumps({
        "bytes": {name: sum(program.bytes[name] for program in programs)
                  for name in programs[0].bytes},
        "logs": [program.log for program in programs]}))


# ____________________________________________________________

class Session:
    """An object of 20 kB that each request keeps."""

    def __init__(self, number: int) -> None:
        """Make the data of a request."""
        self.number = number
        self.data = bytearray(20000)


KEPT: list[Session] = []


def request(number: int) -> int:
    """Make 2 MB of garbage, and keep a Session."""
    junk = [str(i) * 3 for i in range(30000)]
    KEPT.append(Session(number))
    return len(junk)


def serve(seconds: float) -> None:
    """Answer requests for `seconds`, and print the bytes that the sessions retain."""
    STAYS.append(list(map(make_base, [4000] * 400)))
    begin = time.monotonic()
    log = []
    now = 0.0
    while now < seconds:
        request(len(KEPT))
        now = time.monotonic() - begin
        log.append((now, len(KEPT)))
    each = gc.get_rpy_memory_usage(KEPT[0]) + size_of(KEPT[0].data, 3)
    print(json.dumps({"retained": each * len(KEPT) + size_of(KEPT, 3),
                      "logs": [[(at, count * each) for at, count in log]]}))


# ____________________________________________________________

def take_snapshots(with_holders: bool, thousands: int, times: int) -> None:
    """Take snapshots of a heap, and print medians as JSON.

    The medians are the objects and bytes of the heap, the pause and the processor time
    in nanoseconds, and the duration of a call in seconds.
    """
    import vmprof_allocation
    from vmprof_convert import readers
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "liveness.vmprof")
        with vmprof_allocation.sample(path, "64k") as session:
            # Each row consists of seven objects.
            rows = [{"name": "row %d" % number, "items": [number, "%d!" % number]}
                    for number in range(thousands * 1000 // 7)]
            took = []
            for _ in range(times):
                begin = time.perf_counter()
                session.snapshot(retainers=with_holders)
                took.append(time.perf_counter() - begin)
        taken = readers.read_events(path).snapshots
    assert len(rows) == thousands * 1000 // 7
    print(json.dumps({"took": statistics.median(took), **{
        name: statistics.median(getattr(one, name) for one in taken)
        for name in ("objects", "bytes", "pause", "processor_time")}}))


def main() -> None:
    """Choose the form of the program from the command line."""
    kind, how, *rest = sys.argv[1:]
    if kind == "service":
        serve(float(rest[1]))
    elif kind == "snapshots":
        take_snapshots(how == "held", int(rest[0]), int(rest[1]))
    else:
        plant(kind, how == "leaks", rest[0], float(rest[1]))


if __name__ == "__main__":
    main()
