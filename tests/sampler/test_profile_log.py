"""profile_log.c follows PROFILE.rst: it writes all records in batches, and each stack
once."""
from __future__ import annotations

import errno
import pathlib
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import made_profiles
import record_rows
from log_lines import (
    FLUSH_NS,
    KEY_USES,
    KEYS,
    KEYS_NS,
    LARGEST_RECORD,
    LOST,
    START,
    TRAILER,
    Log,
    build_harness,
    name,
    new_log,
    stack_record,
)
from made_profiles import (
    COLLECTIONS,
    ENDED,
    FIGURES,
    FRAMES,
    MARKS,
    NODES,
    OBJECTS,
    TICKS,
    TOTALS,
    TYPES,
    WAITING,
)
from vmprof_convert import readers


@pytest.fixture(scope="session")
def log_harness() -> pathlib.Path:
    return build_harness()


# ____________________________________________________________

COUNTS = st.integers(0, 2**40)
TIMES = st.integers(0, 2**35)
ADDRESSES = st.integers(1, 2**62) | st.integers(1, 5) | st.just(2**63 - 1)
FRAMES_OF = st.lists(st.tuples(st.integers(0, 7), ADDRESSES), max_size=30)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log("open profile %d" % START)
    if draw(st.booleans()):
        log.settings("engine=hook;interval=%d" % draw(COUNTS))
    time = key = 0
    known = [LOST, 0]
    paths: list[list[tuple[int, int]]] = [[]]
    for _ in range(draw(st.integers(0, 60))):
        kind = draw(st.sampled_from([
            "name", "stack", "stack", "known", "object", "object", "ended", "tick",
            "type", "collection", "flush"]))
        if kind == "name":
            log.records(name(draw(st.integers(1, 2**60)),
                             draw(st.binary(max_size=100))))
        elif kind == "flush":
            log.flush(time, *(draw(COUNTS) for _ in range(6)))
        elif kind == "collection":
            log.row(COLLECTIONS, time, draw(COUNTS), draw(COUNTS), draw(COUNTS),
                    draw(COUNTS))
        elif kind == "ended":
            log.row(ENDED, time, key + 1, draw(st.integers(0, 2**16 - 1)),
                    draw(st.integers(0, 1)), draw(COUNTS))
        elif kind == "type":
            log.text(TYPES, time, draw(st.text(max_size=300)).encode(),
                     draw(st.integers(1, 2**40)), draw(st.integers(1, 4)),
                     draw(st.integers(-1, 2000)))
        elif kind == "stack":
            path = draw(st.sampled_from(paths))
            path = path[:draw(st.integers(0, len(path)))] + draw(FRAMES_OF)
            paths.append(path)
            known.append(log.stack(path))
            # keys that are shifted by 50 bits have the same place in the table of keys
            log.remember(len(known) << draw(st.sampled_from([1, 50])))
        elif kind == "known" and log.keys:
            known.append(log.known(draw(st.sampled_from([*log.keys]))))
        elif kind == "tick":
            log.row(TICKS, time, draw(COUNTS), draw(COUNTS),
                    draw(st.sampled_from(known)), 0, draw(COUNTS))
        else:
            time += draw(TIMES)
            key += draw(st.integers(1, 3))
            size = draw(st.integers(1, 2**40))
            log.object(key, time, stack=draw(st.sampled_from(known)), size=size,
                       interval=draw(st.integers(1, 2**40)),
                       outcome=draw(st.integers(0, 5)))
    log.flush(2**40)
    log.close()
    return log


@pytest.mark.slow
@settings(max_examples=300, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(logs())
def test_log_contains_all_that_was_written(
        log_harness: pathlib.Path, tmp_path: pathlib.Path, log: Log) -> None:
    file = tmp_path / "profile"
    log.lines[0] = "open %s %d" % (file, START)
    log.run(log_harness)
    log.check(file.read_bytes())


def test_settings(log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.settings("engine=hook;interval=4096;gaps=fixed;period=")
    log.flush(0)
    log.close()
    log.run(log_harness)
    assert log.check(file.read_bytes()).settings == {
        "engine": "hook", "interval": "4096", "gaps": "fixed", "period": ""}


def test_one_log_after_another(log_harness: pathlib.Path,
                               tmp_path: pathlib.Path) -> None:
    # the first log ends with an error, and the second begins with stack 1 and no error
    first = Log("open /dev/full %d" % START)
    first.object(1, 5, stack=first.stack([8]))
    first.flush(7)
    first.close(errno.ENOSPC)
    second, file = new_log(tmp_path)
    second.object(1, 6, stack=second.stack([16]))
    second.flush(8)
    second.close()
    first.lines += second.lines
    first.answers += second.answers
    first.run(log_harness)
    second.check(file.read_bytes())


def test_batches_have_totals_and_flushes_have_waiting_samples(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """New waiting samples are written once.

    The totals record whether the oldest sample still waits.
    """
    log, file = new_log(tmp_path)
    log.settings("facts=types,lifetimes")
    log.lines.append("waits %d" % START)
    log.flush(2_000, 100, 1, 2, 3, 4, 5)
    for key in range(1000):
        log.object(key + 2, 3_000)
    log.flush(4_000, 200, 1, 2, 3, 4, 5)
    log.run(log_harness)
    found = [(record.kind, len(record.rows))
             for record in record_rows.records(file.read_bytes()) if record.kind > 1]
    full = found[3][1]
    assert 256 <= full <= 512
    assert found == [(TOTALS, 1), (WAITING, 1), (TOTALS, 1), (OBJECTS, full),
                     (TOTALS, 1), (OBJECTS, 1000 - full)]
    rows = record_rows.tables(file.read_bytes())[TOTALS]
    assert [rows[0], rows[-1]] == [
        (2000, 100, 1, 2, 3, 4, 5, 1), (4000, 200, 1, 2, 3, 4, 5, 1)]
    assert len(readers.read_bytes(file.read_bytes()).samples) == 1001
    log.lines.append("none-waits")
    log.flush(5_000)
    # the next totals show that the batch is whole
    log.flush(6_000)
    log.run(log_harness)
    assert len(readers.read_bytes(file.read_bytes()).samples) == 1000


def test_segment_begins_with_empty_tables(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The segment has its own totals and stacks, and repeats the names and the head."""
    log, file = new_log(tmp_path)
    log.settings("run=1")
    log.lines.append("names " + name(8, b"py:f:1:x").hex())
    log.object(1, 0, stack=log.stack([16, 8]))
    log.flush(1000, 10, 1, 1, 1, 1, 1)
    second = tmp_path / "second"
    log.lines += ["rotate %s %d" % (second, START + 5000)]
    log.answers += [0, 0]
    log.lines += ["known 7 %d" % START, "stack " + stack_record([1, 8], 0).hex(),
                  "remember 7", "known 7 %d" % START]
    # node 2 of the tree, and the first node of the second segment
    log.answers += [LOST, 1, 1]
    log.lines += ["totals 25 1 1 1 1 1", "flush %d" % (START + 6000), "close"]
    log.answers.append(0)
    log.run(log_harness)
    first = list(record_rows.records(file.read_bytes()[:-len(b"trailer")]))
    assert first[-1].kind == TOTALS
    data = second.read_bytes()
    found = record_rows.tables(data)
    assert found[TOTALS] == [(1000, 15, 0, 0, 0, 0, 0, 0)]
    assert (found[FRAMES], found[NODES]) == ([(1, 8)], [(0, 1)])
    assert name(8, b"py:f:1:x") in data
    profile = readers.read_bytes(data)
    assert profile.settings["first"] == "9"
    assert profile.settings["clock"] == str(START + 5000)


# ____________________________________________________________
# names

def test_names_come_with_the_stacks_that_need_them(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Names are written before or after their stacks, and only if a stack has them."""
    log, file = new_log(tmp_path)
    log.lines.append("names " + (name(8, b"py:a:1:x") + name(16, b"py:b:1:x")).hex())
    log.stack([8, 24])
    log.lines.append("names " + (name(24, b"py:c:1:x") + name(32, b"py:d:1:x")).hex())
    log.stack([(3, 16), 8])
    log.flush(5)
    log.run(log_harness)
    names = [record.data for record in record_rows.records(file.read_bytes())
             if record.kind == -2]
    assert names == [name(8, b"py:a:1:x"), name(24, b"py:c:1:x"), name(16, b"py:b:1:x")]


def test_another_name_is_written_if_a_stack_has_the_function(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The sampler may have read an incomplete name at first."""
    log, file = new_log(tmp_path)
    torn = name(8, b"py:torn:1:x") + name(16, b"py:torn:1:x")
    log.lines.append("names " + torn.hex())
    log.stack([8])
    for _ in range(2):
        names = name(8, b"py:a:1:x") + name(16, b"py:b:1:x")
        log.lines.append("names " + names.hex())
    log.stack([8, 16])
    log.flush(5)
    log.run(log_harness)
    assert [record.data for record in record_rows.records(file.read_bytes())
            if record.kind == -2] == [
        name(8, b"py:torn:1:x"), name(8, b"py:a:1:x"), name(16, b"py:b:1:x")]


# ____________________________________________________________
# resident memory, and the time of PyPy 8

@pytest.mark.parametrize("version, tail", [(6, ()), (7, (10**12,))])
def test_resident_memory_comes_with_a_stack_that_is_not_known(
        log_harness: pathlib.Path, tmp_path: pathlib.Path, version: int,
        tail: tuple[int, ...]) -> None:
    """vmprof reads the resident memory when it walks a stack.

    vmprof writes its metadata by several calls.  The length of a string is not the
    beginning of a record.
    """
    log, _ = new_log(tmp_path, version, made_profiles.MEMORY + made_profiles.PYPY)
    log.lines += ["bytes 07", "bytes " + made_profiles.word(5).hex(),
                  "stack " + stack_record([1, 8], 0, 500, *tail).hex(), "remember 9"]
    log.answers.append(1)
    log.not_known(9)
    log.run(log_harness)


def test_a_stack_that_ends_with_a_time_is_known(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, _ = new_log(tmp_path, version=7)
    log.lines += ["stack " + stack_record([1, 8], 0, 10**12).hex(),
                  "remember 9", "known 9 %d" % START]
    log.answers += [1, 1]
    log.run(log_harness)


# ____________________________________________________________
# invalid stacks

def malformed_stacks() -> list[bytes]:
    good = stack_record((1, 8, 1, 16), 0)
    return [
        b"", b"\x01", good[:16], good[:-1], good[:17],
        b"\x02" + good[1:], b"\x03",
        stack_record((1, 8, 1), 0),
        good[:9] + struct.pack("<q", -1) + good[17:],
        good[:9] + struct.pack("<q", -2) + good[17:],
        good[:9] + struct.pack("<q", 6) + good[17:],
        good[:9] + struct.pack("<q", 2**61) + good[17:],
        good[:9] + struct.pack("<q", 2**63 - 1) + good[17:],
        good[:9] + struct.pack("<q", -2**63) + good[17:],
        stack_record((1, 8) * 1025, 0),
    ]


@pytest.mark.parametrize("record", malformed_stacks(), ids=range(15))
def test_invalid_stack_has_no_number(
        log_harness: pathlib.Path, tmp_path: pathlib.Path, record: bytes) -> None:
    log, file = new_log(tmp_path)
    log.lines.append("stack " + record.hex())
    log.answers.append(LOST)
    log.object(1, 0, stack=log.stack([8]))
    log.flush(5)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


@pytest.mark.parametrize("depth", [0, 1, 508, 509, 1023, 1024])
def test_depths(log_harness: pathlib.Path, tmp_path: pathlib.Path,
                depth: int) -> None:
    log, file = new_log(tmp_path)
    frames = [2**62 + i for i in range(depth)]
    for key, path in enumerate([frames, [*frames[:-1], 8], frames], 1):
        log.object(key, 0, stack=log.stack(path))
    log.flush(5)
    log.close()
    log.run(log_harness)
    assert len(log.check(file.read_bytes()).stacks) == 2


# ____________________________________________________________
# full tables

def test_more_samples_than_a_record_holds(log_harness: pathlib.Path,
                                          tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    stacks = [log.stack([1, 2, number]) for number in range(3, 53)]
    for i in range(20000):
        log.object(i + 1, 1000 * i, stack=stacks[i * 7 % 50], thread=1 + i // 9000,
                   size=8 + 8 * (i % 70))
    log.flush(10**9)
    log.close()
    log.run(log_harness)
    profile = log.check(file.read_bytes())
    samples = profile.samples
    assert list(samples.time) == [1000 * i for i in range(20000)]
    assert list(samples.thread) == [1 + i // 9000 for i in range(20000)]
    assert [profile.stacks[stack][-1].address for stack in samples.stack] == [
        3 + i * 7 % 50 for i in range(20000)]


def test_stacks_that_share_nothing(log_harness: pathlib.Path,
                                   tmp_path: pathlib.Path) -> None:
    """The tables of the stack tree grow, and earlier stacks are still found."""
    log, file = new_log(tmp_path)
    stacks = [[number, number + 1] for number in range(1, 30000, 2)]
    for frames in stacks + stacks[::17]:
        log.stack(frames)
    log.flush(9)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_more_nodes_than_the_tree_holds(log_harness: pathlib.Path,
                                        tmp_path: pathlib.Path) -> None:
    """Nodes that are written again are the same nodes for a reader."""
    log, file = new_log(tmp_path)
    count = 1100
    for number in [*range(1, count + 1), 1, 2]:
        # each stack has its own outermost frame, so stacks share no nodes
        log.lines.append("stack " + stack_record((1, number) * 1000, 0).hex())
    log.lines += ["flush %d" % (START + 9), "close"]
    log.answers += [*range(1000, 1000 * (count + 2) + 1, 1000), 0]
    log.run(log_harness)
    data = file.read_bytes()
    assert len(record_rows.tables(data)[NODES]) == 1000 * (count + 2)
    _, known = readers.read_stacks(data, [1000, 1000 * (count + 1)])
    assert known[1000] == known[1000 * (count + 1)]


def test_deep_stacks_that_alternate_are_written_once(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Two recursions alternate, and each gets deeper and shallower.

    No stack has much in common with the previous stack.
    """
    log, file = new_log(tmp_path)
    depths = [*range(1, 200), *range(200, 0, -1)] * 3
    key = 0
    for time, depth in enumerate(depths):
        for function in (2, 3):
            key += 1
            log.object(key, time, stack=log.stack([1] + [function * 10**9] * depth))
        if time % 300 == 0:
            log.flush(time)
    log.flush(10**6)
    log.close()
    log.run(log_harness)
    data = file.read_bytes()
    assert len(log.check(data).stacks) == 400
    # some bytes for each node and each sample
    assert len(data) < 10 * (400 + key)


def test_many_names_without_a_flush(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    for i in range(300):
        log.records(name(i + 1, b"x" * (LARGEST_RECORD - 17)))
        if i % 7 == 0:
            log.object(i + 1, i, stack=log.stack([i + 1]), size=2**40)
    log.flush(10**6)
    log.close()
    log.run(log_harness)
    assert len(log.check(file.read_bytes()).samples) == 43


def test_the_largest_batch(log_harness: pathlib.Path,
                           tmp_path: pathlib.Path) -> None:
    # all records are full of the widest numbers, and the sanitizer checks the buffer
    log, file = new_log(tmp_path)
    log.records(name(1, b"x" * (LARGEST_RECORD - 17)))
    for i in range(512):
        sign = (-1)**i
        log.row(ENDED, 5, i + 1, i, i % 2, i % 2 * 2**61)
        log.row(TICKS, 5, i % 2 * 2**62, sign * 2**62, LOST, 0, sign * 2**62)
        log.object(i + 1, 5, thread=sign * 2**62, memory=sign * 2**62, size=2**62 + i,
                   interval=2**62 + 7 * i, outcome=i % 6)
        if i < 256:
            # the reader refuses a negative time or size of a collection
            log.row(COLLECTIONS, 5, sign * 2**62, *[i % 2 * 2**62] * 3)
        if i < 128:
            log.row(FIGURES, 5, 1, i % 2 * 2**62, 2**62 + i)
        if i < 8:
            log.text(TYPES, 5, b"y" * 1024, i + 1, 2, -1)
        if i < 4:
            log.text(MARKS, 5, b"z" * 1024, i % 2 * 2**62)
    log.flush(2**62, *[2**62] * 6)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


# ____________________________________________________________
# stacks that are known before they are walked

def test_key_is_forgotten_after_a_number_of_uses(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    for _ in range(3):
        log.stack([8, 16])
        log.remember(7)
        for _ in range(KEY_USES):
            log.known(7)
        log.not_known(7)
    log.flush(2)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_key_is_forgotten_after_a_second(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, _ = new_log(tmp_path)
    log.stack([8])
    log.remember(7)
    log.known(7)
    log.not_known(7, KEYS_NS)
    log.remember(7)
    log.known(7)
    log.run(log_harness)


def test_two_keys_in_the_same_place(log_harness: pathlib.Path,
                                    tmp_path: pathlib.Path) -> None:
    """In the table of keys, the later key replaces the earlier key."""
    log, _ = new_log(tmp_path)
    log.stack([8])
    log.remember(5)
    log.stack([16])
    log.remember(5 + KEYS)
    log.not_known(5)
    log.known(5 + KEYS)
    log.not_known(5 + 2 * KEYS)
    log.run(log_harness)


def test_keys_are_forgotten_with_the_log(log_harness: pathlib.Path,
                                         tmp_path: pathlib.Path) -> None:
    log, _ = new_log(tmp_path)
    log.not_known(9)
    log.stack([8])
    log.remember(9)
    log.known(9)
    log.lines += ["forget", "known 9 %d" % START]
    log.answers.append(LOST)
    again, _ = new_log(tmp_path)
    again.not_known(9)
    log.lines += again.lines
    log.answers += again.answers
    log.run(log_harness)


# ____________________________________________________________
# times at which a flush is due

def test_a_flush_is_due_by_age(log_harness: pathlib.Path,
                               tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.due(0, False)
    log.due(FLUSH_NS * 100, False)          # nothing waits
    late = FLUSH_NS * 100
    log.object(1, late + 1000)
    log.object(2, late + 5000)
    log.due(late + FLUSH_NS + 999, False)
    log.due(late + FLUSH_NS + 1000, True)
    log.flush(late + FLUSH_NS + 1000)
    log.due(FLUSH_NS * 1000, False)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_flushes_early_in_the_run_come_early(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A short program that ends without exit handlers loses few samples."""
    log, file = new_log(tmp_path)
    # a sample may wait for an eighth of the time since the start, and 10 ms at least
    for key, (sampled, due) in enumerate((
            (0, 10_000_000), (20_000_000, 30_000_000), (80_000_000, 91_428_571),
            (700_000_000, 799_999_999)), 1):
        log.object(key, sampled)
        log.due(due - 1, False)
        log.due(due, True)
        log.flush(due)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_samples_that_wait_elsewhere_are_due_by_age(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, _ = new_log(tmp_path)
    late = FLUSH_NS * 100
    log.lines.append("waits %d" % (START + late))
    log.due(late + FLUSH_NS - 1, False)
    log.due(late + FLUSH_NS, True)
    log.run(log_harness)


def test_empty_log_ends_with_its_trailer(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.close()
    log.run(log_harness)
    assert file.read_bytes() == log.head + TRAILER
