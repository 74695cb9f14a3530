"""Tests of allocation samples in vmprof's own buffers (see PROFILE.rst).

A PyPy with the submission `rvmprof-samples`, but without `rvmprof-recorder`, writes
such profiles.
"""
from __future__ import annotations

import pytest

from made_profiles import Log, word
from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.readers import rvmprof_samples
from vmprof_convert.readers.rvmprof_samples import FULL_STACK

TYPES = "member0    ?\nmember1    GcStruct Node { next }\nmember2    GcArray of Char"


def words(marker: int, *numbers: int) -> bytes:
    return bytes([marker]) + b"".join(map(word, numbers))


def begun(settings: str = "interval=1000;seed=1", version: int = 6) -> Log:
    log = Log(version=version)
    log.meta("allocations", settings)
    log.meta("allocation types", TYPES)
    return log


def sample(log: Log, key: int, size: int, time: int, *functions: int) -> None:
    stack = [number for address in reversed(functions) for number in (1, address)]
    log.bytes += words(0x0b, key, size, time, 7, len(stack), *stack)


def obj(log: Log, key: int, type_: int, size: int = 0) -> None:
    log.bytes += words(0x0c, key, type_, size)


def tick(log: Log, address: int) -> None:
    log.bytes += words(0x01, 1, 2, 1, address, 7)
    if log.version == 7:
        log.bytes += word(10**12)       # the processor's time stamp


def rows(log: Log) -> list[tuple[int, int, int, str]]:
    """Return time, size, interval and layout of the type of each object."""
    profile = readers.read_bytes(log.data())
    samples = profile.samples
    return [(time, size, interval, "" if type_ < 0 else profile.types[type_].layout)
            for time, size, interval, type_ in zip(
                samples.time, samples.size, samples.interval, samples.type)]


def test_each_object_of_a_sample_is_a_row() -> None:
    log = begun()
    main = log.function("main")
    sample(log, 1, 64, 10, main)
    sample(log, 2, 5000, 20, main)
    obj(log, 1, 1, 24)
    obj(log, 1, 2, 40)
    obj(log, 2, 2)
    log.bytes += words(0x0d, 50, 6000, 3)
    assert rows(log) == [
        (10, 24, 1000, "GcStruct Node { next }"), (10, 40, 1000, "GcArray of Char"),
        (20, 5000, 1000, "GcArray of Char")]
    profile = readers.read_bytes(log.data())
    (moment,) = profile.moments
    assert (moment.time, moment.allocated, profile.missing) == (50, 6000, 3)
    assert profile.has_types and not profile.has_lifetimes
    assert (profile.engine, profile.interval, profile.misfits) == ("builtin", 1000, 0)
    assert set(profile.samples.thread) == {7}


def test_an_object_may_precede_its_sample() -> None:
    log = begun()
    main = log.function("main")
    obj(log, 1, 1, 24)
    obj(log, 3, 1, 24)
    sample(log, 1, 24, 10, main)
    assert rows(log) == [(10, 24, 1000, "GcStruct Node { next }")]
    assert readers.read_bytes(log.data()).misfits == 1


def test_samples_without_objects() -> None:
    log = begun()
    sample(log, 1, 24, 10)
    sample(log, 2, 24, 20, log.function("main"))
    obj(log, 2, 9)
    assert sorted(rows(log)) == [(10, 24, 1000, ""), (20, 24, 1000, "")]
    profile = readers.read_bytes(log.data())
    assert profile.lost_stacks == 1 and sorted(profile.samples.stack) == [-1, 0]


def test_reader_keeps_few_samples_until_their_objects_are_known(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rvmprof_samples, "_KEPT", 10)
    monkeypatch.setattr(rvmprof_samples, "_BATCH", 7)
    log = begun()
    main = log.function("main")
    for key in range(1, 101):
        sample(log, key, 24, key, main)
        obj(log, key, 1)
        obj(log, key, 2, 16)
    assert len(rows(log)) == 200


@pytest.mark.parametrize("version", [6, 7])
def test_time_samples_have_the_time_of_the_previous_allocation(version: int) -> None:
    log = begun(version=version)
    main = log.function("main")
    tick(log, main)
    sample(log, 1, 24, 10, main)
    tick(log, main)
    obj(log, 1, 1)
    assert sorted(row[:2] for row in rows(log)) == [(0, 0), (10, 0), (10, 24)]


def test_a_stack_that_filled_its_record() -> None:
    log = begun()
    main = log.function("main")
    sample(log, 1, 24, 10, *[main] * (FULL_STACK // 2))
    sample(log, 2, 24, 10, *[main] * (FULL_STACK // 2 - 1))
    assert readers.read_bytes(log.data()).cut_stacks == 1


@pytest.mark.parametrize("record", [
    words(0x0b, 1, 0, 10, 7, 0), words(0x0b, 1, 24, -1, 7, 0),
    words(0x0b, 1, 24, 10, 7, -1), words(0x0b, 1, 24, 10, 7, 2**40),
    words(0x0c, 1, 1, -1)])
def test_damaged_records_are_refused(record: bytes) -> None:
    log = begun()
    log.bytes += record
    with pytest.raises(ProfileError, match="damaged profile"):
        readers.read_bytes(log.data())


@pytest.mark.parametrize("settings", ["", "interval=", "interval=x", "interval=0",
                                      "interval=" + "9" * 30])
def test_an_invalid_interval_is_refused(settings: str) -> None:
    log = begun(settings)
    sample(log, 1, 24, 10, log.function("main"))
    with pytest.raises(ProfileError, match="interval"):
        readers.read_bytes(log.data())


def test_a_truncated_profile_is_an_error_or_salvaged() -> None:
    log = begun()
    main = log.function("main")
    sample(log, 1, 24, 10, main)
    whole = bytes(log.bytes)
    sample(log, 2, 24, 20, main)
    for end in range(len(whole) + 1, len(log.bytes)):
        with pytest.raises(ProfileError, match="cut off"):
            readers.read_bytes(bytes(log.bytes[:end]))
        profile = readers.read_bytes(bytes(log.bytes[:end]), salvage=True)
        assert list(profile.samples.time) == [10]
