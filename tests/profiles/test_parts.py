"""Tests of single segments of a rotated profile, and of all segments as one profile.

The code calls the segments "parts", and the inherited objects "carried".
"""
from __future__ import annotations

import json
import pathlib

import pytest

from made_profiles import TYPES, Log
from vmprof_convert import cli, readers
from vmprof_convert.analysis import diff
from vmprof_convert.analysis.by_stack import values
from vmprof_convert.analysis.leaks.search import OldObjects
from vmprof_convert.analysis.selection import Selection, select
from vmprof_convert.cli import run_files
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile import merging
from vmprof_convert.profile.model import ALIVE, DIED, FREED, PENDING, Carried, Profile
from vmprof_convert.profile.probability import probability

SETTINGS = {"run": "abc", "pid": 4321, "facts": "types,lifetimes"}


def first(**changes: object) -> Log:
    """Return a segment: sample 1 died young, 2 became old, and 3 is in the nursery."""
    log = Log()
    f = log.function("f")
    log.settings(**SETTINGS, clock=1000, **changes)
    for time in 10, 20, 90:
        log.allocation([f], size=16, time=time)
    log.collection(50)
    log.young(1, 0, log.type("a"))
    log.young(2, 1, log.type("b"))
    log.event(1, 50, 5, 32)
    log.collection(100)
    log.young(3, 4, log.type("c"))
    log.allocated = 48
    log.mark(60, "one")
    return log


def second(number: int = 2, clock: int = 1100) -> Log:
    """Return a segment that began 100 ns later.

    The GC freed sample 2. The samples 3 and 4 became old.
    """
    log = Log()
    log.addresses = 0x2000
    g = log.function("g")
    log.settings(**SETTINGS, clock=clock, part=number, first=4)
    log.keys = 3
    log.earlier(3, [log.function("f")], size=16)
    log.allocation([g], size=24, time=5)
    log.collection(40)
    log.freed(2)
    log.young(3, 1, log.type("c"))
    log.young(4, 1, log.type("d"))
    log.event(1, 40, 5, 24)
    log.allocated = 24
    log.mark(30, "two")
    return log


def third() -> Log:
    """Return a third segment, with objects that are inherited from the others.

    The GC freed sample 2 (24 bytes). The second object of sample 1 and the young
    sample 3 are alive.
    """
    log = Log()
    log.addresses = 0x3000
    h = log.function("h")
    log.settings(**SETTINGS, clock=1200, part=3, first=4)
    log.keys = 3
    log.allocated = 64
    log.allocation([log.function("g")], size=64, time=5)
    log.row(TYPES, 8, 2, -1, text="b")
    log.inherited(2, [h], size=24, type_=8)
    log.inherited(1, [h], size=48, which=1, type_=8)
    log.earlier(3, None, size=16)
    log.collection(40)
    log.freed(2)
    log.young(3, 1, 8)
    log.young(4, 0, 8)
    for time in 50, 60, 70:
        log.event(3, time, 0, time)
    return log


def write(folder: pathlib.Path, **logs: Log) -> list[str]:
    paths = []
    for name, log in logs.items():
        path = folder / (name.replace("_", ".") + ".vmprof")
        path.write_bytes(log.data())
        paths.append(str(path))
    return paths


def rows(profile: Profile) -> list[tuple[str, int, str, int, int, int]]:
    """Return (function, time, type, outcome, collected, ended), ordered by time."""
    s = profile.samples
    return sorted(((profile.function(profile.stacks[stack][-1].address).name, time,
                    profile.types[type_].python if type_ >= 0 else "", fate,
                    collected, ended)
                   for stack, time, type_, fate, collected, ended in zip(
                       s.stack, s.time, s.type, s.fate, s.collected, s.ended)),
                  key=lambda row: row[1])


def test_allocated_bytes_at_marks_count_from_the_first_segment(
        tmp_path: pathlib.Path) -> None:
    logs = first(), second()
    for log, allocated in zip(logs, (7, 9)):
        log.figure(11, 30, allocated)
    profile = readers.read(write(tmp_path, app=logs[0], app_w2=logs[1]))
    assert [one.value for one in profile.figures] == [7, 48 + 9]


def test_all_segments_are_one_profile(tmp_path: pathlib.Path) -> None:
    profile = readers.read(write(tmp_path, app=first(), app_w2=second()))
    assert rows(profile) == [
        ("f", 10, "a", DIED, 50, -1), ("f", 20, "b", FREED, 50, 140),
        ("f", 90, "c", ALIVE, 140, -1), ("g", 105, "d", ALIVE, 140, -1)]
    assert profile.misfits == 0
    assert profile.moments[-1].allocated == 72
    assert [mark.time for mark in profile.marks] == [60, 130]
    assert [(c.time, c.number) for c in profile.collections] == [(50, 32), (140, 72)]
    assert "part" not in profile.settings


def test_objects_in_the_nursery_of_a_killed_process_appear_once(
        tmp_path: pathlib.Path) -> None:
    """Sample 3 is at the end of the first segment, and in each flush of the second."""
    log = Log()
    log.addresses = 0x2000
    g = log.function("g")
    log.settings(**SETTINGS, clock=1100, part=2, first=4)
    log.keys = 3
    log.earlier(3, [log.function("f")], size=16)
    log.flush()
    log.allocation([g], size=24, time=5)
    log.flush()
    one, = write(tmp_path, app=first())
    two = tmp_path / "app.w2.vmprof"
    two.write_bytes(bytes(log.bytes))
    profile = readers.read([one, str(two)])
    assert [(row[0], row[3]) for row in rows(profile)] == [
        ("f", DIED), ("f", ALIVE), ("f", PENDING), ("g", PENDING)]


def test_each_segment_alone(tmp_path: pathlib.Path) -> None:
    """Records about samples of an earlier segment are ignored."""
    one, two = map(readers.read, write(tmp_path, app=first(), app_w2=second()))
    assert [row[3] for row in rows(one)] == [DIED, ALIVE, PENDING]
    assert rows(two) == [("g", 5, "d", ALIVE, 40, -1)]
    assert [c.fate for c in two.samples.carried] == [ALIVE]
    assert two.moments[-1].allocated == 24


def test_a_segment_after_one_without_an_end(tmp_path: pathlib.Path) -> None:
    """A segment has no end if, for example, the disk was full.

    Live objects whose samples are in no file count as alive, but not as allocated.
    """
    behind = Log()
    behind.settings(**SETTINGS, clock=1100, part=2, first=8)
    behind.keys = 7
    g = behind.function("g")
    behind.inherited(2, [g], size=16)
    behind.inherited(6, [g], size=24)
    behind.allocation([g], size=24, time=5)
    paths = write(tmp_path, app=first(), app_w2=behind)
    profile = readers.read(paths)
    assert [row[1:4] for row in rows(profile)] == [
        (10, "a", DIED), (20, "b", ALIVE), (90, "c", PENDING), (105, "", PENDING)]
    assert [c.size for c in profile.samples.carried] == [24]
    assert [len(readers.read(path).samples) for path in paths] == [3, 1]


def test_the_first_file_is_a_later_segment(tmp_path: pathlib.Path) -> None:
    """Earlier segments may have been deleted."""
    third = Log()
    third.addresses = 0x3000
    third.settings(**SETTINGS, clock=1200, part=3, first=5)
    third.keys = 4
    third.allocation([third.function("h")], size=8, time=1)
    third.collection(7)
    third.freed(4)
    profile = readers.read(write(tmp_path, a=second(), b=third))
    assert rows(profile) == [("g", 5, "d", FREED, 40, 107),
                             ("h", 101, "", PENDING, -1, -1)]
    # this object is from the deleted segment
    assert [(c.size, c.fate) for c in profile.samples.carried] == [(16, ALIVE)]


@pytest.mark.parametrize("named", [1, 2])
def test_segments_are_found_next_to_the_first(tmp_path: pathlib.Path,
                                              named: int) -> None:
    paths = write(tmp_path, app=first(), app_w2=second())
    found = run_files.find(paths[::-1][-named:])
    assert [(file.path, file.later) for file in found.files] == [
        (paths[0], (paths[1],))]


def test_refuses_segments_that_cannot_be_merged(
        tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(tmp_path, app=first(), app_w3=second(3))
    assert cli.main(["report", paths[0]]) == 2
    assert capsys.readouterr().err == (
        "vmprof-convert: segments of this profile are missing between number 1 and "
        "number 3: name them, too, or name only the earlier segments\n")
    with pytest.raises(ProfileError, match="a segment that began before the first"):
        readers.read(write(tmp_path, app=first(), app_w2=second(clock=999)))


def test_segment_without_a_clock(tmp_path: pathlib.Path) -> None:
    paths = write(tmp_path, app=first(), app_w2=second())
    path = pathlib.Path(paths[1])
    path.write_bytes(path.read_bytes().replace(b"clock=1100", b"cl0ck=1100"))
    with pytest.raises(ProfileError, match="a segment without a clock"):
        readers.read(paths)


def test_inherited_objects_are_alive_and_not_allocated(tmp_path: pathlib.Path) -> None:
    profile = readers.read(*write(tmp_path, app=third()))
    assert rows(profile) == [("g", 5, "b", DIED, 40, -1)]
    assert profile.misfits == 0 and not profile.unknown
    (b,) = (i for i, type_ in enumerate(profile.types) if type_.python == "b")
    (h,) = (i for i, stack in enumerate(profile.stacks)
            if profile.function(stack[-1].address).name == "h")
    assert sorted(profile.samples.carried) == sorted([
        Carried(h, 24, 1000, b, FREED, -1, 40), Carried(h, 48, 1000, b, ALIVE, -1, -1),
        Carried(-1, 16, 1000, b, ALIVE, 40, -1)])


def test_reports_of_inherited_objects(
        tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = write(tmp_path, app=third())

    def sums(*options: str) -> dict[str, tuple[int, int]]:
        """Return the numbers of allocated and of live samples."""
        assert cli.main(["report", path, "--json", *options]) in (0, None)
        found = json.loads(capsys.readouterr().out)
        assert any("inherited: " in line for line in found["remarks"])
        return {name: (figures["allocated"]["samples"], figures["alive"]["samples"])
                for name, figures in [("sum", found["sum"]), *(
                    (row["function"]["name"], row["self"]) for row in found["rows"])]}

    assert sums() == {"sum": (1, 2), "g": (1, 0), "h": (0, 1), "[stack lost]": (0, 1)}
    assert sums("--function", "h", "--outcome", "alive") == {"sum": (0, 1), "h": (0, 1)}
    assert sums("--at", "0.00000001")["sum"] == (1, 4)


def test_pprof_has_inherited_objects_in_use(tmp_path: pathlib.Path) -> None:
    profile = readers.read(*write(tmp_path, app=third()))
    found = {profile.function(profile.stacks[part.stack][-1].address).name
             if part.stack >= 0 else "": value
             for part, value in values(profile).items()}
    assert {name: (round(value.objects), value.alive_bytes > 0)
            for name, value in found.items()} == {
        "g": (16, False), "h": (0, True), "": (0, True)}
    expected = 48 / probability(48, 1000, "exponential")
    assert found["h"].alive_bytes == pytest.approx(expected)


def test_difference_of_moments_has_inherited_live_objects(
        tmp_path: pathlib.Path) -> None:
    """An inherited object is alive until the GC frees it."""
    profile = readers.read(*write(tmp_path, app=third()))
    alive_at = {at: sorted(
        c.size for c in diff.moment(profile, at).samples.carried
        if c.fate == ALIVE) for at in (10, 45)}
    assert alive_at == {10: [16, 24, 48], 45: [16, 48]}


def test_filters_select_inherited_objects(tmp_path: pathlib.Path) -> None:
    profile = readers.read(*write(tmp_path, app=third()))
    chosen = select(profile, Selection(functions=("g", "h"), fates=(
        "alive", "died-young")))
    assert [c.size for c in chosen.samples.carried] == [48]
    assert len(chosen.samples) == 1


def test_merged_processes_have_all_inherited_objects(tmp_path: pathlib.Path) -> None:
    first = readers.read(*write(tmp_path, app=third()))
    merged = merging.merge([merging.Read(first, "a", 0),
                              merging.Read(first, "b", 1000)]).profile
    carried = merged.samples.carried
    assert len(carried) == 6
    assert {c.ended for c in carried} == {-1, 40, 1040}
    assert {merged.function(merged.stacks[c.stack][-1].address).name
            for c in carried if c.stack >= 0} == {"h"}


def test_diff_of_the_first_segment_and_a_later_one(
        tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the second name, the name of the first segment means all segments."""
    one, two = write(tmp_path, app=first(), app_w2=second())
    assert cli.main(["diff", one, two]) in (0, None)
    out = capsys.readouterr().out
    assert "app.vmprof: 3 samples" in out and "app.w2.vmprof: 1 sample" in out


def test_leaks_include_inherited_objects(tmp_path: pathlib.Path) -> None:
    (path,) = write(tmp_path, app=third())
    objects = OldObjects()
    readers.read_into(path, objects)
    assert sorted(zip(objects.size, objects.collected, objects.freed)) == [
        (16, 40, -1), (24, -1, 40), (48, -1, -1)]


def test_firefox_profile_omits_inherited_objects(
        tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = write(tmp_path, app=third())
    assert cli.main(["export", path, "-o", str(tmp_path / "app.json")]) in (0, None)
    assert capsys.readouterr().err.startswith(
        "vmprof-convert: not included: 3 sampled objects of earlier segments")
