"""attach --leaks, and ctl collect: programs in which the collector has little to do."""
from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from conftest import PyPy
from controlled import done, prepared, refused
from running import Running, running
from vmprof_convert import readers

#: makes no garbage worth a major collection
SLOW = """
    import select, sys
    %s
    class Answer:
        pass
    def answer(page):
        count(page)
        return [Answer() for i in range(20)]
    print("ready")
    number = 0
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        number += 1
        answer(number)
    print("ended")
"""
#: a little of each request is kept
LEAKS = SLOW % """
    class Visit:
        def __init__(self, page):
            self.page = page
            self.notes = [None] * 40
    visits = []
    def count(page):
        visits.append(Visit(page))
    """
CLOSES = SLOW % """
    class Link:
        def __init__(self, held):
            self.held = held
        def __del__(self):
            pass
    def count(page):
        Link(Link(Link(Link([None] * 40))))
    """


def check_leaks(report: str) -> None:
    leaks = re.findall(r"^leak: (.*)\n +grows by", report, re.MULTILINE)
    assert leaks and all("count  <string>:" in leak for leak in leaks), report
    assert any("__main__.Visit" in leak for leak in leaks), report


def test_what_grows_in_a_program_with_little_traffic(stock_pypy: PyPy) -> None:
    with running(stock_pypy, LEAKS) as program:
        run = program.attach("--leaks", duration=4, interval="64")
        assert program.end() == "ended\n"
    check_leaks(run.out)
    profile = stock_pypy.profile()
    assert [mark.name for mark in profile.marks] == ["attach"] * 3


def test_what_is_collected_is_up_to_the_command(stock_pypy: PyPy) -> None:
    with running(stock_pypy, LEAKS) as program:
        program.attach(duration=1, interval="64")
        assert program.end() == "ended\n"
    assert stock_pypy.profile().marks == []


def test_what_waits_for_finalizers_is_no_leak(stock_pypy: PyPy) -> None:
    """Those of a connection, its statements, and what they hold in C, are called one
    collection after the other, and what they hold is alive until then."""
    with running(stock_pypy, CLOSES) as program:
        run = program.attach("--leaks", duration=4, interval="64")
        assert program.end() == "ended\n"
    assert "__main__.Link" in [type_.python for type_ in stock_pypy.profile().types]
    assert not re.search("^leak: ", run.out, re.MULTILINE), run.out


def test_leaks_with_an_interval_that_suits_them(stock_pypy: PyPy) -> None:
    with running(stock_pypy, LEAKS) as program:
        run = program.command("-d", "4", "--leaks", "-o", "out.vmprof")
        assert run.code == 0, run.err
        assert program.end() == "ended\n"
    assert stock_pypy.profile().settings["limit"] == "50000ppm"
    check_leaks(run.out)


def test_leaks_need_lifetimes(pypy: PyPy) -> None:
    with running(pypy, LEAKS) as program:
        run = program.command("--leaks", "--no-lifetimes")
        assert (run.code, run.out) == (2, "")
        assert "leave --no-lifetimes out" in run.err
        assert program.end() == "ended\n"


@pytest.fixture
def slow(stock_pypy: PyPy) -> Iterator[Running]:
    with prepared(stock_pypy, LEAKS) as program:
        yield program
        assert program.end() == "ended\n"


def test_ctl_collects(stock_pypy: PyPy, slow: Running) -> None:
    assert "is not on" in refused(stock_pypy, slow, "collect")
    done(stock_pypy, slow, "start", "-o", "out.vmprof", "--allocation-sampling", "64")
    for _ in range(3):
        time.sleep(1)
        assert "has collected" in done(stock_pypy, slow, "collect")
    done(stock_pypy, slow, "stop")
    profile = readers.read(stock_pypy.folder / "out.vmprof")
    assert [mark.name for mark in profile.marks] == ["ctl"] * 3
    run = stock_pypy.command("-m", "vmprof_allocation", "report", "--leaks",
                             "out.vmprof")
    check_leaks(run.out)
