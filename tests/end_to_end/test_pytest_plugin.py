"""Test the tables, limits and failures of the pytest plugin in a separate project."""
from __future__ import annotations

import html
import json
import re

import pytest

from conftest import PyPy, has_builtin
from pytest_project import PACKAGES, make_project, run
from vmprof_convert import readers


@pytest.fixture
def project(pypy: PyPy) -> PyPy:
    return make_project(pypy)


def test_the_table_of_each_test_s_allocations(project: PyPy) -> None:
    done = run(project, """
def test_large():
    shop.churn(5000)
def test_small():
    pass
def test_keeps():
    for i in range(10):
        shop.grow(1000000)
""", "--allocations", "--allocations-interval", "1k")
    assert done.code == 0, done.out
    table = done.out.partition("allocations of 3 tests")[2]
    # The column is "survived" and not "alive", because there is no heap snapshot.
    assert re.search(r"^ +allocated +survived +objects  test$", table, re.MULTILINE)
    rows = re.findall(r"^ +([\d.]+)(?: ±[\d.]+)? (\w*B) .* test_shop.py::(\w+)$", table,
                      re.MULTILINE)
    assert [name for *_, name in rows[:2]] == ["test_large", "test_keeps"]
    # The test makes 5000 lists of 8016 bytes.
    assert rows[0][1] == "MiB" and 37 < float(rows[0][0]) < 40
    assert re.search(r"9\.[56]\d MiB .*test_keeps", table), table


def test_limits_that_are_kept_and_limits_that_are_not(project: PyPy) -> None:
    done = run(project, """
@pytest.mark.limit_allocations("100 MB")
def test_kept():
    shop.churn(5000)
@pytest.mark.limit_allocations("10 MB")
def test_not_kept():
    shop.churn(5000)
""")
    assert done.code == 1 and "1 failed, 1 passed" in done.out
    said = done.out.partition("test_not_kept")[2]
    # The true value is 38.2 MiB, and four standard deviations are 3.6 MiB.
    assert re.search(r"test_not_kept allocated (?:3[4-9]|4[01])\.\d MiB \(.* MiB, "
                     r"99.99 %\); its limit is 10 MiB", said), said
    assert "shop.py" in said and "churn" in said
    assert "pytest_plugin" not in done.out      # The stack has no frames of the plugin.
    between = said[:said.index("short test summary")]
    assert len(between.splitlines()) <= 24      # The message is short.


def test_leaks(project: PyPy) -> None:
    """A leak is objects that each call of the test keeps. Garbage, and the objects of a
    cache that is full, are no leak.
    """
    done = run(project, """
@pytest.mark.limit_leaks("10 kB")
def test_leaks():
    shop.grow(50000)
@pytest.mark.limit_leaks("10 kB")
def test_garbage():
    shop.churn(500)
@pytest.mark.limit_leaks("10 kB")
def test_caches(cache={}):
    if "x" not in cache:
        cache["x"] = bytearray(1000000)
@pytest.mark.limit_leaks("100 kB", warm_up=1, repeat=4)
def test_small_enough(tmp_path):
    shop.grow(50000)
""")
    assert done.code == 1 and "1 failed, 3 passed" in done.out, done.out
    assert re.search(r"10 calls of test_leaks left 4\d\d KiB .* limit is 100 KiB",
                     done.out), done.out
    # The table and the message show the same allocation sites.
    assert re.search(
        r"^ *alive +type +function +where\n *4\d\d ±[\d.]+ KiB  object array ",
        done.out, re.MULTILINE), done.out


def test_a_leak_has_its_holder(project: PyPy) -> None:
    """The message names the retainer of the leaked objects. The plugin takes no heap
    snapshot for a test without a leak.
    """
    done = run(project, """
from vmprof_allocation.session.session import Session
asked, held = [], Session.retainers
def counted(session):
    asked.append(1)
    return held(session)
Session.retainers = counted
class Registry:
    TABLE = {}
@pytest.mark.limit_leaks("10 kB")
def test_keeps_nothing():
    shop.churn(100)
@pytest.mark.limit_leaks("10 kB")
def test_asked_for_nothing():
    assert not asked
@pytest.mark.limit_leaks("10 kB")
def test_leaks():
    shop.grow(50000)
@pytest.mark.limit_leaks("10 kB")
def test_several():
    shop.grow(30000)
    Registry.TABLE[len(Registry.TABLE)] = [None] * 3000
""")
    if has_builtin():
        assert "held by" not in done.out
        return
    assert done.code == 1 and "2 failed, 2 passed" in done.out, done.out
    leaks, several = (done.out.partition("_ %s _" % name)[2].partition("_ test_")[0]
                      for name in ("test_leaks", "test_several"))
    assert re.search(r"^held by shop\.kept \((100|9\d) %\)$", leaks,
                     re.MULTILINE), leaks
    assert re.search(r"^held by shop\.kept \(5\d %\), test_shop\.Registry\.TABLE "
                     r"\(4\d %\)$", several, re.MULTILINE), several


def test_a_failed_search_for_retainers_is_reported(stock_pypy: PyPy,
                                                   project: PyPy) -> None:
    """A failed search for retainers makes no test fail. The output has the reason."""
    done = run(project, """
from vmprof_allocation.engines.hook.heap_snapshot import HeapSnapshot
HeapSnapshot.refusal = lambda self, **_: 3
HeapSnapshot.memory = 2**26, 0
@pytest.mark.limit_leaks("10 kB")
def test_leaks():
    shop.grow(50000)
@pytest.mark.limit_leaks("100 kB")
def test_kept():
    shop.grow(80000)
""")
    assert done.code == 1 and "1 failed, 1 passed" in done.out, done.out
    assert re.search(r"^no heap snapshot is taken: .* or the cgroup has 0 MiB left",
                     done.out, re.MULTILINE), done.out


def test_native_memory_that_c_code_keeps_is_a_leak(project: PyPy) -> None:
    """Native memory that the calls of a test keep is a leak, except memory that is
    freed. If native memory is sampled, the report names the function that requested it.
    """
    done = run(project, """
import array, ctypes, threading, zlib
kept = []
@pytest.mark.limit_leaks("1 kB")
def test_array():
    kept.append(array.array("b", bytes(800000)))
@pytest.mark.limit_leaks("100 kB")
def test_ctypes():
    kept.append(ctypes.create_string_buffer(200000))
@pytest.mark.limit_leaks("10 kB")
def test_both():
    kept.append(array.array("b", bytes(400000)))
    shop.grow(50000)
@pytest.mark.limit_leaks("1 MB")
def test_less():
    kept.append(array.array("b", bytes(200000)))
@pytest.mark.limit_leaks("10 kB")
def test_frees():
    buffers = [array.array("b", bytes(size)) for size in range(1000, 500000, 50000)]
    zlib.compress(bytes(300000))
@pytest.mark.limit_leaks("10 kB")
def test_threads():
    threads = [threading.Thread(target=shop.churn, args=(20,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
""")
    assert done.code == 1 and "3 failed, 3 passed" in done.out, done.out
    said = " ".join(done.out.split())
    for name, least, most, limit in (("array", 7.6, 8.8, "10 KiB"),
                                     ("ctypes", 1.9, 2.0, "1000 KiB")):
        found = re.search(
            r"10 calls of test_%s left ([\d.]+) MiB outside of the GC's heap, by "
            r"malloc's count; their limit is %s. The same number of calls once more "
            r"left at least as much. (.{200})" % (name, limit), said)
        assert found and least < float(found[1]) < most, done.out
        if has_builtin():
            assert found[2].startswith("Most of it was not sampled"), done.out
            continue
        who = re.match(r"Samples of the first calls: alive type function where "
                       r"([\d.]+) (?:±[\d.]+ )?MiB malloc \(libpypy[^)]*\) test_%s "
                       % name, found[2])
        assert who and least * 0.97 < float(who[1]) < most, done.out
    assert re.search(r"10 calls of test_both left 4\d\d KiB .* limit is 100 KiB", said)
    assert re.search(r"10 calls of test_both left [\d.]+ MiB outside of the GC's heap",
                     said), done.out


def test_unsampled_memory_is_not_attributed_to_sampled_functions(project: PyPy) -> None:
    """The program has a pointer to malloc from before the sampling. The memory that it
    requests through this pointer is not sampled.
    """
    done = run(project, """
import cffi
ffi = cffi.FFI()
ffi.cdef("void *malloc(size_t);")
malloc = ffi.dlopen(None).malloc
@pytest.mark.limit_leaks("10 kB")
def test_unseen():
    malloc(100000)
""")
    assert done.code == 1, done.out
    said = " ".join(done.out.split())
    assert re.search(r"10 calls of test_unseen left 97\d KiB outside .* as much. Most "
                     r"of it was not sampled: check what uses ctypes, cffi",
                     said), done.out


def test_missing_malloc_statistics_are_reported(project: PyPy) -> None:
    done = run(project, """
import gc
@pytest.fixture
def other_gc(monkeypatch):
    monkeypatch.setattr(gc, "get_stats", lambda: None)
@pytest.mark.limit_leaks("10 kB")
def test_x(other_gc):
    pass
""")
    assert done.code == 0 and "1 passed" in done.out, done.out
    assert ("not measured: test_shop.py::test_x: this system does not count native "
            "memory") in done.out, done.out


def test_memory_of_the_jit_is_no_leak(project: PyPy) -> None:
    """The memory that the JIT keeps, while it compiles during hundreds of calls, is not
    reported as a leak of the test.
    """
    done = run(project, """
import ast, inspect, textwrap
source = inspect.getsource(textwrap)
@pytest.mark.limit_leaks("10 kB")
def test_keeps_nothing():
    ast.unparse(ast.parse(source))
""")
    assert done.code == 0 and "1 passed" in done.out, done.out


def test_the_table_of_all_tests_contains_leaks(project: PyPy) -> None:
    done = run(project, """
@pytest.mark.limit_leaks("10 kB")
@pytest.mark.limit_allocations("20 kB")
def test_leaks():
    shop.grow(1000000)
""", "--allocations")
    assert done.code == 1, done.out
    assert "10 calls of test_leaks left 9.5" in done.out, done.out
    assert re.search(r"^ .*test_shop.py::test_leaks$", done.out.partition(
        "allocations of 1 test")[2], re.MULTILINE), done.out


def test_leaks_that_filter_fn_refuses_do_not_count(project: PyPy) -> None:
    """The plugin calls filter_fn once for each leaking stack, with the innermost frame
    first.
    """
    done = run(project, """
stacks = []
def cache():
    shop.grow(50000)
def is_leak(stack):
    stacks.append(stack)
    return all(frame.function != "cache" for frame in stack.frames)
@pytest.mark.limit_leaks("10 kB", filter_fn=is_leak)
def test_passes():
    cache()
@pytest.mark.limit_leaks("10 kB", filter_fn=is_leak)
def test_fails():
    cache()
    shop.grow(30000)
@pytest.mark.limit_leaks("10 kB", filter_fn=lambda stack: 1 // 0)
def test_raises():
    cache()
def test_asked():
    assert len(set(stacks)) >= 2
    (inner, outer), *_ = [
        [frame for frame in stack.frames if frame.function in ("grow", "cache")]
        for stack in stacks if any(frame.function == "cache" for frame in stack.frames)]
    assert (inner.function, outer.function) == ("grow", "cache")
    assert inner.filename == shop.__file__ and inner.lineno > 0
""")
    assert done.code == 1 and "2 failed, 2 passed" in done.out, done.out
    assert re.search(r"10 calls of test_fails left (?:2[6-9]|30)\d KiB .* limit is 100 "
                     "KiB", done.out), done.out
    assert "ZeroDivisionError" in done.out, done.out


def test_leaks_of_other_threads_may_be_left_out(project: PyPy) -> None:
    done = run(project, """
import threading
def leak(size):
    thread = threading.Thread(target=shop.grow, args=(size,))
    thread.start()
    thread.join()
@pytest.mark.limit_leaks("10 kB", current_thread_only=True)
def test_passes():
    leak(50000)
@pytest.mark.limit_leaks("10 kB", current_thread_only=True)
def test_fails():
    leak(50000)
    shop.grow(30000)
@pytest.mark.limit_leaks("10 kB")
def test_fails_with_all():
    leak(50000)
""")
    assert done.code == 1 and "2 failed, 1 passed" in done.out, done.out
    assert re.search(r"10 calls of test_fails left (?:2[6-9]|30)\d KiB .* limit is 100 "
                     "KiB", done.out), done.out


def test_native_leaks_are_chosen_by_their_samples(project: PyPy) -> None:
    done = run(project, """
import array
kept = []
def cache():
    kept.append(array.array("b", bytes(800000)))
@pytest.mark.limit_leaks("10 kB", filter_fn=lambda stack: all(
    frame.function != "cache" for frame in stack.frames))
def test_refused():
    cache()
@pytest.mark.limit_leaks("10 kB", filter_fn=lambda stack: True)
def test_counted():
    cache()
""")
    refused = "10 calls of test_refused left 8." in done.out
    assert "10 calls of test_counted left 8." in done.out, done.out
    # The builtin engine does not sample native memory, so filter_fn gets no stack.
    assert refused == has_builtin(), done.out


def test_profiles_are_kept_in_a_folder(project: PyPy) -> None:
    """The names of the files are the names of the tests. Characters that a file name
    cannot contain are replaced.
    """
    tests = """
import os
@pytest.mark.limit_leaks("100 kB")
@pytest.mark.parametrize("name", ["plain", "a/b", "x" * 300])
def test_x(name, tmp_path):
    os.chdir(tmp_path)
    shop.churn(500)
class TestShop:
    def test_y(self):
        shop.churn(500)
"""
    done = run(project, tests, "--allocations", "--allocations-dir", "kept/here",
               "--allocations-interval", "1k")
    assert done.code == 0, done.out
    kept = project.folder / "kept" / "here"
    names = {path.name for path in kept.iterdir()}
    assert {"test_shop.py-test_x[plain].vmprof",
            "test_shop.py-test_x[plain]-leaks.vmprof",
            "test_shop.py-TestShop-test_y.vmprof"} < names, names
    assert len(names) == 7 and max(map(len, names)) < 255, names
    assert "7 profiles are in %s" % kept in done.out, done.out
    profile = readers.read(kept / "test_shop.py-TestShop-test_y.vmprof")
    assert len(profile.samples) > 400      # The test allocates 4 MB.
    # A second run replaces the profiles.
    assert run(project, tests, "--allocations", "--allocations-dir",
               "kept/here").code == 0
    assert {path.name for path in kept.iterdir()} == names


def test_workers_of_xdist_keep_profiles(project: PyPy) -> None:
    done = run(project, "def test_x():\n    shop.churn(500)\n", "-n1", "--allocations",
               "--allocations-dir", "kept")
    assert done.code == 0, done.out
    kept = project.folder / "kept"
    assert [path.name for path in kept.iterdir()] == ["test_shop.py-test_x.vmprof"]
    assert "1 profile is in %s" % kept in done.out, done.out


def test_folder_that_cannot_be_made(project: PyPy) -> None:
    project.script("", "file")
    done = run(project, "def test_x(): pass", "--allocations-dir", "file/x")
    assert done.code == 4, done.out
    assert "--allocations-dir: cannot make the folder " in done.out + done.err


def test_settings_in_pytest_ini(project: PyPy) -> None:
    """An option of the command line has precedence over pytest.ini."""
    project.script("""
        [pytest]
        allocations = true
        allocations_interval = 1k
        allocations_dir = profiles
        """, "pytest.ini")
    tests = "def test_x():\n    shop.churn(5000)\n"
    done = run(project, tests)
    assert done.code == 0 and "allocations of 1 test" in done.out, done.out
    path = project.folder / "profiles" / "test_shop.py-test_x.vmprof"
    assert readers.read(path).interval == 1024
    assert run(project, tests, "--allocations-interval", "2k").code == 0
    assert readers.read(path).interval == 2048
    done = run(project, tests, "-o", "allocations_interval=some")
    assert done.code == 4, done.out


def test_a_regression_between_two_versions_is_found(project: PyPy) -> None:
    tests = """
@pytest.mark.limit_leaks("1 kB")
def test_serve():
    shop.serve()
"""
    for keeps, code in (("pass", 0), ("kept.append([None] * 500)", 1)):
        project.script("""
            kept = []
            def serve():
                for i in range(50):
                    [None] * 4000
                %s
            """ % keeps, "shop.py")
        done = run(project, tests)
        assert done.code == code, done.out
    assert re.search(r"object array .* serve .*shop.py:3", done.out), done.out


def test_markers_that_make_no_sense(project: PyPy) -> None:
    said = {'limit_allocations("much")': "invalid limit limit_allocations('much')",
            "limit_allocations()": "write one limit",
            'limit_leaks("1 MB", repeat=0)': "invalid limit_leaks(repeat=0): write a",
            'limit_leaks("1 MB", often=1)': "write one limit",
            'limit_leaks("1 MB", filter_fn=3)':
                "invalid limit_leaks(filter_fn=3): write a function",
            'limit_leaks("1 MB", current_thread_only=1)':
                "invalid limit_leaks(current_thread_only=1): write True or False",
            'limit_memory("1 MB", current_thread_only=True)': "write one limit",
            'limit_memory("some")': "invalid limit limit_memory('some')",
            'limit_leaks("5%")': "invalid limit limit_leaks('5%'): write a number of"}
    done = run(project, "".join(
        "@pytest.mark.%s\ndef test_%d_(): pass\n" % (marker, number)
        for number, marker in enumerate(said)))
    assert done.code == 1 and "9 failed" in done.out, done.out
    for number, what in enumerate(said.values()):
        assert what in done.out.partition("_ test_%d_ _" % number)[2].partition(
            "_ test_")[0], done.out


def test_limits_of_unittest_and_of_asynchronous_tests(project: PyPy) -> None:
    done = run(project, """
import asyncio, unittest
class TestCase(unittest.TestCase):
    @pytest.mark.limit_leaks("10 kB")
    def test_leaks(self):
        shop.grow(50000)
    @pytest.mark.limit_allocations("10 MB")
    def test_keeps_to_its_limit(self):
        shop.churn(1)
@pytest.mark.anyio
@pytest.mark.limit_leaks("10 kB")
async def test_anyio_leaks():
    await asyncio.sleep(0)
    shop.grow(50000)
@pytest.mark.asyncio
@pytest.mark.limit_allocations("10 MB")
async def test_asyncio_allocates():
    await asyncio.sleep(0)
    shop.churn(5000)
@pytest.mark.asyncio
async def test_asyncio_allocates_little():
    await asyncio.sleep(0)
@pytest.fixture
def anyio_backend():
    return "asyncio"
""", "--allocations")
    assert "3 failed, 2 passed" in done.out, done.out
    for what in (r"10 calls of test_leaks left 4\d\d KiB",
                 r"10 calls of test_anyio_leaks(?:\[asyncio\])? left 4\d\d KiB",
                 r"test_asyncio_allocates allocated [34]\d\.\d+ MiB"):
        assert re.search(what, done.out), done.out
    assert "allocations of 5 tests" in done.out
    assert "not measured" not in done.out


def test_a_function_without_a_call_is_listed_as_not_measured(project: PyPy) -> None:
    done = run(project, """
import unittest
class TestCase(unittest.IsolatedAsyncioTestCase):
    @pytest.mark.limit_leaks("10 kB")
    async def test_leaks(self):
        shop.grow(50000)
""")
    assert done.code == 0, done.out
    assert ("not measured: test_shop.py::TestCase::test_leaks: pytest did not call the "
            "function of this test") in done.out, done.out


def test_processes_of_a_test_are_not_sampled(project: PyPy) -> None:
    done = run(project, """
import os
def test_x():
    assert "VMPROF_ALLOCATION_RUN" not in os.environ
    pid = os.fork()
    if not pid:
        shop.churn(5000)
        folder = __import__("tempfile").gettempdir()
        names = [name for at in os.listdir(folder) if at.startswith("allocations")
                 for name in os.listdir(os.path.join(folder, at))]
        os._exit(names != ["test.vmprof"])
    assert os.waitpid(pid, 0)[1] == 0
""", "--allocations", "--allocations-interval", "1k")
    assert done.code == 0, done.out


def test_marks_of_a_test_are_its_own(project: PyPy) -> None:
    done = run(project, """
from vmprof_allocation import mark
@pytest.mark.limit_leaks("10 kB")
def test_x(cache={}):
    mark("first")
    mark("last")
    if "x" not in cache:
        cache["x"] = bytearray(1000000)
""")
    assert done.code == 0, done.out


def test_a_test_that_samples_runs_as_without_the_plugin(project: PyPy) -> None:
    """If a test itself starts sampling, the plugin does not change its result. The
    summary reports that the test was not measured.
    """
    done = run(project, """
import vmprof_allocation
from vmprof_allocation import tracemalloc
def test_passes(tmp_path):
    with vmprof_allocation.sample(tmp_path / "x.vmprof"):
        pass
def test_fails(tmp_path):
    with vmprof_allocation.sample(tmp_path / "x.vmprof"):
        assert False, "as it should"
@pytest.mark.limit_leaks("10 kB")
def test_traces():
    tracemalloc.start()
    assert tracemalloc.is_tracing()
    tracemalloc.stop()
def test_raises():
    raise vmprof_allocation.AllocationSamplingError("of its own")
def test_measured():
    pass
""", "--allocations")
    assert done.code == 1 and "2 failed, 3 passed" in done.out, done.out
    for name in "passes", "fails", "traces":
        assert ("not measured: test_shop.py::test_%s: the test itself starts a "
                "sampler" % name) in done.out, done.out
    assert "allocations of 2 tests" in done.out


SAMPLED_ALREADY = """
@pytest.mark.limit_allocations("1 kB")
def test_passes():
    shop.churn(5000)
@pytest.mark.limit_leaks("1 kB")
def test_leaks():
    shop.grow(50000)
def test_fails():
    assert False
"""
NOT_MEASURED = "not measured: test_shop.py::test_%s: this process is already sampled"


def test_tests_run_unmeasured_under_another_sampler(project: PyPy) -> None:
    project.script("""
        import pytest, vmprof_allocation
        @pytest.fixture(autouse=True)
        def sampled(tmp_path):
            with vmprof_allocation.sample(tmp_path / "x.vmprof"):
                yield
        """, "conftest.py")
    done = run(project, SAMPLED_ALREADY)
    assert done.code == 1 and "1 failed, 2 passed" in done.out, done.out
    assert NOT_MEASURED % "passes" in done.out and NOT_MEASURED % "leaks" in done.out


def test_tests_run_unmeasured_under_tracemalloc(project: PyPy) -> None:
    project.environment["VMPROF_TRACEMALLOC"] = "5,16k"
    done = run(project, SAMPLED_ALREADY, "--allocations")
    assert done.code == 1 and "1 failed, 2 passed" in done.out, done.out
    for name in "passes", "leaks", "fails":
        assert NOT_MEASURED % name in done.out, done.out


def test_tests_run_unmeasured_under_the_command_line(project: PyPy) -> None:
    project.script("import pytest, shop\n" + SAMPLED_ALREADY, "test_shop.py")
    done = project.command(
        "-m", "vmprof", "--allocation-sampling", "64k", "-o", "x.vmprof", "-m",
        "pytest", "-q", "-p", "no:cacheprovider", PYTHONPATH=str(PACKAGES))
    assert done.code == 1 and "1 failed, 2 passed" in done.out, done.out
    assert NOT_MEASURED % "passes" in done.out and NOT_MEASURED % "leaks" in done.out


def test_start_and_end_of_the_sampler_do_not_count(project: PyPy) -> None:
    done = run(project, """
@pytest.mark.limit_allocations("4 kB")
def test_x():
    pass
""")
    assert done.code == 0, done.out
    done = run(project, "".join(
        "def test_%d():\n    pass\n" % number for number in range(10)),
        "--allocations", "--allocations-interval", "64", "--junitxml=junit.xml")
    results = [json.loads(html.unescape(found)) for found in re.findall(
        r'name="allocations" value="([^"]*)"',
        (project.folder / "junit.xml").read_text())]
    assert len(results) == 10
    # The calls of the test allocate 1.5 kB.  The start and end of the sampling, 15 kB,
    # must not count.
    assert sum(result["allocated"][0] for result in results) < 10 * 3000, results


def test_only_the_last_run_of_a_test_is_in_the_table(project: PyPy) -> None:
    done = run(project, """
runs = []
def test_x():
    runs.append(1)
    shop.churn(5000)
    assert len(runs) == 3
""", "--allocations", "--reruns", "3")
    assert done.code == 0 and "1 passed, 2 rerun" in done.out, done.out
    table = done.out.partition("allocations of 1 test ")[2]
    assert len(re.findall("test_shop.py::test_x", table)) == 1, done.out


def test_a_test_that_closes_the_profile_is_not_measured(project: PyPy) -> None:
    done = run(project, """
import os
def test_x():
    os.closerange(500, 600)
""", "--allocations")
    assert done.code == 0 and "1 passed" in done.out, done.out
    assert "not measured: test_shop.py::test_x: " in done.out


@pytest.mark.parametrize("interval", ["0", "-5", "much"])
def test_an_interval_that_makes_no_sense(project: PyPy, interval: str) -> None:
    done = run(project, "def test_x(): pass", "--allocations",
               "--allocations-interval=" + interval)
    assert done.code == 4, done.out
    assert "--allocations-interval: " in done.out + done.err, done


def test_a_failing_test_shows_only_its_own_failure(project: PyPy) -> None:
    done = run(project, """
@pytest.mark.limit_allocations("10 MB")
def test_x():
    assert shop.kept == [1]
def test_y():
    shop.churn(1)
""", "--allocations")
    assert "1 failed, 1 passed" in done.out and "assert [] == [1]" in done.out
    # The output shows no frames of the plugin.
    assert "pytest_plugin" not in done.out.partition("allocations of 2 tests")[0]


def test_a_test_that_fails_is_in_the_table(project: PyPy) -> None:
    done = run(project, """
def test_x():
    shop.churn(5000)
    assert False
def test_y():
    shop.churn(5000)
    pytest.fail("so it is")
def test_z():
    shop.churn(5000)
    pytest.skip("not here")
""", "--allocations")
    assert "2 failed, 1 skipped" in done.out, done.out
    table = done.out.partition("allocations of 3 tests")[2]
    rows = r"(?:3[789]|4[012])\.\d ±.* MiB .*test_shop.py::test_[xyz]"
    assert len(re.findall(rows, table)) == 3


def test_no_warning_about_modules_imported_before(project: PyPy) -> None:
    project.script("import vmprof_allocation", "conftest.py")
    done = run(project, """
def test_x():
    shop.churn(5000)
""", "--allocations", "-W", "error")
    assert done.code == 0, done.out + done.err


def test_xdist_hands_the_table_on(project: PyPy) -> None:
    done = run(project, "def test_x():\n    shop.churn(5000)\n", "-n1", "--allocations")
    assert re.search(r"MiB .* test_shop.py::test_x", done.out), done.out


def test_without_its_options_it_does_nothing(project: PyPy) -> None:
    done = run(project, """
import sys
def test_x():
    assert "vmprof_allocation.session.session" not in sys.modules
    assert "vmprof_convert" not in sys.modules
""")
    assert done.code == 0, done.out
