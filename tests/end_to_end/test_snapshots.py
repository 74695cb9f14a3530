"""Test heap snapshots, which find the sampled objects that the program can still reach.

No test depends on the GC's major collections, which are rare with a large nursery.
"""
from __future__ import annotations

import pytest

from c_extension import build_boxes, build_holder
from conftest import PyPy
from found import found
from vmprof_allocation.session.snapshots import next_time
from vmprof_convert import readers

pytestmark = pytest.mark.nurseries("4M", "240M")

#: A program that keeps 200,000 lists, and makes 400,000 lists that become garbage.
MAKE = """
    def make(count):
        return [[i] for i in range(count)]
    kept = make(200000)
    len(make(400000))
"""


@pytest.mark.parametrize("flag", ["--leaks", "--retainers"])
def test_garbage_is_not_alive(stock_pypy: PyPy, flag: str) -> None:
    run = stock_pypy.sample(MAKE, "8k", flag)
    assert (run.code, run.err) == (0, "")
    profile = run.profile()
    assert len(profile.snapshots) == 1
    lists = found(profile, "list")
    lists.total().check("all", 600000, also=4000)
    lists.check("alive", 200000, also=4000)
    assert "young" not in lists.samples
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "out.vmprof").out
    assert "alive: objects that the program could reach at" in report


def test_an_object_that_only_its_finalizer_reaches_is_not_alive(
        stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
    class Resource:
        def __del__(self):
            pass
    [Resource() for i in range(100000)]
    kept = [Resource() for i in range(50000)]
    """, "4k", "--retainers")
    assert (run.code, run.err) == (0, "")
    found(run.profile(), "__main__.Resource").check("alive", 50000, also=1000)


def test_the_report_mentions_a_missing_snapshot(stock_pypy: PyPy) -> None:
    stock_pypy.sample(MAKE + "    import os; os._exit(0)\n", "8k", "--retainers")
    profile = stock_pypy.profile()
    assert not profile.snapshots
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "out.vmprof").out
    assert "\nsurvived: objects that no" in report


def test_c_extensions_hide_references(stock_pypy: PyPy) -> None:
    """C code may have references that the snapshot does not see. So if a C extension is
    loaded, the snapshot reports no object as freed.
    """
    build_holder(stock_pypy)
    run = stock_pypy.sample("    import holder\n" + MAKE, "8k", "--retainers")
    assert (run.code, run.err) == (0, "")
    profile = run.profile()
    assert not profile.snapshots
    assert profile.held and not profile.held[-1].problem
    assert "freed" not in found(profile, "list").samples
    assert not stock_pypy.sample("    import holder\n" + MAKE, "8k").profile().snapshots


def test_hpy_hides_references(stock_pypy: PyPy) -> None:
    """The snapshot does not see the fields of HPy's objects, which refer to lists."""
    if not build_boxes(stock_pypy):
        pytest.skip("this PyPy has no HPy")
    run = stock_pypy.sample("""
    import os, _hpy_universal
    boxes = _hpy_universal.load("boxes", os.path.abspath("boxes.hpy.so"))
    kept = [boxes.Box() for _ in range(20000)]
    for box in kept:
        box.put([box])
    """, "4k")
    assert (run.code, run.err) == (0, "")
    assert not run.profile().snapshots


#: ways to end a profile
ENDINGS = {
    "at the end of the program": MAKE,
    "with modules that use cffi": "    import pwd, sqlite3\n" + MAKE,
    "with a daemon thread": MAKE + """
    import threading
    def compute():
        number = 0
        while True:
            number += 1
    threading.Thread(target=compute, daemon=True).start()
    """,
    "without modules": MAKE + "    import sys; sys.modules.clear()\n",
    "by an exception": MAKE + "    import sys; sys.exit(0)\n",
    "by an interrupt": MAKE + """
    import signal
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.raise_signal(signal.SIGINT)
    """,
    "with the session's modules": MAKE + "    import vmprof_allocation\n"}


@pytest.mark.parametrize("how", ENDINGS)
def test_each_profile_ends_with_a_snapshot(stock_pypy: PyPy, how: str) -> None:
    run = stock_pypy.sample(ENDINGS[how], "8k")
    assert (run.code, run.err) == (0, "")
    profile = run.profile()
    assert len(profile.snapshots) == 1 and not profile.held
    found(profile, "list").check("alive", 200000, also=4000)


def test_session_that_is_left_on_ends_with_a_snapshot(stock_pypy: PyPy) -> None:
    run = stock_pypy.run("""
    import vmprof_allocation
    vmprof_allocation.start("out.vmprof", "8k")
    """ + MAKE)
    assert (run.code, run.err) == (0, "")
    profile = stock_pypy.profile()
    assert len(profile.snapshots) == 1
    found(profile, "list").check("alive", 200000, also=4000)


def test_stop_takes_no_snapshot(stock_pypy: PyPy) -> None:
    """A program that samples short sections would need 0.1 s more for each stop()."""
    stock_pypy.run("""
    import vmprof_allocation
    vmprof_allocation.start("out.vmprof", "64k")
    """ + MAKE + "    vmprof_allocation.stop()\n")
    assert not stock_pypy.profile().snapshots
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "out.vmprof").out
    assert " survived " in report and "\nsurvived: objects that no" in report


def test_last_snapshot_delays_neither_forks_nor_handlers(stock_pypy: PyPy) -> None:
    run = stock_pypy.run("""
    import os, signal, threading
    import vmprof_allocation
    from vmprof_allocation.engines.hook.heap_snapshot import HeapSnapshot
    session = vmprof_allocation.start("out.vmprof", "64k")
    session.settings.last_snapshot = True
    done = []
    def fork():
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        done.append("forked")
    signal.signal(signal.SIGUSR1, lambda *_: done.append("handled"))
    wait = HeapSnapshot.wait
    def check(self, seconds):
        wait(self, seconds)
        os.kill(os.getpid(), signal.SIGUSR1)
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join(5)
        print(*sorted(done))
    HeapSnapshot.wait = check
    """ + MAKE + "    session.stop()\n")
    assert (run.code, run.out, run.err) == (0, "forked handled\n", "")
    profile = stock_pypy.profile()
    assert len(profile.snapshots) == 1
    found(profile, "list").check("alive", 200000, also=4000)


@pytest.mark.parametrize("other", [
    "thread = threading.Thread(target=session.stop); thread.start(); thread.join(5)",
    "os.kill(os.getpid(), signal.SIGUSR1)"], ids=["thread", "handler"])
def test_second_stop_does_not_lose_the_last_snapshot(
        stock_pypy: PyPy, other: str) -> None:
    run = stock_pypy.run("""
    import os, signal, threading
    import vmprof_allocation
    from vmprof_allocation.engines.hook.heap_snapshot import HeapSnapshot
    session = vmprof_allocation.start("out.vmprof", "64k")
    session.settings.last_snapshot = True
    signal.signal(signal.SIGUSR1, lambda *_: session.stop())
    wait = HeapSnapshot.wait
    def stop_again(self, seconds):
        HeapSnapshot.wait = wait
        %s
        print(session.is_on)
        wait(self, seconds)
    HeapSnapshot.wait = stop_again
    """ % other + MAKE + "    session.stop()\n")
    assert (run.code, run.out, run.err) == (0, "False\n", "")
    profile = stock_pypy.profile()
    assert len(profile.snapshots) == 1
    found(profile, "list").check("alive", 200000, also=4000)


def test_handler_that_raises_during_the_last_snapshot_ends_the_sampling(
        stock_pypy: PyPy) -> None:
    run = stock_pypy.run("""
    import vmprof_allocation
    from vmprof_allocation.engines.hook.heap_snapshot import HeapSnapshot
    session = vmprof_allocation.start("out.vmprof", "64k")
    session.settings.last_snapshot = True
    def fail(self, seconds):
        raise KeyboardInterrupt
    HeapSnapshot.wait = fail
    try:
        session.stop()
    except KeyboardInterrupt:
        print(session.is_on)
    """)
    assert (run.code, run.out, run.err) == (0, "False\n", "")
    stock_pypy.profile()


def test_forked_child_ends_with_a_snapshot(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
    import os
    if os.fork():
        os.wait()
    else:
    """ + MAKE.replace("\n", "\n    "), "8k")
    assert (run.code, run.err) == (0, "")
    child, = map(readers.read, stock_pypy.folder.glob("out.*.vmprof"))
    assert len(child.snapshots) == 1
    found(child, "list").check("alive", 200000, also=4000)


@pytest.mark.parametrize("flag", ["--no-lifetimes", "--retainers"])
def test_no_second_snapshot_is_taken(stock_pypy: PyPy, flag: str) -> None:
    run = stock_pypy.sample(MAKE, "64k", flag)
    assert (run.code, run.err) == (0, "")
    assert len(run.profile().snapshots) == (flag == "--retainers")


def test_large_heap_has_no_snapshot(stock_pypy: PyPy) -> None:
    """A snapshot of a large heap would pause the program for seconds."""
    run = stock_pypy.sample("    kept = [bytes(2**20) for i in range(520)]\n", "1M")
    assert (run.code, run.err) == (0, "")
    assert not run.profile().snapshots


def test_a_leak_is_named_with_its_retainer(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
    import time
    KEPT = []
    class Session:
        def __init__(self):
            self.data = bytearray(20000)
    def request():
        junk = [str(i) * 3 for i in range(3000)]
        KEPT.append(Session())
        return len(junk)
    end = time.time() + 8
    while time.time() < end:
        request()
    print(len(KEPT))
    """, "32k", "--leaks")
    assert (run.code, run.err) == (0, "")
    profile = run.profile()
    assert len(profile.snapshots) >= 3
    kept = 20000 * int(run.out)
    first, *_, last = profile.snapshots
    # The interpreter's own objects are the difference, at most 32 MiB and 5 %.
    assert max(first.bytes, kept) < last.bytes < 1.05 * kept + 2**25
    report = stock_pypy.command("-m", "vmprof_allocation", "leaks", "out.vmprof").out
    headline, *_ = report.splitlines()
    assert headline.startswith("leak: ") and "byte array (storage)" in headline
    assert "request" in headline
    assert "held by __main__.KEPT (100 %)" in report
    assert "__main__.KEPT: +" in report
    assert "objects that heap snapshots reached at" in report


def test_a_program_takes_snapshots_by_itself(stock_pypy: PyPy) -> None:
    run = stock_pypy.run("""
    import vmprof_allocation
    session = vmprof_allocation.start("out.vmprof", "8k")
    """ + MAKE + """
    first = make(200000)
    session.snapshot()
    del first
    session.snapshot()
    vmprof_allocation.stop()
    """)
    assert (run.code, run.err) == (0, "")
    profile = stock_pypy.profile()
    assert len(profile.snapshots) == 2
    assert profile.snapshots[0].bytes > profile.snapshots[1].bytes + 200000 * 16
    found(profile, "list").check("alive", 200000, also=4000)


@pytest.mark.parametrize("how", ["weak reference", "finalizer"])
def test_objects_that_the_program_gets_back_are_alive(stock_pypy: PyPy,
                                                      how: str) -> None:
    """At the first snapshot, the objects look like garbage. Then the program gets
    strong references to them from weak references, or in finalizers.
    """
    run = stock_pypy.run("""
    import gc, weakref
    import vmprof_allocation
    back = []
    class Back:
        pass
    class Last(Back):
        def __del__(self):
            back.append(self)
    session = vmprof_allocation.start("out.vmprof", "1k")
    def make(count, kind):
        return [kind() for i in range(count)]
    made = make(40000, Last if %r == "finalizer" else Back)
    is_weak = made[0].__class__ is Back
    names = weakref.WeakValueDictionary(enumerate(made)) if is_weak else {}
    gc.collect()        # a minor collection frees young objects
    del made
    session.snapshot()
    back += names.values()
    gc.collect()
    assert len(back) == 40000
    session.snapshot()
    vmprof_allocation.stop()
    """ % how)
    assert (run.code, run.err) == (0, "")
    kind = "__main__." + ("Last" if how == "finalizer" else "Back")
    profile = stock_pypy.profile()
    assert profile.misfits == 0
    found(profile, kind).check("alive", 40000, also=1000)


def test_leaks_need_lifetimes(stock_pypy: PyPy) -> None:
    run = stock_pypy.command("-m", "vmprof", "--allocation-sampling", "8k", "--leaks",
                             "--no-lifetimes", "-o", "out.vmprof", "app.py")
    assert run.code == 2
    assert "Omit --no-lifetimes" in run.err


def test_all_types_are_known_when_sampling_stops(stock_pypy: PyPy) -> None:
    """Before sampling stops at a safepoint, the GC's slow path runs for other
    allocations. Then the object that is being allocated has no type yet.
    """
    run = stock_pypy.run("""
    import vmprof_allocation
    from vmprof_allocation.engines.hook import engine
    session = vmprof_allocation.start("out.vmprof", 1)
    reach_safepoint = engine.reach_safepoint
    def later():
        for i in range(3000):
            str(i)
        reach_safepoint()
    engine.reach_safepoint = later
    session.stop()
    """)
    assert (run.code, run.err) == (0, "")
    profile = stock_pypy.profile()
    assert profile.samples.type.count(-1) == 0
    assert found(profile, "str").total().samples["all"] >= 1000


@pytest.mark.parametrize("late", [1.0, 1.05])
@pytest.mark.parametrize("each", [0.001, 0.05, 0.3])
def test_any_run_has_three_to_compare(each: float, late: float) -> None:
    """A run of at least ten seconds has three snapshots that `--leaks` can compare; if
    a snapshot costs 0.3 s, a run of 13 seconds. The snapshot at the end does not count,
    because objects of unfinished work are already gone.
    """
    taken = [1.0]
    while taken[-1] < 10**6:
        now = taken[-1]
        taken.append(late * next_time(taken, each * len(taken), now))
    for number, time in enumerate(taken):
        assert each * number <= 0.1 * time
        if time > 10 + 10 * each:
            assert sum(0.25 * time < other < time for other in taken) >= 3
    assert len(taken) < 60
    for before, after in zip(taken, taken[1:]):
        assert after >= 1.3 * before
