"""Tests of the rows of the memory report, which add up to the resident memory.

The rows are calculated from numbers of Linux, malloc and the GC.
"""
from __future__ import annotations

import json
import random

import pytest

from vmprof_convert.analysis import where_memory
from vmprof_convert.report import where_memory as report

MIB = 2**20
KINDS = ("pypy", "libraries", "files", "shared", "stacks", "code", "arenas", "blocks",
         "anonymous")


def facts(**mebibytes: int) -> dict[str, int]:
    """Return the numbers of a process in bytes.

    The arenas and blocks that Linux reports have the sizes that malloc reports.

    Args:
        mebibytes: numbers other than 0 in MiB, with `_` for a dot in their names.
    """
    found = {"%s.%s" % (kind, name): 0 for kind in KINDS
             for name in ("resident", "private", "swapped", "size")}
    found.update({"arenas": 2, "huge": 0, "threads": 1, "pypy.resident": 50 * MIB,
                  "pypy.private": 14 * MIB, "gc.sweeps": 0})
    for name in ("gc.blocks", "gc.arenas", "gc.large", "gc.nursery", "malloc.used",
                 "malloc.free", "malloc.arenas", "malloc.mapped"):
        found[name] = 0
    found.update({name.replace("_", "."): value * MIB
                  for name, value in mebibytes.items()})
    found["malloc.arenas"] = found["malloc.used"] + found["malloc.free"]
    found["arenas.size"] = found["malloc.arenas"]
    found["blocks.size"] = found["malloc.mapped"]
    for kind in KINDS[3:]:
        found[kind + ".private"] = found[kind + ".resident"]
    return found


def rows(found: dict[str, int]) -> dict[str, int]:
    """Return the rows in MiB, and check that they add up to the resident memory."""
    where = where_memory.of(found)
    assert sum(row.bytes for row in where.rows) == where.resident
    assert where.rows[-1].key == "not_explained"
    return {row.key: row.bytes // MIB for row in where.rows if row.bytes}


def sentence(found: dict[str, int]) -> str:
    return where_memory.of(found).sentence


#: 100 MiB of objects in the GC's arenas of 110 MiB, 20 MiB of large objects, a nursery
#: of 5 MiB, and 60 MiB of C code
GROWN = {"gc_blocks": 100, "gc_arenas": 110, "gc_large": 20, "gc_nursery": 5,
         "malloc_used": 80, "malloc_free": 15, "malloc_mapped": 115,
         "arenas_resident": 95, "blocks_resident": 115}


def test_memory_that_the_gc_has_from_malloc_counts_once() -> None:
    assert rows(facts(**GROWN)) == {
        "objects": 120, "c": 60, "pypy": 50, "malloc_free": 15, "gc_room": 10,
        "nursery": 5}
    assert sentence(facts(**GROWN)).startswith("Python objects hold 46 % of it: ")


def test_untouched_memory_is_not_resident() -> None:
    found = facts(**{**GROWN, "malloc_mapped": 615})
    assert rows(found)["c"] == 560 and rows(found)["untouched"] == -500
    # perhaps the program never wrote to the 20 MiB of large objects
    assert sentence(found).startswith("Python objects hold at least 38 % of it")
    # untouched memory in arenas
    found = facts(**{**GROWN, "arenas_resident": 70})
    assert rows(found)["untouched"] == -10 and "malloc_free" not in rows(found)


def test_free_memory_that_malloc_returned_is_not_resident() -> None:
    found = facts(**{**GROWN, "malloc_free": 300, "arenas_resident": 90})
    assert rows(found)["malloc_free"] == 10
    found["arenas.resident"] = 380 * MIB
    found["arenas.private"] = 380 * MIB
    assert rows(found)["malloc_free"] == 300
    assert "malloc keeps 300 MiB (55 %) of free memory, in 2 arenas: malloc_trim" \
        "(0) returns it" in sentence(found)
    found["arenas"] = 9
    assert "MALLOC_ARENA_MAX=2" in sentence(found)


def test_free_memory_of_malloc_may_be_more() -> None:
    """The part of an arena that is not resident may be in use or free."""
    found = facts(**{**GROWN, "malloc_used": 180, "malloc_free": 200,
                     "arenas_resident": 200})
    assert rows(found)["malloc_free"] == 20 and rows(found)["c"] == 160
    # the sentence is not about C code, because C code may have less
    assert sentence(found).startswith("Python objects")


def test_memory_mapped_without_malloc_has_its_own_row() -> None:
    found = facts(**{**GROWN, "malloc_mapped": 215, "anonymous_resident": 300})
    assert rows(found)["mapped"] == 300 and rows(found)["untouched"] == -100
    assert "C code has mapped itself" in sentence(found)


def test_swapped_memory_is_not_resident() -> None:
    found = facts(**{**GROWN, "blocks_resident": 55, "blocks_swapped": 60,
                     "stacks_swapped": 1})
    assert rows(found) == {
        "objects": 120, "c": 60, "pypy": 50, "malloc_free": 15, "gc_room": 10,
        "nursery": 5, "swapped": -60}
    assert where_memory.of(found).swapped == 61 * MIB
    # 60 of the 120 MiB of objects may be swapped out
    assert "at least" in sentence(facts(**{**GROWN, "blocks_resident": 55,
                                           "blocks_swapped": 60}))


def test_memory_beyond_all_counts_is_not_explained() -> None:
    found = facts(**{**GROWN, "arenas_resident": 102, "blocks_resident": 118})
    assert rows(found)["not_explained"] == 10


@pytest.mark.parametrize("sweeps, why", [(1, "it was sweeping"),
                                         (None, "it may have been sweeping")])
def test_the_heap_is_one_row_while_the_gc_sweeps(sweeps: int | None, why: str) -> None:
    found = facts(**GROWN)
    del found["gc.blocks"]
    if sweeps is None:
        del found["gc.sweeps"]
    else:
        found["gc.sweeps"] = sweeps
    assert rows(found)["gc_arenas"] == 130
    assert not {"objects", "gc_room"} & rows(found).keys()
    assert any(why in note for note in where_memory.of(found).notes)
    assert sentence(found).startswith("the GC's heap holds 50 %")


def test_a_malloc_without_statistics() -> None:
    found = {name: value for name, value in facts(**GROWN).items()
             if not name.startswith("malloc.")}
    assert rows(found) == {"objects": 120, "c_or_free": 75, "pypy": 50, "gc_room": 10,
                           "nursery": 5}
    where = where_memory.of(found)
    assert where.rows[-1].what == "not explained: not known"
    assert any("this malloc does not report" in note for note in where.notes)


@pytest.mark.parametrize("kind", ["arenas.size", "blocks.size"])
def test_mappings_of_malloc_that_were_not_found(kind: str) -> None:
    found = facts(**GROWN)
    found[kind] -= 10 * MIB
    assert rows(found)["c_or_free"] == 75
    assert any("not all of malloc's memory" in note
               for note in where_memory.of(found).notes)


def test_rows_of_random_numbers_add_up() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        found = facts(**{name: rng.randrange(300) for name in (*GROWN, *(
            "%s_%s" % (kind, what) for kind in KINDS
            for what in ("resident", "swapped")))})
        for name in rng.sample(["gc.blocks", "malloc.used"], rng.randrange(3)):
            del found[name]
        if not rng.randrange(3):
            found["arenas.size"] = 0
        rows(found)
        report.sheet(found, 1)


def test_the_table() -> None:
    found = facts(**GROWN, libraries_resident=0)
    found.update({"libraries.resident": 5000, "cgroup.limit": 512 * MIB,
                  "cgroup.used": 410 * MIB, "cgroup.files": 55 * MIB,
                  "huge": 4 * MIB, "blocks.private": 15 * MIB,
                  "transparent": 8 * MIB, "peak": 300 * MIB})
    sheet = report.sheet(found, 123)
    assert sheet.head == ["process 123: 260 MiB resident, 124 MiB of it in no other "
                          "process; 0 B swapped out"]
    (table,) = sheet.tables
    assert table.rows[0] == ("120 MiB", "46.2", "", "Python objects, with those that "
                             "the GC has not freed yet")
    assert table.rows[-2:] == [
        ("4.88 KiB", "0.0", "", "parts of less than 0.1 % each"),
        ("0 B", "0.0", "", "not explained")]
    assert ("50 MiB", "19.2", "36 MiB", "PyPy itself: its code and data") in table.rows
    assert [note.split(",")[0] for note in sheet.notes[1:]] == [
        "100 MiB of malloc's memory",
        "8 MiB of the resident memory are in transparent huge pages: all 2 MiB of such "
        "a page are resident when one byte was written to",
        "300 MiB were resident at the peak since the process began: the parts of the "
        "peak were not recorded (pypy-alloc memory PID shows them at that time)",
        "besides", "its cgroup may take 512 MiB"]
    numbers = json.loads(json.dumps(report.json(found, 123)))
    assert numbers["schema"] == report.SCHEMA and numbers["pid"] == 123
    assert sum(row["bytes"] for row in numbers["rows"]) == numbers["resident"]


def test_missing_numbers_are_an_error() -> None:
    with pytest.raises(KeyError):
        where_memory.of({"pypy.resident": 1})


#: a nursery of 240 MiB of which 30 MiB were written to; C code has 60 MiB
NURSERY = {"gc_nursery": 240, "malloc_used": 60, "malloc_mapped": 240,
           "arenas_resident": 60, "blocks_resident": 30}


def test_the_written_part_of_the_nursery_counts() -> None:
    found = facts(**NURSERY, gc_nursery_written=30)
    assert rows(found) == {"c": 60, "pypy": 50, "nursery": 30}
    assert sentence(found).startswith("C code holds 43 % of it")
    # a malloc without statistics, and a malloc whose blocks are not found
    found = facts(**NURSERY, gc_nursery_written=30)
    del found["malloc.used"]
    assert rows(found) == {"c_or_free": 60, "pypy": 50, "nursery": 30}
    found = facts(**NURSERY, gc_nursery_written=30)
    found["blocks.size"] = 0
    assert rows(found) == {"c_or_free": 60, "pypy": 50, "nursery": 30}


def test_another_nursery_is_proposed_only_if_it_is_the_largest_row() -> None:
    """In the first case, PyPy's own code is larger than the nursery."""
    nursery = {"gc_nursery": 240, "malloc_mapped": 240}
    second = facts(**nursery, blocks_resident=30, gc_nursery_written=30)
    assert sentence(second).endswith("; besides, the nursery is 38 % of it")
    largest = facts(**nursery, blocks_resident=60, gc_nursery_written=60)
    assert sentence(largest) == (
        "the nursery is 55 % of it: PYPY_GC_NURSERY sets its size")


def test_row_of_the_nursery_says_if_only_its_size_is_known() -> None:
    where = where_memory.of(facts(**NURSERY))
    row = next(row for row in where.rows if row.key == "nursery")
    assert row.what == "nursery (young objects): its size, resident or not"
    assert rows(facts(**NURSERY))["untouched"] == -210
