"""Which objects are sampled between start and stop (native/hook/gc/nursery.h)."""
from __future__ import annotations

import pathlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from nursery_traces import (
    NEVER,
    OFF,
    PINNED,
    build_harness,
    check,
    places,
    run,
    totals_of,
)
from oracle import Sample

# ____________________________________________________________
# random traces

SEEDS = st.integers(0, 2**64 - 1)
DRAWN_INTERVALS = st.integers(1, 10000)


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build_harness()


@st.composite
def traces(draw: st.DrawFn, unseen: bool = False) -> str:
    nursery = draw(st.sampled_from([4096, 8192, 24576, 65536]))
    pins = draw(st.sampled_from([0, 1, 2, 8]))
    # as in incminimark, pinned objects leave room for an object of any size
    largest = nursery // (2 * pins + 1) // 8 * 8
    lines = ["nursery %d" % nursery, "pins %d" % pins]
    if draw(st.integers(0, 3)) == 0:
        lines.append("rotate")
    if draw(st.integers(0, 7)) == 0:
        lines.append("tiny %d" % draw(st.sampled_from([0, 8, 64, 1024])))
    sizes = st.one_of(st.integers(2, 8), st.integers(2, 64),
                      st.integers(2, largest // 8)).map(lambda n: 8 * n)
    larges = st.one_of(st.integers(4, 3 * nursery // 8), st.integers(4, 2**37)
                       ).map(lambda n: 8 * n)
    intervals = st.one_of(
        st.sampled_from([1, 8, 64, nursery, 7 * nursery // 2, 2**40, 2**62]),
        DRAWN_INTERVALS)
    kinds = ["small"] * 10 + ["large"] * 3 + [
        "fail", "collect", "pressure", "pressure", "pin", "pin", "unpin",
        "finalizers", "steps", "nomemory",
        "start", "start", "start", "stop", "stop", "rate", "rate", "abandon",
        "unhook"] + ["unseen"] * 3 * unseen
    # sampling is off at each start, as the engine ensures
    phase = "off"
    hooked = False
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=60)):
        if kind == "small":
            size = draw(sizes)
            most = max(1, min(200, 2 * nursery // size))
            lines.append("small %d %d" % (size, draw(st.integers(1, most))))
        elif kind in ("large", "fail"):
            lines.append("%s %d %d" % (kind, draw(larges), draw(st.booleans())))
        elif kind in ("pin", "unpin"):
            lines.append("%s %d" % (kind, draw(st.integers(0, 8))))
        elif kind == "finalizers":
            allocations = draw(st.lists(
                st.one_of(sizes, sizes, st.just(0), larges.map(int.__neg__)),
                max_size=40))
            lines.append(" ".join(map(str, [kind, len(allocations), *allocations])))
        elif kind == "steps":
            lines.append("steps %d" % draw(st.integers(1, 3)))
        elif kind == "start":
            if phase != "off":
                continue
            lines.append("start %d %d %d %d" % (
                draw(intervals), draw(SEEDS), draw(st.booleans()),
                draw(st.integers(0, 3)) == 0))
            phase, hooked = "running", True
        elif kind == "rate":
            if phase != "running":
                continue
            lines.append("rate %d" % draw(intervals))
        elif kind == "stop":
            if not hooked:
                continue
            lines.append("stop")
            phase = "off"
        elif kind == "abandon":
            if phase != "running":
                continue
            lines.append("abandon")
            phase = "abandoned"
        elif kind == "unhook":
            if phase != "off":
                continue
            lines.append("unhook")
            hooked = False
        elif kind == "unseen":
            if phase == "running":
                lines.append("unseen")
        else:
            lines.append(kind)
        if phase == "abandoned" and kind == "collect":
            phase = "off"
    if hooked:
        lines += ["stop", "small 16 1", "unhook", "small 16 1"]
    return "".join(line + "\n" for line in lines)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(traces())
def test_random_traces_are_sampled_as_the_oracle_says(
        harness: pathlib.Path, trace: str) -> None:
    assert check(harness, trace).totals.phase == OFF


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(traces(unseen=True))
def test_random_traces_with_collections_around_the_hook(
        harness: pathlib.Path, trace: str) -> None:
    # the sample point is lost for an unknown time, so the oracle cannot be used, but
    # nothing may break
    result = run(harness, trace)
    assert result.totals.phase == OFF
    sizes = {event.number: event.size for event in result.events
             if isinstance(event, oracle.Allocation)}
    assert all(sizes[sample.number] == sample.size for sample in result.samples)


# ____________________________________________________________
# the place of the sampled byte

@pytest.mark.parametrize("interval", range(1, 130))
def test_the_object_with_the_sampled_byte_is_the_sample(
        harness: pathlib.Path, interval: int) -> None:
    result = check(harness, f"""\
nursery 4096
small 64 3
start {interval} 0 1
small 16 40
stop
small 16 1
""")
    points = range(interval - 1, 16 * 40, interval)
    assert result.sampled == sorted({3 + point // 16 for point in points})


@pytest.mark.parametrize("interval", [1, 8, 64, 4096, 14336, 2**40, 2**62])
@pytest.mark.parametrize("fixed", [0, 1])
def test_number_of_samples_for_each_interval(
        harness: pathlib.Path, interval: int, fixed: int) -> None:
    result = check(harness, f"""\
nursery 4096
start {interval} 99 {fixed}
small 16 1000
small 48 1000
small 4096 10
stop
small 16 1
""")
    if interval == 1 or (fixed and interval <= 16):
        assert len(result.samples) == 2010
    elif interval >= 2**40:
        assert len(result.samples) == 0
    else:
        assert 0 < len(result.samples) < 2010


def test_one_object_across_many_points_is_one_sample(
        harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
start 10 0 1
small 2000 1
large 1000000 0
small 16 1
small 16 1
stop
small 16 1
""")
    # the sampled bytes in the small objects are 1002009, 1002019 and 1002029
    assert result.samples == [Sample(0, 2000, 10), Sample(1, 1000000, 10),
                              Sample(2, 16, 10), Sample(3, 16, 10)]


def test_sample_point_at_the_first_byte_after_a_sample(harness: pathlib.Path) -> None:
    # bytes 791 and 824 are sampled, and the second object ends before byte 824
    result = check(harness, """\
nursery 4096
start 33 0 1
small 784 1
small 40 1
small 16 1
small 16 1
small 16 1
stop
small 16 1
""")
    assert result.sampled == [0, 1, 2, 4]


@pytest.mark.parametrize("lines, collections", [
    ("soon\nsmall 16 3\n", 1), ("soon\nsoon\nsmall 16 3\n", 1),
    ("soon\nlarge 9000 0\nsmall 16 3\n", 1), ("soon\nlarge 9000 1\nsmall 16 3\n", 1),
    ("soon\ncollect\nsmall 16 3\n", 1), ("small 3800 1\nsoon\nsmall 96 2\n", 1),
    ("soon\nsmall 16 1\nsmall 4000 2\n", 2),
    # requested after a pinned object, and once more
    ("small 16 1\npin 0\ncollect\nsoon\nsmall 16 1\nsoon\nsmall 16 1\n", 2)])
@pytest.mark.parametrize("interval", [1, 40, 5000])
def test_a_collection_before_the_nursery_is_full(
        harness: pathlib.Path, lines: str, collections: int, interval: int) -> None:
    """The next object in the nursery causes a requested collection.

    All bytes count once.
    """
    result = check(harness, f"""\
nursery 4096
pins 1
start {interval} 7 1 0
small 40 5
{lines}stop
""")
    assert result.totals.collections == collections
    assert result.totals.pressures == 0


@pytest.mark.parametrize("lines, collections", [
    ("small 64 2000\n", 1), ("every 8192\nsmall 64 2000\n", 15),
    ("every 8192\nlarge 100000 0\nsmall 64 1\nlarge 100000 0\nsmall 64 1\n", 2),
    ("every 8192\nsmall 64 1000\nevery 0\nsmall 64 500\n", 7),
    # only a sample can cause the collection
    ("rate 4611686018427387904\nevery 8192\nsmall 64 1000\n", 0)])
def test_collection_after_each_number_of_bytes(
        harness: pathlib.Path, lines: str, collections: int) -> None:
    totals = totals_of(harness, "nursery 65536\nstart 64 0 1 0\n%sstop\n" % lines)
    assert totals.collections == collections


@pytest.mark.parametrize("interval", range(4080, 4120))
def test_a_point_at_the_real_top(harness: pathlib.Path, interval: int) -> None:
    # the sample point is just before, on, or just after the nursery's top, which no
    # object may exceed
    for last in (16, 24, 32):
        result = check(harness, f"""\
nursery 4096
start {interval} 0 1
small 16 255
small {last} 1
small 16 3
stop
small 16 1
""")
        # the last object is at the start of the nursery if it did not fit at the end
        assert places(result)[255] == (4080 if last == 16 else 0)
        assert len(result.samples) == 1


def test_a_point_may_be_many_nurseries_away(harness: pathlib.Path) -> None:
    interval = 7 * 4096 // 2
    result = check(harness, f"""\
nursery 4096
start {interval} 0 1
small 16 10000
stop
small 16 1
""")
    assert result.sampled == [
        point // 16 for point in range(interval - 1, 160000, interval)]


def test_more_samples_between_two_collections_than_any_buffer_holds(
        harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 65536
start 1 0 0
small 16 4096
stop
small 16 1
""")
    assert len(result.samples) == 4096
    assert result.totals.collections == 1       # the trace's last line causes it


# ____________________________________________________________
# start, stop, rate

def test_start_begins_with_the_next_allocation(harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
small 16 5
start 1 0 0
small 16 2
stop
small 16 5
""")
    assert result.sampled == [5, 6]
    assert result.totals.allocated == 32


def test_start_begins_with_a_large_object(harness: pathlib.Path) -> None:
    for collects in (0, 1):
        result = check(harness, f"""\
nursery 4096
small 16 5
start 1 0 0
large 800 {collects}
stop
small 16 1
""")
        assert result.samples == [Sample(5, 800, 1)]


def test_start_in_a_full_nursery(harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
small 4096 1
start 1 0 0
small 16 1
stop
small 16 1
""")
    assert result.sampled == [1]


def test_stop_counts_the_last_bytes(harness: pathlib.Path) -> None:
    result = check(harness, f"""\
nursery 4096
start {NEVER} 0 1
small 16 9
stop
small 64 1
""")
    assert result.totals.allocated == 9 * 16


def test_stop_restores_the_real_top(harness: pathlib.Path) -> None:
    # The harness checks the top once the phase is OFF.  The cases are before and after
    # a pinned object, and in a full nursery.
    for before in ("small 16 1", "small 16 100", "small 16 255", "small 4000 1"):
        result = check(harness, f"""\
nursery 4096
pins 1
small 32 3
pin 0
collect
start 100 0 0
{before}
stop
small 16 1
unhook
small 16 300
""")
        assert result.totals.phase == OFF


def test_sampling_can_be_started_again(harness: pathlib.Path) -> None:
    once = "start 100 7 0\nsmall 16 100\nstop\nsmall 16 1\n"
    first = check(harness, "nursery 4096\n" + once)
    second = check(harness, "nursery 4096\n" + 3 * once)
    assert first.sampled
    assert second.sampled == [
        101 * i + number for i in range(3) for number in first.sampled]
    assert second.totals.allocated == 1600      # bytes since the last start


def test_rate_change_redraws(harness: pathlib.Path) -> None:
    result = check(harness, f"""\
nursery 4096
start {NEVER} 5 0
small 16 10
rate 64
small 16 100
rate {NEVER}
small 16 100
stop
small 16 1
""")
    random = oracle.splitmix64(5)
    oracle.gap(NEVER, False, random)            # the change discards this gap
    first = oracle.gap(64, False, random)       # begins at the change of the rate
    assert result.samples[0] == Sample(10 + first // 16, 16, 64)
    assert 10 < len(result.samples) < 60
    assert max(result.sampled) < 110


def test_first_sample_after_a_rate_change_has_the_new_interval(
        harness: pathlib.Path) -> None:
    # the old gap of 999 bytes would end in the same object as the new gap
    result = check(harness, """\
nursery 4096
start 1000 0 1
small 16 10
rate 500
small 992 1
stop
small 16 1
""")
    assert result.samples == [Sample(10, 992, 500)]


def test_the_last_of_two_rates_counts(harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
start 1000 0 1
rate 1
rate 16
small 32 1
stop
small 16 1
""")
    assert result.samples == [Sample(0, 32, 16)]


# ____________________________________________________________
# other events

def test_errno_is_kept(harness: pathlib.Path) -> None:
    # The harness compares errno after each line.  start_stop.c keeps errno during a
    # sample, and drawing gaps of any size must not change it.
    for interval in (1, 1000, 2**62):
        check(harness, f"nursery 65536\nstart {interval} 0 0\n"
              + "small 16 1000\nlarge 8000 1\ncollect\npressure\nsmall 64 1\n" * 5
              + "rate 5\nsmall 16 10\nstop\nsmall 16 1\n")


def test_a_forked_child_ends_the_sampling(harness: pathlib.Path) -> None:
    # the next call of a GC function ends the sampling
    result = check(harness, """\
nursery 4096
start 100 0 0
small 16 20
abandon
small 16 300
small 16 300
""")
    assert result.sampled and max(result.sampled) < 20
    assert result.totals.phase == OFF


def test_a_fork_right_after_the_start(harness: pathlib.Path) -> None:
    for before in ("", "start 9 0 0\nsmall 16 9\nstop\nsmall 16 1\nunhook\n"):
        result = check(harness, PINNED.replace("pins 2\n", "pins 2\n" + before)
                       + "start 100 0 0\nabandon\nsmall 16 300\nstop\nsmall 16 1\n")
        assert result.totals.phase == OFF
        assert result.totals.allocated == 16    # the allocation that ends the sampling


def test_a_collection_that_goes_around_the_hook(harness: pathlib.Path) -> None:
    # the next call of our functions notices the collection, and places the sample
    # point again
    result = run(harness, """\
nursery 4096
start 1 0 1
small 16 5
unseen
small 16 256
small 16 5
stop
unseen
small 16 300
""")
    assert result.totals.surprises == 1
    assert result.totals.phase == OFF
    assert result.sampled == [0, 1, 2, 3, 4, *range(261, 266)]


def test_a_collection_around_the_hook_that_moves_the_real_top(
        harness: pathlib.Path) -> None:
    # the first part of the nursery then ends at the pinned object
    result = run(harness, """\
nursery 4096
pins 1
start 100 0 0
small 16 10
pin 0
unseen
large 800 0
small 16 300
stop
small 16 1
""")
    assert result.totals.surprises == 1
    assert result.totals.phase == OFF
