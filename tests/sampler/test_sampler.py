"""The machine that puts the sample point into the nursery's check.

Each test gives a trace to native/nursery_harness.c, which runs it twice, with the
sampling and without; see there for the lines of a trace, and for what the
harness checks at each step: that the GC finds its own nursery_top whenever it
looks, that pinned objects are where it reads them, that no two objects
overlap, that errno is kept.  Here the two runs are compared with each other
and with the oracle.
"""
from __future__ import annotations

import collections
import math
import pathlib
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import oracle
from native_build import build
from oracle import Sample

#: with fixed gaps of this size nothing is ever sampled
NEVER = 2**62
OFF = 0                 # enum nursery_phase


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build(tmp_path_factory.mktemp("harness"), "nursery_harness",
                 "hook/sampler.c", "hook/nursery.c")


class Totals(NamedTuple):
    allocated: int
    collections: int
    pressures: int
    surprises: int
    phase: int


class Run(NamedTuple):
    #: what happens without sampling
    program: list[str]
    events: list[oracle.Event]
    samples: list[Sample]
    totals: Totals

    @property
    def sampled(self) -> list[int]:
        return [sample.number for sample in self.samples]


def events_of(program: list[str]) -> Iterator[oracle.Event]:
    for line in program:
        kind, *words = line.split()
        if kind == "start":
            yield oracle.Start(int(words[0]), int(words[1]), words[2] == "1",
                               words[3:] == ["1"])
        elif kind in ("stop", "abandon"):
            yield oracle.Stop()
        elif kind == "rate":
            yield oracle.Rate(int(words[0]))
        elif kind in ("small", "large"):
            yield oracle.Allocation(int(words[0]), int(words[1]))
        elif kind == "collection":
            yield oracle.Collection()
        elif kind == "pressure":
            yield oracle.Pressure()
        else:
            assert kind in ("run", "hidden", "pinned", "unpinned", "unhook",
                            "MemoryError")


def run(harness: pathlib.Path, trace: str) -> Run:
    """Run a trace; sampling must not change what the program does."""
    done = subprocess.run([harness, "trace"], input=trace, text=True,
                          capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    lines = done.stdout.splitlines()
    second = lines.index("run 1")
    program = lines[1:second]
    *with_sampling, totals = lines[second + 1:]
    assert totals.startswith("total ")
    assert [line for line in with_sampling
            if not line.startswith("sample ")] == program
    return Run(program, list(events_of(program)),
               [Sample(*map(int, line.split()[1:])) for line in with_sampling
                if line.startswith("sample ")],
               Totals(*map(int, totals.split()[1:])))


def places(result: Run) -> list[int]:
    """The small objects' offsets in the nursery."""
    return [int(line.split()[3]) for line in result.program
            if line.startswith("small ")]


def check(harness: pathlib.Path, trace: str) -> Run:
    """Run a trace, and compare it with the oracle."""
    result = run(harness, trace)
    assert result.samples == list(oracle.samples(result.events))
    check_totals(result)
    return result


def check_totals(result: Run) -> None:
    """The totals of the last time that sampling was started."""
    starts = [i for i, line in enumerate(result.program)
              if line.startswith("start")]
    if not starts:
        return
    program = result.program[starts[-1]:]
    ends = [i for i, line in enumerate(program) if line in ("stop", "abandon")]
    running = program[:ends[0]] if ends else program
    hooked = program[:program.index("unhook")] if "unhook" in program else program
    assert result.totals.surprises == 0
    assert result.totals.collections == hooked.count("collection")
    assert result.totals.pressures <= hooked.count("pressure")
    if ends and "abandon" not in program and not result.totals.pressures:
        # every byte was counted, and only once
        assert result.totals.allocated == sum(
            event.size for event in events_of(running)
            if isinstance(event, oracle.Allocation))


# ____________________________________________________________
# random traces

SEEDS = st.integers(0, 2**64 - 1)
DRAWN_INTERVALS = st.integers(1, 10000)


@st.composite
def traces(draw: st.DrawFn, unseen: bool = False) -> str:
    nursery = draw(st.sampled_from([4096, 8192, 24576, 65536]))
    pins = draw(st.sampled_from([0, 1, 2, 8]))
    # as in incminimark: pinned objects leave room for one more of any size
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
    # what the engine makes sure of: sampling is off when it is started
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


@settings(max_examples=1000, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(traces())
def test_random_traces_are_sampled_as_the_oracle_says(
        harness: pathlib.Path, trace: str) -> None:
    assert check(harness, trace).totals.phase == OFF


@settings(max_examples=300, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(traces(unseen=True))
def test_random_traces_with_collections_around_the_hook(
        harness: pathlib.Path, trace: str) -> None:
    # the point is lost, and nobody knows until when: no oracle, but nothing
    # may break
    result = run(harness, trace)
    assert result.totals.phase == OFF
    sizes = {event.number: event.size for event in result.events
             if isinstance(event, oracle.Allocation)}
    assert all(sizes[sample.number] == sample.size for sample in result.samples)


# ____________________________________________________________
# where the sampled byte is

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
def test_each_interval(harness: pathlib.Path, interval: int, fixed: int) -> None:
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
    # the points in the small objects are at 1002009, 1002019 and 1002029
    assert result.samples == [Sample(0, 2000, 10), Sample(1, 1000000, 10),
                              Sample(2, 16, 10), Sample(3, 16, 10)]


def test_a_point_at_the_first_byte_behind_a_sample(
        harness: pathlib.Path) -> None:
    # bytes 791 and 824 are sampled; the second object ends before byte 824
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


@pytest.mark.parametrize("interval", range(4080, 4120))
def test_a_point_at_the_real_top(harness: pathlib.Path, interval: int) -> None:
    # just before it, on it, or just behind it, where no object may reach
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
        # that is, if the last one does not fit, at the start of the nursery
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
    assert result.totals.collections == 1       # of the last line


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
    # the harness checks it once the phase is OFF; here: before and behind a
    # pinned object, and when the nursery was full
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
    assert second.totals.allocated == 1600      # since the last start


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
    oracle.gap(NEVER, False, random)            # thrown away
    first = oracle.gap(64, False, random)       # counts from the change
    assert result.samples[0] == Sample(10 + first // 16, 16, 64)
    assert 10 < len(result.samples) < 60
    assert max(result.sampled) < 110


def test_first_sample_after_a_rate_change_has_the_new_interval(
        harness: pathlib.Path) -> None:
    # the old gap, 999, would end in the same object as the new one
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
# collections

def test_retry_after_a_collection_finds_its_room(harness: pathlib.Path) -> None:
    # the object fills the nursery, and holds the next point: a point that is
    # placed before the retry makes it fail
    result = check(harness, """\
nursery 4096
start 64 0 0
small 16 1
small 4096 3
stop
small 16 1
""")
    assert result.sampled[-3:] == [1, 2, 3]
    assert result.program.count("collection") == 4


def test_a_collection_by_hand_keeps_the_gap(harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
start 160 0 1
small 16 6
collect
small 16 2
collect
collect
small 16 3
stop
small 16 1
""")
    assert result.sampled == [9]
    assert result.totals == (11 * 16, 3, 0, 0, OFF)


def test_the_nursery_may_move(harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
rotate
start 1000 0 1
small 16 1000
collect
small 16 1000
stop
small 16 1
""")
    assert result.sampled == [point // 16 for point in range(999, 32000, 1000)]


@pytest.mark.parametrize("tiny", [0, 8, 16, 200])
def test_tiny_nursery(harness: pathlib.Path, tiny: int) -> None:
    # collect_and_reserve() moves nursery_free to just before nursery_top:
    # these bytes are nobody's
    result = check(harness, f"""\
nursery 4096
tiny {tiny}
start 100 0 1
small 16 1000
stop
small 16 1
""")
    assert result.sampled == [point // 16 for point in range(99, 16000, 100)]
    assert result.totals.allocated == 16000


def test_second_minor_collection_keeps_sampling(harness: pathlib.Path) -> None:
    # the finalizers fill the nursery behind the first one
    finalizers = " ".join(["16"] * 255)
    result = check(harness, f"""\
nursery 4096
start 1 0 0
small 16 256
finalizers 255 {finalizers}
small 64 1
small 16 200
stop
small 16 1
""")
    assert result.program.count("collection") == 2
    hidden = [line for line in result.program if line.startswith("hidden")]
    assert len(hidden) == 255
    assert result.sampled == [*range(256), *range(256 + 255, 256 + 255 + 201)]


def test_finalizers_that_collect_themselves(harness: pathlib.Path) -> None:
    finalizers = " ".join(["16"] * 250 + ["0"] + ["256"] * 5)
    for interval in (1, 100, 5000):
        for before in ("small 16 256", "small 16 200\ncollect",
                       "small 16 100\nlarge 8000 1"):
            result = check(harness, f"""\
nursery 4096
start {interval} 0 0
finalizers 256 {finalizers}
{before}
small 64 1
small 16 200
stop
small 16 1
""")
            assert result.sampled


def test_finalizers_that_allocate_large_objects(harness: pathlib.Path) -> None:
    # inside collect_and_reserve() they are nobody's; the nursery_top that the
    # collector then uses is still its own.  Elsewhere they count.
    result = check(harness, """\
nursery 4096
start 1 0 0
small 16 256
finalizers 3 -8000 16 -8000
small 16 1
finalizers 2 -8000 16
collect
finalizers 2 -8000 16
large 800 1
stop
small 16 1
""")
    assert [line.split()[0] for line in result.program[257:]] == [
        "collection", "hidden", "hidden", "hidden", "small",
        "collection", "large", "small",
        "collection", "large", "small", "large", "stop", "small"]
    assert len(result.samples) == 256 + 1 + 2 + 3


def test_memory_error_is_no_sample(harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
start 1 0 0
small 16 256
nomemory
small 16 1
fail 8000 0
fail 8000 1
small 16 1
stop
small 16 1
""")
    assert result.program.count("MemoryError") == 3
    assert result.sampled == list(range(257))
    assert result.totals.allocated == 257 * 16


# ____________________________________________________________
# memory pressure

@pytest.mark.parametrize("interval", [1, 64, 4096, 2**40, 2**62])
@pytest.mark.parametrize("fixed", [0, 1])
def test_memory_pressure_still_forces_a_collection(
        harness: pathlib.Path, interval: int, fixed: int) -> None:
    result = check(harness, f"""\
nursery 4096
start {interval} 3 {fixed}
small 16 10
pressure
small 16 1
small 16 10
pressure
collect
small 16 1
stop
small 16 1
""")
    program = result.program
    at = program.index("pressure")
    assert program[at + 1:at + 3] == ["collection", "small 10 16 0"]
    assert result.totals.collections == program.count("collection") == 2
    assert result.totals.pressures == 2


def test_memory_pressure_before_a_large_object(harness: pathlib.Path) -> None:
    for collects in (0, 1):
        result = check(harness, f"""\
nursery 4096
start 1000 0 1
small 16 50
pressure
large 800 {collects}
small 16 1
small 184 1
stop
small 16 1
""")
        # the gap was drawn anew before the large object; what is before the
        # pressure is not counted
        assert result.samples == [Sample(52, 184, 1000)]
        assert result.totals == (800 + 16 + 184, 1, 1, 0, OFF)


def test_memory_pressure_twice_in_a_row(harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
start 100 0 1
small 16 3
pressure
pressure
small 16 6
small 16 1
stop
small 16 1
""")
    assert result.sampled == [9]
    assert result.totals.pressures == 1


@pytest.mark.parametrize("change", ["rate 100", "stop", "abandon"])
@pytest.mark.parametrize("before", [0, 3, 250])
def test_memory_pressure_and_then_a_change(
        harness: pathlib.Path, change: str, before: int) -> None:
    # nursery_free is our old nursery_top: no place for an object
    result = check(harness, f"""\
nursery 4096
start 100 0 1
small 16 {before + 1}
pressure
{change}
small 16 10
stop
small 16 1
""")
    at = result.program.index("pressure")
    assert result.program[at + 2:at + 4] == [
        "collection", f"small {before + 1} 16 0"]


@pytest.mark.parametrize("change", ["start 16 0 1", "rate 16", "stop"])
def test_memory_pressure_after_a_change(
        harness: pathlib.Path, change: str) -> None:
    start = "" if change.startswith("start") else "start 1000 0 1\n"
    for entry in ("small 16 1", "collect", "large 800 1"):
        result = check(harness, f"""\
nursery 4096
{start}small 16 3
{change}
pressure
{entry}
small 16 10
stop
small 16 1
""")
        assert result.totals.phase == OFF
        assert "collection" in result.program


# ____________________________________________________________
# pinned objects

PINNED = """\
nursery 4096
pins 2
small 16 100
small 64 1
small 16 50
pin 0
pin 50
collect
"""
#: two pinned objects, at 1600 (64 bytes) and at 2448 (16 bytes)
AREAS = 1600 // 16, (2448 - 1664) // 16, (4096 - 2464) // 16


@pytest.mark.parametrize("interval", [1, 100, 1599, 2000, 2**40])
@pytest.mark.parametrize("fixed", [0, 1])
def test_pinned_object_is_read_at_the_real_top(
        harness: pathlib.Path, interval: int, fixed: int) -> None:
    result = check(harness, PINNED + f"""\
start {interval} 0 {fixed}
small 16 1000
stop
small 16 1
""")
    assert "small 251 16 1664" in result.program        # behind the first one
    # one collection by hand, then one each time the three areas are full
    assert result.program.count("collection") == 1 + 1000 // sum(AREAS)


def test_barrier_jump_charges_no_burst_to_one_object(
        harness: pathlib.Path) -> None:
    # 1592 bytes before the pinned object, most of which are wasted, and 80
    # points would lie in the waste if it counted
    result = check(harness, PINNED + """\
start 20 0 1
small 16 1
small 768 1
small 768 1
small 512 1
small 16 1
stop
small 16 1
""")
    assert places(result)[-6:] == [0, 16, 784, 1664, 2176, 2192]
    assert result.samples == [Sample(152, 768, 20), Sample(153, 768, 20),
                              Sample(154, 512, 20), Sample(155, 16, 20)]
    assert result.totals.allocated == 16 + 768 + 768 + 512 + 16


def test_waste_before_a_pinned_object_does_not_count(
        harness: pathlib.Path) -> None:
    result = check(harness, PINNED + """\
start 2000 0 1
small 16 1
small 1616 1
small 352 1
small 16 1
small 16 1
stop
small 16 1
""")
    # 1616 fits nowhere but behind the second pinned object: 1584 and 784
    # bytes before the two are wasted.  The sampled byte is number 1999, with
    # 16 + 1616 + 352 = 1984 before the fourth object
    assert places(result)[-6:-3] == [0, 2464, 0]
    assert result.sampled == [154]


def test_unpin_then_sampling_does_not_overlap(harness: pathlib.Path) -> None:
    # nothing is pinned any more, but what is behind the barriers is occupied
    # until the next collection
    result = check(harness, PINNED + """\
unpin 0
unpin 0
start 100 0 0
small 16 10
stop
small 16 1
unhook
small 16 300
""")
    assert not any(1600 <= place < 1664 or 2448 <= place < 2464
                   for place in places(result)[151:151 + sum(AREAS)])
    assert result.program.count("unpinned") == 2


def test_pinning_works_while_sampling(harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
pins 2
start 50 0 0
small 16 100
pin 0
small 16 100
pin 50
collect
small 16 1000
unpin 0
small 16 1000
stop
small 16 1
""")
    assert result.program.count("pinned 99") == 1
    assert result.program.count("pinned 149") == 1


# ____________________________________________________________
# large objects

def test_external_malloc_leaves_the_real_top(harness: pathlib.Path) -> None:
    # a stale top means collections before the nursery is full
    result = check(harness, """\
nursery 4096
start 64 0 0
small 16 100
large 8000 0
small 16 100
large 8000 1
small 16 100
large 8000 0
large 8000 0
small 16 156
stop
small 16 1
""")
    assert result.program.count("collection") == 2
    assert result.totals.allocated == 456 * 16 + 4 * 8000


def test_large_objects_move_the_point(harness: pathlib.Path) -> None:
    result = check(harness, """\
nursery 4096
start 10000 0 1
small 16 10
large 8000 0
small 16 114
small 16 1
small 16 1
stop
small 16 1
""")
    # 160 + 8000 + 114 * 16 = 9984, and byte 9999 is the last of the next one
    assert result.sampled == [125]


def test_large_object_of_a_tebibyte(harness: pathlib.Path) -> None:
    result = check(harness, f"""\
nursery 4096
start 1 0 1
large {2**40} 1
rate {2**62}
large {2**40} 0
stop
small 16 1
""")
    assert result.samples == [Sample(0, 2**40, 1)]
    assert result.totals.allocated == 2**41


# ____________________________________________________________
# what else may happen

def test_errno_is_kept(harness: pathlib.Path) -> None:
    # the harness compares it after each line.  start_stop.c keeps it over a sample;
    # drawing gaps, all of them, must not touch it
    for interval in (1, 1000, 2**62):
        check(harness, f"nursery 65536\nstart {interval} 0 0\n"
              + "small 16 1000\nlarge 8000 1\ncollect\npressure\nsmall 64 1\n" * 5
              + "rate 5\nsmall 16 10\nstop\nsmall 16 1\n")


def test_a_forked_child_ends_the_sampling(harness: pathlib.Path) -> None:
    # the next entry, which comes by itself, ends it
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
        assert result.totals.allocated == 16    # with the entry that ends it


def test_a_collection_that_goes_around_the_hook(harness: pathlib.Path) -> None:
    # it is noticed at the next entry, and the point is placed anew
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
    # the nursery's first part now ends at the pinned object
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


# ____________________________________________________________
# statistics.  Each bound is one that chance exceeds with a probability of at
# most 1e-8; the seeds are fixed.

IMPROBABLE = 1e-8


def drawn_gaps(harness: pathlib.Path, interval: int, seed: int, fixed: bool,
               count: int) -> list[int]:
    done = subprocess.run(
        [harness, "gaps", str(interval), str(seed), "%d" % fixed, str(count)],
        check=True, capture_output=True)
    return list(map(int, done.stdout.split()))


def sampled_objects(harness: pathlib.Path, interval: int, seed: int,
                    fixed: bool, rounds: int,
                    *size_and_count: tuple[int, int]) -> list[int]:
    """How many of each size are sampled, if they are allocated in turn,
    `rounds` times."""
    done = subprocess.run(
        [harness, "objects", str(interval), str(seed), "%d" % fixed, str(rounds)],
        input="".join("%d %d\n" % pair for pair in size_and_count).encode(),
        check=True, capture_output=True)
    return list(map(int, done.stdout.split()))[:-1]


def is_binomial(successes: int, trials: int, p: float) -> bool:
    """Chernoff's bound: P(so far from the mean) <= exp(-trials * divergence),
    on each of the two sides."""
    q = successes / trials
    divergence = sum(x * math.log(x / y) if y else math.inf
                     for x, y in ((q, p), (1 - q, 1 - p)) if x)
    return trials * divergence <= math.log(2 / IMPROBABLE)


def test_the_bound_is_a_bound() -> None:
    assert is_binomial(50, 100, 0.5) and is_binomial(0, 100, 0.0)
    assert is_binomial(5000, 10000, 0.5)
    assert not is_binomial(5320, 10000, 0.5)        # 6.4 sigma
    assert not is_binomial(1, 100, 0.0) and not is_binomial(99, 100, 1.0)


@pytest.mark.parametrize("interval", [1, 64, 4096, 14336, 524288, 2**40, 2**62])
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
@pytest.mark.parametrize("fixed", [False, True])
def test_gaps_are_the_oracles(harness: pathlib.Path, interval: int, seed: int,
                              fixed: bool) -> None:
    random = oracle.splitmix64(seed)
    assert drawn_gaps(harness, interval, seed, fixed, 2000) == [
        oracle.gap(interval, fixed, random) for _ in range(2000)]


def test_splitmix64_is_splitmix64() -> None:
    # the first numbers of the published generator for the seed 1234567
    random = oracle.splitmix64(1234567)
    assert [next(random) for _ in range(5)] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423,
        4593380528125082431, 16408922859458223821]


def test_gaps_fit_in_the_largest_interval(harness: pathlib.Path) -> None:
    gaps = drawn_gaps(harness, 2**62, 0, False, 10000)
    assert max(gaps) == 2**62 and min(gaps) >= 0
    assert is_binomial(gaps.count(2**62), 10000, math.exp(-1))


@pytest.mark.parametrize("interval", [2, 10, 64, 1000, 524288, 2**40])
def test_gaps_are_distributed_exponentially(harness: pathlib.Path,
                                            interval: int) -> None:
    """Kolmogorov and Smirnov's distance, with Massart's bound, which holds
    for any distribution and any number: P(D > d) <= 2 exp(-2 n d**2)."""
    count = 100000
    below, distance = 0, 0.0
    gaps = collections.Counter(drawn_gaps(harness, interval, 42, False, count))
    for gap, times in sorted(gaps.items()):
        distance = max(distance,
                       abs(below / count + math.expm1(-gap / interval)))
        below += times
        distance = max(distance,
                       abs(below / count + math.expm1(-(gap + 1) / interval)))
    assert distance < math.sqrt(math.log(2 / IMPROBABLE) / (2 * count))


def test_tails_of_the_gaps(harness: pathlib.Path) -> None:
    """Anderson and Darling's statistic, which weighs the tails.  Its limit is
    a sum of Y / (j (j + 1)) over j >= 1, the Y being squares of normal
    variables; the mean of exp(0.9 * sum) is 5.16, and by Markov's inequality
    P(sum > 22.3) <= 5.16 exp(-0.9 * 22.3) < 1e-8."""
    count = 100000
    for seed in range(3):
        gaps = sorted(drawn_gaps(harness, 2**40, seed, False, count))
        z = [(gap + 0.5) / 2**40 for gap in gaps]
        total = sum((2 * i + 1) * (math.log(-math.expm1(-z[i])) - z[count - 1 - i])
                    for i in range(count))
        assert -count - total / count < 22.3


def test_mean_of_the_gaps(harness: pathlib.Path) -> None:
    """A sum of n exponential variables of mean 1 is (1 + d) n or more with
    probability exp(-n (d - log(1 + d))) at most, and so for d < 0."""
    count = 200000
    for seed in range(3):
        gaps = drawn_gaps(harness, 2**40, seed, False, count)
        d = sum(gaps) / 2**40 / count - 1
        assert count * (d - math.log1p(d)) < math.log(2 / IMPROBABLE)


def test_gaps_are_independent(harness: pathlib.Path) -> None:
    """The next gap is below the median as often as not, whatever this one."""
    count = 200000
    median = 2**40 * math.log(2)
    low = [gap < median for gap in drawn_gaps(harness, 2**40, 7, False, count)]
    for distance in (1, 2, 3, 10):
        same = sum(map(bool.__eq__, low, low[distance:]))
        assert is_binomial(same, count - distance, 0.5)


def test_seeds_differ(harness: pathlib.Path) -> None:
    first = {tuple(drawn_gaps(harness, 2**40, seed, False, 3))
             for seed in range(200)}
    assert len(first) == 200


SIZES = [8, 64, 512, 4096, 32768, 131072, 524288, 1048576, 4194304, 67108864,
         2**30]


@pytest.mark.parametrize("size", SIZES)
def test_probability_of_being_sampled(harness: pathlib.Path, size: int) -> None:
    interval = 524288
    count = 20000000 if size < 512 else 1000000
    (sampled,) = sampled_objects(harness, interval, size, False, 1, (size, count))
    assert is_binomial(sampled, count, -math.expm1(-size / interval))


class Kind(NamedTuple):
    """Objects of one size, allocated at one interval."""

    size: int
    interval: int
    allocated: int
    sampled: int


def are_totals_unbiased(kinds: list[Kind]) -> bool:
    """Horvitz and Thompson's estimator: each sampled object stands for 1 / p
    of its kind.  Compares the estimated bytes and objects with the true ones.

    Bernstein's inequality: the sum of independent variables of mean 0, at
    most m each, whose variances add up to v, is t or more with a probability
    of at most exp(-t**2 / 2 / (v + m t / 3))."""
    for power in (0, 1):                                # objects, bytes
        t = v = m = 0.0
        for size, interval, count, sampled in kinds:
            p = -math.expm1(-size / interval)
            t += size**power * (sampled / p - count)
            v += size**(2 * power) * count * (1 - p) / p
            m = max(m, size**power / p)
        if t**2 / 2 > math.log(2 / IMPROBABLE) * (v + m * abs(t) / 3):
            return False
    return True


def test_horvitz_thompson_is_unbiased(harness: pathlib.Path) -> None:
    interval, rounds = 16384, 20000
    pairs = [(16, 20), (24, 3), (160, 2), (1024, 1), (16384, 1), (40000, 1)]
    sampled = sampled_objects(harness, interval, 11, False, rounds, *pairs)
    kinds = [Kind(size, interval, count * rounds, k)
             for (size, count), k in zip(pairs, sampled)]
    assert are_totals_unbiased(kinds)
    # and it would tell if the weight were wrong: a tenth of the interval more
    assert not are_totals_unbiased(
        [kind._replace(interval=interval * 11 // 10) for kind in kinds])


def test_horvitz_thompson_through_the_nursery(harness: pathlib.Path) -> None:
    """The same with everything that draws gaps anew: memory pressure, other
    rates, collections, pinned objects, large objects."""
    once = """\
small 16 50
pressure
small 160 7
large 5000 0
rate 300
small 24 20
pin 0
collect
small 1024 3
pressure
large 2000 1
rate 2000
small 40 90
unpin 0
"""
    result = check(harness, "nursery 8192\npins 2\nstart 2000 12345 0\n"
                   + 400 * once + "stop\nsmall 16 1\n")
    assert result.totals.pressures == 800
    count: collections.Counter[tuple[int, int]] = collections.Counter()
    interval = 2000
    for event in result.events:
        if isinstance(event, oracle.Rate):
            interval = event.interval
        elif isinstance(event, oracle.Allocation):
            count[event.size, interval] += 1
    count[16, 2000] -= 1                                # behind the stop
    sampled = collections.Counter(
        (sample.size, sample.interval) for sample in result.samples)
    assert set(sampled) <= set(count)
    assert are_totals_unbiased([
        Kind(size, interval, n, sampled[size, interval])
        for (size, interval), n in count.items()])


@pytest.mark.parametrize("interval", [1, 7, 64, 4096, 14336, 2**40])
def test_fixed_gaps_sample_exactly(harness: pathlib.Path, interval: int) -> None:
    """Objects below the interval: one sample in each `interval` bytes."""
    for kinds in ([(8, 1000)], [(24, 333), (40, 21)], [(4000, 5), (16, 1), (56, 7)]):
        small = [(size, count) for size, count in kinds if size <= interval]
        total = 50 * sum(size * count for size, count in small)
        if total:
            assert sum(sampled_objects(harness, interval, 0, True, 50, *small)
                       ) == total // interval
    # above it: all of them
    assert sampled_objects(harness, interval, 0, True, 1, (8 * interval, 100)
                           ) == [100]


def test_fixed_gaps_alias_with_a_loop(harness: pathlib.Path) -> None:
    """Two sites in a loop, 24 and 40 bytes, at an interval of 16 KiB: what
    happened to be allocated before the loop decides which site gets all."""
    shares = []
    for before in range(16, 80, 8):
        result = check(harness, f"nursery 65536\nstart 16384 0 1\nsmall {before} 1\n"
                       + "small 24 1\nsmall 40 1\n" * (16384 // 64 * 10)
                       + "stop\nsmall 16 1\n")
        assert len(result.samples) == 10
        shares.append(sum(sample.size == 24 for sample in result.samples) / 10)
    assert set(shares) == {0.0, 1.0}
    assert shares.count(1.0) / len(shares) == 0.375


def test_exponential_gaps_do_not_alias(harness: pathlib.Path) -> None:
    rounds = 16384 // 64 * 10000
    first, second = sampled_objects(harness, 16384, 1, False, rounds,
                                    (24, 1), (40, 1))
    total = first + second
    assert abs(total - 10000) < 4 * math.sqrt(10000)
    assert abs(first / total - 0.375) < 4 * math.sqrt(0.375 * 0.625 / total)
