"""Tests of `--open` with a page, and with a format that an external command opens."""
from __future__ import annotations

from pathlib import Path

import pytest

import convert_runs
from convert_runs import names, run_and_fail
from vmprof_convert import cli

folder = convert_runs.folder


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Replace the browser, and return the list of the addresses that it opens."""
    found: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")

    def open_(address: str) -> bool:
        found.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", open_)
    return found


@pytest.mark.parametrize("arguments, written", [
    (["flamegraph"], "app.vmprof.html"),
    (["flamegraph", "-o", "a b#c.html"], "a b#c.html"),
    (["export", "--format", "html"], "app.vmprof.html")])
def test_a_page_is_written_and_opened(
        arguments: list[str], written: str, folder: Path, addresses: list[str],
        capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*arguments, "app.vmprof", "--open"]) == 0
    assert addresses == [(folder / written).as_uri()]
    assert "profile" in (folder / written).read_text()
    assert capsys.readouterr().out == "wrote %s\nopened %s\n" % (written, addresses[0])


def test_without_a_browser_it_says_what_to_open(
        folder: Path, addresses: list[str], capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "DISPLAY", "WAYLAND_DISPLAY", "BROWSER":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert cli.main(["flamegraph", "app.vmprof", "--open"]) == 0
    assert addresses == []
    assert capsys.readouterr().out.endswith("open this in a browser: %s\n" % (
        folder / "app.vmprof.html").as_uri())


def a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int) -> Path:
    """Replace the command speedscope by a script that ends with `exit_code`.

    Returns:
        The path of the file to which the command writes its arguments.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "speedscope"
    command.write_text('#!/bin/sh\necho "$@" >%s/given\nexit %d\n' % (
        folder, exit_code))
    command.chmod(0o755)
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % folder)
    return folder / "given"


def test_speedscope_s_command_gets_the_file(
        folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = a_command(tmp_path, monkeypatch, 0)
    assert cli.main(["export", "app.vmprof", "--format", "speedscope", "--open"]) == 0
    assert given.read_text() == "%s\n" % (folder / "app.vmprof.speedscope.json")


def test_without_speedscope_s_command_nothing_is_written(
        folder: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    before = names(folder)
    assert run_and_fail(folder, capsys, "export", "app.vmprof", "--format",
                        "speedscope", "--open").endswith(
        "--open: the command speedscope is not on the PATH; get it with `npm install "
        "-g speedscope`, or leave out --open\n")
    assert names(folder) == before


def test_the_file_stays_if_the_command_fails(
        folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    a_command(tmp_path, monkeypatch, 3)
    assert cli.main(["export", "app.vmprof", "--format", "speedscope", "--open"]) == 2
    assert capsys.readouterr().err.endswith(
        "speedscope could not open app.vmprof.speedscope.json: exit code 3\n")
    assert "app.vmprof.speedscope.json" in names(folder)


@pytest.mark.parametrize("arguments, said", [
    (["--format", "pprof"], "--open is for html and speedscope, and not for the format "
                            "pprof"),
    (["-o", "x.folded"], "--open is for html and speedscope, and not for the format "
                         "collapsed")])
def test_refuses_formats_without_a_viewer(arguments: list[str], said: str, folder: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    assert said in run_and_fail(folder, capsys, "export", "app.vmprof", "--open",
                                *arguments)
