"""Test tracemalloc with the code that uses it.

This is code in the examples of its documentation, asyncio, warnings and pytest.
"""
from __future__ import annotations

import re
import subprocess
import sys

import pytest

from conftest import ROOT, PyPy

pytestmark = pytest.mark.xdist_group("tracemalloc")

PACKAGES = ROOT / ".build" / "pytest-pypy"

#: The functions that the examples of docs.python.org/3/library/tracemalloc.html call,
#: in their order.
EXAMPLES = {
    "top 10": ("""
        tracemalloc.start()
        work()
        snapshot = tracemalloc.take_snapshot()
        top_stats = snapshot.statistics("lineno")
        for stat in top_stats[:10]:
            print(stat)
    """, r"\S+app\.py:\d+: size=[\d.]+ [KM]iB, count=\d+, average=[\d.]+ K?i?B\n"),
    "differences": ("""
        tracemalloc.start()
        snapshot1 = tracemalloc.take_snapshot()
        work()
        snapshot2 = tracemalloc.take_snapshot()
        top_stats = snapshot2.compare_to(snapshot1, "lineno")
        for stat in top_stats[:10]:
            print(stat)
    """, r"\S+app\.py:\d+: size=[\d.]+ [KM]iB \(\+[\d.]+ [KM]iB\), "
         r"count=\d+ \(\+\d+\), average=[\d.]+ K?i?B\n"),
    "traceback of a block": ("""
        tracemalloc.start(25)
        work()
        snapshot = tracemalloc.take_snapshot()
        top_stats = snapshot.statistics("traceback")
        stat = top_stats[0]
        print("%s memory blocks: %.1f KiB" % (stat.count, stat.size / 1024))
        for line in stat.traceback.format():
            print(line)
    """, r"\d+ memory blocks: [\d.]+ KiB\n(?s:.*)app\.py\", line \d+\n"),
    "pretty top": ("""
        import linecache
        tracemalloc.start()
        work()
        snapshot = tracemalloc.take_snapshot().filter_traces((
            tracemalloc.Filter(False, "<frozen importlib._bootstrap>"),
            tracemalloc.Filter(False, "<unknown>")))
        found = snapshot.statistics("lineno")
        for number, stat in enumerate(found[:10], 1):
            frame = stat.traceback[0]
            print("#%d: %s:%s: %.1f KiB" % (
                number, frame.filename, frame.lineno, stat.size / 1024))
            print("    " + linecache.getline(frame.filename, frame.lineno).strip())
        print("%d other" % len(found[10:]))
        print("Total: %.1f KiB" % (sum(stat.size for stat in found) / 1024))
    """, r"#1: \S+app\.py:\d+: [\d.]+ KiB\n    \S(?s:.*)Total: [\d.]+ KiB\n"),
    "current and peak": ("""
        tracemalloc.start()
        work()
        first_size, first_peak = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        second_size, second_peak = tracemalloc.get_traced_memory()
        assert 0 < first_size <= first_peak and second_size <= second_peak
        print(f"{first_size=}, {first_peak=}")
        print(f"{second_size=}, {second_peak=}")
    """, r"first_size=\d+, first_peak=\d{6,}\nsecond_size=\d+, second_peak=\d+\n"),
}

PROLOGUE = """
import tracemalloc
kept = []
def work():
    for number in range(100000):
        kept.append("text %d" % number)
"""


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_cpythons_documentation(stock_pypy: PyPy, name: str) -> None:
    source, expected = EXAMPLES[name]
    (stock_pypy.folder / "sitecustomize.py").write_text(
        "from vmprof_allocation import tracemalloc\ntracemalloc.install()\n")
    script = stock_pypy.script(source)
    script.write_text(PROLOGUE + script.read_text())
    run = stock_pypy.command(str(script), PYTHONPATH=str(stock_pypy.folder))
    assert (run.code, run.err) == (0, "")
    assert re.match(expected, run.out), run.out


def test_an_unclosed_event_loop_has_a_traceback(stock_pypy: PyPy) -> None:
    """For the warning about an unclosed loop, the module warnings looks up where the
    loop was allocated.
    """
    run = stock_pypy.command(
        "-W", "always::ResourceWarning", str(stock_pypy.script("""
        import asyncio, gc
        def opens():
            loop = asyncio.new_event_loop()
            loop.run_until_complete(asyncio.sleep(0))
        opens()
        for i in range(3): gc.collect()
        """)), VMPROF_TRACEMALLOC="25,1")
    assert run.code == 0
    assert re.search(r"ResourceWarning: unclosed event loop .*\n(?:.*\n)*?"
                     r"Object allocated at \(most recent call last\):\n"
                     r"(?:.*\n)*?.*app\.py.*\n.*loop = asyncio\.new", run.err), run.err


def needs_pytest() -> None:
    if not PACKAGES.exists():
        pytest.fail("%s is missing: run `make test`, which installs it"
                    % PACKAGES.relative_to(ROOT))


def test_pytest_shows_where_a_resource_was_allocated(stock_pypy: PyPy) -> None:
    needs_pytest()
    stock_pypy.script("""
        import asyncio, gc

        def opens():
            asyncio.new_event_loop()

        def test_that_leaves_it_open():
            opens()
            for i in range(3): gc.collect()
        """, "test_shop.py")
    run = stock_pypy.command(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:anyio",
        "-W", "always::ResourceWarning",
        PYTHONPATH=str(PACKAGES), VMPROF_TRACEMALLOC="25,1", COLUMNS="120")
    assert "unclosed event loop" in run.out
    assert re.search(r"Object allocated at.*\n(?:.*\n)*?.*test_shop\.py.*\n"
                     r" +opens\(\)\n.*\n +asyncio\.new_event", run.out), run.out


#: A test module with three resources that are never closed, in functions whose last
#: lines are numbered below.
UNCLOSED = """\
import gc, socket, warnings

def opens():
    open("/dev/null")

def connects():
    socket.socket()

class Shop:
    def __del__(self):
        warnings.warn("unclosed shop", ResourceWarning, source=self)

def makes():
    Shop()

def test_that_leaves_them():
    for make in opens, connects, makes:
        make()
        for i in range(3): gc.collect()
"""
#: The last line of each of these functions.
OPENS, CONNECTS, CLASS, MAKES = 4, 7, 11, 14


def names(out: str) -> set[tuple[str, int]]:
    """Return each resource in pytest's output, and where the resource was allocated.

    The place is the last line of the allocating function, for the functions above.
    """
    found = set()
    for part in out.split("PytestUnraisableExceptionWarning: ")[1:]:
        what = re.search(r"FileIO|socket\.socket|unclosed shop", part)
        numbers = re.findall(r'File "[^"]*test_shop\.py", line (\d+)',
                             part.partition("Object allocated at:")[2])
        assert what is not None and numbers, part
        found.add((what[0], next(last for last in (OPENS, CONNECTS, CLASS, MAKES)
                                 if int(numbers[-1]) <= last)))
    return found


def test_pytest_where_such_warnings_are_errors(stock_pypy: PyPy) -> None:
    """An error in a finalizer reaches only sys.unraisablehook, with an object: the file
    or the socket, or the function of a finalizer in Python. pytest looks up this object
    in tracemalloc, in CPython as well.
    """
    needs_pytest()
    path = stock_pypy.script(UNCLOSED, "test_shop.py")
    flags = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:anyio", "-W",
             "error::ResourceWarning", path.name)
    run = stock_pypy.command(*flags, PYTHONPATH=str(PACKAGES),
                             VMPROF_TRACEMALLOC="25,1")
    assert names(run.out) == {("FileIO", OPENS), ("socket.socket", CONNECTS),
                              ("unclosed shop", CLASS)}, run.out
    cpython = subprocess.run([sys.executable, "-X", "tracemalloc=1", *flags],
                             cwd=path.parent, text=True, capture_output=True)
    assert names(cpython.stdout) == names(run.out), cpython.stdout
