"""Test the plugin's marker limit_memory, which limits the live memory of a test."""
from __future__ import annotations

import re

import pytest

from conftest import PyPy
from pytest_project import make_project, run

pytestmark = pytest.mark.xdist_group("pytest_memory")


@pytest.fixture
def project(stock_pypy: PyPy) -> PyPy:
    return make_project(stock_pypy)


@pytest.mark.nurseries("4M", "240M")
def test_test_that_holds_more_than_its_limit_fails(project: PyPy) -> None:
    """Only the test that holds 30 MB at once fails. Garbage of 300 MB, or of promoted
    objects, does not exceed a limit of 10 MB.
    """
    done = run(project, """
import collections
def fill():
    return [[None] * 1000 for number in range(3750)]
@pytest.mark.limit_memory("10 MB")
def test_holds():
    rows = fill()
    del rows
    shop.churn(100)
@pytest.mark.limit_memory("10 MB")
def test_garbage():
    row = [None] * 125000
    shop.churn(37500)
    assert row
@pytest.mark.limit_memory("10 MB")
def test_old_garbage():
    rows = collections.deque(maxlen=750)
    for number in range(12500):
        rows.append([None] * 1000)
""")
    assert done.code == 1 and "1 failed, 2 passed" in done.out, done.out
    text = " ".join(done.out.split())
    found = re.search(
        r"test_holds held at once ([\d.]+) MiB \([\d.]+ MiB .. [\d.]+ MiB, 99.99 %\); "
        r"its limit is 10 MiB This is the largest heap snapshot \((\d+) taken\). "
        r"Between two snapshots, the test can have held up to ([\d.]+) MiB.", text)
    assert found, done.out
    most, snapshots, bound = float(found[1]), int(found[2]), float(found[3])
    # The peak is 28.8 MiB.  A snapshot is taken after each increase by an eighth.
    assert 25 < most < 31 and 2 <= snapshots < 20, done.out
    assert most < bound < 35, done.out
    assert re.search(r"object array \(storage\) +<listcomp> +\S*test_shop.py:5\n",
                     done.out), done.out
    assert "not measured" not in done.out


def test_test_above_its_limit_has_few_snapshots(project: PyPy) -> None:
    """A test above its limit fails whatever it does next, so further snapshots, which
    take 0.1 s per million objects, become rare.
    """
    done = run(project, """
import collections
@pytest.mark.limit_memory("2 MB")
def test_window():
    rows = collections.deque(maxlen=750)
    for number in range(20000):
        rows.append([None] * 1000)
""")
    found = re.search(r"test_window held at once (\d\.\d+) MiB .*\n"
                      r" +This is the largest heap snapshot \((\d+) taken", done.out)
    assert found and 4.5 < float(found[1]) < 6.5, done.out
    assert int(found[2]) < 30, done.out


def test_single_object_counts(project: PyPy) -> None:
    done = run(project, """
@pytest.mark.limit_memory("10 MB")
def test_list():
    [None] * 3750000
@pytest.mark.limit_memory("10 MB")
def test_text():
    "x" * 30000000
@pytest.mark.limit_memory("10 MB")
def test_bytearray():
    row = bytearray(30000000)
@pytest.mark.limit_memory("40 MB")
def test_kept():
    row = bytearray(30000000)
""")
    assert done.code == 1 and "3 failed, 1 passed" in done.out, done.out
    found = re.findall(r"^test_\w+ held at once ([\d.]+) MiB", done.out, re.MULTILINE)
    assert found == ["28.6"] * 3, done.out


def test_memory_of_before_the_test_does_not_count(project: PyPy) -> None:
    done = run(project, """
@pytest.fixture
def rows():
    return [[None] * 1000 for number in range(3750)]
@pytest.mark.limit_memory("10 MB")
def test_uses(rows):
    shop.churn(5000)
    assert rows
""")
    assert done.code == 0, done.out
    assert "not measured" not in done.out


def test_memory_of_all_threads_counts(project: PyPy) -> None:
    done = run(project, """
import threading
@pytest.mark.limit_memory("10 MB")
def test_threads():
    threads = [threading.Thread(target=shop.grow, args=(8000000,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shop.churn(200)
""")
    assert done.code == 1, done.out
    assert re.search(r"test_threads held at once 2[23]\.\d+ MiB", done.out), done.out


def test_asynchronous_tests_and_unittest(project: PyPy) -> None:
    done = run(project, """
import asyncio, unittest
class TestCase(unittest.TestCase):
    @pytest.mark.limit_memory("10 MB")
    def test_case(self):
        row = [None] * 3750000
@pytest.mark.anyio
@pytest.mark.limit_memory("10 MB")
async def test_anyio():
    await asyncio.sleep(0)
    row = [None] * 3750000
    await asyncio.sleep(0)
@pytest.mark.asyncio
@pytest.mark.limit_memory("10 MB")
async def test_asyncio():
    row = [None] * 3750000
    await asyncio.sleep(0)
@pytest.mark.asyncio
@pytest.mark.limit_memory("10 MB")
async def test_little():
    shop.churn(5000)
    await asyncio.sleep(0)
@pytest.fixture
def anyio_backend():
    return "asyncio"
""")
    assert "3 failed, 1 passed" in done.out, done.out
    for name in "case", "anyio", "asyncio":
        assert re.search(r"test_%s(?:\[asyncio\])? held at once 28\.\d MiB" % name,
                         done.out), done.out
    assert "not measured" not in done.out


def test_asynchronous_test_that_runs_later_is_not_measured(project: PyPy) -> None:
    done = run(project, """
@pytest.mark.limit_memory("10 MB")
def test_returns():
    async def holds():
        row = [None] * 3750000
    return holds()
@pytest.mark.limit_memory("10 MB")
async def test_no_plugin():
    pass
""")
    for text in ("test_returns: the test returns an awaitable object, which runs later",
                 "test_no_plugin: pytest did not call the function of this test"):
        assert "not measured: test_shop.py::" + text in done.out, done.out


def test_all_limits_of_a_test_share_one_call(project: PyPy) -> None:
    done = run(project, """
calls = []
@pytest.mark.limit_memory("10 MB")
@pytest.mark.limit_allocations("20 MB")
def test_both():
    calls.append(1)
    assert calls == [1]
    row = [None] * 3750000
""", "--allocations")
    assert done.code == 1, done.out
    assert "test_both held at once 28.6 MiB" in done.out, done.out
    assert re.search(r"test_both allocated 28\.\d MiB", done.out), done.out
    assert "allocations of 1 test" in done.out, done.out


def test_impossible_snapshot_is_reported(project: PyPy) -> None:
    """A test does not fail if a heap snapshot is impossible. A test that needs none is
    still measured.
    """
    done = run(project, """
from vmprof_allocation.engines.hook.heap_snapshot import HeapSnapshot
HeapSnapshot.refusal = lambda self, **_: 3
HeapSnapshot.memory = 2**26, 0
@pytest.mark.limit_memory("10 MB")
def test_holds():
    row = [None] * 3750000
@pytest.mark.limit_memory("10 MB")
def test_little():
    shop.churn(5000)
""")
    assert done.code == 0 and "2 passed" in done.out, done.out
    assert ("not measured: test_shop.py::test_holds: its memory is not known: no heap "
            "snapshot is taken: ") in done.out, done.out
    assert "test_little" not in done.out, done.out


def test_functions_of_the_program_hear_of_collections(project: PyPy) -> None:
    project.script("""
        import gc, pytest
        heard = []
        def hear(statistics):
            heard.append(statistics)
        @pytest.fixture
        def heard_of():
            gc.hooks.on_gc_minor = hear
            yield heard
            assert gc.hooks.on_gc_minor is hear
        """, "conftest.py")
    done = run(project, """
import gc
@pytest.mark.limit_memory("10 MB")
def test_hears(heard_of):
    shop.churn(5000)
    assert heard_of and hasattr(heard_of[0], "pinned_objects")
@pytest.mark.limit_memory("10 MB")
def test_sets():
    gc.hooks.on_gc_minor = None
    row = [None] * 3750000
""")
    assert done.code == 0 and "2 passed" in done.out, done.out
    assert ("not measured: test_shop.py::test_sets: its memory is not known: the test "
            "itself sets gc.hooks.on_gc_minor") in done.out, done.out


def test_test_that_fails_fails_by_itself(project: PyPy) -> None:
    done = run(project, """
import gc
@pytest.mark.limit_memory("10 MB")
def test_x():
    row = [None] * 3750000
    assert shop.kept == [1]
def test_y():
    assert gc.hooks.on_gc_minor is None
""")
    assert "1 failed, 1 passed" in done.out and "assert [] == [1]" in done.out, done.out
    assert "held at once" not in done.out, done.out
