"""Tests of the estimated growth of leaks, in simulations with leaks of known growth."""
from __future__ import annotations

import io
import math
import random
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from made_leaks import (
    END,
    INTERVAL,
    MAJORS,
    SECOND,
    Kept,
    Life,
    brief,
    cache,
    churn,
    leak,
    probability,
    process_of,
    queue,
    settled,
    times,
    types,
)
from vmprof_convert.analysis.leaks.search import (
    Leak,
    Leaks,
    Rest,
    find_leaks,
)
from vmprof_convert.meaning.estimator import Estimate
from vmprof_convert.readers.pypy_stacks import COMPILER
from vmprof_convert.report.leaks.as_json import content_of_process, content_of_processes
from vmprof_convert.report.leaks.text import ProcessLeaks, write_leaks
from vmprof_convert.text.terminal import Terminal

WIDE = Terminal(1000)


class Plant(NamedTuple):
    """A leak of objects of several types, with `rate` samples per second in all."""

    rate: float
    sizes: tuple[int, ...]

    def objects(self, rng: random.Random, stack: str) -> Iterator[Kept]:
        for number, size in enumerate(self.sizes):
            for life in leak(rng, self.rate / len(self.sizes)):
                yield Kept(stack, "t%d" % number, size, *life)

    @property
    def bytes_per_second(self) -> float:
        return sum(self.rate / len(self.sizes) * size / probability(size)
                   for size in self.sizes)


class Held(NamedTuple):
    """The number of leaks that were found, and the accuracy of their estimates."""

    named: int
    #: the share of confidence intervals that contain the true growth
    held: float
    #: the mean ratio of the estimate to the true growth
    ratio: float


def named_leaks(rng: random.Random, runs: int, plants: int, rates: tuple[float, float],
                places: int) -> Held:
    """Simulate runs with leaks, and compare the found leaks with the planted ones.

    Args:
        rng: the source of random numbers.
        runs: the number of runs.
        plants: the number of leaks of each run.
        rates: the smallest and largest number of samples per second of a leak. The
            rates are evenly distributed on a logarithmic scale.
        places: the number of other allocation sites.
    """
    low, high = map(math.log, rates)
    named, held, ratio = 0, 0, 0.0
    for _ in range(runs):
        objects: list[Kept] = []
        planted: dict[str, Plant] = {}
        for number in range(plants):
            name = "leaks%d" % number
            plant = planted[name] = Plant(math.exp(rng.uniform(low, high)), tuple(
                rng.choice((16, 24, 32, 40)) for _ in range(rng.choice((1, 1, 2, 5)))))
            objects += plant.objects(rng, "main " + name)
            if rng.random() < 0.5:
                # the allocation site also has short-lived objects
                objects += of(churn(rng, plant.rate / 4), "main " + name, "t0")
                objects += of(brief(rng, plant.rate), "main " + name, "other")
        for number in range(places):
            lives = rng.choice((churn, settled, brief))(rng, rng.choice((2, 10)))
            objects += of(lives, "main f%d" % number, "t0")
        result = find_leaks([process_of(objects)])
        assert all(one.growth.low > 0.0 for one in result.leaks)
        for one in result.leaks:
            name = one.places[0].function.name
            if name not in planted:
                continue
            truth = planted[name].bytes_per_second * sum(result.seconds)
            named += 1
            held += one.growth.low <= truth <= one.growth.high
            ratio += one.growth.value / truth
    return Held(named, held / named, ratio / named)


def of(lives: list[Life], stack: str, type_: str, size: int = 16) -> list[Kept]:
    return [Kept(stack, type_, size, *life) for life in lives]


# The tolerance is 2.5 standard deviations, and the seed is fixed. With 200 leaks, the
# test fails if the confidence intervals are too narrow by a quarter. With 1000 leaks,
# the test also fails if the confidence intervals are too narrow by a tenth.
@pytest.mark.slow
@pytest.mark.parametrize("planted, error", [
    (200, 0.05), pytest.param(1000, 0.02, marks=pytest.mark.hard)])
def test_93_to_97_percent_of_intervals_contain_the_planted_growth(
        planted: int, error: float) -> None:
    """The leaks include barely significant leaks, and leaks of many types."""
    found = named_leaks(random.Random(1), planted, 1, (1.5, 30), 8)
    assert found.named > 0.7 * planted
    assert abs(found.held - 0.95) <= error
    assert abs(found.ratio - 1) <= error


@pytest.mark.slow
def test_leaks_found_by_chance_are_not_overestimated() -> None:
    """The search finds about one in six of the thirty small leaks of a run by chance.

    Without the correction in growth.py, the estimates of the found leaks would be too
    large by a quarter.
    """
    found = named_leaks(random.Random(2), 60, 30, (0.7, 1.6), 4)
    assert 100 < found.named < 900
    assert 0.93 <= found.held <= 0.99
    assert found.ratio < 1.12


def held_from(objects: list[Kept], first: float, last: float) -> float:
    """Return the estimated growth in bytes of the live objects.

    Args:
        objects: sampled objects.
        first: the second at which the growth starts.
        last: the second at which the growth ends.
    """
    return sum(one.size / probability(one.size) * (
        (one.born <= last < one.dropped) - (one.born <= first < one.dropped))
        for one in objects)


def test_garbage_that_is_found_alive_widens_the_interval_of_the_sum() -> None:
    """A collection finds garbage alive that waits for its finalizer.

    The number of such objects varies from collection to collection. The bytes that the
    program uses grow only by the leak.
    """
    rng = random.Random(4)
    runs, held, narrow = 200, 0, 0
    for _ in range(runs):
        plant = Plant(20.0, (16,))
        objects = [*plant.objects(rng, "main leaks"),
                   *of(churn(rng, 20), "main f", "str")]
        for time in MAJORS:
            objects += of([(time - rng.random(), time + 0.001)] * rng.choice(
                (0, 20, 60)), "main finalized", "Response")
        result = find_leaks([process_of(objects)])
        truth = plant.bytes_per_second * sum(result.seconds)
        held += result.growth.low <= truth <= result.growth.high
        narrow += abs(result.growth.value - truth) > 2 * INTERVAL * math.sqrt(
            20 * sum(result.seconds))
    assert held >= 0.9 * runs
    # these runs have an error of more than twice the sampling error
    assert narrow > 0.2 * runs


def test_a_list_that_is_enlarged_once_does_not_widen_the_interval() -> None:
    """The growth in one step is as certain as the same growth in small steps."""
    objects = of(leak(random.Random(5), 20.0), "main f", "str")
    jump = of([(11.5, math.inf)], "main f", "list (storage)", 10**6)
    calm, jumps = (find_leaks([process_of(kept)]).growth
                   for kept in (objects, objects + jump))
    assert jumps.value - calm.value == pytest.approx(10**6)
    assert jumps.high - jumps.low == pytest.approx(calm.high - calm.low)


def test_all_types_of_a_place_are_one_leak() -> None:
    """Only one of the types has enough samples to be significant alone."""
    rng = random.Random(3)
    plant = of(leak(rng, 20), "main keep", "app.Node")
    for number in range(20):
        plant += of(leak(rng, 0.5), "main keep", "part%d" % number)
    result = find_leaks([process_of(plant + of(churn(rng), "main f", "str"))])
    one, = result.leaks
    assert [type_.type.name for type_ in one.types if type_.p < 1.0] == ["app.Node"]
    assert len(one.types) == 21
    # the first collection after a quarter of the run is at 5 s, and the last at 20 s
    assert one.growth.value == pytest.approx(held_from(plant, 5, 20))
    assert sum(type_.growth.value for type_ in one.types) == pytest.approx(
        one.growth.value)


def test_types_that_are_not_significant_alone_are_a_leak_together() -> None:
    rng = random.Random(4)
    objects = []
    for number in range(30):
        objects += of(leak(rng, 0.4), "main keep", "part%d" % number)
    result = find_leaks([process_of(objects)])
    one, = result.leaks
    assert {type_.p for type_ in one.types} == {1.0} and one.p < 1e-9
    assert one.places[0].function.name == "keep"
    assert one.growth.value == pytest.approx(held_from(objects, 5, 20))


@pytest.mark.slow
def test_false_alarms_are_not_more_frequent_with_many_types() -> None:
    rng = random.Random(5)
    runs, alarms = 200, 0
    for _ in range(runs):
        objects = []
        for place in range(6):
            for number in range(8):
                lives = rng.choice((churn, settled, brief))(rng, rng.choice((0.5, 4)))
                objects += of(lives, "main f%d" % place, "t%d" % number)
        alarms += bool(find_leaks([process_of(objects)]).leaks)
    assert alarms <= runs * 0.05 + 4 * math.sqrt(runs * 0.05 * 0.95)


# ________________________________________
# growth without a leak


def test_leaks_and_the_rest_add_up_to_all_growth() -> None:
    rng = random.Random(6)
    for _ in range(20):
        objects = []
        for number in range(8):
            objects += of(leak(rng, rng.choice((0.5, 1, 2, 8))),
                          "main keep%d" % number, "t0")
        objects += of(queue(rng), "main work", "t1")
        objects += of(settled(rng) + churn(rng), "main f", "t1")
        result = find_leaks([process_of(objects)])
        parts: list[Leak | Rest] = [*result.leaks, *result.slowing, result.rest]
        assert sum(part.growth.value for part in parts) == pytest.approx(
            result.growth.value)
        for number in range(2):
            assert sum(part.windows[number] for part in parts) == pytest.approx(
                result.windows_growth[number])
        assert result.growth.value == pytest.approx(held_from(objects, 5, 20))
        assert sum(one.growth.value for one in result.rest.places) == pytest.approx(
            result.rest.growth.value, abs=0.05 * result.growth.value)


def test_the_rest_is_a_line_with_its_largest_places() -> None:
    rng = random.Random(7)
    objects = of(leak(rng, 20), "main keep", "app.Node")
    for number in range(5):
        # the objects are so large that each is sampled, and too few to be a leak
        objects += [Kept("main g%d" % number, "big", 50_000 * (number + 1), time,
                         math.inf) for time in (6.5, 11.5, 16.5)]
    objects += of(churn(rng), "main f", "str")
    text = said(find_leaks([process_of(objects)]))
    rest = next(number for number, line in enumerate(text)
                if line.startswith("the rest"))
    assert text[rest].startswith("the rest: the live bytes of other places grew by 1")
    assert text[rest].endswith("; most of it:")
    assert [line.partition("big  ")[2][:2] for line in text[rest + 1:rest + 5]] == [
        "g4", "g3", "g2", ""]
    assert text[rest + 4].startswith("all together: the live bytes grew by")


def test_report_without_a_leak_has_the_largest_growth() -> None:
    """A single growing list has too few objects to be a leak beyond doubt."""
    rng = random.Random(15)
    result = find_leaks([process_of(
        grown("main note", "list (storage)", 20_000, 5_000)
        + of(churn(rng, 100), "main f", "str"))])
    assert result.leaks == []
    text = said(result)
    assert text[0].startswith("no leak was found in the GC's heap: no place that ")
    assert re.fullmatch(r"      [\d.]+ ±[\d.]+ KiB/s  list \(storage\)  note  "
                        r"app.py:1  <- main  app.py:1", text[2]), text


def test_objects_freed_after_the_examined_time_are_alive_in_it() -> None:
    rng = random.Random(16)
    objects = [one._replace(dropped=18.0) for one in of(
        leak(rng, 40), "main keep", "app.Node") if one.born < 14]
    process = process_of(objects)._replace(part=(4 * SECOND, 14 * SECOND))
    one, = find_leaks([process]).leaks
    assert one.growth.value == pytest.approx(held_from(objects, 4, 13))


# ________________________________________
# storage


def grown(stack: str, type_: str, size: float, rate: float,
          begin: float = 0.0) -> list[Kept]:
    """Return the storage objects of a growing list.

    A storage object that is full is replaced by a larger one.

    Args:
        stack: the stack of the allocations.
        type_: the type of the storage.
        size: the bytes of the first storage object.
        rate: the growth of the list in bytes per second.
        begin: the second at which the list starts to grow.
    """
    result = []
    while begin < END:
        end = begin + size / 8 / rate
        result.append(Kept(stack, type_, int(size), begin,
                           end if end < END else math.inf))
        begin, size = end, size * 9 / 8
    return result


def exactly(objects: list[Kept], first: float, last: float) -> int:
    """Return the exact growth in bytes from second `first` to second `last`."""
    return sum(one.size * ((one.born <= last < one.dropped)
                           - (one.born <= first < one.dropped)) for one in objects)


@pytest.mark.slow
def test_lists_that_only_grow_are_not_a_queue() -> None:
    """A growing list replaces its storage again and again, so that no storage stays."""
    rng = random.Random(8)
    held = 0
    for _ in range(40):
        objects = [one for _ in range(600) for one in grown(
            "main note", "list (storage)", 16, 60, rng.uniform(-1, 1))]
        result = find_leaks([process_of([
            one for one in objects if rng.random() < probability(one.size)])])
        one, = result.leaks
        assert one.stayed is None and not one.is_replaced
        assert "as in a queue" not in "\n".join(said(result))
        held += one.growth.low <= exactly(objects, 5, 20) <= one.growth.high
    assert held >= 34


def test_storage_of_waiting_objects_is_a_queue() -> None:
    """The number of storage objects grows, and their size does not."""
    rng = random.Random(9)
    backlog = [(time, time + 2 + time / 4) for time, _ in leak(rng, 160)]
    result = find_leaks([process_of(of(backlog, "main put", "list (storage)"))])
    one, = result.leaks
    assert one.stayed is not None and one.stayed < 0.1
    assert "the objects come and go, as in a queue" in "\n".join(said(result))


def test_objects_that_are_all_sampled_have_no_error() -> None:
    """A large list replaces its storage, and each storage object is sampled.

    The allocation site also has small objects, which are not all sampled.
    """
    rng = random.Random(10)
    objects = of(leak(rng, 20), "main note", "str")
    storage = grown("main note", "list (storage)", 30_000, 10_000)
    result = find_leaks([process_of(objects + storage)])
    one, = result.leaks
    of_type = {type_.type.name: type_.growth for type_ in one.types}
    list_ = of_type["list (storage)"]
    assert list_.value == pytest.approx(exactly(storage, 5, 20))
    # the sampler may have missed small storage objects
    assert list_.high - list_.low < 6 * INTERVAL


# ________________________________________
# allocation sites


def test_constructors_and_comprehensions_count_as_their_callers() -> None:
    """Two functions make objects of a class, and one function keeps its objects."""
    rng = random.Random(11)
    objects = []
    for stack in ("main keep __init__ __init__", "main keep <listcomp>", "main keep"):
        objects += of(leak(rng, 6), stack, "list")
    for stack in ("main drop __init__ __init__", "main drop"):
        objects += of(churn(rng, 20), stack, "list")
    one, = find_leaks([process_of(objects)]).leaks
    assert [place.function.name for place in one.places] == ["keep", "main"]
    kept = [of_it for of_it in objects if " keep" in of_it.stack]
    assert one.growth.value == pytest.approx(held_from(kept, 5, 20))
    # a constructor without a caller has its own row
    assert [place.function.name for place in find_leaks(
        [process_of(of(leak(rng), "__init__", "x"))]).leaks[0].places] == ["__init__"]


def test_several_callers_are_shown_with_their_shares() -> None:
    rng = random.Random(12)
    objects = (of(leak(rng, 30), "main one make", "str")
               + of(leak(rng, 10), "main two make", "str")
               + of(leak(rng, 10), "main two rest only", "str")
               + of(leak(rng, 0.1), "main three rest only", "str"))
    result = find_leaks([process_of(objects)])
    make, only = result.leaks
    assert [place.function.name for place in make.places] == ["make"]
    share = held_from([one for one in objects if "one make" in one.stack], 5, 20
                      ) / make.growth.value
    assert [place.function.name for place, _ in make.callers] == ["one", "two"]
    assert [of_it for _, of_it in make.callers] == pytest.approx([share, 1 - share])
    assert [place.function.name for place in only.places] == ["only", "rest", "two"]
    text = said(result)
    assert text[0].startswith("leak: str  make  app.py:")
    assert "called by one  app.py:" in text[2] and "%), two  app.py:" in text[2]
    callers = content_of_process(process_of(objects).profile, result)[
        "leaks"][0]["callers"]
    assert [caller["place"]["function"]["name"] for caller in callers] == ["one", "two"]
    assert sum(caller["share"] for caller in callers) == pytest.approx(1)


def test_growth_of_the_jit_is_separate() -> None:
    """The JIT's own objects are not a leak of the function that it compiles.

    Internal objects of the interpreter alone are not a leak either.
    """
    rng = random.Random(13)
    objects = (of(leak(rng, 20), "main keep", "app.Node")
               + of(leak(rng, 20), "main keep", "<weak reference>")
               + of(leak(rng, 20), "main hot", "<JIT compiler>")
               + of(leak(rng, 20), "main other", "<map>"))
    result = find_leaks([process_of(objects)])
    one, = result.leaks
    assert [type_.type.name for type_ in one.types] == ["app.Node", "<weak reference>"]
    assert one.growth.value == pytest.approx(held_from([
        of_it for of_it in objects if " keep" in of_it.stack], 5, 20))
    jit = held_from([of_it for of_it in objects if "JIT" in of_it.type], 5, 20)
    assert result.apart.value == pytest.approx(jit)
    assert result.growth.value == pytest.approx(held_from(objects, 5, 20) - jit)
    text = said(result)
    assert text[0].startswith("leak: app.Node  keep")
    assert any(line.startswith("not included: the data of the JIT and of imports: ")
               for line in text)


def test_allocations_of_the_jit_are_not_a_leak() -> None:
    """Most objects that the JIT allocates have types that programs use, too."""
    rng = random.Random(13)
    process = process_of(of(leak(rng, 20), "main keep", "app.Node")
                         + of(leak(rng, 20), "main hot compiles", "int (storage)"))
    functions = process.profile.functions
    compiles, = (address for address, function in functions.items()
                 if function.name == "compiles")
    functions[compiles] = COMPILER
    result = find_leaks([process])
    assert [one.places[0].function.name for one in result.leaks] == ["keep"]
    assert result.apart.value > 0


def test_a_large_growing_object_is_in_the_headline() -> None:
    """A list replaces its storage when it is full.

    The storage has few samples, but it is most of the heap.
    """
    rng = random.Random(3)
    objects = of(churn(rng), "main f0", "str")
    for second in range(20):
        objects.append(Kept("main fill", "int array (storage)", (second + 1) << 20,
                            second, second + 1 if second < 19 else 30))
    result = find_leaks([process_of(objects)])
    assert result.leaks == []
    text = said(result)
    assert text[0].startswith("the live bytes grew by 1.")
    assert "no place clearly grew in both windows" in text[0]
    assert "int array (storage)  fill" in text[1]


def test_one_type_that_slows_down_does_not_slow_its_site() -> None:
    """At `keep`, a table stops growing, and other objects are kept only later."""
    rng = random.Random(1)
    late = [(t, math.inf) for t in times(rng, lambda t: 100 if t > 12 else 0, 100)]
    result = find_leaks([process_of([
        *of(cache(rng, 20), "main keep", "table"), *of(late, "main keep", "Node"),
        *of(cache(rng), "main fill", "table"), *of(churn(rng), "main fill", "Node")])])
    slowing = {leak.places[0].function.name: types([leak])[0]
               for leak in result.slowing}
    assert slowing["keep"] == ["table"]
    # an allocation site that slows down as a whole has all its types
    assert sorted(slowing["fill"]) == ["Node", "table"]
    assert [(leak.places[0].function.name, types([leak])[0])
            for leak in result.rest.places] == [("keep", ["Node"])]
    named = sum(leak.growth.value for leak in result.leaks + result.slowing)
    assert named + result.rest.growth.value == pytest.approx(result.growth.value)


# ________________________________________
# several processes


@pytest.mark.parametrize("rates, expected", [
    ((20, 20, 20), "in each of the 3 processes"),
    ((0, 20, 40), r"in process 2 \([\d.]+ B/s\), 1 \([\d.]+ B/s\), of 3 processes"),
    ((0, 40, 0), r"in process 1 \([\d.]+ B/s\), of 3 processes"),
    ((40,) * 6 + (0,),
     r"in process (\d \([\d.]+ B/s\), ){4}and 2 more, of 7 processes")])
def test_report_names_the_processes_in_which_a_leak_grows(rates: tuple[float, ...],
                                                          expected: str) -> None:
    rng = random.Random(14)
    processes = [process_of(of(churn(rng), "main f", "str") + (
        of(leak(rng, rate), "main keep", "app.Node") if rate else []))
        for rate in rates]
    result = find_leaks(processes)
    one, = result.leaks
    assert sum(growth.value for growth in one.processes) == pytest.approx(
        one.growth.value, rel=0.1)
    alone = [find_leaks([process]) for process in processes]
    line, = (line for line in said(result, [
        ProcessLeaks(str(number), process.profile, found)
        for number, (process, found) in enumerate(zip(processes, alone))])
        if line.startswith("      in "))
    assert re.fullmatch("      " + expected, line.replace("KiB", "B"))
    content = content_of_processes([
        (process.profile, found) for process, found in zip(processes, alone)], result)
    assert [of_it["growth"]["value"] for of_it in content["together"]["leaks"][0][
        "processes"]] == [growth.value for growth in one.processes]


def test_growth_of_each_process_may_be_too_small_to_tell() -> None:
    processes = [process_of(of(leak(random.Random(seed)), "main keep", "str"))
                 for seed in range(2)]
    result = find_leaks(processes)
    unclear = Estimate(100.0, -1.0, 201.0)
    result = result._replace(leaks=[
        one._replace(processes=[unclear, unclear]) for one in result.leaks])
    found = "      the growth in each of the 2 processes is too small to tell"
    assert found in said(result, [
        ProcessLeaks(str(number), process.profile, find_leaks([process]))
        for number, process in enumerate(processes)])


def said(result: Leaks, parts: list[ProcessLeaks] | None = None) -> list[str]:
    text = io.StringIO()
    write_leaks(process_of([]).profile, result, text, terminal=WIDE,
                 parts=parts or ())
    return text.getvalue().splitlines()
