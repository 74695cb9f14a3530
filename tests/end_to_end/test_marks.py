"""Test mark(), which names a moment of a program, and leak reports between marks."""
from __future__ import annotations

import pytest

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


@pytest.mark.nurseries("4M", "240M")
def test_a_planted_leak_between_marks(stock_pypy: PyPy) -> None:
    """A cache keeps 2 % of the objects that a loop makes. The loop also makes ten times
    as much garbage. The first two lines of the report show the leak.
    """
    run = stock_pypy.sample(LEAK, "4k")
    assert [mark.name for mark in run.profile().marks] == [
        "work %d \u20ac" % mark for mark in (1, 2, 3)]
    report = stock_pypy.command("-m", "vmprof_allocation", "leaks", "out.vmprof")
    assert report.code == 0
    first, second, *_ = report.out.splitlines()
    assert first.startswith("leak: __main__.Session")
    assert "handle" in first and "app.py" in first
    assert "grows by" in second


DJANGO = """
    import gc, vmprof_allocation
    from django.conf import settings
    settings.configure(SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__)
    import django
    from django.core.handlers.wsgi import WSGIHandler
    from django.http import HttpResponse
    from django.test import RequestFactory
    from django.urls import path
    class Visit(object):
        def __init__(self, number):
            self.number, self.first, self.last = number, None, None
    visits = []
    def shop(request, number):
        visit = Visit(number)
        if number % 10 == 0:
            visits.append(visit)
        return HttpResponse("<p>%s</p>" % request.path)
    urlpatterns = [path("shop/<int:number>", shop)]
    django.setup()
    requests, handler = RequestFactory(), WSGIHandler()
    def serve(start, end):
        for number in range(start, end):
            request = requests.get("/shop/%d" % number)
            assert handler.get_response(request).status_code == 200
    serve(0, 12000)
    for turn in 1, 2, 3:
        serve(12000 * turn, 12000 * (turn + 1))
        # what has a finalizer takes more than one
        for i in range(3): gc.collect()
        vmprof_allocation.mark("turn %d" % turn)
"""


# This test is slow, so it runs with only one size of the nursery.
@pytest.mark.nurseries("240M")
@pytest.mark.long(0.5)
def test_a_planted_leak_of_a_django_application(stock_pypy: PyPy) -> None:
    """The framework makes thousands of times more garbage than the application keeps.
    The first two lines of the report name the class of the kept objects, and the
    function of the application that allocates them.
    """
    stock_pypy.sample(DJANGO, "512")
    report = stock_pypy.command("-m", "vmprof_allocation", "leaks", "out.vmprof")
    assert report.code == 0
    first, second, *_ = report.out.splitlines()
    assert first.startswith("leak: __main__.Visit"), report.out
    assert " app.py:" in first and "grows by" in second


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
    assert run.out == 'invalid mark 5: write text, such as "warm"\n'


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
