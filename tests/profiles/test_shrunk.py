"""Tests of objects that the program shrinks after their allocation.

For example, a socket's recv(65536) reserves 65536 bytes for a message of 100 bytes. The
object counts as allocated with the reserved bytes, and as alive with the bytes that it
takes. Its sampling probability depends on the reserved bytes.
"""
from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import report_runs
from made_profiles import Log
from vmprof_convert import readers
from vmprof_convert.analysis import diff
from vmprof_convert.analysis.by_stack import values
from vmprof_convert.analysis.leaks.search import OldObjects, Process, find_leaks
from vmprof_convert.analysis.process_memory import growth
from vmprof_convert.analysis.summary import FUNCTION, TYPE, Choice, Tally, summarize
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.estimator import Sum
from vmprof_convert.meaning.lifetimes import STILL_ALIVE
from vmprof_convert.profile.model import Profile
from vmprof_convert.profile.probability import probability
from vmprof_convert.writers import firefox

RESERVED, TAKEN = 65536, 128


def received() -> Log:
    """Return a log of five messages, which are all sampled (interval 1).

    Message 1 died. Message 2 was shrunk and is alive. Message 3 is alive with its
    allocated size. Message 4 was shrunk and freed. Message 5 was shrunk and is in the
    nursery.
    """
    log = Log()
    main, receive = log.function("main"), log.function("receive", 5)
    log.settings(interval=1, facts="types,lifetimes")
    text = log.type("bytes")
    for key in range(5):
        log.allocation([main, receive], size=RESERVED, interval=1, time=10 + key)
    log.collection(500)
    for key, outcome in enumerate((0, 1, 1, 1, 4), 1):
        log.young(key, outcome, text, live_size=TAKEN if key in (2, 4, 5) else None)
    log.event(1, 490, 10, 5 * RESERVED)
    log.collection(900)
    log.freed(4)
    log.event(3, 900, 0, 1)
    return log


def in_file(log: Log, folder: Path) -> Path:
    path = folder / "app.vmprof"
    path.write_bytes(log.data())
    return path


ALLOCATED, LIVE = 5 * RESERVED, RESERVED + 2 * TAKEN


def check(profile: Profile, tally: Tally | None = None) -> None:
    figures = summarize(profile, tally, Choice((FUNCTION, TYPE))).figures
    assert figures.bytes().value == ALLOCATED
    assert figures.bytes(STILL_ALIVE).value == LIVE
    assert figures.objects(STILL_ALIVE).value == 3
    assert profile.misfits == 0


def test_a_report_that_streams_and_a_table(tmp_path: Path) -> None:
    path = in_file(received(), tmp_path)
    tally = Tally()
    check(readers.read_into(path, tally), tally)
    whole = readers.read(path)
    check(whole)
    assert list(whole.samples.live_size) == [0, TAKEN, 0, TAKEN, TAKEN]


def test_at_a_moment(tmp_path: Path) -> None:
    """Message 4 was alive with the bytes that it took, before the GC freed it."""
    profile = readers.read(in_file(received(), tmp_path))
    figures = summarize(profile, None, Choice(at=600)).figures
    assert figures.bytes(STILL_ALIVE).value == RESERVED + 3 * TAKEN


def test_the_report_in_json(tmp_path: Path) -> None:
    path = in_file(received(), tmp_path)
    row, = json.loads(report_runs.report(path, "--json", "--by", "type").stdout)["rows"]
    assert row["self"]["allocated"]["bytes"]["value"] == ALLOCATED
    assert row["self"]["alive"]["bytes"]["value"] == LIVE


def test_values_of_stacks(tmp_path: Path) -> None:
    """The writers of pprof, OTLP, speedscope and others use the tested values()."""
    value, = values(readers.read(in_file(received(), tmp_path))).values()
    assert (value.bytes, value.objects) == (ALLOCATED, 5)
    assert (value.alive_bytes, value.alive_objects) == (LIVE, 3)


def test_the_firefox_profiler(tmp_path: Path) -> None:
    """The Profiler retains all rows that have no end.

    The bytes that shrinking gives back are separate rows, which end at the first
    collection. So the track of live memory ends with the live bytes.
    """
    profile = readers.read(in_file(received(), tmp_path))
    before = sorted(zip(*profile.samples.columns()))
    converted = json.loads(firefox.encode(firefox.convert(profile)))
    # the writer does not change the samples of the profile
    assert sorted(zip(*profile.samples.columns())) == before
    table = converted["threads"][0]["nativeAllocations"]
    born = {address: weight for address, weight in zip(
        table["memoryAddress"], table["weight"]) if weight > 0}
    assert sum(born.values()) == ALLOCATED
    for address, weight in zip(table["memoryAddress"], table["weight"]):
        if weight < 0:
            assert born.pop(address) == -weight
    assert sum(born.values()) == LIVE
    counters = {counter["name"]: counter for counter in converted["counters"]}
    assert sum(counters["held-memory"]["samples"]["count"]) == LIVE
    # rows of bytes that shrinking gave back do not count as objects
    objects = next(thread for thread in converted["threads"]
                   if thread["name"] == "Objects (number)")
    assert sum(objects["samples"]["weight"]) == 5


def test_a_difference_of_two_moments(tmp_path: Path) -> None:
    """The GC freed message 4 between the moments."""
    sides = diff.of_moments(readers.read(in_file(received(), tmp_path)), 600, 1000)
    before, after = (summarize(side).figures.bytes(STILL_ALIVE).value
                     for (side,) in (sides.before, sides.after))
    assert before - after == TAKEN


def test_inherited_objects_that_were_shrunk(tmp_path: Path) -> None:
    """A later segment may find that an inherited object was shrunk."""
    log = Log()
    main = log.function("main")
    log.settings(interval=1, facts="types,lifetimes", part=2, first=4)
    text = log.type("bytes")
    # an old object that was shrunk, an old object of its allocated size, and a young
    # object of unknown size
    log.inherited(1, [main], size=RESERVED, interval=1, type_=text, live_size=TAKEN)
    log.inherited(2, [main], size=RESERVED, interval=1, type_=text)
    log.earlier(3, [main], size=RESERVED, interval=1)
    log.collection(100)
    log.young(3, 1, text, live_size=TAKEN)
    for profile, tally in both(in_file(log, tmp_path)):
        figures = summarize(profile, tally).figures
        assert figures.bytes().value == 0
        assert figures.bytes(STILL_ALIVE).value == RESERVED + 2 * TAKEN
        assert profile.misfits == 0


def both(path: Path) -> list[tuple[Profile, Tally | None]]:
    tally = Tally()
    return [(readers.read_into(path, tally), tally), (readers.read(path), None)]


@pytest.mark.parametrize("size", [RESERVED, RESERVED + 1, 2**62])
def test_an_impossible_size_is_refused(tmp_path: Path, size: int) -> None:
    """No sampler writes such a size, so that the other data is not reliable either."""
    log = Log()
    main = log.function("main")
    log.settings(interval=1, facts="types,lifetimes")
    log.allocation([main], size=RESERVED, interval=1, time=1)
    log.collection(500)
    log.young(1, 1, live_size=size)
    with pytest.raises(ProfileError, match="is larger than its allocation"):
        readers.read(in_file(log, tmp_path))


def test_a_shrunk_object_of_a_batched_allocation(tmp_path: Path) -> None:
    log = Log()
    main = log.function("main")
    log.settings(interval=1, facts="types,lifetimes")
    log.allocation([main], size=400, interval=1, time=1)
    log.collection(500)
    log.young(1, 1, size=100)
    log.young(1, 1, size=300, live_size=24)
    for profile, tally in both(in_file(log, tmp_path)):
        figures = summarize(profile, tally).figures
        assert figures.bytes().value == 400
        assert figures.bytes(STILL_ALIVE).value == 124
        assert profile.misfits == 0


def test_resident_memory_grows_by_the_bytes_that_survivors_take(tmp_path: Path) -> None:
    log = received()
    log.figure(1, 0, 10**6)
    log.figure(1, 1000, 2 * 10**6)
    grown = growth(readers.read(in_file(log, tmp_path)))
    # the dead message counts with its reserved bytes, because its written bytes are
    # unknown; the four survivors count with the bytes that they take
    assert sum(grown.parts.values()) == RESERVED + (RESERVED + 3 * TAKEN)


def test_a_leak_of_shrunk_objects(tmp_path: Path) -> None:
    """The growth is the bytes that the objects take, and not the reserved bytes."""
    log = Log()
    main, receive = log.function("main"), log.function("receive", 5)
    log.settings(interval=1, facts="types,lifetimes")
    text = log.type("bytes")
    key = 0
    for number in range(1, 13):
        time = number * 10**9
        for _ in range(20):
            key += 1
            log.allocation([main, receive], size=RESERVED, interval=1,
                           time=time + key)
        log.collection(time + 5 * 10**8)
        for young in range(key - 19, key + 1):
            log.young(young, 1, text, live_size=TAKEN)
        log.event(3, time + 6 * 10**8, 0, number)
        log.flush()
    path = in_file(log, tmp_path)
    objects = OldObjects()
    profile = readers.read_into(path, objects)
    found = find_leaks([Process(profile, objects)])
    leak, = found.leaks
    seconds = sum(found.seconds)
    assert leak.growth.value / seconds == pytest.approx(20 * TAKEN, rel=0.01)


def test_sums_of_allocated_and_live_bytes() -> None:
    """The sums do not depend on the order in which objects and sums are added."""
    choose = random.Random(5)
    parts = [Sum() for _ in range(10)]
    allocated = live = 0.0
    for _ in range(1000):
        size = choose.choice((24, 600, 65536))
        live_size = choose.choice((0, 0, 16))
        p = probability(size, 1000, "exponential")
        choose.choice(parts).add(size, p, 2, live_size)
        allocated += 2 * size / p
        live += 2 * (live_size or size) / p
    whole = Sum()
    for part in parts:
        whole.add_sum(part)
    assert whole.value_bytes == pytest.approx(allocated, rel=1e-12)
    assert whole.live.value_bytes == pytest.approx(live, rel=1e-12)
    assert whole.live.samples == whole.samples == 2000
    assert whole.live.value_objects == pytest.approx(whole.value_objects)
