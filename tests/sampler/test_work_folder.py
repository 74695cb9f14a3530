"""Temporary folders of attach and live, and their removal after killed commands."""
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
    """Return the folder that contains the temporary folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def left(folder: Path, name: str = "vmprof-command-left", age: float = 1000) -> Path:
    """Make a folder as a killed command leaves it."""
    path = folder / name
    path.mkdir(0o700)
    (path / "1.vmprof").write_bytes(b"data")
    now = path.stat().st_mtime - age
    os.utime(path, (now, now))
    return path


def test_folder_is_removed_at_the_end(folder: Path) -> None:
    with work_folder.own(*OWNER) as own:
        assert os.listdir(folder) == [os.path.basename(own.path)]
        assert os.stat(own.path).st_mode & 0o777 == 0o700
    assert os.listdir(folder) == []


def test_folder_of_a_killed_command_is_removed(folder: Path) -> None:
    left(folder)
    with work_folder.own(*OWNER) as own:
        assert os.listdir(folder) == [os.path.basename(own.path)]


def test_locked_and_new_folders_are_kept(folder: Path) -> None:
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


def test_folder_that_others_may_read_is_kept(folder: Path) -> None:
    path = left(folder)
    path.chmod(0o755)
    with work_folder.own(*OWNER):
        assert path.exists()


def test_folders_are_kept_if_locks_do_not_work(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(fcntl, "flock", flock)
    path = left(folder)
    with work_folder.own(*OWNER) as own:
        assert path.exists() and os.path.isdir(own.path)
