"""Test --native-memory, which samples native memory with its stacks and outcomes."""
from __future__ import annotations

import collections
import json
import math
import re
from pathlib import Path

import pytest

from conftest import PyPy, Run
from run_profiles import children
from running import running
from vmprof_convert import cli, readers
from vmprof_convert.analysis.process_memory import readings
from vmprof_convert.profile.model import ALIVE, FREED, RAW_IN_USE, Profile

MIB = 2**20
#: The beginning of all programs in this module.
C = """
import cffi, gc, os, sys, threading
ffi = cffi.FFI()
ffi.cdef("void *malloc(size_t); void *realloc(void *, size_t); void free(void *);"
         "void qsort(void *, size_t, size_t, int (*)(void *, void *));")
c = ffi.dlopen(None)
kept = []
"""


def raw(run: Run) -> Profile:
    return readers.read(run.path, raw=True)


def sampled(pypy: PyPy, program: str, interval: str = "16k", *flags: str) -> Run:
    return pypy.sample(C + program, "1M", "--native-memory", interval, *flags)


class Sum:
    """An estimated sum of sampled blocks, and its variance."""

    def __init__(self) -> None:
        self.bytes = self.variance = 0.0

    def add(self, size: int, interval: int) -> None:
        p = -math.expm1(-size / interval)
        self.bytes += size / p
        self.variance += size * size * (1 - p) / (p * p)

    def is_near(self, truth: float) -> bool:
        return abs(self.bytes - truth) <= 4 * math.sqrt(self.variance)


def innermost(profile: Profile, stack: int) -> str:
    """Return the innermost function of a stack that is in the program's own code."""
    for frame in reversed(profile.stacks[stack] if stack >= 0 else ()):
        function = profile.function(frame.address)
        if function.file.endswith("app.py") or function.file == "<string>":
            return function.name
    return ""


def by_function(profile: Profile, fate: int | None = None,
                least: int = 1, most: int = 2**40) -> dict[str, Sum]:
    """Return the sum of each function, for blocks with this outcome and of these sizes.

    The sizes exclude other blocks that are attributed to a function: the JIT's memory
    to compile it, and a thread's shadow stack.
    """
    found: dict[str, Sum] = collections.defaultdict(Sum)
    samples = profile.samples
    for stack, size, interval, became in zip(
            samples.stack, samples.size, samples.interval, samples.fate):
        assert became in (ALIVE, FREED)
        if fate in (None, became) and least <= size <= most:
            found[innermost(profile, stack)].add(size, interval)
    return found


def types(profile: Profile) -> set[str]:
    return {profile.types[number].python for number in profile.samples.type}


def test_each_function_has_its_native_memory(stock_pypy: PyPy) -> None:
    """The functions allocate by cffi, which releases the GIL, by ffi.new() and by
    ctypes. They are called from compiled code, other threads and a C callback. The
    memory that the GC itself gets from malloc is not included.
    """
    run = sampled(stock_pypy, """
import array, ctypes
def by_cffi():
    for _ in range(2000): kept.append(c.malloc(5000))
def by_new():
    for _ in range(2000): kept.append(ffi.new("char[]", 5000))
def by_ctypes():
    for _ in range(2000): kept.append(ctypes.create_string_buffer(5000))
def given_back():
    for _ in range(3000): c.free(c.malloc(5000))
def grown():
    for _ in range(30):
        block = c.malloc(10)
        for size in range(1000, 31000, 1000): block = c.realloc(block, size)
        kept.append(block)
def in_thread():
    for _ in range(2000): kept.append(c.malloc(5000))
@ffi.callback("int(void *, void *)")
def in_callback(a, b):
    kept.append(c.malloc(3000))
    return 0
def of_the_gc():
    for _ in range(100): kept.append((bytearray(500000), [None] * 50000))
    for i in range(100000): kept.append([i])
by_cffi(), by_new(), by_ctypes(), given_back(), grown(), of_the_gc()
threads = [threading.Thread(target=in_thread) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
numbers = ffi.new("int[200]", list(range(200)))
c.qsort(numbers, 200, 4, in_callback)
print(sum(1 for one in kept if one == 0))
""")
    profile = raw(run)
    allocated = by_function(profile, least=500, most=31000)
    alive = by_function(profile, ALIVE, least=500, most=31000)
    for name, times, size in (
            ("by_cffi", 2000, 5000), ("by_new", 2000, 5000), ("by_ctypes", 2000, 5000),
            ("in_thread", 8000, 5000)):
        assert allocated[name].is_near(times * size), (name, allocated[name].bytes)
        assert alive[name].is_near(times * size), (name, alive[name].bytes)
    assert allocated["given_back"].is_near(3000 * 5000)
    assert alive["given_back"].bytes == 0
    # Each realloc() counts as freeing the block and allocating a block of the new size.
    assert allocated["grown"].is_near(30 * sum(range(1000, 31000, 1000)))
    assert alive["grown"].is_near(30 * 30000)
    assert allocated["in_callback"].bytes > 300 * 3000
    assert allocated["of_the_gc"].bytes < MIB
    assert {name for name in types(profile) if "JIT code" in name or "libffi" in name}
    # malloc's own count of the bytes in use agrees.
    first, *_, last = (figure.value for figure in readings(profile, RAW_IN_USE))
    known = sum(one.bytes for one in by_function(profile, ALIVE).values())
    assert abs(last - known) < first + 0.05 * last
    assert "wrong" not in stock_pypy.command(
        "-m", "vmprof_allocation", "report", "out.vmprof").out


def test_native_memory_does_not_count_as_the_gcs_heap(stock_pypy: PyPy) -> None:
    program = """
for _ in range(3000): kept.append(c.malloc(20000))
"""
    run = sampled(stock_pypy, program)
    heap = run.profile()
    assert not heap.is_raw and heap.raw_interval == 16384
    assert sum(heap.samples.size) < 20 * MIB
    assert not any("malloc" in heap.types[number].python
                   for number in heap.samples.type if number >= 0)
    assert raw(run).is_raw and by_function(raw(run))["<module>"].bytes > 55 * MIB


def test_a_preloaded_allocator_with_old_symbol_versions(stock_pypy: PyPy) -> None:
    """glibc's malloc checker defines malloc and free with symbol versions that dlsym()
    skips. The sampler must not pass a block of the C library to the checker's free(),
    which would abort.
    """
    run = stock_pypy.sample("""
import ctypes, threading, zlib
libc = ctypes.CDLL(None)
def work():
    for _ in range(300):
        zlib.decompress(zlib.compress(b"ab" * 5000))
        ctypes.create_string_buffer(30000)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
kept = [bytearray(1 << 20) for _ in range(50)]
del kept
print("done")
""", "32k", "--native-memory", "64k", LD_PRELOAD="libc_malloc_debug.so.0",
                            MALLOC_CHECK_="3")
    if "cannot be preloaded" in run.err:
        pytest.skip("this C library has no libc_malloc_debug.so.0")
    assert run.code == 0 and run.out.startswith("done"), run.err
    # Calls of the checker's malloc() are sampled.
    assert sum(raw(run).samples.size) > 4 * MIB


def test_interval_1_samples_each_block_once(stock_pypy: PyPy) -> None:
    run = sampled(stock_pypy, """
def made():
    for size in range(1, 2001): kept.append(c.malloc(size))
    for block in kept[::2]: c.free(block)
made()
""", "1", "--allocation-distribution", "fixed")
    profile = raw(run)
    samples = profile.samples
    sizes: dict[int, list[int]] = collections.defaultdict(list)
    for stack, size, fate, type_ in zip(
            samples.stack, samples.size, samples.fate, samples.type):
        # Select the blocks that the program requests.  The types of blocks that cffi
        # itself requests name libpypy.
        if innermost(profile, stack) == "made" and (
                "JIT code" in profile.types[type_].python
                or "libffi" in profile.types[type_].python):
            sizes[fate].append(size)
    assert sorted(sizes[FREED])[-1000:] == sorted(range(1, 2001, 2))
    assert sorted(sizes[ALIVE]) == sorted(range(2, 2001, 2))


def test_children_sample_their_own_native_memory(stock_pypy: PyPy) -> None:
    run = sampled(stock_pypy, """
def parents():
    for _ in range(1000): kept.append(c.malloc(5000))
def childs():
    for _ in range(2000): kept.append(c.malloc(5000))
    for block in kept: c.free(block)
parents()
if os.fork() == 0:
    work = [[i] for i in range(300000)]     # a child's profile begins with a sample
    childs()
    sys.exit()
os.wait()
""", "16k", "--allocation-sampling", "64k")
    assert by_function(raw(run), ALIVE)["parents"].is_near(1000 * 5000)
    assert "childs" not in by_function(raw(run))
    child, = (readers.read(path, raw=True) for path in run.path.parent.glob(
        "out.*.vmprof"))
    assert child.pid != raw(run).pid
    # There is a reading at the child's start and one at its end.
    assert len(readings(child, RAW_IN_USE)) == 2
    found = by_function(child)
    assert found["childs"].is_near(2000 * 5000) and "parents" not in found
    # All blocks of the program are freed.  Blocks of other sizes belong to the JIT.
    assert {fate for size, fate in zip(child.samples.size, child.samples.fate)
            if size == 5000} == {FREED}
    assert len(children(run.path)) == 1


def test_the_segments_together_have_all_blocks(stock_pypy: PyPy) -> None:
    """A segment inherits the blocks in use of the previous segment with their stacks.
    The report of all segments counts these blocks once.
    """
    run = stock_pypy.run(C + """
import vmprof_allocation
def before():
    for _ in range(1000): kept.append(c.malloc(5000))
def behind():
    for _ in range(1000): kept.append(c.malloc(5000))
with vmprof_allocation.sample("out.vmprof", "1M", native_memory="8k") as session:
    before()
    session.rotate("out.w2.vmprof")
    behind()
    for block in kept[:500]: c.free(block)
""")
    assert run.code == 0, run.err
    paths = [run.path, run.path.with_name("out.w2.vmprof")]
    whole = readers.read(paths, raw=True)
    assert by_function(whole)["before"].is_near(5000000)
    assert by_function(whole, ALIVE)["before"].is_near(2500000)
    assert by_function(whole, ALIVE)["behind"].is_near(5000000)
    assert not whole.samples.carried
    second = readers.read(paths[1], raw=True)
    assert "before" not in by_function(second)
    carried = Sum()
    for one in second.samples.carried:
        if innermost(second, one.stack) == "before" and one.fate == ALIVE:
            carried.add(one.size, one.interval)
    assert carried.is_near(2500000)
    assert {second.types[one.type].python for one in second.samples.carried} >= {
        name for name in types(readers.read(paths[0], raw=True)) if "libffi" in name}


def test_a_segment_has_the_stacks_and_malloc_statistics(stock_pypy: PyPy) -> None:
    """A segment has the stacks of blocks from earlier segments, and the names of their
    libraries. The first segment ends with malloc's count of the bytes in use at that
    time.
    """
    run = stock_pypy.run(C + """
import vmprof_allocation, zlib
with vmprof_allocation.sample("out.vmprof", "1M", native_memory="8k") as session:
    kept += [zlib.compressobj() for _ in range(40)]
    session.rotate("out.w2.vmprof")
""")
    assert run.code == 0, run.err
    second = readers.read(run.path.with_name("out.w2.vmprof"), raw=True)
    assert any("libz" in second.types[one.type].python
               for one in second.samples.carried if one.type >= 0)
    report = stock_pypy.command(
        "-m", "vmprof_allocation", "report", "--native-memory", "out.vmprof")
    assert "MiB of it in use by malloc's count" in report.out
    assert "wrong" not in report.out


@pytest.mark.parametrize("end", [
    "os._exit(3)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)", "os.abort()"])
def test_a_process_that_ends_at_once_has_no_last_count(stock_pypy: PyPy,
                                                       end: str) -> None:
    """If malloc's count at the end is missing, the report does not warn of blocks that
    were freed unseen.
    """
    program = stock_pypy.script(C + """
import time
kept += [ffi.new("char[]", 20000) for _ in range(1000)]
time.sleep(1.5)
""" + end)
    run = stock_pypy.command("-m", "vmprof", "--allocation-sampling", "1M",
                             "--native-memory", "16k", "-o", "out.vmprof", str(program))
    assert run.code != 0
    report = stock_pypy.command(
        "-m", "vmprof_allocation", "report", "--native-memory", "out.vmprof")
    assert re.search(r"estimated total: (19|2\d)\.", report.out), report.out
    assert "wrong" not in report.out and "malloc's count" not in report.out


def test_the_end_restores_all_pointers(stock_pypy: PyPy) -> None:
    """After each end of the sampling, dlsym() returns the original functions, although
    the program has loaded libraries during the sampling.
    """
    run = stock_pypy.run(C + """
import _cffi_backend, vmprof_allocation
def address(name):
    one = cffi.FFI()
    one.cdef("void *%s(size_t);" % name)
    return int(one.cast("intptr_t", one.dlopen("libc.so.6").__getattr__(name)))
before = address("malloc"), address("valloc")
for number in range(5):
    with vmprof_allocation.sample("out.vmprof", "1M", native_memory="1k"):
        assert address("malloc") != before[0]
        import zlib, sqlite3
        for _ in range(2000): kept.append(ffi.new("char[]", 1000))
    assert (address("malloc"), address("valloc")) == before
print("ready")
""")
    assert (run.code, run.out) == (0, "ready\n"), run.err
    # The first MiB of a thread after a new start may not be sampled.
    assert by_function(raw(run))["<module>"].bytes > 0.9 * MIB / 2


def test_blocks_that_were_given_back_unseen(stock_pypy: PyPy) -> None:
    """A program that has a pointer to free() from before the sampling can free blocks
    unseen. The report warns of this, because malloc's count shows the difference.
    """
    run = stock_pypy.run(C + """
import vmprof_allocation
old = c.free
new = cffi.FFI()
new.cdef("void *malloc(size_t);")
with vmprof_allocation.sample("out.vmprof", "1M", native_memory="8k"):
    malloc = new.dlopen(None).malloc
    for size in range(4000, 24000): kept.append(malloc(size))
    for block in kept: old(block)
""")
    assert run.code == 0, run.err
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "out.vmprof").out
    assert re.search(
        r"wrong: the samples count [\d.]+ MiB more as alive than malloc", report)


@pytest.mark.nurseries("4M", "240M")
def test_a_leak_of_raw_memory_is_named(stock_pypy: PyPy) -> None:
    """The leaking blocks are found among native memory that is freed again. The GC's
    heap does not grow.
    """
    sampled(stock_pypy, """
import gc, time
def image():
    c.malloc(4000)
def temporary():
    c.free(c.malloc(20000))
for _ in range(6):
    end = time.time() + 0.4
    while time.time() < end:
        image()
        for _ in range(5): temporary()
        time.sleep(0.0005)
    gc.collect()
""", "32k")
    report = stock_pypy.command(
        "-m", "vmprof_allocation", "leaks", "out.vmprof")
    assert report.code == 0, report.err
    leaks = re.findall(r"^leak: malloc \(.*\)  (\w+)", report.out, re.MULTILINE)
    assert leaks == ["image"]
    alone = stock_pypy.command(
        "-m", "vmprof_allocation", "leaks", "--native-memory", "out.vmprof").out
    assert alone.strip() and alone in report.out


def test_attach(stock_pypy: PyPy, tmp_path: Path) -> None:
    """Blocks from before the attach are not included. (Calls through a pointer to
    malloc() from before the attach bypass the sampler.)
    """
    with running(stock_pypy, C + """
import time
for _ in range(1000): kept.append(ffi.new("char[]", 10000))
def later():
    for _ in range(20): kept.append(ffi.new("char[]", 5000))
print("ready", flush=True)
while True:
    later()
    time.sleep(0.001)
""") as program:
        run = program.attach("--native-memory", "16k", duration=1)
    assert "native memory (malloc)" in run.out
    profile = readers.read(tmp_path / "out.vmprof", raw=True)
    alive = by_function(profile, ALIVE)
    assert alive["later"].bytes > MIB / 4
    assert sum(one.bytes for one in alive.values()) < 1.5 * alive["later"].bytes


def test_all_formats(stock_pypy: PyPy) -> None:
    """Each format keeps the samples of native memory separate from heap samples."""
    run = sampled(stock_pypy, """
for _ in range(2000): kept.append(c.malloc(7000))
kept.append([[] for _ in range(100000)])
""")
    folder = run.path.parent
    for to in "firefox", "html", "pprof", "otlp", "speedscope", "collapsed", "chrome":
        done = stock_pypy.command("-m", "vmprof_convert", "export", "--native-memory",
                                  "--format", to, "-o", "written." + to, "out.vmprof")
        assert done.code == 0, done.err
    collapsed = (folder / "written.collapsed").read_text().splitlines()
    assert {line.rpartition(" ")[0].rpartition(";")[2].partition(" ")[0]
            for line in collapsed} == {"malloc"}
    bytes_ = sum(int(line.rpartition(" ")[2]) for line in collapsed)
    table = json.loads(stock_pypy.command(
        "-m", "vmprof_convert", "report", "--native-memory", "--json",
        "out.vmprof").out)
    assert abs(bytes_ - table["sum"]["allocated"]["bytes"]["value"]) < 1e-3 * bytes_
    firefox = json.loads((folder / "written.firefox").read_text())
    main, = [thread for thread in firefox["threads"] if thread["name"] == "MainThread"]
    assert sum(weight for weight in main["nativeAllocations"]["weight"] if weight > 0
               ) == pytest.approx(bytes_, rel=0.05)
    # The file contains the same samples of native memory if it also contains the heap.
    done = stock_pypy.command("-m", "vmprof_convert", "export", "-o", "both.json",
                              "out.vmprof")
    assert done.code == 0, done.err
    both = {thread["name"]: thread.get("nativeAllocations") for thread in json.loads(
        (folder / "both.json").read_text())["threads"]}
    assert sum(both["Native memory (malloc)"]["weight"]) == sum(
        main["nativeAllocations"]["weight"])
    assert sum(weight for weight in both["MainThread"]["weight"] if weight > 0
               ) == pytest.approx(json.loads(stock_pypy.command(
                   "-m", "vmprof_convert", "report", "--json", "out.vmprof").out)[
                       "sum"]["allocated"]["bytes"]["value"], rel=1e-3)
    # "meta" also describes kinds of markers that the file does not contain.
    del firefox["meta"]
    assert "Major collection" not in json.dumps(firefox)


@pytest.mark.parametrize("flags, said", [
    (("--native-memory", "auto"), "it cannot follow a limit"),
    (("--native-memory", "0"), "too small"),
    (("--native-memory", "many"), "many"),
    (("--native-memory", "1k", "--push", "otlp+http://127.0.0.1:1"),
     "--push cannot send"),
])
def test_impossible_flags_are_refused(stock_pypy: PyPy, flags: tuple[str, ...],
                                      said: str) -> None:
    run = stock_pypy.command("-m", "vmprof", "--allocation-sampling", "1M", *flags, str(
        stock_pypy.script("print('ran')")))
    assert (run.code, run.out) == (2, "")
    assert said in run.err and len(run.err.splitlines()) == 1


def test_raw_memory_needs_allocation_sampling(stock_pypy: PyPy) -> None:
    run = stock_pypy.command("-m", "vmprof", "--native-memory", "1k", str(
        stock_pypy.script("print('ran')")))
    assert (run.code, run.out) == (2, "")
    assert "need --allocation-sampling" in run.err


def test_the_report_refuses_options_of_other_reports(stock_pypy: PyPy) -> None:
    """No report on other memory has the option --native-memory."""
    sampled(stock_pypy, """
for _ in range(1000): kept.append(c.malloc(20000))
""", "16k", "--memory")

    assert stock_pypy.command("-m", "vmprof_allocation", "memory",
                              "out.vmprof").out.count("not explained") == 1
    for arguments in ("retainers",), ("memory",), ("report", "--of", "rss"):
        run = stock_pypy.command("-m", "vmprof_allocation", *arguments,
                                 "--native-memory", "out.vmprof")
        assert run.code == 2 and "--native-memory" in run.err


def test_a_build_fails_by_a_leak_of_raw_memory(
        stock_pypy: PyPy, capsys: pytest.CaptureFixture[str]) -> None:
    """The condition `raw` counts the blocks that ctypes and cffi keep, as a difference
    of two runs or within one run. Freed blocks and objects of the GC's heap do not
    count.
    """
    program = """
import ctypes, vmprof_allocation
def step():
    for _ in range(50): c.free(c.malloc(50000))
    held = ctypes.create_string_buffer(50000), ffi.new("char[]", 50000)
    objects.append([None] * 2000)
    %s
objects = []
for number in range(200):
    if number in (50, 199):
        gc.collect()
        vmprof_allocation.mark("warm" if number == 50 else "done")
    step()
gc.collect()
"""
    paths = []
    for name, body in ("good", "pass"), ("same", "pass"), ("leak", "kept.append(held)"):
        run = sampled(stock_pypy, program % body, "64k")
        paths.append(str(run.path.rename(run.path.with_name(name + ".vmprof"))))
    good, same, leak = paths
    growth = "--fail-if", "raw growth > 5M"
    for after, code in (same, 0), (leak, 1):
        assert cli.main(["diff", good, after, *growth, "--fail-if",
                         "alive growth > 10M"]) == code
        assert cli.main(["diff", after, "--between", "warm..done", *growth]) == code
        # The thresholds allow for the 2 to 3 MiB of native memory that PyPy itself has.
        assert cli.main(["check", after, "--fail-if", "raw > 9M"]) == code
    out = " ".join(capsys.readouterr().out.split())
    # The true values are 20 and 15 million bytes.  The tolerance is five standard
    # deviations, which are 0.95 and 0.8 million bytes.
    grew = [float(number) for number in re.findall(
        r"failed: raw growth > 5M: raw alive growth is ([\d.]+) MiB", out)]
    assert len(grew) == 2 and 14 < grew[0] < 24.5 and 10 < grew[1] < 19, out
    assert cli.main(["check", good, "--fail-if", "raw allocated > 400M"]) == 1


def test_a_profile_without_it(stock_pypy: PyPy) -> None:
    stock_pypy.sample("x = [[] for i in range(10000)]", "1k")
    run = stock_pypy.command("-m", "vmprof_allocation", "report", "--native-memory",
                             "out.vmprof")
    assert run.code == 2
    assert "no samples of native memory" in run.err
