"""Tests of profiles of other versions.

The reader names the unknown records of newer versions. It refuses profiles of the time
before records had a marker.
"""
from __future__ import annotations

import re
from pathlib import Path

import pytest

from made_profiles import OBJECTS, SETTINGS, TOTALS, Log, column, record, table
from report_runs import PROGRAMS, report, text
from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Profile
from vmprof_convert.writers import firefox


def sampled() -> Log:
    log = Log()
    f, g = log.function("f"), log.function("g")
    log.settings()
    log.allocation([f, g], size=24, time=10)
    log.allocation([f], size=48, time=20)
    log.flush()
    return log


@pytest.mark.parametrize("kind", [SETTINGS, TOTALS, OBJECTS, 99])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_newer_version_of_records_is_refused(
        tmp_path: Path, kind: int, first: bool, program: str) -> None:
    log = Log() if first else sampled()
    log.record(kind, [column([1])], 1, b"whatever;comes", version=3)
    path = tmp_path / "new.vmprof"
    path.write_bytes(log.data())
    done = report(path, program=program)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"(?:pypy-alloc|vmprof-convert): %s: the profile has records of version 3; "
        "this vmprof-convert understands 2: install a newer vmprof-convert "
        "to read it\n" % re.escape(str(path)), done.stderr), done.stderr
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("payload", [b"\3", b"\3\3", b"\3" + bytes(100)])
def test_a_newer_record_may_have_any_content(payload: bytes) -> None:
    log = sampled()
    log.bytes += b"A" + len(payload).to_bytes(8, "little") + payload
    with pytest.raises(ProfileError, match=r"version 3; .* newer"):
        readers.read_bytes(log.data())


@pytest.mark.parametrize("version", [0, 1, 3, 255])
def test_versions_that_are_not_understood(version: int) -> None:
    log = sampled()
    log.record(OBJECTS, version=version)
    with pytest.raises(ProfileError, match="version %d; .* understands 2"
                       % version) as caught:
        readers.read_bytes(log.data(), salvage=True)
    assert ("newer" in str(caught.value)) == (version > 2)


@pytest.mark.parametrize("payload", [
    b"", b"\2", b"\2\7\0\0\0\0\0", record(0, [], 0)[9:], record(7, [], 2**21)[9:]])
def test_invalid_records_are_refused(payload: bytes) -> None:
    log = sampled()
    log.bytes += b"A" + len(payload).to_bytes(8, "little") + payload
    with pytest.raises(ProfileError, match="damaged profile: a record "):
        readers.read_bytes(log.data())


def test_profiles_without_markers_are_refused() -> None:
    """The records of such profiles were names of functions at an impossible address."""
    log = Log()
    log.name(-0x616C6C6F63, "alloc:interval=1000:3:settings")
    with pytest.raises(ProfileError, match="layout is no longer supported: sample"):
        readers.read_bytes(log.data())


def shown(profile: Profile) -> tuple[str, dict[str, object]]:
    """Return the report, and the entries of the Firefox profile's info panel."""
    return text(profile), {
        entry["label"]: entry["value"]
        for section in firefox.convert(profile)["meta"]["extra"]
        for entry in section["entries"]}


PASSED_OVER = "records of unknown kinds were skipped: "


def passed_over(panel: dict[str, object]) -> list[str]:
    return [value for value in panel.values()
            if isinstance(value, str) and PASSED_OVER in value]


def test_unknown_kinds_are_skipped_and_named() -> None:
    log = sampled()
    for _ in range(3):
        log.record(77, [b"whatever", b"comes"], 5)
    log.bytes += table(40, [(1, 2, 3)])
    profile = readers.read_bytes(log.data())
    assert list(profile.samples.size) == [24, 48]
    assert profile.unknown == {"record 77": 3, "record 40": 1}
    text, panel = shown(profile)
    assert ("  records of unknown kinds were skipped: record 40 (1), record 77 (3); a "
            "newer vmprof-convert may show them\n") in text
    (said,) = passed_over(panel)
    assert said.startswith(PASSED_OVER + "record 40 (1), record 77 (3); a newer")


def test_many_unknown_kinds_are_not_all_named() -> None:
    log = sampled()
    for number in range(100, 200):
        log.record(number)
    (said,) = passed_over(shown(readers.read_bytes(log.data()))[1])
    assert said.startswith(PASSED_OVER + "record 100 (1), record 101 (1), ")
    assert ", record 109 (1), 90 kinds more; " in said


def test_no_note_without_unknown_kinds() -> None:
    text, panel = shown(readers.read_bytes(sampled().data()))
    assert "skipped" not in text and not passed_over(panel)


def test_an_unknown_kind_makes_a_profile_of_allocations() -> None:
    log = Log()
    log.record(99)
    log.raw_stack(log.words([log.function("f")]), 0)
    profile = readers.read_bytes(log.data())
    assert len(profile.samples) == 0 and profile.unknown == {"record 99": 1}


def test_unknown_settings_are_kept() -> None:
    log = Log()
    log.settings(colour="blue")
    log.allocation([log.function("f")], size=24)
    profile = readers.read_bytes(log.data())
    assert profile.settings["colour"] == "blue"
    assert shown(profile)[1]["colour"] == "blue"
