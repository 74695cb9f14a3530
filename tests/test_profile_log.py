"""profile_log.c writes what PROFILE.rst says, and reader.py reads it.

The expected file is put together here, from the definition, and compared byte
by byte; and then it is read back.
"""
from __future__ import annotations

import errno
import os
import pathlib
import struct
import subprocess
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native_build import build
from vmprof_allocation import reader

START = 10**15                      # of the run, in nanoseconds

HEAD = (struct.pack("<5q", 0, 3, 0, 10000, 0)
        + b"\x05" + struct.pack(">hBB", 6, 8, 4) + b"pypy")
TRAILER = b"\x03" + struct.pack("<qq8x", 1700000000, 5)

LARGEST_RECORD = 16384
FLUSH_BYTES = 2**20
FLUSH_NS = 750000000
#: facts for which there is room, or else a flush is due
BURST = 64


@pytest.fixture(scope="session")
def log_harness(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build(tmp_path_factory.mktemp("log_harness"), "log_harness",
                 "profile_log.c")


def string(text: bytes) -> bytes:
    return struct.pack("<q", len(text)) + text


def name(address: int, text: bytes) -> bytes:
    return b"\x02" + struct.pack("<q", address) + string(text)


def block(payload: str, kind: str) -> bytes:
    return name(-0x616C6C6F63, f"alloc:{payload}:1:{kind}".encode())


def stack(words: tuple[int, ...], thread: int = 0) -> bytes:
    return b"\x01" + struct.pack("<%dq" % (len(words) + 3), 1, len(words),
                                 *words, thread)


def entry(*numbers: int) -> str:
    return ",".join("%x" % number for number in numbers) + ";"


class Log:
    """The lines for log_harness, and what is to come of them."""

    def __init__(self, opening: str) -> None:
        self.lines = [opening]
        self.answers = [0]          # what the harness is to print
        self.flushes: list[bytes] = []
        self.waiting = b""
        self.facts: list[tuple[int, ...]] = []
        self.moments: list[tuple[int, ...]] = []
        self.written_facts: list[tuple[int, ...]] = []
        self.objects: list[tuple[int, int, int]] = []
        self.written_objects: list[tuple[int, int, int]] = []
        self.stacks: dict[int, tuple[int, ...]] = {}
        self.key = 0
        self.records(HEAD)

    def records(self, data: bytes) -> None:
        self.lines.append("bytes " + data.hex())
        self.waiting += data

    def stack(self, words: tuple[int, ...]) -> int:
        self.lines.append("stack " + stack(words).hex())
        self.key += 1
        self.answers.append(self.key)
        self.waiting += stack(words, -self.key)
        self.stacks[self.key] = words
        return self.key

    def lost(self) -> int:
        self.lines.append("lost")
        self.key += 1
        self.answers.append(self.key)
        return self.key

    def fact(self, key: int, time: int, thread: int, size: int,
             interval: int) -> None:
        self.lines.append("fact %d %d %d %d %d" % (
            key, START + time, thread, size, interval))
        self.facts.append((key, time, thread, size, interval))

    def object(self, key: int, type_: int, survived: int,
               time: int = 0) -> None:
        self.lines.append("object %d %d %d %d" % (key, START + time, type_,
                                                  survived))
        self.objects.append((key, type_, survived))

    def due(self, time: int, answer: bool) -> None:
        self.lines.append("due %d" % (START + time))
        self.answers.append(answer)

    def settings(self, text: str) -> None:
        self.lines.append("settings " + text)
        self.waiting += block(text, "settings")

    def flush(self, time: int, *totals: int) -> None:
        totals = totals or (0,) * 6
        self.lines.append("flush %d %s" % (START + time, " ".join(map(str, totals))))
        self.waiting += block(entry(time, *totals)
                              + "".join(entry(*fact) for fact in self.facts), "facts")
        self.moments.append((time, *totals))
        self.written_facts += self.facts
        self.facts = []
        if self.objects:
            self.waiting += block("".join(entry(*o) for o in self.objects),
                                  "objects")
        self.written_objects += self.objects
        self.objects = []
        self.flushes.append(self.waiting)
        self.waiting = b""

    def close(self, error: int = 0) -> None:
        self.records(TRAILER)
        self.lines.append("close")
        self.answers.append(error)
        self.flushes.append(self.waiting)
        self.waiting = b""

    def run(self, harness: pathlib.Path, fd: int | None = None) -> None:
        done = subprocess.run([harness], input="\n".join(self.lines) + "\n",
                              text=True, capture_output=True,
                              pass_fds=[] if fd is None else [fd])
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert list(map(int, done.stdout.split())) == self.answers

    def check(self, data: bytes) -> reader.Profile:
        """Is this the file?"""
        assert data == b"".join(self.flushes)
        profile = reader.read_bytes(data)
        samples = profile.samples
        assert len(samples) == len(self.written_facts)
        for i, (key, *fact) in enumerate(self.written_facts):
            assert fact == [samples.time[i], samples.thread[i], samples.size[i],
                            samples.interval[i]]
            frames = () if samples.stack[i] < 0 else profile.stacks[samples.stack[i]]
            assert [frame.address for frame in reversed(frames)] == list(
                self.stacks.get(key, ())[1::2])
        keys = [fact[0] for fact in self.written_facts]
        objects = {key: rest for key, *rest in self.written_objects}
        for i, key in enumerate(keys):
            assert [samples.type[i], samples.survived[i]] == objects.get(
                key, [-1, -1])
        assert profile.lost_stacks == len(set(keys) - set(self.stacks))
        assert profile.lost_facts == len(set(self.stacks) - set(keys))
        assert [tuple(moment) for moment in profile.moments] == self.moments
        return profile


def new_log(tmp_path: pathlib.Path) -> tuple[Log, pathlib.Path]:
    file = tmp_path / "profile"
    return Log("open %s %d" % (file, START)), file


# ____________________________________________________________

COUNTS = st.integers(0, 2**62)
TIMES = st.integers(0, 2**40)
STACKS = st.lists(st.integers(1, 2**60), max_size=30).map(
    lambda addresses: tuple(word for a in addresses for word in (1, a)))


@st.composite
def logs(draw: st.DrawFn, opening: str = "open profile %d" % START) -> Log:
    log = Log(opening)
    if draw(st.booleans()):
        log.settings("carrier=live;interval=%d" % draw(COUNTS))
    unmatched: list[int] = []
    known: list[int] = []
    for _ in range(draw(st.integers(0, 60))):
        kind = draw(st.sampled_from(["name", "stack", "stack", "lost", "fact",
                                     "fact", "fact", "object", "flush"]))
        if kind == "name":
            log.records(name(draw(st.integers(1, 2**60)),
                           draw(st.binary(max_size=100))))
        elif kind == "stack":
            unmatched.append(log.stack(draw(STACKS)))
        elif kind == "lost":
            unmatched.append(log.lost())
        elif kind == "flush":
            log.flush(draw(TIMES), *(draw(COUNTS) for _ in range(6)))
        elif kind == "object":
            if known:
                # before or after its fact was written
                log.object(known.pop(draw(st.integers(0, len(known) - 1))),
                           draw(COUNTS), draw(st.integers(0, 1)))
        elif unmatched:
            # in any order
            key = unmatched.pop(draw(st.integers(0, len(unmatched) - 1)))
            known.append(key)
            size = draw(COUNTS)
            log.fact(key, draw(TIMES), draw(COUNTS), size,
                     draw(st.integers(1, 2**62)) if size else 0)
    log.flush(2**41)
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
    log.check(file.read_bytes())


def test_settings(log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.settings("carrier=live;interval=4096;gaps=fixed;period=")
    log.flush(0)
    log.close()
    log.run(log_harness)
    assert log.check(file.read_bytes()).settings == {
        "carrier": "live", "interval": "4096", "gaps": "fixed", "period": ""}


def test_one_log_after_another(log_harness: pathlib.Path,
                               tmp_path: pathlib.Path) -> None:
    # the first one ends with an error: the second begins with key 1, and none
    first = Log("open /dev/full %d" % START)
    first.fact(first.stack((1, 8)), 5, 1, 16, 10)
    first.flush(7)
    first.close(errno.ENOSPC)
    second, file = new_log(tmp_path)
    second.fact(second.stack((1, 16)), 6, 1, 16, 10)
    second.flush(8)
    second.close()
    first.lines += second.lines
    first.answers += second.answers
    first.run(log_harness)
    second.check(file.read_bytes())


# ____________________________________________________________
# what is no stack

def malformed_stacks() -> list[bytes]:
    good = stack((1, 8, 1, 16))
    return [
        b"", b"\x01", good[:16], good[:-1], good[:17],
        b"\x02" + good[1:], b"\x03",
        good[:9] + struct.pack("<q", -1) + good[17:],
        good[:9] + struct.pack("<q", 5) + good[17:],
        good[:9] + struct.pack("<q", 2**61) + good[17:],
        good[:9] + struct.pack("<q", 2**63 - 1) + good[17:],
        good[:9] + struct.pack("<q", -2**63) + good[17:],
    ]


@pytest.mark.parametrize("record", malformed_stacks(), ids=range(12))
def test_what_is_no_stack_has_no_key(log_harness: pathlib.Path,
                                     tmp_path: pathlib.Path,
                                     record: bytes) -> None:
    log, file = new_log(tmp_path)
    log.lines.append("stack " + record.hex())
    log.answers.append(0)
    log.fact(log.stack((1, 8)), 0, 1, 16, 10)       # key 1
    log.flush(5)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


@pytest.mark.parametrize("depth", [2044, 2046, 2048, 8000, 16384])
def test_stack_larger_than_any_of_vmprofs(
        log_harness: pathlib.Path, tmp_path: pathlib.Path, depth: int) -> None:
    log, file = new_log(tmp_path)
    words = (1, 8) * (depth // 2)
    if len(stack(words)) <= LARGEST_RECORD:
        log.fact(log.stack(words), 0, 1, 16, 10)
    else:
        log.lines.append("stack " + stack(words).hex())
        log.answers.append(0)
    log.fact(log.stack((1, 8)), 0, 1, 16, 10)
    log.flush(5)
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
    log.fact(log.stack((1, 8)), 1000, 1, 16, 10)
    log.fact(log.stack((1, 8)), 5000, 1, 16, 10)
    log.due(FLUSH_NS + 999, False)
    log.due(FLUSH_NS + 1000, True)
    log.flush(FLUSH_NS + 1000)
    log.due(FLUSH_NS * 100, False)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_a_flush_is_due_by_size(log_harness: pathlib.Path,
                                tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    while len(log.waiting) < FLUSH_BYTES:
        log.due(0, False)
        log.records(name(16, b"x" * 5000))
    log.due(0, True)
    log.flush(0)
    log.due(0, False)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_a_flush_of_objects_alone_is_due_by_age(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # a collection may come long after the last sample
    log, file = new_log(tmp_path)
    log.fact(log.lost(), 0, 1, 16, 10)
    log.flush(1)
    log.object(1, 5, 1, time=10)
    log.due(10 + FLUSH_NS - 1, False)
    log.due(10 + FLUSH_NS, True)
    log.flush(2)
    log.due(10 + 2 * FLUSH_NS, False)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


@pytest.mark.parametrize("burst", [1, 2, 21, BURST])
def test_no_fact_is_dropped(log_harness: pathlib.Path, tmp_path: pathlib.Path,
                            burst: int) -> None:
    # recorder.c asks after each sample, with which may come others, that waited
    # in vmprof's buffers; there are 20 of these
    log, file = new_log(tmp_path)
    waiting = 0
    for i in range(20000 // burst * burst):
        log.fact(log.lost(), i, 1, 16, 10)
        waiting += 1
        if (i + 1) % burst == 0:
            is_due = waiting > 8192 - BURST
            log.due(0, is_due)
            if is_due:
                log.flush(i)
                waiting = 0
    log.flush(10**6)
    log.close()
    log.run(log_harness)
    profile = log.check(file.read_bytes())
    assert len(profile.samples) == 20000 // burst * burst


def test_no_object_is_dropped(log_harness: pathlib.Path,
                              tmp_path: pathlib.Path) -> None:
    # a minor collection tells of thousands of objects at once; recorder.c
    # asks after each
    log, file = new_log(tmp_path)
    for i in range(20000):
        log.fact(log.lost(), i, 1, 16, 10)
        if i % 5000 == 4999:
            log.flush(i)
    for i in range(20000):
        log.object(i + 1, i, i % 2)
        is_due = i % (8192 - BURST + 1) == 8192 - BURST
        log.due(0, is_due)
        if is_due:
            log.flush(10**6)
    log.flush(10**6)
    log.close()
    log.run(log_harness)
    profile = log.check(file.read_bytes())
    assert -1 not in profile.samples.survived


def test_objects_without_a_key_are_left_out(log_harness: pathlib.Path,
                                            tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.lines.append("object 0 1 1 1")
    log.flush(1)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


def test_bytes_that_nobody_flushes(log_harness: pathlib.Path,
                                   tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.settings("x" * 100000)
    for i in range(300):
        log.records(name(i + 1, b"x" * (LARGEST_RECORD - 17)))
        if i % 7 == 0:
            log.fact(log.stack((1, i + 1)), i, 1, 2**62, 2**62)
    log.flush(5)
    log.close()
    log.run(log_harness)
    profile = log.check(file.read_bytes())
    assert len(profile.names) == 300


def test_the_largest_block_behind_the_most_bytes(
        log_harness: pathlib.Path, tmp_path: pathlib.Path) -> None:
    # the buffer holds both: address sanitizer looks on
    log, file = new_log(tmp_path)
    for _ in range(8192):
        log.fact(log.lost(), 2**62, 2**62, 2**62, 2**62)
        log.object(2**62, 2**62, 1)
    while len(log.waiting) <= FLUSH_BYTES:
        log.records(name(16, b"x" * (LARGEST_RECORD - 17)))
    log.flush(2**62, *[2**62] * 6)
    log.close()
    log.run(log_harness)
    log.check(file.read_bytes())


# ____________________________________________________________
# files that don't take it

def several_flushes(log: Log) -> None:
    for i in range(6):
        log.records(name(i + 1, b"f" * 500))
        log.fact(log.stack((1, i + 1)), i, 1, 16, 10)
        log.flush(i)


@pytest.mark.parametrize("limit", [*range(0, 5000, 241), 100000])
def test_disk_full_leaves_whole_records(log_harness: pathlib.Path,
                                        tmp_path: pathlib.Path,
                                        limit: int) -> None:
    log, file = new_log(tmp_path)
    log.lines.append("limit %d" % limit)
    several_flushes(log)
    log.close()
    fits, size = 0, 0
    while fits < len(log.flushes) and size + len(log.flushes[fits]) <= limit:
        size += len(log.flushes[fits])
        fits += 1
    if fits < len(log.flushes):
        log.answers[-1] = errno.EFBIG
    log.run(log_harness)
    data = file.read_bytes()
    assert data == b"".join(log.flushes[:fits])
    if fits:
        profile = reader.read_bytes(data)       # nothing to salvage
        assert len(profile.samples) == min(fits, 6)
        assert (profile.end_time is None) == (fits < len(log.flushes))


def test_disk_full_from_the_beginning(log_harness: pathlib.Path) -> None:
    log = Log("open /dev/full %d" % START)
    several_flushes(log)
    log.close(errno.ENOSPC)
    log.run(log_harness)


def test_after_an_error_nothing_is_written(log_harness: pathlib.Path,
                                           tmp_path: pathlib.Path) -> None:
    # the large flush fails; a small one that would fit must not follow
    log, file = new_log(tmp_path)
    log.lines.append("limit 2000")
    log.flush(0)
    head = log.flushes[0]
    log.records(name(1, b"x" * 4000))
    log.flush(1)
    log.flush(2)
    log.close(errno.EFBIG)
    log.run(log_harness)
    assert file.read_bytes() == head


def test_descriptor_closed_by_the_program(log_harness: pathlib.Path,
                                          tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.flush(0)
    log.lines.append("shut")
    several_flushes(log)
    log.close(errno.EBADF)
    log.run(log_harness)
    assert file.read_bytes() == log.flushes[0]


@pytest.mark.parametrize("flushes_before", [False, True])
@pytest.mark.parametrize("flushes_behind", [False, True])
def test_descriptor_reused_by_the_program(
        log_harness: pathlib.Path, tmp_path: pathlib.Path,
        flushes_before: bool, flushes_behind: bool) -> None:
    log, file = new_log(tmp_path)
    other = tmp_path / "other"
    other.write_bytes(b"the program's own")
    if flushes_before:
        log.flush(0)
    log.lines.append("reuse %s" % other)
    if flushes_behind:
        several_flushes(log)
    log.close(errno.EBADF)
    log.run(log_harness)
    assert other.read_bytes() == b"the program's own"
    assert file.read_bytes() == (log.flushes[0] if flushes_before else b"")


def test_no_descriptor_at_all(log_harness: pathlib.Path) -> None:
    log = Log("openfd 99 %d" % START)
    log.answers = [errno.EBADF]
    log.lines += ["stack " + stack((1, 8)).hex(), "lost", "flush 0 0 0 0 0 0 0",
                  "settings a=1", "close"]
    log.answers += [0, 0, 0]
    log.run(log_harness)


def test_pipe(log_harness: pathlib.Path) -> None:
    read_end, write_end = os.pipe()
    log = Log("openfd %d %d" % (write_end, START))
    several_flushes(log)
    for i in range(300):                    # more than a pipe holds
        log.records(name(i + 1, b"x" * 10000))
    log.flush(7)
    log.close()
    data: list[bytes] = []

    def read_all() -> None:
        with open(read_end, "rb") as pipe:
            data.append(pipe.read())

    thread = threading.Thread(target=read_all)
    thread.start()
    try:
        log.run(log_harness, write_end)
    finally:
        os.close(write_end)
        thread.join()
    log.check(data[0])


def test_pipe_that_nobody_reads(log_harness: pathlib.Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    log = Log("openfd %d %d" % (write_end, START))
    several_flushes(log)
    log.close(errno.EPIPE)
    try:
        log.run(log_harness, write_end)
    finally:
        os.close(write_end)


def test_forget_writes_nothing_more(log_harness: pathlib.Path,
                                    tmp_path: pathlib.Path) -> None:
    # a forked child
    log, file = new_log(tmp_path)
    log.flush(0)
    log.fact(log.stack((1, 8)), 0, 1, 16, 10)
    log.lines += ["forget", "stack " + stack((1, 8)).hex(), "lost"]
    log.answers += [0, 0]
    log.fact(1, 0, 1, 16, 10)
    log.lines.append("settings a=1")
    log.lines.append("flush 0 0 0 0 0 0 0")
    log.close()
    log.run(log_harness)
    assert file.read_bytes() == log.flushes[0]
