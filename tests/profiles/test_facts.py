"""Tests of the reader with records of objects, types, collections and users' marks.

The outcomes and types of sampled objects are known from the garbage collector.
"""
from __future__ import annotations

import random

import pytest

import report_runs
from made_profiles import (
    ENDED,
    FIGURES,
    LABELS,
    MARKS,
    NAMES,
    OBJECTS,
    TOTALS,
    TYPES,
    Log,
    column,
    record,
    table,
)
from vmprof_allocation.engines.hook.probe import names as probed
from vmprof_convert import readers
from vmprof_convert.analysis import summary
from vmprof_convert.errors import ProfileError
from vmprof_convert.meaning.type_names import (
    CLASS,
    INTERNAL,
    LAYOUT,
    NOT_KNOWN,
    SHARED,
    STORAGE,
    TypeNames,
)
from vmprof_convert.profile.model import (
    ALIVE,
    DIED,
    FREED,
    LOST,
    PENDING,
    UNKNOWN,
    UNTOLD,
    Collection,
    Mark,
    Profile,
    Type,
)
from vmprof_convert.report import tables


def sampled(*sizes: int, facts: str = "types,lifetimes") -> Log:
    """Return a log of objects of these sizes, allocated at 10, 20, ... ns."""
    log = Log()
    f = log.function("f")
    log.settings(facts=facts)
    for number, size in enumerate(sizes):
        log.allocation([f], size=size, time=10 + 10 * number)
    return log


def read(log: Log) -> Profile:
    return readers.read_bytes(log.data())


#: time, size, type name, outcome, time of the first minor collection, time of the end
Row = tuple[int, int, str, int, int, int]


def rows(log: Log) -> list[Row]:
    profile = read(log)
    samples = profile.samples
    names = TypeNames(profile)
    return sorted((time, size, names.shown(type_).name, *rest) for
                  time, size, type_, *rest in zip(
                      samples.time, samples.size, samples.type, samples.fate,
                      samples.collected, samples.ended))


def said(log: Log) -> str:
    return report_runs.text(read(log))


NONE = "[type not known]"


def test_each_outcome() -> None:
    log = sampled(*range(16, 24))
    node, leaf = log.type("app.Node"), log.type("app.Leaf")
    log.collection(500)
    for key, outcome, type_ in ((1, 0, node), (2, 1, leaf), (3, 1, node),
                                (4, 0, node), (5, 3, 0), (6, 1, 0), (7, 9, leaf)):
        log.young(key, outcome, type_)
    log.collection(900)
    log.freed(2)
    log.lose(6)
    assert rows(log) == [
        (10, 16, "app.Node", DIED, 500, -1),
        (20, 17, "app.Leaf", FREED, 500, 900),
        (30, 18, "app.Node", ALIVE, 500, -1),
        (40, 19, "app.Node", DIED, 500, -1),
        (50, 20, NONE, UNKNOWN, 500, -1),
        (60, 21, NONE, LOST, 500, 900),
        # this version of the reader does not know the outcome 9
        (70, 22, "app.Leaf", UNKNOWN, 500, -1),
        (80, 23, NONE, PENDING, -1, -1)]
    assert read(log).misfits == 0


def test_keys_in_any_order() -> None:
    log = sampled(16, 17, 18)
    a, b, c = (log.type(name) for name in "abc")
    log.collection(100)
    log.young(3, 1, c)
    log.young(1, 1, a)
    log.flush()
    log.collection(100, 1)
    log.young(2, 1, b)
    log.collection(200)
    log.freed(1)
    log.flush()
    log.collection(300)
    log.freed(3)
    assert rows(log) == [
        (10, 16, "a", FREED, 100, 200), (20, 17, "b", ALIVE, 100, -1),
        (30, 18, "c", FREED, 100, 300)]


def test_batched_allocation_has_a_row_per_object() -> None:
    """Each object has its own size and outcome."""
    log = sampled(300)
    a, b = log.type("a"), log.type("b")
    log.collection(100)
    log.young(1, 1, a, 100)
    log.young(1, 1, b, 160)
    log.young(1, 0, a, 40)
    log.collection(200)
    log.freed(1, 1)
    log.collection(300)
    log.freed(1)
    assert rows(log) == [(10, 40, "a", DIED, 100, -1),
                         (10, 100, "a", FREED, 100, 300),
                         (10, 160, "b", FREED, 100, 200)]
    samples = read(log).samples
    assert len(set(zip(samples.stack, samples.thread, samples.interval))) == 1


def test_counts_of_lost_and_cut_stacks_are_counts_of_objects() -> None:
    """Each object of a batched allocation is counted, as in all counts of samples."""
    log = Log()
    f = log.function("f")
    log.settings(facts="types,lifetimes")
    log.allocation(None, size=300)
    log.allocation([f] * 509, size=300)
    log.collection(100)
    for key in 1, 2:
        log.young(key, 0, 0, 100)
        log.young(key, 0, 0, 100)
    profile = read(log)
    assert (profile.lost_stacks, profile.cut_stacks) == (2, 2)
    assert len(profile.samples) == 4


def test_objects_of_a_batched_allocation_in_two_records() -> None:
    log = sampled(300)
    a = log.type("a")
    log.collection(100)
    log.young(1, 0, a, 100)
    log.flush()
    log.young(1, 0, a, 120)
    assert [row[1] for row in rows(log)] == [100, 120]
    assert read(log).misfits == 0


def test_batched_allocation_of_unknown_objects_has_one_row() -> None:
    log = sampled(300)
    log.collection(100)
    log.young(1, 3)
    assert rows(log) == [(10, 300, NONE, UNKNOWN, 100, -1)]
    assert ("batched allocations: the types and outcomes of 1 sampled object (1.13 "
            "KiB) are unknown, ") in said(log)


def test_notes_about_negligible_bytes_are_omitted() -> None:
    """The report notes batched allocations of at least a thousandth of all bytes."""
    for small, is_said in ((16, False), (160_000, True)):
        log = sampled(*[100_000] * 100, small)
        log.collection(5000)
        for key in range(1, 101):
            log.young(key, 1, log.type("a"))
        log.young(101, 3)
        text = said(log)
        assert ("batched allocations: " in text) == is_said
        assert "batched allocations: " not in said(sampled(100_000))


def test_note_on_survivors_needs_a_survivor() -> None:
    for outcome, is_said in ((0, False), (1, True)):
        log = sampled(300)
        log.collection(100)
        log.young(1, outcome)
        assert ("\nsurvived: " in said(log)) == is_said


def test_notes_with_the_largest_effect_come_first() -> None:
    log = sampled(300, 300)
    f = log.function("deep")
    log.allocation([f] * 509, size=300)
    log.collection(100)
    log.young(1, 1)
    log.young(2, 3)
    log.figure(1, 50, 2**30)
    found = [line.partition(":")[0] for line in said(log).splitlines()]
    wanted = ["estimated total", "survived", "cut", "batched allocations",
              "resident memory"]
    assert [word for word in found if word in wanted] == wanted


def test_events_that_fit_no_object_are_ignored_and_counted() -> None:
    log = sampled(16, 32)
    a = log.type("a")
    log.collection(100)
    log.young(1, 1, a)
    log.young(2, 0, a)
    log.collection(200)
    log.freed(1)
    log.freed(1, 7)                 # the allocation has no object of this number
    log.freed(2)                    # this object died in the nursery
    for key in 0, 3, -3, 2**40:
        log.freed(key)
    assert read(log).misfits == 6
    assert "skipped: 6 object events without a matching sample; " in said(log)
    assert rows(log) == [(10, 16, "a", FREED, 100, 200), (20, 32, "a", DIED, 100, -1)]


def test_settings_that_announce_neither_types_nor_lifetimes() -> None:
    """Without announced lifetimes, a missing outcome is not a pending outcome."""
    log = sampled(16, facts="")
    profile = read(log)
    assert list(profile.samples.fate) == [UNTOLD]
    assert not profile.has_types and not profile.has_lifetimes


def test_types_without_lifetimes() -> None:
    log = sampled(16, 17, facts="types")
    log.collection(100)
    log.young(1, 1, log.type("a"))
    assert rows(log) == [(10, 16, "a", UNTOLD, -1, -1),
                         (20, 17, NONE, UNTOLD, -1, -1)]
    profile = read(log)
    assert profile.has_types and not profile.has_lifetimes


def test_records_about_an_earlier_segment_are_ignored() -> None:
    """The setting `part` is the number of a segment (see PROFILE.rst)."""
    log = Log()
    log.settings(part=2, first=1001, facts="types,lifetimes")
    log.keys = 1000
    log.earlier(1000, [], size=16)
    log.allocation([log.function("f")], size=24, time=10)
    log.collection(50)
    log.young(1000, 0)
    log.young(1001, 0)
    profile = read(log)
    assert (list(profile.samples.fate), profile.misfits) == ([DIED], 0)


def test_a_pinned_object_is_pending_longer_than_later_objects() -> None:
    """A collection does not move a pinned object, whose outcome is known later."""
    log = sampled(16, 17, 18)
    log.flush()
    log.collection(100)
    log.young(2, 1)
    log.flush()
    log.allocation([log.function("g")], size=19, time=110)
    log.flush()
    profile = readers.read_bytes(bytes(log.bytes))
    assert sorted(zip(profile.samples.size, profile.samples.fate)) == [
        (16, PENDING), (17, ALIVE), (18, PENDING), (19, PENDING)]


def test_a_killed_run_has_the_last_known_outcomes() -> None:
    log = sampled(16, 17)
    log.collection(100)
    log.young(1, 1)
    log.flush()
    profile = readers.read_bytes(bytes(log.bytes))
    assert profile.end_time is None
    assert sorted(profile.samples.fate) == [PENDING, ALIVE]


# ________________________________________
# types


@pytest.mark.parametrize("names,name,kind", [
    ({"python": "app.Node", "layout": "GcStruct x.W_Y { }"}, "app.Node", CLASS),
    ({"owner": "list", "layout": "GcArray of INT "}, "list (storage)", STORAGE),
    ({"internal": "JIT frame", "layout": "JITFRAME"}, "<JIT frame>", INTERNAL),
    ({"layout": "GcStruct pypy.objspace.std.mapdict.Terminator { super }"},
     "<Terminator>", LAYOUT),
    ({"layout": "GcStruct rpy_string { hash, chars }"}, "<rpy_string>", LAYOUT),
    ({"layout": "GcArray of * GcArray of * GcStruct tuple2 { item0, item1 }  "},
     "<array of array of tuple2>", LAYOUT),
    ({"layout": "GcArray of odictentry { key: Signed, value: Void } "},
     "<array of odictentry>", LAYOUT),
    ({"layout": "GcArray of * GCREF (gcopaque) "}, "<array of GCREF>", LAYOUT),
    ({"layout": "member12   GcStruct tuple2 { item0 }"}, "<tuple2>", LAYOUT),
    ({"layout": "?"}, "<type 76>", LAYOUT),
    ({"layout": ""}, "<type 76>", LAYOUT),
    ({"python": "\x1b[31m\n\u2028x"}, "?[31m??x", CLASS),
    ({"python": "a" * 1000}, "a" * 197 + "...", CLASS),
    ({"layout": "GcStruct " + "a" * 10**5}, "<" + "a" * 197 + "...>", LAYOUT),
    ({"layout": "GcArray of " * 10**4},
     "<%s...>" % ("array of " * 30)[:197], LAYOUT),
    ({"python": "\U0001f40d.\u00e4"}, "\U0001f40d.\u00e4", CLASS),
])
def test_displayed_name_of_a_type(names: dict[str, str], name: str, kind: str) -> None:
    log = sampled(16)
    number = log.type(gc=77, **names) if any(names.values()) else 1
    if not any(names.values()):
        log.row(TYPES, 1, 1, 76, text="")
    log.collection(50)
    log.young(1, 0, number)
    profile = read(log)
    assert TypeNames(profile).shown(profile.samples.type[0]) == (name, kind)


def test_storage_can_be_shown_as_its_owner() -> None:
    profile = read(sampled())
    profile.types[:] = [Type(owner="list"), Type(python="list")]
    plain, grouped = TypeNames(profile), TypeNames(profile, group_storage=True)
    assert plain.shown(0) != plain.shown(1) == grouped.shown(1)
    assert grouped.shown(0) == grouped.shown(1)


def test_storage_shared_by_many_types_keeps_its_name() -> None:
    """The owner of shared storage is a description, and not a class."""
    profile = read(sampled())
    profile.types[:] = [Type(owner=name) for name in ("object array", "characters")]
    plain, grouped = TypeNames(profile), TypeNames(profile, group_storage=True)
    for number, name in enumerate(("object array (storage)", "characters (storage)")):
        assert plain.shown(number) == grouped.shown(number) == (name, STORAGE)


def test_sampler_and_converter_agree_on_shared_storage() -> None:
    assert {name for _, name in (*probed.ITEMS, *probed.STRUCTS)} == SHARED


def test_a_type_without_a_name_is_unknown() -> None:
    log = sampled(16)
    log.collection(50)
    log.young(1, 0, 99)
    profile = read(log)
    assert TypeNames(profile).shown(profile.samples.type[0]) == (NONE, NOT_KNOWN)


def test_the_first_name_of_each_kind_is_used() -> None:
    log = sampled(16)
    log.row(TYPES, 5, 1, -1, text="GcStruct a { }")
    log.row(TYPES, 5, 2, 7, text="b")
    log.row(TYPES, 5, 2, -1, text="c")
    log.row(TYPES, 5, 7, -1, text="of a kind to be invented")
    log.collection(50)
    log.young(1, 0, 5)
    profile = read(log)
    assert profile.types == [Type("GcStruct a { }", "b", "", "", 7)]
    assert profile.unknown == {"name of a type 7": 1}


def test_a_name_that_is_not_utf_8() -> None:
    log = sampled(16)
    log.row(TYPES, 1, 2, -1, text=b"\xff\x41")
    log.collection(50)
    log.young(1, 0, 1)
    assert [row[2] for row in rows(log)] == ["\ufffdA"]


# ________________________________________
# events and marks


def test_events_and_marks_are_sorted_by_time() -> None:
    log = sampled(16)
    log.event(3, 700, 0, 1)
    log.event(1, 600, 55, 4096)
    log.mark(900, "warm")
    log.mark(100, "begin \u00e4")
    profile = read(log)
    assert profile.collections == [Collection(False, 600, 55, 4096),
                                   Collection(True, 700, 0, 1)]
    assert profile.marks == [Mark(100, "begin \u00e4"), Mark(900, "warm")]


def test_columns_and_records_of_later_versions_are_skipped() -> None:
    log = sampled(16)
    log.collection(100)
    log.young(1, 0)
    log.flush()
    # a row with one column more than this version knows
    log.bytes += table(ENDED, [(9, 0, 0, 100, 12345)])
    log.bytes += table(40, [(1, 2, 3)]) + table(40, [(1,)]) + table(30, [])
    log.row(FIGURES, 77, 1, 2)
    log.row(NAMES, 9, 1, text="?")
    profile = read(log)
    assert profile.unknown == {"record 40": 2, "record 30": 1, "figure 77": 1,
                               "name 9": 1}
    assert (list(profile.samples.fate), profile.misfits) == ([DIED], 1)
    assert "record 40 (2)" in said(log)


# ________________________________________
# damaged records

_OBJECT = (1, 0, 5, 4321, -1, 0, 0, 16, 1000, 0, 0, 0, 0)


def _object(**changes: int) -> bytes:
    names = ("key", "which", "time", "thread", "stack", "label", "memory", "size",
             "interval", "type", "outcome", "collection", "live_size")
    return table(OBJECTS, [tuple(
        changes.get(name, value) for name, value in zip(names, _OBJECT))])


@pytest.mark.parametrize("data", [
    record(kind, columns, rows)
    for kind in (TOTALS, TYPES, ENDED, OBJECTS, MARKS, LABELS)
    for columns, rows in (
        ([], 1), ([column([1, 2])], 2), ([b"\7"] * 13, 1), ([b"\x08"] * 13, 1),
        ([b"\x10"] * 13, 1), ([b"\x20"] * 13, 1), ([b"\0"] * 13, 2**20 + 1),
        ([b"\x01"] * 13, 9))
] + [
    table(TYPES, [(1, 2, -1, 5)], b"abcd"), table(TYPES, [(1, 2, -1, -1)], b"abcd"),
    table(TYPES, [(0, 2, -1, 1)], b"a"), table(ENDED, [(1, -1, 0, 5)]),
    table(ENDED, [(1, 2**16, 0, 5)]), table(ENDED, [(2**62, 0, 0, 5)]),
    _object(key=0), _object(size=0), _object(size=-8), _object(interval=0),
    _object(stack=9), _object(label=9), _object(live_size=16), _object(live_size=-1),
])
def test_hostile_records(data: bytes) -> None:
    log = sampled(16)
    log.flush()
    log.bytes += data
    with pytest.raises(ProfileError, match=r"damaged profile: .* at byte"):
        read(log)


def rich() -> Log:
    log = sampled(*range(16, 400, 8))
    types = [log.type("a"), log.type(owner="b"), log.type(internal="c"),
             log.type(layout="GcStruct d { }")]
    log.collection(1000)
    for key in range(1, 40):
        log.young(key, key % 4, types[key % 4], key % 3 * 8 or None)
    log.collection(2000)
    for key in range(1, 40, 8):
        log.freed(key)
    log.event(1, 1000, 1, 1)
    log.event(3, 2000, 1, 1)
    log.mark(1500, "here")
    return log


def test_random_damage_raises_no_other_error() -> None:
    rng = random.Random(1)
    good = rich().data()
    start = good.index(b"A", 60)
    refused = 0
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(start, len(data))] = rng.randrange(256)
        try:
            profile = readers.read_bytes(bytes(data))
            for by in (summary.FUNCTION,), (summary.TYPE,):
                tables.of(profile, summary.Choice(by))
        except ProfileError:
            refused += 1
    assert 0 < refused < 3000
