"""Test attach --leaks, which shows where a running program's live memory grows."""
from __future__ import annotations

import re

import pytest

from conftest import PyPy
from running import running
from vmprof_allocation.commands.attach import next_snapshot

#: A program that drops its objects after a while, except one in fifty.  The program
#: limits its pace, so that a busy machine keeps up.  Otherwise its memory might grow
#: less in the second half of the run, and would then be no leak.
GROWS = """
    import collections, gc, select, sys, time
    class Visit:
        def __init__(self, page):
            self.page = page
            self.notes = [None] * 40
    recent = collections.deque(maxlen=20000)
    visits = []
    def count(page):
        visits.append(Visit(page))
    def answer(page):
        recent.append([page] * 20)
        if page % 50 == 0:
            count(page)
    print("ready")
    number = 0
    start = time.time()
    while not select.select([sys.stdin], [], [], max(
            start + number / 1e6 - time.time(), 0))[0]:
        for _ in range(5000):
            number += 1
            answer(number)
        if number % 1000000 == 0:
            gc.collect()
    print("ended")
"""


@pytest.mark.nurseries("4M", "240M")
@pytest.mark.parametrize("flags", [("--allocation-sampling", "8k"), ()])
def test_attach_finds_the_leak(stock_pypy: PyPy, flags: tuple[str, ...]) -> None:
    """The leak is found with a given interval, and with the default of --leaks."""
    with running(stock_pypy, GROWS) as program:
        run = program.command("-d", "5s", "--leaks", "-o", "out.vmprof", *flags)
        assert run.code == 0, run.err
        assert program.end() == "ended\n"
    assert stock_pypy.profile().settings["limit"] == ("" if flags else "50000ppm")
    leaks = re.findall(r"^leak: (.*)\n +grows by", run.out, re.MULTILINE)
    assert leaks and all("count  <string>:" in leak for leak in leaks), run.out
    assert any("__main__.Visit" in leak for leak in leaks), run.out


def test_leaks_need_lifetimes(pypy: PyPy) -> None:
    with running(pypy, GROWS) as program:
        run = program.command("--leaks", "--no-lifetimes")
        assert (run.code, run.out) == (2, "")
        assert "Omit --no-lifetimes" in run.err
        assert program.end() == "ended\n"


@pytest.mark.nurseries("4M", "240M")
def test_leak_without_major_collections(stock_pypy: PyPy) -> None:
    """Attach takes heap snapshots, which show the leak and its retainer."""
    with running(stock_pypy, """
        import select, sys
        KEPT = []
        def request():
            [str(i) for i in range(20000)]
            KEPT.append(bytearray(20000))
        print("ready")
        while not select.select([sys.stdin], [], [], 0.001)[0]:
            request()
        print("ended")
    """) as program:
        run = program.command("-d", "6s", "--leaks", "-o", "out.vmprof")
        assert run.code == 0, run.err
        assert program.end() == "ended\n"
    assert len(stock_pypy.profile().snapshots) >= 3
    assert run.out.startswith("leak: byte array (storage)"), run.out
    assert "held by __main__.KEPT (100 %)" in run.out
    assert "by retainer" not in run.out


@pytest.mark.parametrize("share", [0.0001, 0.02, 0.3])
@pytest.mark.parametrize("duration", [5.0, 60.0, 3600.0])
def test_three_snapshots_are_taken(duration: float, share: float) -> None:
    """In any duration, and at any cost of a snapshot, attach takes two to seven
    snapshots. It takes another one at the end.
    """
    now, taken = 0.3 * duration, 0
    while now < duration:
        now += share * duration
        taken += 1
        now = next_snapshot(0.0, duration, now, share * duration, is_first=taken == 1)
    assert 2 <= taken <= 7
