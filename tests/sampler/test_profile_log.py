"""profile_log.c writes what PROFILE.rst says, and vmprof_convert reads it.

What the file is to unpack to is put together by made_profiles.py, from the
definition, and compared byte by byte; what vmprof's readers are to find in it
is counted; and then it is read back.
"""
from __future__ import annotations

import collections
import errno
import gzip
import itertools
import pathlib
import re
import struct
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import made_profiles
from log_lines import (
    FLUSH_NS,
    KEY_USES,
    KEYS,
    KEYS_NS,
    LARGEST_RECORD,
    START,
    Log,
    build_harness,
    members,
    name,
    new_log,
    stack_record,
    stacks_for_vmprof,
)
from vmprof_convert import readers


@pytest.fixture(scope="session")
def log_harness() -> pathlib.Path:
    return build_harness()


# ____________________________________________________________

COUNTS = st.integers(0, 2**62)
TIMES = st.integers(0, 2**40)
ADDRESSES = st.integers(1, 2**62) | st.integers(1, 5) | st.just(2**63 - 1)
FRAMES = st.lists(st.tuples(st.integers(0, 7), ADDRESSES), max_size=30)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log("open profile %d" % START)
    if draw(st.booleans()):
        log.settings("engine=hook;interval=%d" % draw(COUNTS))
    time = 0
    known = [0]
    untold: list[int] = []
    paths: list[list[tuple[int, int]]] = [[]]
    for _ in range(draw(st.integers(0, 60))):
        kind = draw(st.sampled_from(["name", "stack", "stack", "stack", "again",
                                     "known", "fact", "collection", "type",
                                     "event", "flush"]))
        if kind == "name":
            log.records(name(draw(st.integers(1, 2**60)),
                             draw(st.binary(max_size=100))))
        elif kind == "flush":
            log.flush(time, *(draw(COUNTS) for _ in range(6)))
        elif kind == "collection":
            log.collection(time, draw(COUNTS))
        elif kind == "fact":
            if untold:
                # before or after its sample was written
                key = untold[draw(st.integers(0, len(untold) - 1))]
                log.young(key, draw(st.integers(0, 3)), draw(COUNTS),
                          draw(COUNTS), draw(COUNTS))
                log.freed(key, draw(st.integers(0, 2**31 - 1)))
                log.lost(draw(st.sampled_from(untold)))
        elif kind == "type":
            log.type(draw(st.integers(1, 2**62)), draw(st.integers(1, 4)),
                     draw(st.integers(-1, 2000)),
                     draw(st.text(st.characters(codec="utf-8", categories=(
                         "L", "S")), min_size=1, max_size=300)))
        elif kind == "event":
            log.event(draw(st.sampled_from([1, 3])), time, draw(TIMES),
                      draw(COUNTS))
        else:
            if kind == "stack":
                path = draw(st.sampled_from(paths))
                path = path[:draw(st.integers(0, len(path)))] + draw(FRAMES)
                paths.append(path)
                known.append(log.stack(path))
                # one bit makes two of them: neighbours in the table
                log.remember(len(known) << draw(st.sampled_from([1, 50])))
            elif kind == "known" and log.keys:
                known.append(log.known(draw(st.sampled_from([*log.keys]))))
                kind = "stack"
            time += draw(TIMES)
            size = draw(COUNTS)
            untold.append(log.sample(
                known[-1] if kind == "stack" else draw(st.sampled_from(known)),
                time, draw(COUNTS), size,
                draw(st.integers(1, 2**62)) if size else 0))
    log.flush(2**62, command="finish")
    log.close()
    return log


@settings(max_examples=300, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
@given(logs())
def test_what_goes_in_comes_out(log_harness: pathlib.Path,
                                tmp_path: pathlib.Path, log: Log) -> None:
    file = tmp_path / "profile"
    log.lines[0] = "open %s %d" % (file, START)
    log.run(log_harness)
    data = file.read_bytes()
    log.check(data)
    assert stacks_for_vmprof(data) == collections.Counter(log.stacks)
    unpacked = gzip.decompress(data)        # as vmprof does
    assert unpacked.startswith(b"".join(log.flushes[:-1]))
    assert unpacked.endswith(log.flushes[-1])


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
    # the first one ends with an error: the second begins with key 1, stack 1
    # and no error
    first = Log("open /dev/full %d" % START)
    first.sample(first.stack([8]), 5)
    first.flush(7)
    first.close(errno.ENOSPC)
    second, file = new_log(tmp_path)
    second.sample(second.stack([16]), 6)
    second.flush(8)
    second.close()
    first.lines += second.lines
    first.answers += second.answers
    first.run(log_harness)
    second.check(file.read_bytes())


def test_a_clock_that_goes_back_stands_still(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # a time sample that waited in vmprof's buffer comes after a later one
    log, file = new_log(tmp_path)
    for time in 10, 5, 20:
        log.lines.append("sample 0 %d 1 8 1" % (START + time))
    log.answers += [1, 2, 3]
    log.lines += ["flush %d" % (START + 30), "close"]
    log.answers.append(0)
    log.run(log_harness)
    samples = readers.read_bytes(file.read_bytes()).samples
    assert list(samples.time) == [10, 10, 20]


def test_moments_never_go_back(log_harness: pathlib.Path,
                               tmp_path: pathlib.Path) -> None:
    # a stack whose sample is still to come is written when the names need room
    log, file = new_log(tmp_path)
    log.sample(log.stack([8]), 1000)
    log.flush(2000)
    names = name(1, b"x" * 9000).hex()
    log.lines += ["stack " + stack_record((1, 16), 0).hex(),
                  "bytes " + names, "bytes " + names,
                  "sample 2 %d 1 8 1" % (START + 3000),
                  "flush %d" % (START + 4000), "close"]
    log.answers += [2, 2, 0]
    log.run(log_harness)
    profile = readers.read_bytes(file.read_bytes())
    assert [moment.time for moment in profile.moments] == [2000, 2000, 4000]
    assert list(profile.samples.time) == [1000, 3000]
    assert len(profile.stacks) == 2


def test_resident_memory(log_harness: pathlib.Path,
                         tmp_path: pathlib.Path) -> None:
    log, file = new_log(
        tmp_path, flags=made_profiles.MEMORY + made_profiles.PYPY)
    # vmprof writes meta data in pieces: the length of a string is no header
    log.lines += ["bytes 07", "bytes " + made_profiles.word(2).hex(),
                  "bytes " + b"os".hex(), "bytes " + made_profiles.word(5).hex(),
                  "bytes " + b"linux".hex()]
    values = [500, 500, 700, 0, 700, 900]
    for i, memory in enumerate(values):
        log.lines += ["stack " + stack_record([1, 8], 0, memory).hex(),
                      "sample 1 %d 1 8 1" % (START + i)]
        log.answers += [1, i + 1]
    log.lines += ["finish %d" % (START + 30), "close"]
    log.answers.append(0)
    log.run(log_harness)
    data = file.read_bytes()
    # 0: vmprof could not read it
    assert list(readers.read_bytes(data).samples.memory) == [
        500, 500, 700, 700, 700, 900]
    assert members(data, b"s") == [stack_record([1, 8], 0, 900) * 6]


@pytest.mark.parametrize("flags,memory,expected", [
    (made_profiles.PYPY, (), 0),
    (made_profiles.PYPY + made_profiles.MEMORY, (500,), 500)])
def test_the_time_at_the_end_of_pypy_8s_samples(
        log_harness: pathlib.Path, tmp_path: pathlib.Path, flags: int,
        memory: tuple[int, ...], expected: int) -> None:
    """It is not resident memory, and each of vmprof's samples has one."""
    log, file = new_log(tmp_path, version=7, flags=flags)
    for i in range(3):
        log.lines += [
            "stack " + stack_record([1, 8], 0, *memory, 10**12 + i).hex(),
            "sample 1 %d 1 8 1" % (START + i)]
        log.answers += [1, i + 1]
    log.lines += ["finish %d" % (START + 30), "close"]
    log.answers.append(0)
    log.run(log_harness)
    data = file.read_bytes()
    assert list(readers.read_bytes(data).samples.memory) == [expected] * 3
    assert members(data, b"s") == [
        stack_record([1, 8], 0, *memory, 10**12 + 2) * 3]


def test_a_stack_that_ends_with_a_time_is_known(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, _ = new_log(tmp_path, version=7)
    log.lines += ["stack " + stack_record([1, 8], 0, 10**12).hex(),
                  "remember 9 1", "known 9 %d" % START]
    log.answers += [1, 1]
    log.run(log_harness)


# ____________________________________________________________
# what is no stack

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
def test_what_is_no_stack_has_no_number(log_harness: pathlib.Path,
                                        tmp_path: pathlib.Path,
                                        record: bytes) -> None:
    log, file = new_log(tmp_path)
    log.lines.append("stack " + record.hex())
    log.answers.append(0)
    log.sample(log.stack([8]), 0)
    log.flush(5)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


@pytest.mark.parametrize("depth", [0, 1, 508, 509, 1023, 1024])
def test_depths(log_harness: pathlib.Path, tmp_path: pathlib.Path,
                depth: int) -> None:
    log, file = new_log(tmp_path)
    frames = [2**62 + i for i in range(depth)]
    for path in frames, [*frames[:-1], 8], frames:
        log.sample(log.stack(path), 0)
    log.flush(5, command="finish")
    log.close()
    log.run(log_harness)
    data = file.read_bytes()
    log.check(data)
    assert stacks_for_vmprof(data) == collections.Counter(log.stacks)


# ____________________________________________________________
# what is full

def test_more_samples_than_a_member_holds(log_harness: pathlib.Path,
                                          tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    stacks = [log.stack([1, 2, number]) for number in range(50)]
    for i in range(20000):
        log.sample(stacks[i * 7 % 50], 1000 * i, 1 + i // 9000, 8 * (i % 70))
    log.flush(10**9, command="finish")
    log.close()
    log.run(log_harness)
    data = file.read_bytes()
    samples = readers.read_bytes(data).samples
    assert list(samples.time) == [1000 * i for i in range(20000)]
    assert list(samples.thread) == [1 + i // 9000 for i in range(20000)]
    assert list(samples.size) == [8 * (i % 70) for i in range(20000)]
    assert list(samples.stack) == [i * 7 % 50 for i in range(20000)]
    assert max(map(len, members(data, b"r"))) < 65536


@pytest.mark.parametrize("depth,count", [(2, 20000), (400, 1200)])
def test_more_stacks_than_the_table_holds(
        log_harness: pathlib.Path, tmp_path: pathlib.Path, depth: int,
        count: int) -> None:
    # those that come again are defined again: to whoever reads they are one
    log, file = new_log(tmp_path)
    words = []
    for i in range(count):
        number = i % (count * 2 // 3) + 1
        # its own outermost frame: nothing is shared
        words.append((1, number) * depth)
        log.lines += ["stack " + stack_record(words[-1], 0).hex()]
    log.lines += ["finish %d" % (START + 9), "close"]
    answers = subprocess.run([log_harness], input="\n".join(log.lines),
                             text=True, capture_output=True, check=True).stdout
    numbers = list(map(int, answers.split()))[1:-1]
    assert sorted(numbers) == list(range(1, max(numbers) + 1))
    assert max(numbers) > count * 2 // 3
    data = file.read_bytes()
    profile = readers.read_bytes(data)
    assert len(profile.stacks) == count * 2 // 3
    assert len(members(data, b"s")) > 1
    assert stacks_for_vmprof(data) == collections.Counter(words)


def test_deep_stacks_in_turn_are_defined_once(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Two recursions, each of which goes up and down; neither has much in
    common with the stack before it."""
    log, file = new_log(tmp_path)
    depths = [*range(1, 450), *range(450, 0, -1)] * 3
    for time, depth in enumerate(depths):
        for function in (2, 3):
            log.sample(log.stack([1] + [function * 10**9] * depth), time)
        if time % 300 == 0:
            log.flush(time)
    log.flush(10**6, command="finish")
    log.close()
    log.run(log_harness)
    data = file.read_bytes()
    assert len(log.check(data).stacks) == 900
    assert stacks_for_vmprof(data) == collections.Counter(log.stacks)
    # some bytes for each frame, each sample, and each stack in turn
    assert sum(map(len, log.flushes)) < 10 * (900 + 900 + len(log.stacks)) * 1.5
    # and for vmprof 14 bits for 258 bytes, as each stack follows one like it
    unpacked = sum(map(len, members(data, b"s")))
    packed = len(data) - sum(map(len, log.flushes))
    assert packed < unpacked * 14 / 8 / 258 + 100 * 900


def test_one_stack_very_often(log_harness: pathlib.Path,
                              tmp_path: pathlib.Path) -> None:
    """Takes next to no bytes in the part for vmprof."""
    log, file = new_log(tmp_path)
    for i in range(30000):
        log.sample(log.stack([*range(1, 20), i % 2]), i)
    log.lines += ["finish %d" % (START + 10**6), "close"]
    log.answers.append(0)
    log.run(log_harness)
    data = file.read_bytes()
    assert stacks_for_vmprof(data) == collections.Counter(log.stacks)
    unpacked = sum(map(len, members(data, b"s")))
    packed = len(data) - sum(map(len, members(data, b"r")))
    assert unpacked == 30000 * (17 + 8 * 41)
    assert packed < unpacked // 80


# ____________________________________________________________
# stacks that are known before they are walked

def test_a_key_has_to_be_said_again_after_so_many_uses(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    for time in range(3):
        log.sample(log.stack([8, 16]), time)
        log.remember(7)
        for _ in range(KEY_USES):
            log.sample(log.known(7), time)
        log.not_known(7)
    log.flush(2, command="finish")
    log.close()
    log.run(log_harness)
    data = file.read_bytes()
    assert len(log.check(data).samples) == 3 * (KEY_USES + 1)
    assert stacks_for_vmprof(data) == collections.Counter(log.stacks)


def test_a_key_has_to_be_said_again_after_a_second(
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
    """The later one stays."""
    log, _ = new_log(tmp_path)
    log.stack([8])
    log.remember(5)
    log.stack([16])
    log.remember(5 + KEYS)
    log.not_known(5)
    log.known(5 + KEYS)
    log.not_known(5 + 2 * KEYS)
    log.run(log_harness)


def test_keys_are_forgotten_with_the_table(log_harness: pathlib.Path,
                                           tmp_path: pathlib.Path) -> None:
    log, _ = new_log(tmp_path)
    log.not_known(9)
    log.stack([8])
    log.remember(9)
    log.known(9)
    full = ["stack " + stack_record((1, number), 0).hex()
            for number in range(1, 7000)]
    again, _ = new_log(tmp_path)
    again.not_known(9)
    answers = subprocess.run(
        [log_harness], input="\n".join([*log.lines, *full, "known 9 0", "forget",
                                        "known 9 0", *again.lines]),
        text=True, capture_output=True, check=True).stdout.split()
    assert list(map(int, answers[:len(log.answers)])) == log.answers
    assert answers[len(log.answers) + len(full):] == ["0", "0", "0", "0"]


def test_resident_memory_comes_with_a_stack_that_is_not_known(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """vmprof reads it when it walks."""
    log, _ = new_log(tmp_path, flags=made_profiles.MEMORY + made_profiles.PYPY)
    log.lines.append("stack " + stack_record([1, 8], 0, 500).hex())
    log.answers.append(1)
    log.lines.append("remember 9 1")
    log.not_known(9)
    log.run(log_harness)


def numbers(payload: bytes) -> Iterator[int]:
    number = shift = 0
    for digit in payload:
        number |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            yield number
            number = shift = 0


def test_no_fact_is_dropped(log_harness: pathlib.Path,
                            tmp_path: pathlib.Path) -> None:
    # a minor collection tells of thousands of objects at once
    log, file = new_log(tmp_path)
    for i in range(20000):
        log.sample(0, i)
    log.collection(10**6, 77)
    for i in range(20000):
        log.young(i + 1, i % 2, i)
    log.lines += ["flush %d" % (START + 10**6), "close"]
    log.answers.append(0)
    log.run(log_harness)
    found, blocks = [], re.findall(b"alloc:([^:]*):3:facts", gzip.decompress(
        file.read_bytes()))
    for block in blocks:
        one = numbers(block)
        # each says which collection it is of
        assert [next(one) for _ in range(4)] == [3, 0, 10**6, 77]
        key = 0
        for count in one:
            kind, difference, outcome, type_ = (next(one) for _ in range(count))
            assert kind == 1
            key += difference // 2
            found.append((key, outcome, type_))
    assert len(blocks) > 1
    assert found == [(i + 1, i % 2, i) for i in range(20000)]


def test_a_long_name_of_a_type_is_cut_between_two_characters(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.lines.append("type 1 2 -1 %s" % ("x" + "\u20ac" * 1000))
    log.facts.type(1, 2, -1, ("x" + "\u20ac" * 341).encode())
    log.flush(1)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_names_that_nobody_flushes(log_harness: pathlib.Path,
                                   tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    for i in range(300):
        log.lines.append(
            "bytes " + name(i + 1, b"x" * (LARGEST_RECORD - 17)).hex())
        if i % 7 == 0:
            log.sample(log.stack([i + 1]), i, 1, 2**62, 2**62)
    log.lines += ["flush %d" % (START + 10**6), "close"]
    log.answers.append(0)
    log.run(log_harness)
    data = file.read_bytes()
    assert gzip.decompress(data).count(b"x" * (LARGEST_RECORD - 17)) == 300
    profile = readers.read_bytes(data)
    assert len(profile.samples) == 43


def test_the_largest_member(log_harness: pathlib.Path,
                            tmp_path: pathlib.Path) -> None:
    # every buffer full: address sanitizer looks on
    log, file = new_log(tmp_path)
    log.flush(0)
    log.records(name(1, b"x" * (LARGEST_RECORD - 17)))
    # for one more of any kind there has to be room, each time
    payloads = log.facts.payloads
    log.type(2**62, 4, 2**62, "\u20ac" * 341)
    log.type(2**62, 4, 2**62, "\u20ac" * 341)
    while len(payloads["gc"]) <= 4096 - 182 - 43:
        log.event(1, 2**60, 2**62, 2**62)
    log.collection(2**60, 2**62)
    for key in itertools.cycle((2**61, 1)):
        if len(payloads["facts"]) > 16384 - 182:
            break
        log.young(key, 3, 2**62 - 1, 2**62, 2**62)
    while len(log.expected.pending) <= 32768 - 78:
        log.sample(0, 2**60, len(log.expected.pending), 2**62, 2**62)
    log.flush(2**62, *[2**62] * 6)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


# ____________________________________________________________
# when is a flush due?

def test_a_flush_is_due_by_age(log_harness: pathlib.Path,
                               tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.due(0, False)
    log.due(FLUSH_NS * 100, False)          # nothing waits
    late = FLUSH_NS * 100
    log.sample(log.stack([8]), late + 1000)
    log.sample(log.stack([8]), late + 5000)
    log.due(late + FLUSH_NS + 999, False)
    log.due(late + FLUSH_NS + 1000, True)
    log.flush(late + FLUSH_NS + 1000)
    log.due(FLUSH_NS * 1000, False)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_flushes_early_in_the_run_come_early(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What a short program loses that ends without a word is little of it."""
    log, file = new_log(tmp_path)
    # an eighth of the time since the start, 10 ms at least
    for sampled, due in ((0, 10_000_000), (20_000_000, 30_000_000),
                         (80_000_000, 91_428_571),
                         (700_000_000, 799_999_999)):
        log.sample(log.stack([8]), sampled)
        log.due(due - 1, False)
        log.due(due, True)
        log.flush(due)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_a_flush_of_facts_alone_is_due_by_age(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # a collection may come long after the last sample
    log, file = new_log(tmp_path)
    late = FLUSH_NS * 100
    log.sample(0, 0)
    log.flush(1)
    log.collection(late, 1)
    log.young(1, 1, 5)
    log.due(late + FLUSH_NS - 1, False)
    log.due(late + FLUSH_NS, True)
    log.flush(late + FLUSH_NS)
    log.due(late + 2 * FLUSH_NS, False)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())
