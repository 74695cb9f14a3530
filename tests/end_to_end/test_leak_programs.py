"""Test the growth of several leaks in one program.

The GC's count for a program with only one of the leaks gives the true value.
"""
from __future__ import annotations

import json

import pytest

from conftest import PyPy

#: PROGRAM has all leaks, or with an argument only the leak of this name, whose growth
#: it then prints.  The report compares the last two of the program's three rounds.
pytestmark = pytest.mark.nurseries("4M", "240M")

PROGRAM = """
    import array, collections, gc, random, sys, tempfile
    ONLY = sys.argv[1] if len(sys.argv) > 1 else ""

    class Session(object):
        def __init__(self, number):
            self.name = "session %d" % number
            self.data = [self.name + "a", self.name + "b"]
            self.notes = {"at": "x%d" % number}
    class Row(object):
        __slots__ = ("next", "text")
        def __init__(self, text):
            self.next, self.text = None, text

    sessions, texts, rows, ratios, names = [], [], collections.deque(), [], {}
    def keep_session(number):
        sessions.append(Session(number))
    def text_of(number):
        return "text %d " % number * 3
    def keep_text(number):
        texts.append(text_of(number))
    def keep_row(number):
        row = Row("row")
        row.next = [Row("next") for i in range(2)]
        rows.append(row)
    def keep_name(number):
        names["name %d" % number] = None
    def keep_ratio(number):
        ratios.append(number / 7.0)
    LEAKS = [(keep_session, 24), (keep_text, 9), (keep_row, 20), (keep_name, 14),
             (keep_ratio, 2)]

    waiting, cache = collections.deque(), {}
    def wait(number):
        waiting.append({"job": "job %d" % number})
        if len(waiting) > 2000 and random.random() < 0.01:
            for i in range(random.randrange(len(waiting))):
                waiting.popleft()
    def look_up(number):
        key = "key %d" % (number % 5000)
        if key not in cache:
            cache[key] = [key] * 4
    def garbage(number):
        return [str(number + i) for i in range(50)]

    def work(numbers):
        for number in numbers:
            if not ONLY:
                garbage(number)
                wait(number)
                look_up(number)
            for leak, each in LEAKS:
                if number % each == 0 and ONLY in ("", leak.__name__):
                    leak(number)

    def heap():
        # of each object: address, type, size, what it refers to, -1
        with tempfile.TemporaryFile() as file:
            gc.dump_rpy_heap(file.fileno())
            file.seek(0)
            words = array.array("q", file.read()).tolist()
        total = at = 0
        while at < len(words):
            total += words[at + 2]
            at = words.index(-1, at + 3) + 1
        return total

    if ONLY == "":
        import vmprof_allocation
    found = []
    for turn in range(3):
        work(range(100000 * turn, 100000 * (turn + 1)))
        for i in range(3): gc.collect()
        if ONLY:
            found.append(heap())
        else:
            vmprof_allocation.mark("round %d" % turn)
    if ONLY:
        print(found[2] - found[0])
"""
#: The leaks by size, the largest first.
LEAKS = ("keep_session", "keep_row", "keep_name", "keep_text", "keep_ratio")


@pytest.mark.long(0.5)
def test_each_of_several_leaks_has_its_size(stock_pypy: PyPy) -> None:
    """The leaks keep objects with a dict and lists that a constructor makes, texts that
    another function makes, objects that a comprehension makes, and the keys and the
    table of a dict. The last leak is a list of floats that only grows. It is a single
    object, which is reported as the largest allocation site of the rest.
    """
    truth = {}
    for name in LEAKS:
        # Without the JIT, because the JIT's memory would count in the GC's growth.
        run = stock_pypy.run(PROGRAM, name, jit="off")
        assert run.code == 0, run.err
        truth[name] = int(run.out)
    stock_pypy.sample(PROGRAM, "1k")
    report = stock_pypy.command("-m", "vmprof_allocation", "leaks", "--json",
                                "out.vmprof")
    assert report.code == 0, report.err
    found = json.loads(report.out)
    growth = {}
    for leak in found["leaks"] + found["rest"]["places"]:
        name = leak["places"][0]["function"]["name"]
        growth[name] = leak["growth"]
    # text_of() allocates the texts, and keep_text() the list that keeps them.
    made, kept = growth.pop("text_of"), growth.pop("keep_text")
    growth["keep_text"] = {key: made[key] + kept[key] for key in made}
    for name in LEAKS:
        low, value, high = (growth[name][key] for key in ("low", "value", "high"))
        # The tolerance is five standard deviations.
        assert value - 2.5 * (value - low) < truth[name] < (
            value + 2.5 * (high - value)), (name, truth, growth[name])
    named = [leak["places"][0]["function"]["name"] for leak in found["leaks"]]
    assert {"keep_session", "keep_row", "keep_name", "text_of"} <= set(named)
    assert all(leak["stayed"] is None or leak["stayed"] > 0.9
               for leak in found["leaks"]), found["leaks"]
    assert "keep_ratio" in [place["places"][0]["function"]["name"]
                            for place in found["rest"]["places"][:3]]
    assert sum(part["growth"]["value"] for part in (
        *found["leaks"], *found["slowing"], found["rest"])) == pytest.approx(
            found["growth"]["value"])


@pytest.mark.nurseries("4M")     # The first use of a larger nursery counts as growth.
@pytest.mark.parametrize("kept", [
    "(ctypes.c_char * 200000).from_buffer_copy(bytes([1]) * 200000)",
    'array.array("b", [1]) * 200000'])
def test_memory_of_c_code_is_reported_as_outside_the_heap(stock_pypy: PyPy,
                                                          kept: str) -> None:
    """The program keeps 40 MB of C memory, while the GC's heap has a constant size."""
    stock_pypy.sample("""
        import array, ctypes, gc, time, vmprof_allocation
        kept = []
        def work():
            return [str(i) * 5 for i in range(3000)]
        def step():
            kept.append(%s)
        for turn in range(3):
            gc.collect()
            # memory is read each tenth of a second
            time.sleep(0.25)
            gc.collect()
            vmprof_allocation.mark("turn")
            time.sleep(0.25)
            for i in range(100 if turn < 2 else 0):
                work()
                step()
        """ % kept, "16k")
    text = stock_pypy.command("-m", "vmprof_allocation", "leaks", "out.vmprof")
    assert text.code == 0, text.err
    lines = text.out.splitlines()
    assert lines[0].startswith("outside of the GC's heap, the process grew by "), lines
    assert "C extensions" in lines[1] + lines[2]
    report = stock_pypy.command("-m", "vmprof_allocation", "leaks", "--json",
                                "out.vmprof")
    memory = json.loads(report.out)["memory"]
    assert memory["is_far"]
    report = stock_pypy.command("-m", "vmprof_allocation", "report", "--of", "rss",
                                "--by", "function", "--json", "out.vmprof")
    rows = {row["function"]["name"]: row["self"]
            for row in json.loads(report.out)["rows"]}
    assert rows["[outside of the GC's heap]"] > 200 * 200000 * 0.9
    assert rows.get("<listcomp>", 0) < 200 * 200000 * 0.1
    assert 200 * 200000 * 0.95 < memory["outside_heap"] < 200 * 200000 * 1.1 + 2**20
