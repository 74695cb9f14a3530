"""attach --leaks: what grows in a program that runs already."""
from __future__ import annotations

import re

import pytest

from conftest import PyPy
from running import running

#: of what it keeps for a while, and then drops, one in fifty stays.  It keeps a pace
#: that a busy machine can keep, too: what grows less in the second half is no leak
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


@pytest.mark.parametrize("flags", [("--allocation-sampling", "8k"), ()])
def test_what_grows_in_a_program(stock_pypy: PyPy, flags: tuple[str, ...]) -> None:
    """With an interval, or with one that suits leaks."""
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
        assert "leave --no-lifetimes out" in run.err
        assert program.end() == "ended\n"
