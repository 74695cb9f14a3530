"""Tests of `--view` with a page, and with a format that an external command opens."""
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
    (["--to", "html"], "app.vmprof.html"), (["-o", "a b#c.html"], "a b#c.html")])
def test_a_page_is_written_and_opened(
        arguments: list[str], written: str, folder: Path, addresses: list[str],
        capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["app.vmprof", "--view", *arguments]) == 0
    assert addresses == [(folder / written).as_uri()]
    assert "profile" in (folder / written).read_text()
    assert capsys.readouterr().out == "wrote %s\nopened %s\n" % (written, addresses[0])


def test_without_a_browser_it_says_what_to_open(
        folder: Path, addresses: list[str], capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "DISPLAY", "WAYLAND_DISPLAY", "BROWSER":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    assert cli.main(["app.vmprof", "--view", "--to", "html"]) == 0
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
    assert cli.main(["app.vmprof", "--view", "--to", "speedscope"]) == 0
    assert given.read_text() == "%s\n" % (folder / "app.vmprof.speedscope.json")


def test_without_speedscope_s_command_nothing_is_written(
        folder: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    before = names(folder)
    assert run_and_fail(folder, capsys, "app.vmprof", "--view", "--to",
                        "speedscope").endswith(
        "--view: the command speedscope is not on the PATH; get it with `npm install "
        "-g speedscope`, or leave out --view, which writes the file\n")
    assert names(folder) == before


def test_the_file_stays_if_the_command_fails(
        folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    a_command(tmp_path, monkeypatch, 3)
    assert cli.main(["app.vmprof", "--view", "--to", "speedscope"]) == 2
    assert capsys.readouterr().err.endswith(
        "speedscope could not open app.vmprof.speedscope.json: exit code 3\n")
    assert "app.vmprof.speedscope.json" in names(folder)


@pytest.mark.parametrize("arguments, said", [
    (["--to", "pprof"], "--view opens the Firefox Profiler, or a file of one of the "
                        "formats firefox, html, speedscope (--to), and no report"),
    (["-o", "x.folded"], "x.folded: with --view, the output's name must end with "
                         ".json or .json.gz or .html")])
def test_refuses_formats_without_a_viewer(arguments: list[str], said: str, folder: Path,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    assert said in run_and_fail(folder, capsys, "app.vmprof", "--view", *arguments)


@pytest.mark.parametrize("arguments", [
    ["--to", "html", "--view"], ["-o", "x.json.gz"], ["--to", "json"], []])
def test_refuses_a_port_without_a_server(
        arguments: list[str], folder: Path, addresses: list[str],
        capsys: pytest.CaptureFixture[str]) -> None:
    assert "--port is the port at which --view serves a profile to the Firefox" in (
        run_and_fail(folder, capsys, "app.vmprof", "--port", "8000", *arguments))
