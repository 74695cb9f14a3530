"""Test tracemalloc for PyPy, which shows where the live objects were allocated."""
from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest

from conftest import PyPy

pytestmark = pytest.mark.xdist_group("tracemalloc")

PROLOGUE = """
    import gc, json
    from vmprof_allocation import tracemalloc
    class Node(object):
        __slots__ = ("a", "b")
    def make(n):
        return [Node() for i in range(n)]
    def texts(n):
        return ["text %d" % i for i in range(n)]
    def lines(statistics):
        return {"%s:%d" % (s.traceback[-1].filename.rpartition("/")[2],
                           s.traceback[-1].lineno): [
                    s.size, s.count, s.size_error, s.count_error]
                for s in statistics}
"""
#: The lines of the list comprehensions in PROLOGUE, which allocate the objects.
MAKE, TEXTS = "app.py:7", "app.py:9"


def told(pypy: PyPy, source: str, *flags: str) -> Any:
    run = pypy.command(*flags, str(pypy.script(PROLOGUE + source)))
    assert (run.code, run.err) == (0, ""), run.err
    return json.loads(run.out)


@pytest.mark.parametrize("jit", ["off", "function_threshold=10"])
def test_interval_1_is_exact(pypy: PyPy, jit: str) -> None:
    size, count, size_error, count_error = told(pypy, """
    tracemalloc.start(sample_interval=1)
    kept = make(5000)
    garbage = make(5000)
    del garbage
    gc.collect(); gc.collect()
    found = tracemalloc.take_snapshot()
    node = [t for t in found.traces if t.size == %d]
    print(json.dumps([len(node), sum(t.count for t in node),
                      found.statistics("lineno")[0].size_error,
                      found.statistics("lineno")[0].count_error]))
    """ % NODE_SIZE, "--jit", jit)
    # The interpreter itself may have a few objects of this size.
    assert 5000 <= size < 5100
    assert (count, size_error, count_error) == (size, 0, 0)


#: The size in bytes of an instance of Node, with the GC's header.
NODE_SIZE = 56


@pytest.mark.nurseries("4M", "240M")
@pytest.mark.parametrize("closes", [False, True])
def test_garbage_is_not_traced(stock_pypy: PyPy, closes: bool) -> None:
    """Garbage is not in a snapshot, even if the program has no free file descriptor."""
    first, second = told(stock_pypy, """
    import resource
    tracemalloc.start(sample_interval=1)
    nodes = make(5000)
    make(20000)
    count = lambda: sum(t.size == %d for t in tracemalloc.take_snapshot().traces)
    found = [count()]
    if %r:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    del nodes[1000:]
    print(json.dumps([*found, count()]))
    """ % (NODE_SIZE, closes))
    assert 5000 <= first < 5100
    assert 1000 <= second < 1100


@pytest.mark.nurseries("4M", "240M")
@pytest.mark.parametrize("interval", [256, 4096])
def test_estimates_are_unbiased(pypy: PyPy, interval: int) -> None:
    before, after = told(pypy, """
    tracemalloc.start(sample_interval=%d)
    nodes = make(100000)
    garbage = texts(100000)
    gc.collect(); gc.collect()
    with_garbage = lines(tracemalloc.take_snapshot().statistics("lineno"))
    del garbage
    gc.collect(); gc.collect()
    print(json.dumps([with_garbage,
                      lines(tracemalloc.take_snapshot().statistics("lineno"))]))
    """ % interval)
    assert TEXTS in before
    assert after.get(TEXTS, [0])[0] < 0.05 * before[TEXTS][0]
    for snapshot in before, after:
        size, _, size_error, _ = snapshot[MAKE]
        # Each node has a pointer of 8 bytes in the list.  The tolerance is four
        # standard deviations.
        assert abs(size - 100000 * (NODE_SIZE + 8)) < 2.1 * size_error + 10**5


@pytest.mark.nurseries("4M", "240M")
def test_the_difference_of_two_snapshots(pypy: PyPy) -> None:
    (place, difference, error), = told(pypy, """
    tracemalloc.start(5, sample_interval=1024)
    nodes = make(50000)
    gc.collect(); gc.collect()
    first = tracemalloc.take_snapshot()
    leak = texts(20000)
    gc.collect(); gc.collect()
    second = tracemalloc.take_snapshot()
    print(json.dumps([[str(d.traceback[-1]), d.size_diff, d.size_diff_error]
                      for d in second.compare_to(first, "lineno")[:1]]))
    """)
    assert place.endswith(TEXTS)
    assert difference > 4 * error > 0


def test_traceback_of_an_object(pypy: PyPy) -> None:
    lines, young, other = told(pypy, """
    def outer():
        return make(10)
    kept = make(10)
    tracemalloc.start(3, sample_interval=1)
    nodes = outer()
    young = tracemalloc.get_object_traceback(nodes[3])
    gc.collect()
    old = tracemalloc.get_object_traceback(nodes[3])
    print(json.dumps([old.format(), young == old,
                      tracemalloc.get_object_traceback(kept[0])]))
    """)
    assert [line.strip() for line in lines][-1] == (
        "return [Node() for i in range(n)]")
    assert "return make(10)" in "".join(lines)
    assert young is True and other is None


def test_traceback_of_texts_and_of_values(pypy: PyPy) -> None:
    """Numbers and characters have no traceback, because they have no identity in PyPy.
    """
    places, values = told(pypy, """
    tracemalloc.start(3, sample_interval=1)
    def create(number):
        return ["text %d" % number, "\\u1234 %d" % number, b"bytes %d" % number]
    def lines():
        return [t and t[-1].lineno - create.__code__.co_firstlineno
                for t in map(tracemalloc.get_object_traceback, created)]
    created = create(7)
    young = lines()
    gc.collect()
    values = [1.5, -0.0, -5, 10**5, 2**70, -2**70, 3+2j, "a", "", b"x", (),
              None, True, int, frozenset()]
    print(json.dumps([young + lines(), [
        str(tracemalloc.get_object_traceback(value)) for value in values]]))
    """)
    assert len(places) == 6 and set(places) == {1}
    assert values == ["None"] * 15


def test_executed_lines(stock_pypy: PyPy) -> None:
    """Tracebacks have the executed lines, in interpreted and in compiled code."""
    source = """
    tracemalloc.start(sample_interval=1024)
    def fill(n):
        kept = []
        for i in range(n):
            kept.append(Node())
            kept.append("text %%d" %% i)
        return kept
    kept = fill(%d)
    gc.collect()
    first = fill.__code__.co_firstlineno
    print(json.dumps({line - first: s.count for s in
                      tracemalloc.take_snapshot().statistics("lineno")
                      for line in [s.traceback[-1].lineno]
                      if s.traceback[-1].filename.endswith("app.py")}))
    """
    for number, jit in (20000, "off"), (100000, "default"):
        found = told(stock_pypy, source % number, "--jit", jit)
        # Each iteration allocates a node, a text, and the text's characters.
        assert found["3"] + found["4"] == pytest.approx(3 * number, rel=0.1)
        if jit == "off":    # Compiled code may allocate an object at a later line.
            assert found["3"] == pytest.approx(number, rel=0.1)
        assert found.get("0", 0) < number / 20


def test_memory_peak_and_clearing(pypy: PyPy) -> None:
    result = told(pypy, """
    off = tracemalloc.get_traced_memory(), tracemalloc.is_tracing()
    tracemalloc.start(sample_interval=64)
    size = tracemalloc.get_traced_memory()
    nodes = make(50000)
    large = tracemalloc.get_traced_memory()
    del nodes
    gc.collect(); gc.collect()
    small = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    reset = tracemalloc.get_traced_memory()
    kept = make(1000)
    tracemalloc.clear_traces()
    cleared = tracemalloc.get_traced_memory()
    overhead = tracemalloc.get_tracemalloc_memory()
    tracemalloc.stop()
    print(json.dumps([off, size, large, small, reset, cleared, overhead,
                      tracemalloc.get_traced_memory(),
                      tracemalloc.get_tracemalloc_memory()]))
    """)
    off, size, large, small, reset, cleared, overhead, stopped, nothing = result
    assert off == [[0, 0], False] and stopped == [0, 0] and nothing == 0
    assert large[0] - size[0] > 50000 * 60
    assert small[0] < size[0] + 10**5 and small[1] >= large[0]
    assert reset[1] < large[0]
    assert cleared[0] < 10**5
    assert overhead > 0


def test_import_tracemalloc_imports_this_module(pypy: PyPy) -> None:
    assert told(pypy, """
    tracemalloc.install("2k")
    import tracemalloc as imported
    imported.start(7)
    interval = imported._tracer._engine.statistics().samples
    print(json.dumps([imported is tracemalloc, imported.is_tracing(),
                      imported.get_traceback_limit()]))
    """) == [True, True, 7]


#: A program whose resources are never closed.  PyPy itself warns about files and
#: sockets without naming the object.
UNCLOSED = """
    import gc, subprocess, sys
    def leaky():
        return subprocess.Popen([sys.executable, "--version"], stdin=-1, stdout=-1)
    def caller():
        leaky()
    caller()
    for i in range(3): gc.collect()
"""


def test_a_resource_warning_shows_where_the_object_was_allocated(
        pypy: PyPy) -> None:
    run = pypy.command("-W", "always::ResourceWarning",
                             str(pypy.script(UNCLOSED)),
                             VMPROF_TRACEMALLOC="25,1")
    assert run.code == 0
    assert re.search(r"ResourceWarning: subprocess \d+ is still running.*"
                     r"Object allocated at \(most recent call last\):\n"
                     r".*app\.py.* caller\(\)\n.* leaky\(\)\n.* return sub", run.err,
                     re.DOTALL), run.err


@pytest.mark.parametrize("value, message", [
    ("many", "invalid number of frames VMPROF_TRACEMALLOC='many'"),
    ("0", "it must be in 1..65535"),
    ("5,nothing", "invalid sample interval 'nothing'"),
    ("5,auto", "a fixed interval instead of a limit"),
    ("99999999999", "invalid number of frames 99999999999"),
])
def test_a_variable_that_is_wrong(pypy: PyPy, value: str,
                                  message: str) -> None:
    run = pypy.command("-c", "print(1)", VMPROF_TRACEMALLOC=value)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("vmprof: ") and message in run.err
    assert run.err.count("\n") == 1


TELL = ("from sys import modules as m; t = m.get('tracemalloc'); "
        "print(t and t.is_tracing() and t.get_traceback_limit())")


@pytest.mark.parametrize("flags, variables, limit", [
    ((), {"PYTHONTRACEMALLOC": "7"}, 7), ((), {"PYTHONTRACEMALLOC": "7,4k"}, 7),
    ((), {"PYTHONTRACEMALLOC": "0"}, None), ((), {"PYTHONTRACEMALLOC": ""}, None),
    (("-E",), {"PYTHONTRACEMALLOC": "7"}, None),
    (("-X", "tracemalloc"), {}, 1), (("-X", "tracemalloc=3"), {}, 3),
    (("-X", "tracemalloc=3"), {"PYTHONTRACEMALLOC": "7"}, 3),
    (("-X", "tracemalloc=0"), {"PYTHONTRACEMALLOC": "7"}, None),
    ((), {"PYTHONTRACEMALLOC": "7", "VMPROF_TRACEMALLOC": "5"}, 5),
    (("-X", "tracemalloc=3"), {"VMPROF_TRACEMALLOC": ""}, None),
])
def test_names_of_cpython_start_to_trace(
        pypy: PyPy, flags: tuple[str, ...], variables: dict[str, str],
        limit: int | None) -> None:
    pypy.environment.update(variables)
    run = pypy.command(*flags, "-c", TELL)
    assert (run.code, run.out, run.err) == (0, "%s\n" % limit, "")


@pytest.mark.parametrize("variable", ["PYTHONTRACEMALLOC", "VMPROF_TRACEMALLOC"])
def test_search_of_an_unknown_build_is_not_traced(
        stock_pypy: PyPy, tmp_path: pathlib.Path, variable: str) -> None:
    """The process that searches an unknown build ignores the variables that start
    tracing. Otherwise, each search would start another search.
    """
    stock_pypy.environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    stock_pypy.environment[variable] = "5"
    run = stock_pypy.command("-c", TELL, timeout=120)
    assert (run.code, run.out) == (0, "5\n"), run.err


@pytest.mark.parametrize("flags, value, name", [
    ((), "many", "PYTHONTRACEMALLOC='many'"),
    (("-X", "tracemalloc=many"), "1", "-X tracemalloc='many'"),
])
def test_invalid_values_of_names_of_cpython(
        pypy: PyPy, flags: tuple[str, ...], value: str, name: str) -> None:
    run = pypy.command(*flags, "-c", "print(1)", PYTHONTRACEMALLOC=value)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith("vmprof: invalid number of frames " + name), run.err


@pytest.mark.nurseries("4M", "240M")
def test_traced_memory_has_no_garbage_after_a_snapshot(stock_pypy: PyPy) -> None:
    before, after = told(stock_pypy, """
    tracemalloc.start(sample_interval=64)
    kept, garbage = make(1000), make(50000)
    tracemalloc.get_traced_memory()
    del garbage
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.take_snapshot()
    print(json.dumps([before, tracemalloc.get_traced_memory()[0]]))
    """)
    assert before > 50000 * NODE_SIZE * 0.95
    assert 1000 * NODE_SIZE * 0.8 < after < 10000 * NODE_SIZE


def test_a_forked_child_is_not_traced(pypy: PyPy) -> None:
    assert told(pypy, """
    import os
    tracemalloc.start(sample_interval=64)
    read, write = os.pipe()
    if os.fork() == 0:
        kept = make(1000)
        was = tracemalloc.is_tracing(), tracemalloc.get_traced_memory()
        tracemalloc.start(sample_interval=64)
        more = make(1000)
        gc.collect()
        os.write(write, json.dumps([was, tracemalloc.is_tracing(), len(
            tracemalloc.take_snapshot().traces) > 500]).encode())
        tracemalloc.stop()
        os._exit(0)
    os.wait()
    child = json.loads(os.read(read, 1000))
    print(json.dumps([child, tracemalloc.is_tracing()]))
    """) == [[[False, [0, 0]], True, True], True]


def test_many_starts_and_stops_leak_no_memory(pypy: PyPy) -> None:
    first, last = told(pypy, """
    import os
    def look():
        with open("/proc/self/status") as file:
            memory = [line.split()[1] for line in file if "VmData" in line]
        return [len(os.listdir("/proc/self/fd")), int(memory[0])]
    def cycle():
        tracemalloc.start(sample_interval=512)
        make(100)
        tracemalloc.stop()
    tracemalloc.stop()
    for i in range(50): cycle()
    gc.collect()
    first = look()
    for i in range(300): cycle()
    gc.collect()
    print(json.dumps([first, look()]))
    """)
    assert last[0] == first[0]
    assert last[1] < first[1] + 8192        # KiB


def test_a_snapshot_while_other_threads_allocate(pypy: PyPy) -> None:
    assert told(pypy, """
    import threading
    tracemalloc.start(sample_interval=256)
    goes_on = [True]
    def work():
        while goes_on[0]:
            texts(100)
    threads = [threading.Thread(target=work) for i in range(3)]
    for thread in threads: thread.start()
    nodes = make(20000)
    sizes = [sum(t.size for t in tracemalloc.take_snapshot().traces)
             for i in range(20)]
    goes_on[0] = False
    for thread in threads: thread.join()
    print(json.dumps(min(sizes) > 20000 * 60))
    """) is True


def test_calls_of_the_module_are_not_counted(pypy: PyPy) -> None:
    first, last = told(pypy, """
    tracemalloc.start(sample_interval=1)
    sizes = [0] * 100
    for i in range(100):
        sizes[i] = tracemalloc.get_traced_memory()[0]
    print(json.dumps([sizes[10], sizes[99]]))
    """)
    # Each call itself allocates a frame of the called function, and the numbers.
    assert last - first < 100 * 1500


def test_too_many_objects_for_the_table(pypy: PyPy) -> None:
    run = pypy.command("-W", "error", str(pypy.script(PROLOGUE + """
    tracemalloc.start(sample_interval=1)
    kept = [make(1000000) for i in range(5)]
    try:
        tracemalloc.take_snapshot()
    except RuntimeWarning as e:
        print(e)
    """)))
    assert run.code == 0
    assert re.match(r"\d+ sampled objects are not traced", run.out), run


def test_nothing_to_take_a_snapshot_of(pypy: PyPy) -> None:
    run = pypy.command("-c", "from vmprof_allocation import tracemalloc\n"
                             "tracemalloc.take_snapshot()")
    assert run.err.endswith("Call tracemalloc.start() before\n")


def test_a_profile_and_tracing_at_the_same_time(pypy: PyPy) -> None:
    """tracemalloc.start() is refused while the program is profiled."""
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "64k", "-o", "out.vmprof",
        str(pypy.script("""
        from vmprof_allocation import tracemalloc, AllocationSamplingError
        try:
            tracemalloc.start()
        except AllocationSamplingError as e:
            print(e)
        """)))
    assert (run.code, run.err) == (0, "")
    assert run.out.startswith("allocation sampling is already on")


def test_a_program_that_closes_all_files(pypy: PyPy) -> None:
    """If a program has closed the sampler's descriptors, and opens its own files under
    the same numbers, these files are neither read nor closed.
    """
    result = told(pypy, """
    import os
    tracemalloc.start(sample_interval=64)
    kept = make(1000)
    os.closerange(3, 1024)
    mine = [os.open("/dev/null", os.O_RDONLY) for i in range(600)]
    try:
        tracemalloc.take_snapshot()
    except RuntimeError as e:
        first = str(e)
    tracemalloc.get_tracemalloc_memory()
    try:
        tracemalloc.stop()
    except Exception as e:
        second = str(e)
    for fd in mine:
        os.fstat(fd)
    print(json.dumps([first, second, tracemalloc.is_tracing()]))
    """)
    assert "has closed the file" in result[0]
    assert result[1:] == [
        "the profile is not complete: the program closed its file", False]


def test_a_program_that_closes_all_files_and_ends(pypy: PyPy) -> None:
    run = pypy.command("-c", "import os; os.closerange(3, 1024); print(1)",
                             VMPROF_TRACEMALLOC="5")
    assert (run.code, run.out, run.err) == (0, "1\n", "")


def test_threads_that_start_stop_and_take_snapshots(pypy: PyPy) -> None:
    run = pypy.command(str(pypy.script(PROLOGUE + """
    import random, threading, time
    def work():
        end = time.time() + 3
        while time.time() < end:
            do = random.choice([
                lambda: tracemalloc.start(3, sample_interval=512), tracemalloc.stop,
                tracemalloc.take_snapshot, tracemalloc.get_traced_memory,
                tracemalloc.clear_traces, lambda: make(1000),
                lambda: tracemalloc.get_object_traceback(work),
                tracemalloc.get_tracemalloc_memory, tracemalloc.reset_peak])
            try:
                do()
            except RuntimeError as e:
                assert "tracing is not on" in str(e), e
    threads = [threading.Thread(target=work) for i in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    """)))
    assert (run.code, run.err) == (0, "")


def test_the_variable_and_the_command_line(pypy: PyPy) -> None:
    """The command line has precedence over VMPROF_TRACEMALLOC: the program writes a
    profile, and traces nothing.
    """
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "64k", "-o", "out.vmprof",
        str(pypy.script("print(1)")), VMPROF_TRACEMALLOC="5")
    assert (run.code, run.out, run.err) == (0, "1\n", "")
    assert run.profile().end_time is not None
    run = pypy.command("-c", "print(1)", VMPROF_TRACEMALLOC="")
    assert (run.code, run.out) == (0, "1\n")
