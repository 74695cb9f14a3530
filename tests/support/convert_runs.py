"""Helpers for tests that run the command vmprof-convert in a folder with a profile."""
from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

import firefox_rules
from firefox_profiles import Json, rich_log
from vmprof_convert import cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create app.vmprof in a temporary folder, and make it the current folder."""
    (tmp_path / "app.vmprof").write_bytes(rich_log().data())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder: Path) -> list[str]:
    """Return the sorted names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def load(path: Path) -> Json:
    """Read a file for the Firefox Profiler, which must pass all of firefox_rules.py."""
    data = path.read_bytes()
    result: Json = json.loads(
        gzip.decompress(data) if path.name.endswith(".gz") else data)
    assert firefox_rules.violations(result) == []
    return result


def run_and_fail(folder: Path, capsys: pytest.CaptureFixture[str],
                 *arguments: str) -> str:
    """Run the command, which must fail with one line, and return the line.

    The files in the folder must stay the same.
    """
    before = {path: path.read_bytes() for path in folder.iterdir()
              if path.is_file()}
    entries = names(folder)
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert re.fullmatch("vmprof-convert: [^\n]+\n", err), err
    assert out == ""
    assert names(folder) == entries
    assert before == {path: path.read_bytes() for path in before}
    return str(err)
