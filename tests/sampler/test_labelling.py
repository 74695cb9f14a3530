"""Allocations in a block of labels() get its labels, in threads and in tasks."""
from __future__ import annotations

from pathlib import Path

import pytest

from conftest import PyPy
from truth import SIGMAS
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.probability import probability

#: size of a list's items in bytes; the list's header is additional
SIZE = 4000
#: interval that samples every object
EXACT = 1
PROGRAM = """
    import vmprof_allocation
    from vmprof_allocation import labels
    kept = []
    def make(count):
        for _ in range(count):
            kept.append([None] * %d)
        del kept[:]
""" % (SIZE // 8)


def made(profile: Profile, key: str = "k") -> dict[str, float]:
    """Return the estimated number of lists of SIZE bytes for each value of a label."""
    samples = profile.samples
    found: dict[str, float] = {}
    for stack, size, interval in zip(samples.stack, samples.size, samples.interval):
        if SIZE < size < SIZE + 100:
            value = profile.labels_of(stack).get(key, "")
            found[value] = found.get(value, 0) + 1 / probability(
                size, interval, profile.gaps)
    return {value: round(count, 3) for value, count in found.items()}


def test_labels_can_be_nested_and_end_with_an_exception(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(PROGRAM + """
    make(10)
    with labels(k="a", other=1) as here:
        make(20)
        with labels(k="b"):
            make(30)
        make(1)
        here.update(k="c")
        make(40)
        try:
            with labels(k="d"):
                make(2)
                raise ValueError
        except ValueError:
            make(50)
    make(3)
    """, str(EXACT))
    assert made(run.profile()) == {"": 13, "a": 21, "b": 30, "c": 90, "d": 2}
    assert made(run.profile(), "other") == {"": 13, "1": 143}


def test_each_thread_has_its_own_labels(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(PROGRAM + """
    import threading
    def work(name, count):
        mine = []
        with labels(k=name):
            for _ in range(count):
                mine.append([None] * 500)
    with labels(k="main"):
        threads = [threading.Thread(target=work, args=("t%d" % i, 1000 * (i + 1)))
                   for i in range(4)]
        for thread in threads: thread.start()
        make(500)
        for thread in threads: thread.join()
    """, "16k")
    found = made(run.profile())
    wanted = {"main": 500, **{"t%d" % i: 1000 * (i + 1) for i in range(4)}}
    for name, count in wanted.items():
        p = probability(SIZE + 32, 16384, "exponential")
        assert abs(found[name] - count) < SIGMAS * (count * (1 - p) / p) ** 0.5, found


def test_each_task_of_asyncio_has_its_own_labels(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(PROGRAM + """
    import asyncio, concurrent.futures
    async def task(name, count):
        with labels(k=name):
            for _ in range(count):
                make(1)
                await asyncio.sleep(0)
            await asyncio.to_thread(make, 7)
        make(1)
    async def main():
        await asyncio.gather(*(task(str(i), 100 * i) for i in range(1, 4)))
        with labels(k="before"):
            later = asyncio.ensure_future(task("inner", 5))
            # in the context that it was scheduled from
            asyncio.get_running_loop().call_soon(make, 11)
        make(13)
        await later
    asyncio.run(main())
    make(17)
    """, str(EXACT))
    assert made(run.profile()) == {
        "1": 107, "2": 207, "3": 307, "inner": 12, "before": 12, "": 3 + 13 + 17}


def test_labels_that_began_before_the_sampling(stock_pypy: PyPy) -> None:
    run = stock_pypy.run(PROGRAM + """
    import asyncio
    async def main():
        with labels(k="before"):
            vmprof_allocation.start("out.vmprof", 1)
            make(10)
            await asyncio.sleep(0)
            make(20)
        make(30)
    asyncio.run(main())
    vmprof_allocation.stop()
    """)
    assert (run.code, run.err) == (0, "")
    assert made(run.profile()) == {"before": 30, "": 30}


def test_second_run_begins_without_labels(stock_pypy: PyPy) -> None:
    """The labels of a thread end with the run in which they began."""
    run = stock_pypy.run(PROGRAM + """
    import threading
    begun, go_on = threading.Event(), threading.Event()
    def work():
        with labels(k="thread"):
            make(5)
        inside = labels(k="left")
        inside.__enter__()
        begun.set()
        go_on.wait()
        inside.__exit__()       # nothing is sampled now
        begun.set()
        again.wait()
        make(7)
    again = threading.Event()
    with vmprof_allocation.sample("first.vmprof", 1):
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
    begun.clear()
    go_on.set()
    begun.wait()
    with vmprof_allocation.sample("out.vmprof", 1):
        again.set()
        thread.join()
    """)
    assert (run.code, run.err) == (0, "")
    assert made(run.profile()) == {"": 7}


def test_contextvars_are_restored(stock_pypy: PyPy) -> None:
    run = stock_pypy.run(PROGRAM + """
    import _contextvars
    before = _contextvars.set_contextvar_context
    with labels(k="a"):
        assert _contextvars.set_contextvar_context is before
        with vmprof_allocation.sample("out.vmprof", 1):
            assert _contextvars.set_contextvar_context is not before
            make(1)
        assert _contextvars.set_contextvar_context is before
    """)
    assert (run.code, run.err) == (0, "")


def test_program_without_labels_does_not_load_their_module(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
        import sys, _contextvars
        assert "vmprof_allocation.session.labelling" not in sys.modules
        assert _contextvars.set_contextvar_context.__module__ == "__pypy__", (
            _contextvars.set_contextvar_context)
        """, "1k")
    assert run.profile().labels == [{}]


def test_child_inherits_the_labels(stock_pypy: PyPy) -> None:
    stock_pypy.sample(PROGRAM + """
    import os
    with labels(k="parent"):
        make(10)
        if os.fork() == 0:
            make(20)
            with labels(k="child"):
                make(30)
            make(1)
            os._exit(0)
        os.wait()
    """, str(EXACT))
    child, = stock_pypy.folder.glob("out.*.vmprof")
    assert made(readers.read(child)) == {"parent": 21, "child": 30}


def test_next_profile_of_a_run_has_the_labels(stock_pypy: PyPy) -> None:
    run = stock_pypy.run(PROGRAM + """
    with vmprof_allocation.sample("out.vmprof", 1) as session:
        with labels(k="a"):
            make(10)
            session.rotate("second.vmprof")
            make(20)
        make(30)
    """)
    assert (run.code, run.err) == (0, "")
    paths = [stock_pypy.folder / name for name in ("out.vmprof", "second.vmprof")]
    first, second = map(readers.read, paths)
    assert made(first) == {"a": 10} and made(second) == {"a": 20, "": 30}
    assert made(readers.read(paths)) == {"a": 30, "": 30}


def test_excessive_sets_of_labels_are_counted_together(stock_pypy: PyPy) -> None:
    """Labels with few values are still recorded."""
    run = stock_pypy.sample(PROGRAM + """
    for number in range(12000):
        with labels(endpoint="/%d" % (number % 3)):
            with labels(k=number):
                kept.append([None] * 500)
                kept.clear()
    with labels(endpoint="/0"):
        with labels(k=0):
            make(1)
        with labels(k="new"):
            make(10)
        with labels(other="new"):
            make(20)
    """, "128", jit="off")
    # At this interval, each list is a sample.  The JIT's own arrays could have the size
    # of these lists.
    profile = run.profile()
    found = made(profile)
    told = len(found) - 2       # without "[too many]" and ""
    assert 8900 < told < 9100 and found["0"] == 2 and found[""] == 20
    assert found["[too many]"] == 12000 - told + 10
    assert made(profile, "endpoint") == {"/0": 4031, "/1": 4000, "/2": 4000}
    assert made(profile, "other")["[too many]"] == 20


def test_labels_of_more_than_a_kilobyte_are_cut(stock_pypy: PyPy) -> None:
    """Values that were cut end with an ellipsis, and all other labels are correct."""
    run = stock_pypy.sample(PROGRAM + """
    long = {"l%d" % i: chr(0x1f600 + i) * 200 for i in range(4)}
    with labels(k="short", **long):
        make(1)
    with labels(**{"%d" % i * 200: "v" for i in range(9)}):
        make(2)
    """, str(EXACT))
    profile = run.profile()
    assert made(profile)["short"] == 1
    labels, = (labels for labels in profile.labels if "k" in labels)
    for i in range(4):
        value = labels["l%d" % i]
        assert value.endswith("\u2026") and set(value[:-1]) == {chr(0x1f600 + i)}
    assert all(value == "v" for labels in profile.labels[1:] if "k" not in labels
               for value in labels.values())


def test_keys_of_more_than_a_kilobyte(stock_pypy: PyPy) -> None:
    """A value of two characters is not cut, because its cut form is as long."""
    run = stock_pypy.sample(PROGRAM + """
    for value in "vv", "www":
        with labels(**{"%d" % i * 200: value for i in range(9)}):
            make(2)
    """, str(EXACT))
    assert [set(labels.values()) for labels in run.profile().labels[1:]] == [
        {"vv"}, {"w\u2026"}]


@pytest.mark.parametrize("value", ["é\x1f=\0\n", "x" * 1000, None])
def test_values_of_any_kind(stock_pypy: PyPy, value: object) -> None:
    run = stock_pypy.sample(PROGRAM + """
    with labels(**{"k": %r, "a=b": "c"}):
        make(1)
    """ % (value,), str(EXACT))
    wanted = str(value)[:200].replace("\x1f", "?").replace("\0", "?")
    assert made(run.profile()) == {wanted: 1}
    assert made(run.profile(), "a?b") == {"c": 1}


def test_labels_do_nothing_without_sampling(stock_pypy: PyPy) -> None:
    run = stock_pypy.run(PROGRAM + """
    import sys
    with labels(k="a") as here:
        here.update(k="b")
        make(1)
    assert "vmprof_allocation.session.session" not in sys.modules
    """)
    assert (run.code, run.err) == (0, "")
    assert not Path(run.path).exists()


def test_cpu_samples_have_labels(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample(PROGRAM + """
    import time
    def spin(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
    with labels(k="a"):
        spin(0.6)
    spin(0.2)
    """, "1M", "--period", "0.01")
    profile = run.profile()
    ticks = [profile.labels_of(stack).get("k", "") for stack, size in zip(
        profile.samples.stack, profile.samples.size) if not size]
    assert ticks.count("a") > 20 and ticks.count("") > 5
