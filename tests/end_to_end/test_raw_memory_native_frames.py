"""Test --native-memory with --native, which shows the C callers of malloc()."""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conftest import PyPy, Run
from vmprof_convert import readers
from vmprof_convert.profile.model import NATIVE, Profile

LIBRARY = """
#include <stdint.h>
#include <stdlib.h>
#include <unwind.h>

static void *__attribute__((noinline)) make_block(int size)
{
    void *block = malloc(size);
    if (block == NULL)          /* so that the call above is no jump */
        abort();
    return block;
}

int give_back(int times, int size)
{
    while (times-- > 0)
        free(make_block(size));
    return 0;
}

int keep(int times, int size)
{
    int zeros = 0;
    while (times-- > 0)
        zeros += *(volatile char *)make_block(size) == 0;
    return zeros;
}

int call(int (*function)(int), int times)
{
    int sum = 0;
    while (times-- > 0)
        sum += function(times);
    return sum;
}

/* Tables of one function, at an address where none is */
static struct {
    uint32_t size, id;
    uint8_t how[16];
    uint32_t of_function, back;
    uint64_t begin, length;
    uint32_t nothing, end;
} __attribute__((packed, aligned(8))) tables = {
    20, 0, { 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1 }, 24, 28, 0x1000, 16, 0, 0
};
void __register_frame_info(const void *, void *);
void *__deregister_frame_info(const void *);

static _Unwind_Reason_Code count(struct _Unwind_Context *context, void *frames)
{
    (void)context;
    ++*(int *)frames;
    return _URC_NO_REASON;
}

/* The unwinder sorts new tables when it first needs them, and asks for memory then. */
int unwind(int times)
{
    static uint64_t object[8];
    int frames = 0;

    while (times-- > 0) {
        __register_frame_info(&tables, object);
        _Unwind_Backtrace(count, &frames);
        if (__deregister_frame_info(&tables) != object)
            abort();
    }
    return frames;
}
"""
USER = """
import cffi, os, sys, threading
ffi = cffi.FFI()
ffi.cdef("int give_back(int, int); int keep(int, int); int unwind(int);"
         "int call(int (*)(int), int);")
c = ffi.dlopen("./asks.so")
"""


@pytest.fixture
def pypy(stock_pypy: PyPy) -> PyPy:
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror",
                    "-xc", "-", "-o", "asks.so", "-lgcc_s"], check=True, text=True,
                   input=LIBRARY, cwd=stock_pypy.folder)
    return stock_pypy


def sampled(pypy: PyPy, program: str, interval: str = "4k", *flags: str) -> Run:
    return pypy.sample(USER + program, "1M", "--native-memory", interval, "--native",
                       *flags)


def inside(profile: Profile, python: str, size: int) -> list[list[str]]:
    """Return the native functions of samples of this size inside a Python function.

    Each list has the outermost native function first.
    """
    found = []
    for number, its_size in zip(profile.samples.stack, profile.samples.size):
        if its_size != size or number < 0:
            continue
        functions = [profile.function(frame.address)
                     for frame in profile.stacks[number]]
        names = [one.name for one in functions]
        if python in names:
            found.append([one.name for one in functions[names.index(python) + 1:]
                          if one.kind == NATIVE])
    return found


def raw(path: Path) -> Profile:
    return readers.read(path, raw=True)


def all_end_with(stacks: list[list[str]], *names: str) -> bool:
    return bool(stacks) and all(stack[-len(names):] == list(names) for stack in stacks)


def test_functions_between_malloc_and_python(pypy: PyPy) -> None:
    """The stacks have the C functions, also if the thread has released the GIL."""
    run = sampled(pypy, """
def main():
    for _ in range(40): c.give_back(100, 5000)
def in_thread():
    for _ in range(40): c.keep(100, 3000)
def news():
    kept = [ffi.new("char[]", 6000) for _ in range(2000)]
main(), news()
threads = [threading.Thread(target=in_thread) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""")
    profile = raw(run.path)
    given_back = inside(profile, "main", 5000)
    assert len(given_back) > 1000
    assert all_end_with(given_back, "give_back", "make_block")
    in_thread = inside(profile, "in_thread", 3000)
    assert len(in_thread) > 1000 and all_end_with(in_thread, "keep", "make_block")
    # Frames of PyPy without names are omitted, as in the stacks of objects.
    news = inside(profile, "news", 6000)
    assert len(news) > 1000 and not any(
        name.startswith("libpypy") for stack in news for name in stack)
    assert profile.nameless > 0
    assert "make_block" not in {
        function.name for function in run.profile().functions.values()
        if function.kind != NATIVE}


def test_a_callback_has_no_frames_of_its_caller(pypy: PyPy) -> None:
    """The stack of an allocation in a Python callback has no native frames of the C
    code that calls it. (They may be included while the JIT compiles a callback.)
    """
    run = pypy.sample(USER + """
@ffi.callback("int(int)")
def called(i):
    return c.keep(1, 2000)
def calls(): c.call(called, 2000)
calls()
""", "1M", "--native-memory", "4k", "--native", jit="off")
    called = inside(raw(run.path), "called", 2000)
    assert len(called) > 200 and all_end_with(called, "keep", "make_block")
    assert not any("call" in stack for stack in called)


def test_python_stacks_are_the_same_without_native_frames(pypy: PyPy) -> None:
    found = []
    for flags in (), ("--native",):
        run = pypy.sample(USER + """
def main():
    for _ in range(20): c.keep(100, 5000)
main()
""", "1M", "--native-memory", "1", "--allocation-distribution", "fixed", *flags)
        profile = raw(run.path)
        stacks = [profile.stacks[number] for number, size in zip(
            profile.samples.stack, profile.samples.size) if size == 5000]
        assert len(stacks) == 2000
        found.append({tuple(
            (f.name, f.line) for frame in stack
            for f in [profile.function(frame.address)] if f.kind != NATIVE)
            for stack in stacks})
        assert bool(flags) == any(
            f.kind == NATIVE for f in profile.functions.values())
    assert found[0] == found[1]


def test_parts_and_children_have_their_names(pypy: PyPy) -> None:
    run = pypy.run(USER + """
import vmprof_allocation
def before(): c.keep(300, 5000)
def behind(): c.keep(300, 5000)
def childs():
    work = [[i] for i in range(300000)]     # a child's profile begins with a sample
    c.keep(300, 5000)
with vmprof_allocation.sample("out.vmprof", "256k", native_memory="4k",
                              native=True) as session:
    before()
    session.rotate("out.w2.vmprof")
    behind()
    if os.fork() == 0:
        childs()
        sys.exit()
    os.wait()
""")
    assert run.code == 0, run.err
    for path, function in (("out.vmprof", "before"), ("out.w2.vmprof", "behind")):
        assert all_end_with(inside(raw(run.path.with_name(path)), function, 5000),
                            "keep", "make_block")
    child, = {*run.path.parent.glob("out.*.vmprof")} - {
        run.path.with_name("out.w2.vmprof")}
    assert all_end_with(inside(raw(child), "childs", 5000), "keep", "make_block")


def test_memory_of_the_unwinder_itself_is_not_unwound(pypy: PyPy) -> None:
    """When the unwinder allocates memory, it holds its own lock. If the sampler called
    it for a stack of this allocation, the program would hang.
    """
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "1M", "--allocation-distribution",
        "fixed", "--native-memory", "1", "--native", "-o", "out.vmprof",
        str(pypy.script(USER + """
print(c.unwind(50) > 0)
""")), timeout=100)
    assert (run.code, run.out) == (0, "True\n"), run.err
    profile = raw(run.path)
    asked = [number for number, type_ in zip(
        profile.samples.stack, profile.samples.type)
        if "libgcc_s" in profile.types[type_].python]
    assert len(asked) >= 50
    assert not any(profile.function(frame.address).kind == NATIVE
                   for number in asked for frame in profile.stacks[number])
