"""The program names moments, and `report --leaks` compares them."""
from __future__ import annotations

from conftest import PyPy

LEAK = """
    import gc, vmprof_allocation
    class Session(object):
        def __init__(self, number):
            self.number = number
            self.data = [number] * 5
    kept = {}
    def handle(number):
        session = Session(number)
        if number % 50 == 0:
            kept[number] = session
        return session
    def garbage(number):
        return [str(number + i) for i in range(10)]
    def work(start, end):
        for number in range(start, end):
            handle(number)
            garbage(number)
    for mark in 1, 2, 3:
        work(200000 * mark, 200000 * (mark + 1))
        gc.collect()
        vmprof_allocation.mark("work %d \\u20ac" % mark)
"""


def test_a_planted_leak_between_marks(stock_pypy: PyPy) -> None:
    """A cache keeps 2 % of what a loop makes, while another function makes ten
    times more garbage: the first two lines say so."""
    run = stock_pypy.sample(LEAK, "4k")
    assert [mark.name for mark in run.profile().marks] == [
        "work %d \u20ac" % mark for mark in (1, 2, 3)]
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "--leaks",
                                "out.vmprof")
    assert report.code == 0
    first, second, *_ = report.out.splitlines()
    assert first.startswith("leak: __main__.Session")
    assert "handle" in first and "app.py" in first
    assert "grows by" in second


def test_marks_while_nothing_is_sampled(stock_pypy: PyPy) -> None:
    run = stock_pypy.command("-c", "import vmprof_allocation\n"
                             "vmprof_allocation.mark('x'); print(1)")
    assert (run.code, run.out, run.err) == (0, "1\n", "")


def test_a_mark_that_is_no_text(stock_pypy: PyPy) -> None:
    run = stock_pypy.sample("""
        import vmprof_allocation
        try:
            vmprof_allocation.mark(5)
        except vmprof_allocation.AllocationSamplingError as e:
            print(e)
    """, "64k")
    assert run.out == 'the mark 5 is no text; write for example "warm"\n'


def test_hostile_marks(stock_pypy: PyPy) -> None:
    names = ["", "\x00", "a;b:c", "\ud800", "x" * 100000, "\u202e"]
    run = stock_pypy.sample("""
        import vmprof_allocation
        for name in %r:
            vmprof_allocation.mark(name)
    """ % (names,), "64k")
    found = [mark.name for mark in run.profile().marks]
    assert found[2] == "a;b:c" and found[4] == "x" * 1024
    assert len(found) == len(names)
