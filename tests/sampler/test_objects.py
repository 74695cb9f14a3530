"""The sampled objects of batched allocations, and their outcomes (objects.c).

The heap is in native/objects_harness.c.  tests/end_to_end/test_what_became.py tests the
same in PyPy.
"""
from __future__ import annotations

import collections
import itertools
import math
import pathlib
import random
import re
import subprocess

import pytest

import oracle
from native_build import build

DIED, PROMOTED, NOT_KNOWN = 0, 1, 3


@pytest.fixture(scope="module")
def harness() -> pathlib.Path:
    return build("objects_harness", "hook/gc/objects.c", "sampler/sampler.c")


def run(harness: pathlib.Path, *lines: str) -> list[str]:
    done = subprocess.run([harness], input="".join(x + "\n" for x in lines),
                          text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [line for line in done.stdout.splitlines() if line != "minor"]


BEGIN = "begin 1 0 1"


# ____________________________________________________________
# batched allocations

@pytest.mark.parametrize("count", [200, 400])
def test_full_tables_lose_no_bytes_of_batched_allocations(
        harness: pathlib.Path, count: int) -> None:
    """The table of samples has 256 rows, and cannot grow.

    200 batched allocations have more objects than the table has rows.  400 batched
    allocations do not even fit in the table themselves.
    """
    told = run(harness, "begin 1 1 1", "no-memory", *(
        "piece %d 0 16 16d 16d 16d" % key for key in range(1, count + 1)), "minor")
    rows = [tuple(map(int, line.split()[1:])) for line in told]
    # A fixed gap of 16 bytes samples each object.  Size 0 means the whole sample.
    assert sum(size or 48 for _, _, _, size in rows) == 48 * count
    assert {key for key, *_ in rows} == set(range(1, count + 1))
    assert NOT_KNOWN in {outcome for _, outcome, _, _ in rows}


def test_one_object(harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 1 8 1000 32d", "piece 2 0 1000 16p",
               "minor") == ["young 1 0 32 0", "young 2 1 16 0"]


@pytest.mark.parametrize("at, size", [(0, 24), (23, 24), (24, 40), (63, 40),
                                      (64, 16), (79, 16)])
def test_the_object_that_holds_the_sampled_byte(
        harness: pathlib.Path, at: int, size: int) -> None:
    assert run(harness, BEGIN, "piece 7 %d 1000000000 24p 40p 16p" % at,
               "minor") == ["young 7 1 %d %d" % (size, size)]


def test_fixed_gaps_within_a_piece(harness: pathlib.Path) -> None:
    # sample points at 10, 60 and 110
    assert run(harness, "begin 1 1 1", "piece 1 10 50 24d 24p 40d 24p 16d",
               "minor") == ["young 1 0 24 24", "young 1 0 40 40",
                            "young 1 1 24 24"]


def test_every_object_has_the_probability_of_its_own_size(
        harness: pathlib.Path) -> None:
    """The sampler samples bytes of batched allocations.

    Nevertheless, each object must have the probability that it has when it is allocated
    alone.
    """
    interval, rounds, sizes = 100, 20000, (16, 104, 48, 32)
    generator = random.Random(12345)
    lines, key = [BEGIN], 0
    for i in range(rounds):
        at = int(-math.log(1 - generator.random()) * interval)
        if at < sum(sizes):
            key += 1
            lines.append("piece %d %d %d %s" % (
                key, at, interval, " ".join("%dd" % size for size in sizes)))
        if i % 1000 == 0:
            lines.append("minor")
    found = collections.Counter(int(line.split()[3])
                                for line in run(harness, *lines, "minor"))
    for size in sizes:
        p = -math.expm1(-size / interval)
        sigma = math.sqrt(rounds * p * (1 - p))
        assert abs(found[size] - rounds * p) < 4 * sigma, size


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
def test_objects_of_batched_allocations_match_the_oracle(
        harness: pathlib.Path, seed: int, fixed: bool) -> None:
    """test_rpython_gc.py compares the builtin engine with the same oracle."""
    choose = random.Random(seed)
    behind = oracle.splitmix64(seed + 1 & 2**64 - 1)
    oracle.gap(1, fixed, behind)        # a first gap, which no object gets
    lines = ["begin %d %d 1" % (seed, fixed)]
    expected = []
    for key in range(1, 500):
        sizes = tuple(8 * choose.randrange(2, 12)
                      for _ in range(choose.randrange(1, 9)))
        interval = choose.choice((1, 8, 60, 200, 1000))
        at = choose.randrange(sum(sizes))
        lines.append("piece %d %d %d %s" % (
            key, at, interval, " ".join("%dd" % size for size in sizes)))
        piece = oracle.Allocation(key, sum(sizes), sizes)
        for found in oracle.objects(piece, at, interval, fixed, behind):
            expected.append("young %d %d %d %d" % (
                key, DIED, found.size,
                found.size if found.size < piece.size else 0))
    assert run(harness, *lines, "minor") == expected


@pytest.mark.parametrize("piece, told", [
    # a guard failed before these objects were made, and their memory was cleared
    ("32d 16- 16-", ["young 3 0 32 32"]), ("16- 48-", ["young 3 3 0 0"]),
    ("16d 16d 32-", ["young 3 0 16 16"]),
    # a string was shrunk, and its characters are no valid header
    ("32p 16x 16x", ["young 3 1 32 32"]), ("16x 32d", ["young 3 3 0 0"]),
])
def test_objects_that_were_not_made_are_unknown(
        harness: pathlib.Path, piece: str, told: list[str]) -> None:
    assert run(harness, BEGIN, "piece 3 0 1000 " + piece, "piece 4 0 1000 16p",
               "minor") == [*told, "young 4 1 16 0"]


@pytest.mark.parametrize("at", [0, 31, 32, 63])
def test_string_that_was_shrunk_keeps_its_sampled_size(
        harness: pathlib.Path, at: int) -> None:
    """The sample has the size that the string had before it was shrunk."""
    assert run(harness, BEGIN, "piece 3 %d 1000 32t 32-" % at, "minor") == [
        "young 3 0 32 0"]


def test_live_string_that_was_shrunk_has_its_present_size(
        harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 3 40 1000 32T 32-", "piece 4 0 1000 64T:7",
               "shrink 4 24", "minor", "end", BEGIN, "piece 5 0 1000 64T",
               "shrink 5 48", "end") == [
        "young 3 1 32 0 32", "young 4 1 7 0 24", "young 5 4 48 0 48"]


def test_old_object_without_a_field_has_half_its_size(harness: pathlib.Path) -> None:
    """Unlike a young object, an old one needs no room for a forwarding address."""
    assert run(harness, BEGIN, "piece 3 0 1000 16p:999", "piece 4 0 1000 16p:999 16p",
               "minor") == ["young 3 1 999 0 8", "young 4 1 999 16 8"]


def test_live_size_is_not_read_without_lifetimes(harness: pathlib.Path) -> None:
    assert run(harness, "begin 1 0 0", "piece 3 40 1000 32T 32-", "minor") == [
        "young 3 3 32 0"]


def test_object_after_a_string_in_a_batched_allocation(harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 3 32 1000 32t 32d", "minor") == [
        "young 3 0 32 32"]


def test_sampled_byte_in_an_object_that_was_not_made(harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 3 40 1000 32d 16- 16-", "minor") == [
        "young 3 3 0 32"]


def test_second_sampled_byte_in_an_object_that_was_not_made(
        harness: pathlib.Path) -> None:
    # sample points at 10 and 60
    assert run(harness, "begin 1 1 1", "piece 1 10 50 24p 24- 40-",
               "minor") == ["young 1 1 24 24", "young 1 3 0 64"]


def test_a_large_piece_has_to_fit_exactly(harness: pathlib.Path) -> None:
    """A large batched allocation is not cleared completely.

    So garbage may follow its objects.
    """
    assert run(harness, BEGIN, "piece 1 0 100000 5000d 16-",
               "piece 2 5008 100000 5000d 16p", "minor") == [
        "young 1 3 0 0", "young 2 1 16 16"]


# ____________________________________________________________
# outcomes

def test_the_first_minor_collection(harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 1 0 1000 16d", "piece 2 0 1000 16p",
               "minor", "minor") == ["young 1 0 16 0", "young 2 1 16 0"]


def test_pinned_object_is_examined_again(harness: pathlib.Path) -> None:
    """While it was pinned, the object was shrunk, like a buffer after a read."""
    assert run(harness, BEGIN, "piece 1 0 1000 16d", "piece 2 0 1000 4096N:7",
               "piece 3 0 1000 24n", "piece 4 0 1000 32n", "minor", "shrink 2 40",
               "unpin 2 0 p", "unpin 3 0 d", "piece 5 0 1000 16p", "minor", "state 1",
               "minor", "unmark 2 0", "state 2", "minor", "end") == [
        "young 1 0 16 0", "young 2 1 7 0 40", "young 3 0 24 0",
        "young 5 1 16 0", "freed 2 0", "young 4 4 32 0"]


def test_pinned_object_of_a_batched_allocation_is_unknown(
        harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 1 0 1000 16n 32d", "minor", "minor") == [
        "young 1 3 16 16"]


def test_pinned_object_is_unknown_after_an_unseen_collection(
        harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 1 0 1000 24n", "minor", "unpin 1 0 p", "unseen",
               "minor") == ["young 1 3 0 0"]


def test_a_major_collection_frees_what_it_has_not_marked(
        harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 1 0 1000 16p", "piece 2 0 1000 16p",
               "minor", "state 1", "minor", "unmark 2 0", "state 2", "minor",
               "sweep", "minor", "state 0", "minor")[2:] == ["freed 2 0"]


def test_a_snapshot_ends_what_the_program_cannot_reach(harness: pathlib.Path) -> None:
    """During the snapshot, object 1 is freed and object 4 is allocated."""
    assert run(harness, BEGIN, "piece 1 0 1000 16p", "piece 2 0 1000 16p",
               "piece 3 0 1000 16p", "minor", "copy", "piece 4 0 1000 16p", "minor",
               "state 1", "minor", "unmark 1 0", "state 2", "minor", "examined 2 77",
               "examined 1 77", "state 0", "minor", "state 1", "minor", "unmark 2 0",
               "unmark 3 0", "unmark 4 0", "state 2", "minor")[3:] == [
        "young 4 1 16 0", "freed 1 0", "freed 2 0 at 77", "freed 1 0 at 77",
        "freed 3 0", "freed 4 0"]


def test_a_later_snapshot_reaches_an_object_again(harness: pathlib.Path) -> None:
    """A weak reference or a finalizer may give an object back to the program."""
    begin = [BEGIN, "piece 1 0 1000 16p", "piece 2 0 1000 16p", "minor", "copy",
             "examined 2 77"]
    free = ["state 1", "minor", "unmark 1 0", "unmark 2 0", "state 2", "minor"]
    assert run(harness, *begin, *free)[2:] == ["freed 2 0 at 77", "freed 1 0"]
    assert run(harness, *begin, "copy", "examined 2 88", *free)[2:] == [
        "freed 2 0 at 77", "freed 1 0"]
    assert run(harness, *begin, "copy", "examined 0 88", *free)[2:] == [
        "freed 2 0 at 77", "reached 2 0 at 88", "freed 1 0", "freed 2 0"]


def test_an_object_that_ended_is_not_inherited(harness: pathlib.Path) -> None:
    """A snapshot found the object unreachable, so the next segment lacks it."""
    assert run(harness, BEGIN, "piece 1 0 1000 16p", "piece 2 0 1000 16p", "minor",
               "copy", "examined 1 77", "inherit", "copy", "examined 0 88")[2:] == [
        "freed 1 0 at 77", "inherited 2 0"]


def test_bytes_that_the_gc_counted_come_with_the_estimate(
        harness: pathlib.Path) -> None:
    """The comparison happens after a sweep, for old objects that were not found dead.

    The estimate uses their present sizes, and p = 1 - exp(-size / interval).  The first
    count is read after the first minor collection, which also promotes objects from
    before the start.
    """
    found = run(harness, "heap 300", BEGIN, "heap 500", "piece 1 0 100 200p",
                "piece 2 0 100 400T", "shrink 2 40", "piece 3 0 1000 104p",
                "piece 4 0 100 16- 16-", "minor", "heap 700", "state 1", "minor",
                "unmark 3 0", "state 2", "minor", "heap 740", "state 3",
                "piece 5 0 100 200p", "minor", "state 0", "minor")
    swept, = (line.split()[1:] for line in found if line.startswith("swept"))
    p, q = -math.expm1(-2), -math.expm1(-4)
    assert [float(number) for number in swept] == pytest.approx([
        740, 500, 200 / p + 40 / q, 32 / -math.expm1(-0.32)], abs=0.1)
    assert found.index("freed 3 0") < found.index("swept " + " ".join(swept))


def test_no_comparison_with_the_gc_without_lifetimes(harness: pathlib.Path) -> None:
    assert not [line for line in run(
        harness, "heap 500", "begin 1 0 0", "piece 1 0 100 200p", "minor", "state 1",
        "minor", "state 2", "minor", "state 3", "minor") if line.startswith("swept")]


def test_which_object_of_a_piece_is_freed(harness: pathlib.Path) -> None:
    assert run(harness, "begin 1 1 1", "piece 1 0 16 16p 16p 16p", "state 1",
               "minor", "unmark 1 1", "unmark 1 2", "state 2", "minor",
               "sweep", "minor")[3:] == ["freed 1 1", "freed 1 2"]


def test_object_promoted_during_a_sweep_is_not_confirmed_live(
        harness: pathlib.Path) -> None:
    # the GC has not marked the object, and does not sweep it
    assert run(harness, BEGIN, "state 1", "minor", "piece 1 0 1000 16p",
               "state 2", "minor", "unmark 1 0", "minor", "state 0",
               "minor") == ["young 1 1 16 0"]


def test_sampling_begins_while_a_major_collection_sweeps(
        harness: pathlib.Path) -> None:
    assert run(harness, "state 2", BEGIN, "piece 1 0 1000 16p", "minor",
               "unmark 1 0", "minor") == ["young 1 1 16 0"]


@pytest.mark.parametrize("cards", [0, 8, 24])
def test_large_objects(harness: pathlib.Path, cards: int) -> None:
    assert run(harness, BEGIN, "large 1 200000 d %d" % cards,
               "large 2 200000 p %d" % cards, "minor", "state 1", "minor",
               "unmark 2 0", "state 2", "minor", "sweep") == [
        "young 1 0 200000 0", "young 2 1 200000 0", "freed 2 0"]


def test_an_object_that_is_old_from_birth(harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "state 1", "minor", "old 1 64", "state 2",
               "minor", "state 0", "minor") == ["young 1 1 64 0"]


def test_without_lifetimes(harness: pathlib.Path) -> None:
    assert run(harness, "begin 1 0 0", "piece 1 0 1000 16p", "minor", "state 1",
               "minor", "unmark 1 0", "state 2", "minor", "sweep") == [
        "young 1 3 16 0"]


def test_objects_are_unknown_after_an_unseen_collection(harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 1 0 1000 16p", "minor",
               "piece 2 0 1000 16p", "unseen", "piece 3 0 1000 16p",
               "minor") == ["young 1 1 16 0", "young 2 3 0 0", "young 3 3 0 0",
                            "lost 1 0"]


def test_the_profile_ends_before_the_sampling(harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 1 0 1000 16p", "minor", "forget",
               "piece 2 0 1000 16p", "large 3 200000 d 0", "minor",
               "minor") == ["young 1 1 16 0"]


def test_the_profile_ends_before_a_minor_collection(
        harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 1 30 1000 24d 40d", "large 2 200000 p 0",
               "piece 3 0 1000 16- 16-", "end") == [
        "young 1 4 40 40", "young 2 4 200000 0", "young 3 3 0 0"]
    assert run(harness, "begin 1 0 0", "piece 1 30 1000 24d 40d", "end") == [
        "young 1 3 40 40"]


def test_one_profile_after_another(harness: pathlib.Path) -> None:
    assert run(harness, BEGIN, "piece 1 0 1000 16p", "minor", "end", "minor",
               BEGIN, "piece 1 0 1000 24d", "minor", "end", "end") == [
        "young 1 1 16 0", "young 1 0 24 0"]


# ____________________________________________________________
# conservation of samples in random programs

def trace(seed: int) -> list[str]:
    r = random.Random(seed)
    lines = ["begin %d %d 1" % (seed, r.randrange(2))]
    key, state = 0, 0
    for _ in range(r.randrange(1, 400)):
        what = r.randrange(10)
        if what < 6:
            key += 1
            objects = [(r.randrange(2, 20) * 8, r.choice("ddddppn"))
                       for _ in range(r.choice([1, 1, 2, 3, 8]))]
            if r.randrange(30) == 0:
                objects.append((16, "x"))
            at = r.randrange(sum(size for size, _ in objects))
            lines.append("piece %d %d %d %s" % (
                key, at, r.choice([8, 100, 10000]),
                " ".join("%d%s" % pair for pair in objects)))
        elif what == 6:
            key += 1
            lines.append("large %d %d %s %d" % (
                key, r.randrange(2 * 10**4, 10**5) * 8, r.choice("dp"),
                r.choice([0, 8, 16])))
        else:
            if state == 1:
                lines += ["unmark %d %d" % (r.randrange(key + 1), r.randrange(3))
                          for _ in range(key // 4)]
            state = (state + r.randrange(2)) % 4
            lines += ["state %d" % state, "minor"]
            if state == 2:
                lines.append("sweep")
    return lines


@pytest.mark.parametrize("seed", range(60))
def test_each_sample_is_reported_once(harness: pathlib.Path, seed: int) -> None:
    """Each sample is reported once, in the order of the keys except for pinned objects.

    Later, each of its objects is reported at most once.
    """
    lines = trace(seed)
    keys = [int(line.split()[1]) for line in lines
            if line.split()[0] in ("piece", "large")]
    pinned = {int(line.split()[1]) for line in lines
              if line.startswith("piece") and re.fullmatch("[0-9]+n", line.split()[4])
              and len(line.split()) == 5}
    waiting = 0
    for line in reversed(lines):
        if line == "minor":
            break
        waiting += line.split()[0] in ("piece", "large")
    told = run(harness, *lines)
    young = [tuple(map(int, line.split()[1:])) for line in told
             if line.startswith("young")]
    assert [key for key, _ in itertools.groupby(k for k, *_ in young)] == [
        key for key in keys[:len(keys) - waiting] if key not in pinned]
    ends = [(int(line.split()[1]), int(line.split()[2])) for line in told
            if line.startswith("freed")]
    assert len(set(ends)) == len(ends)
    outcomes: dict[tuple[int, int], int] = {}
    count: collections.Counter[int] = collections.Counter()
    for key, outcome, *_ in young:
        outcomes[key, count[key]] = outcome
        count[key] += 1
    assert {outcomes[end] for end in ends} <= {PROMOTED}
