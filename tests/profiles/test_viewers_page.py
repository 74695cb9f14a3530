"""Tests that each `vmprof-convert` command in VIEWERS.rst runs."""
from __future__ import annotations

import glob
import os
import re
import shlex
from pathlib import Path

import pytest

from conftest import ROOT
from made_heap import Heap
from vmprof_convert import cli
from vmprof_convert.cli.formats import FORMATS

PAGE = (ROOT / "converter" / "VIEWERS.rst").read_text(encoding="utf-8")


def commands() -> list[str]:
    """Return the commands in the literal blocks of VIEWERS.rst, up to a pipe."""
    lines = re.findall(r"^    (vmprof-convert .*)$", PAGE.replace("\\\n", ""),
                       re.MULTILINE)
    return [re.split(r" [|]", line)[0] for line in lines]


@pytest.fixture(autouse=True)
def speedscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the command speedscope, which `--open` runs; see test_launch.py."""
    command = tmp_path / "speedscope"
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the server, which would run until Ctrl-C; see test_view.py."""
    monkeypatch.setattr("vmprof_convert.cli.serve.view", lambda *_: None)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("app", "before", "after", *(
            "%s-%d" % (side, run) for side in ("old", "new") for run in (1, 2, 3))):
        heap = Heap(interval=200)
        heap.allocate("main f", ("str", 4096, 1e12))
        heap.collect()
        heap.log.mark(heap.now, "warm")
        heap.run(10)
        heap.allocate("main f", ("list", 4096, 1e12))
        heap.collect()
        heap.log.mark(heap.now, "done")
        heap.log.held(1, heap.now, objects=10, size=9000)
        heap.log.holder(1, 1, 8000, 9, "app.all", "list")
        (tmp_path / (name + ".vmprof")).write_bytes(heap.data())
    return tmp_path


@pytest.mark.parametrize("command", commands())
def test_command_runs(folder: Path, capsys: pytest.CaptureFixture[str],
                      command: str) -> None:
    # expand patterns as a shell does
    arguments = [name for word in shlex.split(command)[1:]
                 for name in (sorted(glob.glob(word)) or [word])]
    assert cli.main(arguments) == 0, capsys.readouterr().err


def test_page_names_all_formats() -> None:
    assert len(commands()) > 12
    assert [name for name in FORMATS
            if name != "firefox" and "``%s``" % name not in PAGE] == []
    assert [name for name in re.findall(r"image:: (\S+)", PAGE)
            if not (ROOT / "converter" / name).exists()] == []
