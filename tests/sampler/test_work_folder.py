"""Folders of attach and top: of commands that were killed, none stays."""
from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

from vmprof_allocation.remote import work_folder

OWNER = os.geteuid(), os.getegid()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where they are."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left(folder: Path, name: str = "vmprof-command-left", age: float = 1000) -> Path:
    """As one that was killed leaves it."""
    path = folder / name
    path.mkdir(0o700)
    (path / "1.vmprof").write_bytes(b"data")
    now = path.stat().st_mtime - age
    os.utime(path, (now, now))
    return path


def test_it_is_gone_at_the_end(folder: Path) -> None:
    with work_folder.own(*OWNER) as own:
        assert os.listdir(folder) == [os.path.basename(own.path)]
        assert os.stat(own.path).st_mode & 0o777 == 0o700
    assert os.listdir(folder) == []


def test_what_a_killed_one_left_is_removed(folder: Path) -> None:
    left(folder)
    with work_folder.own(*OWNER) as own:
        assert os.listdir(folder) == [os.path.basename(own.path)]


def test_what_somebody_holds_or_just_made_stays(folder: Path) -> None:
    with work_folder.own(*OWNER) as other:
        os.utime(other.path, (0, 0))
        young, foreign = left(folder, age=1), left(folder, "others")
        with work_folder.own(*OWNER):
            assert os.path.isdir(other.path)
        assert young.exists() and foreign.exists()
        (young / "1.vmprof").unlink()


def test_a_link_is_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory,
                                ) -> None:
    elsewhere = left(tmp_path_factory.mktemp("elsewhere"))
    (folder / "vmprof-command-link").symlink_to(elsewhere)
    inside = left(folder)
    (inside / "1.vmprof").unlink()
    (inside / "link").symlink_to(elsewhere)
    os.utime(inside, (0, 0))
    with work_folder.own(*OWNER):
        assert not inside.exists()
    assert (elsewhere / "1.vmprof").exists()


def test_one_that_others_may_look_into_is_none_of_ours(folder: Path) -> None:
    path = left(folder)
    path.chmod(0o755)
    with work_folder.own(*OWNER):
        assert path.exists()


def test_where_there_are_no_locks(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(fcntl, "flock", flock)
    path = left(folder)
    with work_folder.own(*OWNER) as own:
        assert path.exists() and os.path.isdir(own.path)
