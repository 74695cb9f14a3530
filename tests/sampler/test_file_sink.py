"""Files and pipes that accept no more data, and descriptors that the program closes or
reuses (file_sink.c)."""
from __future__ import annotations

import errno
import os
import pathlib
import threading

import pytest

import record_rows
from log_lines import (
    LOST,
    START,
    Log,
    build_harness,
    name,
    new_log,
    stack_record,
)
from made_profiles import OBJECTS, TOTALS
from vmprof_convert import readers


@pytest.fixture(scope="session")
def log_harness() -> pathlib.Path:
    return build_harness()


def several_flushes(log: Log) -> None:
    for i in range(6):
        log.records(name(i + 1, b"f" * 500))
        log.object(i + 1, i, stack=log.stack([i + 1]))
        log.flush(i)


def flushed(data: bytes) -> int:
    """Return a profile's number of batches, and check that its records are whole."""
    return len(record_rows.tables(data)[TOTALS])


@pytest.mark.parametrize("limit", [*range(0, 4000, 241), 100000])
def test_disk_full_leaves_whole_records(log_harness: pathlib.Path,
                                        tmp_path: pathlib.Path,
                                        limit: int) -> None:
    log, file = new_log(tmp_path)
    log.lines.append("limit %d" % limit)
    several_flushes(log)
    log.close(errno.EFBIG if limit < 5000 else 0)
    log.run(log_harness)
    data = file.read_bytes()
    assert len(data) <= limit
    written = flushed(data)
    assert (written == 6) == (limit == 100000)
    if written:
        profile = readers.read_bytes(data)       # raises if a record is incomplete
        assert len(profile.samples) == written
        assert (profile.end_time is None) == (limit < 5000)


def test_disk_full_from_the_beginning(log_harness: pathlib.Path) -> None:
    log = Log("open /dev/full %d" % START)
    several_flushes(log)
    log.close(errno.ENOSPC)
    log.run(log_harness)


def test_after_an_error_nothing_is_written(log_harness: pathlib.Path,
                                           tmp_path: pathlib.Path) -> None:
    # the large flush fails, so the small flush must not follow, though it would fit
    log, file = new_log(tmp_path)
    log.lines.append("limit 2000")
    log.flush(0)
    log.records(name(1, b"x" * 4000))
    log.flush(1)
    log.flush(2)
    log.close(errno.EFBIG)
    log.run(log_harness)
    data = file.read_bytes()
    assert flushed(data) == 1 and b"xxx" not in data


def test_descriptor_closed_by_the_program(log_harness: pathlib.Path,
                                          tmp_path: pathlib.Path) -> None:
    log, file = new_log(tmp_path)
    log.flush(0)
    log.lines.append("shut")
    several_flushes(log)
    log.close(errno.EBADF)
    log.run(log_harness)
    data = file.read_bytes()
    assert flushed(data) == 1 and OBJECTS not in record_rows.tables(data)


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
    assert flushed(file.read_bytes()) == flushes_before


def test_invalid_descriptor_is_reported(log_harness: pathlib.Path) -> None:
    log = Log("openfd 99 %d" % START)
    log.answers = [errno.EBADF]
    log.lines += ["stack " + stack_record((1, 8), 0).hex(), "row 10 0 0 1 0 0 0",
                  "flush 0", "settings a=1", "close"]
    log.answers += [LOST, 0]
    log.run(log_harness)


def test_pipe(log_harness: pathlib.Path) -> None:
    read_end, write_end = os.pipe()
    log = Log("openfd %d %d" % (write_end, START))
    several_flushes(log)
    for i in range(300):                    # more data than a pipe holds
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


def test_pipe_without_a_reader(log_harness: pathlib.Path) -> None:
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
    # a forked child forgets the file
    log, file = new_log(tmp_path)
    log.flush(0)
    log.object(1, 0, stack=log.stack([8]))
    log.lines += ["forget", "stack " + stack_record((1, 8), 0).hex(),
                  "row 10 0 0 1 0 0 0", "settings a=1", "flush 0"]
    log.answers += [LOST]
    log.close()
    log.run(log_harness)
    data = file.read_bytes()
    assert flushed(data) == 1 and OBJECTS not in record_rows.tables(data)
