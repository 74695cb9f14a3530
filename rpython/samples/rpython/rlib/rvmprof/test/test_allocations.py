import py
from rpython.rlib.rvmprof.allocations import MAX_INTERVAL, Allocations, BadAllocations
from rpython.rtyper.test.test_llinterp import interpret


def test_what_is_asked_for():
    wanted = Allocations("interval=131072;seed=7")
    assert (wanted.interval, wanted.seed) == (131072, 7)
    wanted = Allocations("interval=%d" % MAX_INTERVAL)
    assert (wanted.interval, wanted.seed) == (MAX_INTERVAL, 0)


def test_nothing_is_asked_for():
    assert Allocations("").interval == 0


@py.test.mark.parametrize("text", [
    "interval=0", "interval=-1", "interval=", "interval=1k", "interval",
    "interval=%d" % (MAX_INTERVAL + 1), "interval=%d" % 10**30, "seed=7", "seed=-1",
    "interval=1;", ";", "interval=1;limit=5/s", "Interval=1",
    "interval= 5", "interval=+5", "interval=%d" % (2**64 + 100)])
def test_what_can_not_be_had(text):
    with py.test.raises(BadAllocations):
        Allocations(text)


def test_in_rpython():
    texts = ["", "interval=4096", "interval=%d" % (2**64 + 100), "seed=1"]

    def of(number):
        try:
            return Allocations(texts[number]).interval
        except BadAllocations:
            return -1

    assert [interpret(of, [number]) for number in range(len(texts))] == [
        0, 4096, -1, -1]
