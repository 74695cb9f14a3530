"""How many major collections objects survived: `--survived`, against a heap of which
everything is known."""
from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from made_heap import FOREVER, Heap
from report_runs import lines, refused, report
from vmprof_convert import readers
from vmprof_convert.analysis.summary import FUNCTION, Choice, Figures, summarize
from vmprof_convert.meaning.estimator import Mean
from vmprof_convert.meaning.lifetimes import FREED_LATER, STILL_ALIVE

#: such an interval leaves no object out
EACH = 1
#: of fewer objects there may be no sample
FEW = 300


def made(interval: int, seed: int = 1) -> Heap:
    """What one function makes dies between two major collections, what another one
    makes lives through some, and a third one's for ever."""
    heap = Heap(interval=interval, seed=seed, nursery=4000, minors=5)
    rng = random.Random(seed)
    for _ in range(4000):
        heap.allocate("main short", ("a", 24, rng.expovariate(1 / 8000)))
        heap.allocate("main long", ("b", 8 * rng.randrange(3, 9),
                                    rng.expovariate(1 / 60_000)),
                      ("c", 16, 10))
        if rng.random() < 0.1:
            heap.allocate("main keep", ("d", 64, math.inf))
    heap.collect()
    heap.allocate("main keep", ("d", 64, math.inf))
    return heap


def truth(heap: Heap, at: int | None = None) -> dict[tuple[str, str], list[int]]:
    """Of each object, by function and state."""
    last = FOREVER - 1 if at is None else at
    found: dict[tuple[str, str], list[int]] = {}
    for object_ in heap.objects:
        if object_.birth > last or (object_.died_young and object_.collected <= last):
            continue
        met = [major for major in heap.majors if object_.collected < major <= last]
        dead = [major for major in met if object_.death <= major]
        key = object_.function, FREED_LATER if dead else STILL_ALIVE
        found.setdefault(key, []).append(len(met) - len(dead))
    return found


def estimated(heap: Heap, at: int | None = None) -> dict[str, Figures]:
    summary = summarize(readers.read_bytes(heap.data()), None,
                        Choice((FUNCTION,), at=at, survived=True))
    return {row.function.name: row.own for row in summary.rows}


def pairs(heap: Heap, at: int | None = None) -> Iterator[tuple[float, Mean]]:
    found = estimated(heap, at)
    for (function, state), numbers in truth(heap, at).items():
        if len(numbers) < FEW and heap.interval > EACH:
            continue
        mean = found[function].survived(state)
        assert mean is not None
        yield sum(numbers) / len(numbers), mean


@pytest.mark.slow
@pytest.mark.parametrize("share", [None, 0.2, 0.6, 1.0])
def test_of_each_object_it_is_counted(share: float | None) -> None:
    heap = made(EACH)
    at = None if share is None else int(heap.now * share)
    found = list(pairs(heap, at))
    assert len(found) == 5
    for exact, mean in found:
        assert mean.value == pytest.approx(exact, abs=1e-5)
    # some survive several, and some that are freed none
    numbers = truth(heap, at)
    assert max(numbers["long", FREED_LATER]) > 1
    assert min(numbers["short", FREED_LATER]) == 0


@pytest.mark.slow
def test_of_samples_it_is_estimated() -> None:
    off = []
    for seed in range(30):
        for exact, mean in pairs(made(500, seed)):
            assert mean.high is not None and mean.low is not None
            assert mean.low <= mean.value <= mean.high
            off.append(abs(mean.value - exact) / ((mean.high - mean.value) / 1.96))
    assert len(off) == 120
    # of normal deviates, one in 16,000 is beyond 4, and five in a hundred beyond 1.96
    assert max(off) < 4.5
    assert sum(number > 1.96 for number in off) < 16


def test_what_nobody_asked_for_is_not_there() -> None:
    summary = summarize(readers.read_bytes(made(500).data()))
    assert summary.figures.survived(STILL_ALIVE) is None


# ________________________________________
# what users see


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "app.vmprof"
    path.write_bytes(made(500).data())
    return path


def test_two_columns_more(path: Path) -> None:
    without, found = lines(path), lines(path, "--survived")
    title = next(line for line in found if " where" in line)
    assert "freed after" in title and "alive after" in title
    assert "freed after" not in "".join(without)
    (row,) = [line for line in found if line.endswith(" app.py:4")]
    # nothing that is kept is freed
    assert row.split("keep")[0].rstrip().split("  ")[-1].count("\u00b1") == 1
    (note,) = [line for line in found if line.startswith("freed after")]
    assert note == ("freed after, alive after: so many major collections an object had "
                    "survived, on average, before one found it dead, or until now")


def test_alive_stands_beside_in_100_columns(tmp_path: Path) -> None:
    """However long names are: "alive after" is about these bytes."""
    heap = Heap(interval=200)
    for number in range(4000):
        heap.allocate("main a_function_with_quite_a_long_name_that_says_all",
                      ("a.Class", 64, 1e12 if number % 10 == 0 else 20_000))
    path = tmp_path / "app.vmprof"
    path.write_bytes(heap.data())
    found = report(path, "--survived", width=100).stdout.splitlines()
    title, = [line for line in found if re.match(" *allocated +%", line)]
    assert re.search("  alive  (.*  )?freed after  alive after  function", title)
    # what is left out is what nobody asked about
    assert "died young" not in title


def test_for_programs(path: Path) -> None:
    done = report(path, "--json", "--survived", "--by", "function")
    assert (done.returncode, done.stderr) == (0, "")
    summary = summarize(readers.read(path), None, Choice((FUNCTION,), survived=True))
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == len(summary.rows) == 4
    for row, expected in zip(rows, summary.rows):
        for key, state in ("freed_later", FREED_LATER), ("alive", STILL_ALIVE):
            mean = expected.own.survived(state)
            assert row["self"][key]["survived"] == (
                None if mean is None else mean._asdict())
        assert "survived" not in row["self"]["died_young"]
    assert '"survived"' not in report(path, "--json").stdout


def test_threads_and_filters_leave_their_own(path: Path) -> None:
    """All is of one thread: the same comes out, by the way that filters go."""
    whole = json.loads(report(path, "--json", "--survived").stdout)
    thread = str(readers.read(path).samples.thread[0])
    for options in ("--thread", thread), ("--function", "main"):
        found = json.loads(report(path, "--json", "--survived", *options).stdout)
        assert found["rows"] == whole["rows"]


def test_where_it_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "app.vmprof"
    heap = Heap(facts="types")
    heap.allocate("main", ("a", 5000, 0))
    path.write_bytes(heap.data())
    assert refused(path, "--survived").endswith(
        "nothing in this profile says what became of the objects, which --survived "
        "needs: it was taken without lifetimes")
    assert refused(path, "--survived", "--of", "rss").endswith(
        "--survived is about bytes: leave out --of rss")
