"""The parts of one process's profile: one alone, and all of them as one."""
from __future__ import annotations

import pathlib

import pytest

from made_profiles import Log
from vmprof_convert import cli, readers, run_files
from vmprof_convert.errors import ProfileError
from vmprof_convert.model import ALIVE, DIED, FREED, PENDING, Profile

SETTINGS = {"run": "abc", "pid": 4321, "facts": "types,lifetimes"}


def first(**changes: object) -> Log:
    """Sample 1 died young, 2 became old, 3 is in the nursery."""
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
    """Began 100 ns later: sample 2 is freed, 3 became old, and so did 4."""
    log = Log()
    log.addresses = 0x2000
    g = log.function("g")
    log.settings(**SETTINGS, clock=clock, part=number)
    log.written = log.keys = 3
    log.allocation([g], size=24, time=5)
    log.collection(40)
    log.freed(2)
    log.young(3, 1, log.type("c"))
    log.young(4, 1, log.type("d"))
    log.event(1, 40, 5, 24)
    log.allocated = 24
    log.mark(30, "two")
    return log


def write(folder: pathlib.Path, **logs: Log) -> list[str]:
    paths = []
    for name, log in logs.items():
        path = folder / (name.replace("_", ".") + ".vmprof")
        path.write_bytes(log.data())
        paths.append(str(path))
    return paths


def rows(profile: Profile) -> list[tuple[str, int, str, int, int, int]]:
    """Function, time, type, fate, collected, ended; in the order of the times."""
    s = profile.samples
    return sorted(((profile.function(profile.stacks[stack][-1].address).name, time,
                    profile.types[type_].python if type_ >= 0 else "", fate,
                    collected, ended)
                   for stack, time, type_, fate, collected, ended in zip(
                       s.stack, s.time, s.type, s.fate, s.collected, s.ended)),
                  key=lambda row: row[1])


def test_all_parts_are_one_profile(tmp_path: pathlib.Path) -> None:
    profile = readers.read(write(tmp_path, app=first(), app_w2=second()))
    assert rows(profile) == [
        ("f", 10, "a", DIED, 50, -1), ("f", 20, "b", FREED, 50, 140),
        ("f", 90, "c", ALIVE, 140, -1), ("g", 105, "d", ALIVE, 140, -1)]
    assert profile.misfits == 0
    assert profile.moments[-1].allocated == 72
    assert [mark.time for mark in profile.marks] == [60, 130]
    assert [(c.time, c.number) for c in profile.collections] == [(50, 32), (140, 72)]
    assert "part" not in profile.settings


def test_each_part_alone(tmp_path: pathlib.Path) -> None:
    """What is said of an earlier part's samples is passed over."""
    one, two = map(readers.read, write(tmp_path, app=first(), app_w2=second()))
    assert [row[3] for row in rows(one)] == [DIED, ALIVE, PENDING]
    assert rows(two) == [("g", 5, "d", ALIVE, 40, -1)]
    assert two.misfits == 0 and two.moments[-1].allocated == 24


def test_a_later_part_begins(tmp_path: pathlib.Path) -> None:
    """Others before it may be gone."""
    third = Log()
    third.addresses = 0x3000
    third.settings(**SETTINGS, clock=1200, part=3)
    third.written = third.keys = 4
    third.allocation([third.function("h")], size=8, time=1)
    third.collection(7)
    third.freed(4)
    third.freed(2)
    profile = readers.read(write(tmp_path, a=second(), b=third))
    assert rows(profile) == [("g", 5, "d", FREED, 40, 107),
                             ("h", 101, "", PENDING, -1, -1)]
    assert profile.misfits == 0


@pytest.mark.parametrize("named", [1, 2])
def test_parts_are_found_beside_the_first(tmp_path: pathlib.Path, named: int) -> None:
    paths = write(tmp_path, app=first(), app_w2=second())
    found = run_files.find(paths[::-1][-named:])
    assert [(file.path, file.later) for file in found.files] == [
        (paths[0], (paths[1],))]


def test_parts_that_cannot_be_put_together(
        tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(tmp_path, app=first(), app_w3=second(3))
    assert cli.main([paths[0]]) == 2
    assert capsys.readouterr().err == (
        "vmprof-convert: of the parts of this profile, number 1 is there, and number "
        "3 is the next one: name all that are between them, or those before alone\n")
    with pytest.raises(ProfileError, match="a part that began before the first one"):
        readers.read(write(tmp_path, app=first(), app_w2=second(clock=999)))


def test_part_without_a_clock(tmp_path: pathlib.Path) -> None:
    paths = write(tmp_path, app=first(), app_w2=second())
    path = pathlib.Path(paths[1])
    path.write_bytes(path.read_bytes().replace(b"clock=1100", b"cl0ck=1100"))
    with pytest.raises(ProfileError, match="a part without a clock"):
        readers.read(paths)
