"""The sample point during collections, with memory pressure, and with pinned and large
objects."""
from __future__ import annotations

import pathlib

import pytest

from nursery_traces import OFF, PINNED, build_harness, check, places
from oracle import Sample

# ____________________________________________________________
# collections

def test_retry_after_a_collection_has_enough_room(harness: pathlib.Path) -> None:
    # The object fills the nursery, and contains the next sample point.  If the point is
    # placed before the retry, the retry fails.
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


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build_harness()


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
    # collect_and_reserve() moves nursery_free to just before nursery_top, and these
    # bytes belong to no object
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
    # after the first collection, the finalizers fill the nursery
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
    # Within collect_and_reserve(), these objects do not count.  nursery_top is then the
    # real top, which the collector uses.  Elsewhere, the objects count.
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
        # the gap was drawn again before the large object; bytes before the memory
        # pressure do not count
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
    # nursery_free is equal to our former nursery_top, where no object can begin
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

#: Numbers of objects of 16 bytes before, between and after the two pinned objects of
#: PINNED.  These are at 1600 (64 bytes) and at 2448 (16 bytes).
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
    assert "small 251 16 1664" in result.program        # after the first pinned object
    # a collection by hand, and a collection each time that the three areas are full
    assert result.program.count("collection") == 1 + 1000 // sum(AREAS)


def test_skipped_bytes_before_a_pinned_object_are_not_sampled(
        harness: pathlib.Path) -> None:
    # Most of the 1592 bytes before the pinned object are wasted.  If they counted, 80
    # points would lie in the waste.
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
    # 1616 bytes only fit after the second pinned object, so 1584 and 784 bytes before
    # the two are wasted.  The sampled byte has the number 1999, and
    # 16 + 1616 + 352 = 1984 bytes precede the fourth object.
    assert places(result)[-6:-3] == [0, 2464, 0]
    assert result.sampled == [154]


def test_unpin_then_sampling_does_not_overlap(harness: pathlib.Path) -> None:
    # no object is pinned any more, but the memory after the barriers is occupied until
    # the next collection
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
    # with an outdated top, the GC would collect before the nursery is full
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
    # 160 + 8000 + 114 * 16 = 9984, and byte 9999 is the last byte of the next object
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
