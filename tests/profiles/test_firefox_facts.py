"""Tests of types, lifetimes and collections in the Firefox profile."""
from __future__ import annotations

import collections

import pytest

from firefox_profiles import (
    MS,
    OTHER_TID,
    Json,
    allocated,
    converted,
    frames,
    functions,
    path_of,
)
from made_profiles import PID, Log


def entries(profile: Json, thread: int = 0) -> list[
        tuple[float, int, int, tuple[str, ...]]]:
    """Return the allocations and deaths of a thread (time, address, weight, stack)."""
    table = profile["threads"][thread]["nativeAllocations"]
    return [(time, address, weight, path_of(profile, stack))
            for time, address, weight, stack in zip(
                table["time"], table["memoryAddress"], table["weight"],
                table["stack"])]


def log_of(*sizes: int, facts: str = "types,lifetimes") -> Log:
    """Return a log in which f allocates objects of these sizes at 1, 2, ... ms.

    With fixed gaps, the weight of a sample is max(interval, size).
    """
    log = Log()
    f = log.function("f")
    log.settings(gaps="fixed", facts=facts)
    for number, size in enumerate(sizes):
        log.allocation([f], size=size, time=(number + 1) * MS)
    return log


def test_the_type_is_the_leaf_below_the_function() -> None:
    log = log_of(*[1000] * 6)
    types = [log.type("app.Node"), log.type(owner="list"),
             log.type(internal="JIT frame"), log.type(layout="GcStruct x.W_A { }"),
             0, log.type("f")]
    log.collection(50 * MS)
    for key, type_ in enumerate(types, 1):
        log.young(key, 0, type_)
    profile = converted(log)
    assert {path for _, _, weight, path in entries(profile) if weight > 0} == {
        ("f", name) for name in (
            "app.Node", "list (storage)", "<JIT frame>", "<W_A>",
            "[type not known]", "f")}
    assert {(name, *category) for name, *category, _ in frames(profile)} == {
        ("f", "Program", "Interpreted"),
        ("app.Node", "Type of object", "Class"),
        ("f", "Type of object", "Class"),
        ("list (storage)", "Type of object", "Storage"),
        ("<JIT frame>", "Type of object", "Interpreter's own"),
        ("<W_A>", "Type of object", "Interpreter's own"),
        ("[type not known]", "Type of object", "Other"),
        *((site, "Garbage collector", "Other") for site in (
            "[minor collection]", "[major collection]",
            "[not followed any further]"))}
    # a class and a function of the same name are distinct
    assert collections.Counter(name for name, *_ in functions(profile))["f"] == 2


def test_without_types_the_function_is_the_leaf() -> None:
    log = log_of(1000, facts="")
    assert allocated(converted(log)) == {("f",): 1000}
    log = log_of(1000, facts="lifetimes")
    log.collection(5 * MS)
    log.young(1, 1)
    assert entries(converted(log)) == [(1.0, 0, 1000, ("f",))]


def test_types_alone_offer_no_retained_memory() -> None:
    log = log_of(1000, facts="types")
    log.collection(5 * MS)
    log.young(1, 0, log.type("a"))
    profile = converted(log)
    assert allocated(profile) == {("f", "a"): 1000}
    assert "memoryAddress" not in profile["threads"][0]["nativeAllocations"]
    assert [c["name"] for c in profile["counters"]] == ["allocation-rate"]


def test_objects_end_when_and_where_they_were_collected() -> None:
    log = log_of(1000, 2000, 3000, 4000, 5000, 6000, 7000)
    a = log.type("a")
    log.collection(10 * MS)
    for key, outcome in enumerate((0, 1, 1, 9, 3, 1), 1):
        log.young(key, outcome, a)
    log.collection(20 * MS)
    log.freed(2)
    log.lose(6)
    found = entries(converted(log))
    ends = [(time, -weight, path) for time, _, weight, path in found
            if weight < 0]
    assert ends == [
        (10.0, 1000, ("[minor collection]",)),
        (10.0, 4000, ("[not followed any further]",)),
        (10.0, 5000, ("[not followed any further]",)),
        (20.0, 2000, ("[major collection]",)),
        (20.0, 6000, ("[not followed any further]",))]
    births = {address: weight for _, address, weight, _ in found if weight > 0}
    assert len(births) == 7
    for _, address, weight, _ in found:
        if weight < 0:
            assert births.pop(address) == -weight
    # the remaining objects are alive, or in the nursery
    assert sorted(births.values()) == [3000, 7000]


def test_each_thread_has_the_ends_of_its_own_objects() -> None:
    log = Log()
    f = log.function("f")
    log.settings(gaps="fixed", facts="types,lifetimes")
    log.allocation([f], size=1000, time=MS, thread=PID)
    log.allocation([f], size=2000, time=2 * MS, thread=OTHER_TID)
    log.collection(5 * MS)
    log.young(1, 0)
    log.young(2, 0)
    profile = converted(log)
    for number, (tid, size) in enumerate(((OTHER_TID, 2000), (PID, 1000)), 1):
        table = profile["threads"][number]["nativeAllocations"]
        assert table["weight"] == [size, -size]
        assert table["threadId"] == [tid, tid]


@pytest.mark.parametrize("collected", [0, MS // 2, MS])
def test_a_death_before_its_birth_is_at_its_birth(collected: int) -> None:
    """In a damaged profile, an object may die before its birth.

    The front end would attribute the early death to another object.
    """
    log = log_of(1000)
    log.collection(collected)
    log.young(1, 0)
    assert [(time, weight) for time, _, weight, _ in entries(converted(log))] == [
        (1.0, 1000), (1.0, -1000)]


def test_memory_in_use_is_a_track() -> None:
    log = log_of(1000, 2000, 3000)
    log.collection(10 * MS)
    log.young(1, 0)
    log.young(2, 1)
    log.collection(20 * MS)
    log.freed(2)
    counters = {c["name"]: c for c in converted(log)["counters"]}
    held = counters["held-memory"]
    assert held["display"]["label"] == "Memory (survived)"
    level, levels = 0, []
    for count in held["samples"]["count"]:
        level += count
        levels.append(level)
    assert (levels[4], levels[11], levels[-1]) == (6000, 5000, 3000)


def test_memory_in_use_is_a_track_even_without_collections() -> None:
    held = converted(log_of(1000))["counters"][1]
    assert held["name"] == "held-memory"
    assert sum(held["samples"]["count"]) == 1000


# ________________________________________
# markers


def markers(profile: Json) -> list[tuple[str, float, float | None, Json]]:
    table = profile["threads"][0]["markers"]
    strings = profile["shared"]["stringArray"]
    return list(zip((strings[name] for name in table["name"]),
                    table["startTime"], table["endTime"], table["data"]))


def test_collections_and_marks_are_markers() -> None:
    log = log_of(1000, 2000, 3000, 4000)
    log.event(1, 10 * MS, 2 * MS, 10_000)
    log.collection(12 * MS)
    for key in range(1, 5):
        log.young(key, int(key > 2))
    log.event(1, 20 * MS, MS, 5000)
    log.collection(20 * MS)
    log.freed(4)
    log.event(3, 20 * MS + 50_000, 0, 1)
    log.event(3, 40 * MS, 0, 2)
    log.mark(15 * MS, "warm \u00e4")
    assert markers(converted(log)) == [
        ("Minor collection", 10.0, 12.0, {
            "type": "MinorCollection", "allocated": 10_000, "promoted": 7000}),
        ("Mark", 15.0, None, {"type": "Mark", "text": "warm \u00e4"}),
        ("Minor collection", 20.0, 21.0, {
            "type": "MinorCollection", "allocated": 5000, "promoted": 0}),
        ("Major collection", 20.05, None, {
            "type": "MajorCollection", "number": 1, "freed": 4000}),
        ("Major collection", 40.0, None, {
            "type": "MajorCollection", "number": 2, "freed": 0})]


def test_the_profile_lasts_as_long_as_its_markers() -> None:
    log = log_of(1000)
    log.event(1, 500 * MS, 20 * MS, 1)
    assert converted(log)["meta"]["profilingEndTime"] >= 520


def test_without_events_there_are_no_markers() -> None:
    log = log_of(1000)
    assert markers(converted(log)) == []
