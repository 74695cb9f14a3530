"""Tests of the converter with invalid and unusual profiles.

An invalid profile gives an error message of one line and no output. An unusual profile
gives a valid output.
"""
from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import convert_runs
import firefox_rules
import made_profiles
from convert_runs import run_and_fail
from firefox_profiles import converted, rich_log
from made_profiles import Log
from vmprof_convert import cli, readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.readers import container
from vmprof_convert.writers import firefox
from vmprof_convert.writers.firefox import convert

folder = convert_runs.folder


def big_endian(data: bytes) -> bytes:
    return data[:40][::-1] + data[40:]


def log_with(tail: bytes) -> bytes:
    """Return a valid log followed by `tail`."""
    log = rich_log()
    log.flush()
    return bytes(log.bytes) + tail


def damaged_gzip() -> bytes:
    data = bytearray(gzip.compress(rich_log().data() * 50))
    data[20:40] = bytes(b ^ 0x55 for b in data[20:40])
    return bytes(data)


HOSTILE = {
    "empty": b"",
    "a few bytes": b"\x00\x00",
    "only a head": struct.pack("<5q", 0, 3, 0, 10_000, 0),
    "a program": b"\x7fELF" + bytes(100),
    "text": b"import vmprof\n" * 20,
    "json": b'{"meta": {}}' * 10,
    "big-endian": big_endian(rich_log().data()),
    "no samples": Log().data(),
    "truncated": rich_log().data()[:-7],
    "truncated in a stack": log_with(b"\x01" + struct.pack("<qqq", 1, 9, 1)),
    "depth huge": log_with(b"\x01" + struct.pack("<qq", 1, 2**62)),
    "depth over the limit": log_with(
        b"\x01" + struct.pack("<qq", 1, 2**16 + 1) + bytes(8 * 2**17)),
    "depth negative": log_with(b"\x01" + struct.pack("<qq", 1, -1)),
    "count negative": log_with(b"\x01" + struct.pack("<qq", -1, 0) + bytes(99)),
    # an unmerged fork of vmprof writes a float as the count
    "count a float": log_with(b"\x01" + struct.pack("<dq", 1.5, 0) + bytes(99)),
    "string too long": log_with(b"\x02" + struct.pack("<qq", 8, 2**62)),
    "string of negative length": log_with(b"\x02" + struct.pack("<qq", 8, -8)),
    "meta without a value": log_with(b"\x07" + struct.pack("<q", 0)),
    "unknown record": log_with(b"\xee" + bytes(40)),
    "second header": log_with(b"\x05\x00\x06\x08\x04pypy"),
    "sample before the header": rich_log().data()[:40] + b"\x01" + bytes(99),
    "version 99": rich_log().data().replace(b"\x05\x00\x06", b"\x05\x00\x63"),
    "record of no size": log_with(b"A" + struct.pack("<q", -1) + bytes(9)),
    "record of nothing": log_with(b"A" + bytes(8)),
    "record that is too long": log_with(b"A" + struct.pack("<q", 2**40)),
    "record without columns": log_with(made_profiles.record(7, [], 5)),
    "an invalid node of a stack": log_with(made_profiles.table(
        7, [(9, 0, 1, 1, 99, 0, 0, 16, 1, 0, 0, 0, 0)])),
    "sample of no interval": log_with(made_profiles.table(
        7, [(9, 0, 1, 1, -1, 0, 0, 16, 0, 0, 0, 0, 0)])),
    "gzip of nothing": gzip.compress(b""),
    "gzip cut off": gzip.compress(rich_log().data())[:-9],
    "gzip damaged": damaged_gzip(),
    "gzip without a body": b"\x1f\x8b",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_bad_input_gives_one_line_and_no_output(
        what: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad").write_bytes(HOSTILE[what])
    (folder / "old.json").write_text("precious")
    for arguments in (["export", "-o", "old.json"], ["export", "-o", "new.json.gz"],
                      ["export", "--format", "firefox"], ["view"]):
        assert "bad: " in run_and_fail(folder, capsys, *arguments, "bad")


def test_a_gzip_bomb_is_refused(
        folder: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_UNPACKED", 2**20)
    head = rich_log().data()
    (folder / "bomb").write_bytes(gzip.compress(head + bytes(2**26)))
    assert "unpacks to more than" in run_and_fail(folder, capsys, "report", "bomb")
    (folder / "fits").write_bytes(gzip.compress(head))
    assert cli.main(["report", "fits"]) == 0


def test_a_truncated_gzip_file_is_cut_off_but_not_damaged(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gzip file of full length with changed bytes is damaged."""
    packed = gzip.compress(rich_log().data())
    for size in range(2, len(packed)):
        (folder / "bad").write_bytes(packed[:size])
        assert run_and_fail(folder, capsys, "report", "bad").startswith(
            "vmprof-convert: bad: the profile is cut off")
    (folder / "bad").write_bytes(HOSTILE["gzip damaged"])
    assert "damaged" in run_and_fail(folder, capsys, "report", "bad")


def test_paths_that_are_not_readable_files(folder: Path,
                                           capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sub").mkdir()
    for path, message in (
            ("sub", "is not a file"), (".", "is not a file"),
            ("/dev/zero", "is not a file"),
            ("missing", "No such file"), ("app.vmprof/x", "Not a directory"),
            # this file can be opened, but its first bytes cannot be read
            ("/proc/self/mem", "Invalid argument")):
        error = run_and_fail(folder, capsys, "export", path, "-o", "out.json")
        assert path in error and message in error


def test_an_unreadable_file(folder: Path, capsys: pytest.CaptureFixture[str],
                            monkeypatch: pytest.MonkeyPatch) -> None:
    # the permissions of a file would not stop root, and tests may run as root
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "app.vmprof")
    monkeypatch.setattr(readers, "read_into", refuse)
    assert run_and_fail(folder, capsys, "report", "app.vmprof") == (
        "vmprof-convert: app.vmprof: Permission denied\n")


def test_error_if_memory_is_exhausted(folder: Path, capsys: pytest.CaptureFixture[str],
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError
    monkeypatch.setattr(readers, "read_into", refuse)
    assert "memory" in run_and_fail(folder, capsys, "report", "app.vmprof")
    monkeypatch.setattr(readers, "read", refuse)
    assert "memory" in run_and_fail(folder, capsys, "view", "app.vmprof")


def test_the_name_of_a_file_does_not_break_the_line(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_and_fail(folder, capsys, "report", "no\nsuch\x1b[31m\udcff")


def odd_names() -> bytes:
    log = rich_log()
    addresses = []
    for text in (b"\xed\xa0\x80 half of a pair", b"\xff\xfe", b"\x00", b"",
                 b"py:" + "\U0001f40d".encode() + b":1:x", b"a" * 10**6,
                 b"py:f:" + b"9" * 5000 + b":x", b"py:f:-3:x", b"py:f:nan:x",
                 "py:f:\u0663:x".encode(), b"::::", b"py:::", b"n:a::b:0:-"):
        log.addresses += 8
        log.name(log.addresses, text)
        addresses.append(log.addresses)
    log.meta(b"\xed\xa0\x80", b"\xed\xb0\x80")
    log.allocation(addresses, size=24)
    return log.data()


def odd_settings(**changes: object) -> bytes:
    log = Log()
    f = log.function("f")
    log.settings(**changes)
    log.tick([f])
    log.allocation([f], size=2**63 - 1, interval=1, time=2**63 - 1)
    log.allocation([f], size=1, interval=2**63 - 1, time=0)
    return log.data()


def odd_start(seconds: int) -> bytes:
    data = bytearray(rich_log().data())
    at = data.index(b"\x06", 46)
    data[at + 1:at + 9] = struct.pack("<q", seconds)
    return bytes(data)


def odd_head(period: int) -> bytes:
    log = Log(period=period)
    f = log.function("f")
    log.raw_stack(log.words([f]), -2**63 + 5)
    log.raw_stack(log.words([f]), 7)
    log.raw_stack([*log.words([f]), 99], 2**63 - 1)
    return log.data()


def odd_stamps() -> bytes:
    log = Log(interpreter="cpython", version=7, flags=made_profiles.MEMORY)
    f = log.function("f")
    for stamp in (-2**63, 2**63 - 1, 0):
        log.raw_stack([f], 1, memory=stamp, stamp=stamp)
    return log.data()


@pytest.mark.parametrize("data", [
    odd_names(), odd_settings(), odd_settings(period="nan"),
    odd_settings(period="inf"), odd_settings(period="-1"),
    odd_settings(period="1e-320"), odd_settings(period="soon"),
    odd_settings(pid="\udc80".encode("utf-8", "replace").decode()),
    odd_settings(pid=""), odd_settings(gaps="odd"),
    odd_settings(interval="9" * 5000),
    odd_start(2**63 - 1), odd_start(-2**63), odd_head(0), odd_head(-5),
    odd_head(2**63 - 1), odd_stamps(),
])
def test_unusual_input_makes_a_valid_file(data: bytes) -> None:
    converted(data)


SMALL = rich_log().data()


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.one_of(
    st.binary(max_size=9), st.sampled_from([
        b"\x00" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x01", b";", b","]))),
    min_size=1, max_size=4), st.booleans())
@example([(0, b"")], False)
def test_random_changes_give_an_error_or_a_valid_profile(
        changes: list[tuple[int, bytes]], salvage: bool) -> None:
    data = bytearray(SMALL)
    for at, new in changes:
        data[at:at + len(new)] = new
    try:
        profile = convert(readers.read_bytes(bytes(data), salvage=salvage))
    except ProfileError as error:
        assert "\n" not in str(error)
    else:
        assert firefox_rules.violations(
            json.loads(firefox.encode(profile))) == []
