"""The command `memory PID`, on programs with known amounts of memory."""
from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import PyPy
from controlled import WAITS, WAYS, Way, done, prepared
from native_build import compiled
from running import Running, running

MIB = 2**20
#: tolerance of each row in bytes, mostly for memory that the answer itself needs
NOISE = 5 * MIB
#: program that executes its input
OBEYS = """
    import ctypes, gc, mmap, os, sys, threading
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    def block(size):
        address = libc.malloc(size)
        ctypes.memset(address, 1, size)
        return address
    print("ready")
    for line in iter(sys.stdin.readline, ""):
        exec(line)
        gc.collect()
        gc.collect()
        print("done")
"""
_C = r"""
#include <string.h>
#include <unistd.h>
static char zeros[40 << 20];
void fill_zeros(void) { memset(zeros, 1, sizeof zeros); }
void touch(long size) { char array[size]; memset(array, 1, size);
                        asm volatile("" :: "r"(array) : "memory"); }
"""
#: another malloc in its own library, like jemalloc
_MALLOC = r"""
#include <stddef.h>
void *__libc_malloc(size_t size);
void *malloc(size_t size) { return __libc_malloc(size); }
"""


def ask(pypy: PyPy, program: Running) -> dict[str, int]:
    """Return the bytes of each row of the report, and of the resident memory."""
    found = json.loads(done(pypy, program, "memory", "--json"))
    rows = {row["row"]: row["bytes"] for row in found["rows"]}
    assert sum(rows.values()) == found["resident"]
    # the answer is some milliseconds old
    assert abs(found["resident"] - program.status("VmRSS") * 1024) < NOISE
    return {**rows, "resident": found["resident"]}


class Obedient:
    def __init__(self, pypy: PyPy, program: Running) -> None:
        self.pypy = pypy
        self.program = program
        self.tell("pass")
        # the modules for the answer are loaded now
        ask(pypy, program)
        self.tell("pass")

    def tell(self, what: str) -> None:
        assert self.program.ask(what) == "done"

    def grows(self, *what: str) -> dict[str, int]:
        """Execute lines in the program, and return the growth of each row in MiB."""
        before = ask(self.pypy, self.program)
        for line in what:
            self.tell(line)
        after = ask(self.pypy, self.program)
        assert abs(after["not_explained"]) < MIB, after
        return {row: (after.get(row, 0) - before.get(row, 0)) // MIB
                for row in {*before, *after}}


@contextmanager
def obedient(pypy: PyPy) -> Iterator[Obedient]:
    with prepared(pypy, OBEYS) as program:
        yield Obedient(pypy, program)
        program.end()


def check(grown: dict[str, int], **expected: int) -> None:
    """Check the growth of each row in MiB, and of the resident memory.

    Rows that `expected` does not contain must not grow.
    """
    noise = NOISE // MIB
    for row, value in grown.items():
        if row != "resident":
            assert abs(value - expected.get(row, 0)) <= noise, (row, grown)
    assert abs(grown["resident"] - sum(expected.values())) <= 2 * noise, grown


@pytest.mark.parametrize("what, row", [
    ("kept = [[i] * 123 for i in range(200000)]", "objects"),
    ("kept = [b'x' * 2**20 for i in range(200)]", "objects"),
    ("kept = [block(2**20) for i in range(200)]", "c"),
    ("kept = [block(1000) for i in range(208000)]", "c"),
    ("kept = []; thread = threading.Thread(target=lambda: kept.extend(block(40000) "
     "for i in range(5240))); thread.start(); thread.join()", "c"),
    ("kept = mmap.mmap(-1, 200 * 2**20); kept.write(b'x' * len(kept))", "shared"),
    ("kept = mmap.mmap(-1, 200 * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS);"
     "kept.write(b'x' * len(kept))", "mapped"),
], ids=["small objects", "large objects", "large blocks", "small blocks",
        "of a thread", "shared", "mapped"])
def test_200_mib(pypy: PyPy, what: str, row: str) -> None:
    with obedient(pypy) as program:
        # `what` makes no intermediate objects, which would count as objects
        check(program.grows(what), **{row: 200})


def test_a_file_that_is_mapped(pypy: PyPy) -> None:
    (pypy.folder / "data").write_bytes(b"x" * (100 * MIB))
    with obedient(pypy) as program:
        check(program.grows("kept = mmap.mmap(os.open('data', os.O_RDONLY), 0, "
                            "prot=mmap.PROT_READ)",
                            "sum(kept[i] for i in range(0, len(kept), 4096))"),
              files=100)


def test_free_memory_that_malloc_keeps(pypy: PyPy) -> None:
    """Every fiftieth of 100,000 blocks is in use.

    The free memory returns to the system only when the program calls malloc_trim().
    """
    with obedient(pypy) as program:
        check(program.grows("kept = [block(1000) for i in range(100000)]"), c=96)
        check(program.grows(
            "for i, address in enumerate(kept): i % 50 and libc.free(address)"),
            c=-94, malloc_free=94)
        out = done(pypy, program.program, "memory")
        assert re.search(r"malloc keeps 9\d\.\d MiB \(\d\d %\) of free memory", out)
        check(program.grows("libc.malloc_trim(0)"), malloc_free=-87)


def test_memory_that_is_allocated_but_never_written(pypy: PyPy) -> None:
    with obedient(pypy) as program:
        check(program.grows("kept = libc.malloc(500 * 2**20)"), c=500, untouched=-500)
        # another mapping does not change the row of untouched memory
        check(program.grows(
            "more = mmap.mmap(-1, 100 * 2**20, "
            "flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); more.write(b'x' * len(more))"
        ), mapped=100)


def test_block_that_the_program_advises_in_part(pypy: PyPy) -> None:
    """numpy advises huge pages in this way, and the kernel splits the mapping."""
    with obedient(pypy) as program:
        check(program.grows(
            "kept = block(100 * 2**20)",
            "libc.madvise(ctypes.c_void_p(kept - 16 + 2**24), 2**24, 10)"), c=100)


def test_pages_that_the_kernel_makes_huge(pypy: PyPy) -> None:
    """The kernel gives 2 MiB for each byte that is written."""
    with open("/sys/kernel/mm/transparent_hugepage/enabled", encoding="ascii") as file:
        if "[never]" in file.read():
            pytest.skip("this kernel makes no page huge")
    with obedient(pypy) as program:
        check(program.grows(
            "kept = mmap.mmap(-1, 200 * 2**20, flags=mmap.MAP_PRIVATE | "
            "mmap.MAP_ANONYMOUS); kept.madvise(14)",
            "for i in range(0, len(kept), 2**21): kept[i] = 1"), mapped=200)
        out = done(pypy, program.program, "memory")
        assert re.search(r"^(19\d|20\d) MiB of the resident memory are in transparent "
                         r"huge pages", out, re.MULTILINE)


def test_peak_of_the_resident_memory(pypy: PyPy) -> None:
    with obedient(pypy) as program:
        program.tell("kept = mmap.mmap(-1, 300 * 2**20, flags=mmap.MAP_PRIVATE | "
                     "mmap.MAP_ANONYMOUS); kept.write(b'x' * len(kept)); kept.close()")
        facts = json.loads(done(pypy, program.program, "memory", "--json"))["facts"]
        most = program.program.status("VmHWM") * 1024
        assert most > 300 * MIB and abs(facts["peak"] - most) < MIB
        assert " were resident at the peak since the process began" in done(
            pypy, program.program, "memory")


def library(name: str, text: str) -> Path:
    return compiled(name, "-shared", "-fPIC", "-O1", "-x", "c", "-", text=text)


def test_stacks_and_zeros_of_a_library(pypy: PyPy) -> None:
    """Blocks of malloc may be next to the library's zeros.

    The kernel then merges their mappings.
    """
    path = library("where_memory.so", _C)
    with obedient(pypy) as program:
        check(program.grows("lib = ctypes.CDLL(%r)" % str(path), "lib.fill_zeros()"),
              libraries=40)
        check(program.grows(
            "def deep(): lib.touch(4 * 2**20); ready.release(); event.wait()".replace(
                "deep", "run"),
            "event, ready = threading.Event(), threading.Semaphore(0)",
            "threads = [threading.Thread(target=run, daemon=True) for i in range(10)]",
            "for thread in threads: thread.start(); ready.acquire()",
            # PyPy has 1.25 MiB for each thread, and hardly uses it
        ), stacks=40, c=12, untouched=-12)
        check(program.grows("kept = [block(2**20) for i in range(20)]"), c=20)


def test_memory_that_is_shared_after_a_fork(pypy: PyPy) -> None:
    with prepared(pypy, """
        import os, sys
        kept = ["%990d" % i for i in range(200000)]
        print("ready")
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        sys.stdin.readline()
    """) as program:
        out = done(pypy, program, "memory")
        shared = re.search(r"(\d+) MiB of malloc's memory, objects included, are "
                           "shared with other", out)
        assert shared is not None and abs(int(shared[1]) - 205) < 15, out
        program.end()


@pytest.mark.parametrize("is_swept", [True, False])
def test_objects_are_unknown_while_the_gc_sweeps(
        stock_pypy: PyPy, is_swept: bool) -> None:
    """During a sweep, the GC counts its objects again, so their size is unknown."""
    with prepared(stock_pypy, """
        import gc, sys
        kept = [[i] for i in range(100000)]
        gc.collect()
        print("ready")
        sys.stdin.readline()
        while gc.collect_step().newstate != 2:
            pass
        gc.collect() if %r else None
        print("done")
        sys.stdin.readline()
    """ % is_swept) as program:
        ask(stock_pypy, program)
        assert program.ask() == "done"
        # a single request, because its answer allocates, and the GC continues
        out = done(stock_pypy, program, "memory")
        assert ("Python objects, with those" in out, "it was sweeping" in out,
                "the GC's objects, and free room" in out) == (
                    is_swept, not is_swept, not is_swept)
        program.end()


def test_memory_of_another_malloc_is_unknown(pypy: PyPy) -> None:
    pypy.environment["LD_PRELOAD"] = str(library("other_malloc.so", _MALLOC))
    with prepared(pypy, OBEYS) as program:
        del pypy.environment["LD_PRELOAD"]
        assert program.ask("kept = block(100 * 2**20)") == "done"
        rows = ask(pypy, program)
        assert abs(rows["c_or_free"] - 100 * MIB) < 2 * NOISE
        assert not {"c", "malloc_free", "mapped"} & rows.keys()
        out = done(pypy, program, "memory")
        assert "this malloc does not report its memory" in out
        assert re.search("^ +0 B +0.0 +not explained: not known$", out, re.MULTILINE)
        program.end()


@WAYS
def test_memory_of_a_program_that_is_not_sampled(pypy: PyPy, begun: Way) -> None:
    with begun(pypy, WAITS) as program:
        out = done(pypy, program, "memory")
        assert out.startswith("process %d: " % program.pid)
        assert " PyPy itself: its code and data\n" in out
        assert re.search(r"^ +-?[\d.]+ \w+ +-?0\.\d +not explained$", out, re.MULTILINE)
        assert program.end() == "ended\n"


def test_memory_of_a_sampled_program(pypy: PyPy) -> None:
    with prepared(pypy, WAITS) as program:
        done(pypy, program, "start", "-o", "out.vmprof")
        before = ask(pypy, program)
        assert before["objects"] > 0
        done(pypy, program, "stop")
        assert program.end() == "ended\n"


def test_memory_of_the_children(pypy: PyPy) -> None:
    with running(pypy, """
        import os, sys
        reader, writer = os.pipe()
        if os.fork() == 0:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
        print("ready")
        sys.stdin.readline()
    """) as program:
        out = done(pypy, program, "--children", "memory")
        assert len(re.findall("^process [0-9]+: ", out, re.MULTILINE)) == 2
        program.end()


def test_the_resident_part_of_a_large_nursery(pypy: PyPy) -> None:
    """The row of the nursery is at most the bytes ever allocated in the nursery."""
    pypy.environment["PYPY_GC_NURSERY"] = "240M"
    with obedient(pypy) as program:
        first = ask(pypy, program.program)
        assert 0 < first["nursery"] < 120 * MIB
        assert first["nursery"] < first["resident"]
        assert first.get("untouched", 0) > -60 * MIB
        program.tell("for i in range(2 * 10**6): str(i) * 20")
        assert ask(pypy, program.program)["nursery"] > 200 * MIB
        program.program.end()
