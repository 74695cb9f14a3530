"""Tests of the choice of a command, of the help, and of the options of all commands."""
from __future__ import annotations

import csv
import importlib.metadata
import io
import json
from pathlib import Path

import pytest

import convert_runs
from convert_runs import run_and_fail
from firefox_profiles import rich_log
from vmprof_convert import cli
from vmprof_convert.cli.command import Command

COMMANDS = ("report", "tree", "callers", "leaks", "retainers", "memory", "diff",
            "check", "flamegraph", "view", "export")
#: lines and columns of a terminal
LINES, COLUMNS = 40, 80

folder = convert_runs.folder


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_on_a_screen_and_ends_with_an_example(
        command: str, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert lines[-1].startswith("example: vmprof-convert %s " % command)


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if line[:2] == "  "
            and line[2] != "-" and line[2] != " "] == list(COMMANDS)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == "vmprof-convert %s\n" % (
        importlib.metadata.version("vmprof-convert"))


@pytest.mark.parametrize("arguments, said", [
    (["report", "app.vmprof", "--lekas"],
     "unrecognized arguments: --lekas; did you mean leaks?"),
    (["report", "app.vmprof", "--user-cod"],
     "unrecognized arguments: --user-cod; did you mean --user-code?"),
    (["report", "app.vmprof", "--sotr=self"],
     "unrecognized arguments: --sotr=self; did you mean --sort?"),
    (["report", "app.vmprof", "--port", "80"], "unrecognized arguments: --port"),
    (["--leaks", "app.vmprof"], "unrecognized arguments: --leaks; did you mean leaks?"),
    (["--by", "app.vmprof"], "unrecognized arguments: --by; write a command before the "
                             "options"),
    (["lekas", "app.vmprof"], "invalid command 'lekas'; did you mean leaks?"),
    (["zzz"], "invalid command 'zzz': write one of report, tree, "),
    (["app.vmprof"], "the command is missing: write vmprof-convert report app.vmprof"),
    (["-"], "the command is missing: write vmprof-convert report -"),
    ([], "the command is missing: write one of report, tree, ")])
def test_message_about_a_misspelt_argument_names_the_remedy(
        arguments: list[str], said: str, folder: Path,
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["vmprof-convert"])
    assert run_and_fail(folder, capsys, *arguments).startswith(
        "vmprof-convert: " + said)


@pytest.mark.parametrize("command, option", [
    *((command, "--port=80") for command in COMMANDS if command != "view"),
    *((command, "--weight=time") for command in COMMANDS if command != "export"),
    *((command, "--fail-if=alive>1M") for command in COMMANDS
      if command not in ("diff", "check")),
    *((command, "--csv") for command in COMMANDS if command != "report"),
    *((command, "--of=rss") for command in COMMANDS if command != "report"),
    *((command, "--hide-internal") for command in COMMANDS if command != "report"),
    *((command, "--at=1") for command in COMMANDS
      if command not in ("report", "tree", "callers")),
    *((command, "--user-code") for command in ("retainers", "memory")),
    *((command, "--samples=1") for command in ("tree", "callers", "leaks", "memory")),
    ("leaks", "--outcome=alive"), ("leaks", "--markdown"), ("callers", "--by=line"),
    ("memory", "--limit=1"), ("memory", "--group-storage")])
def test_option_of_one_command_is_unknown_to_the_others(
        command: str, option: str, folder: Path,
        capsys: pytest.CaptureFixture[str]) -> None:
    more = {"callers": ["f"], "diff": ["app.vmprof"], "export": ["-o", "a.pb"],
            "check": ["--fail-if", "alive > 1M"]}
    assert "unrecognized arguments: %s" % option in run_and_fail(
        folder, capsys, command, "app.vmprof", *more.get(command, []), option)


@pytest.mark.parametrize("options, variables, has_color", [
    ([], {}, False), (["--color", "auto"], {}, False),
    (["--color", "never"], {}, False), (["--color", "always"], {}, True),
    (["--color", "always"], {"NO_COLOR": "1"}, True)])
def test_color_of_a_report_in_a_pipe(
        options: list[str], variables: dict[str, str], has_color: bool, folder: Path,
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["report", "app.vmprof", *options]) == 0
    assert ("\x1b[" in capsys.readouterr().out) == has_color


def test_csv_has_the_rows_of_json(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options in ([], ["--by", "line"], ["--of", "time"]):
        assert cli.main(["report", "app.vmprof", "--json", *options]) == 0
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert cli.main(["report", "app.vmprof", "--csv", *options]) == 0
        found = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
        assert len(found) == len(rows) > 0
        for cells, row in zip(found, rows):
            for name, cell in cells.items():
                value = row
                for key in name.split("."):
                    value = value.get(key) if value else None
                assert cell == ("" if value is None else str(value)), name


def test_another_package_adds_a_command(
        folder: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "added_command.py").write_text("""
def add_arguments(parser):
    parser.epilog = "example: %(prog)s --number 3"
    parser.add_argument("--number", type=int, default=1)

def run(options):
    print(options.program, options.number)
    return options.number
""")
    monkeypatch.syspath_prepend(str(folder))
    more = [Command("added", "Do something else.", "added_command")]
    assert cli.main(["added", "--number", "5"], command="pypy-alloc", name="pypy-alloc",
                    more=more) == 5
    assert capsys.readouterr().out == "pypy-alloc 5\n"
    assert cli.main(["--help"], command="pypy-alloc", more=more) == 0
    assert "  added       Do something else.\n  report" in capsys.readouterr().out
    assert cli.main(["aded"], name="pypy-alloc", more=more) == 2
    assert capsys.readouterr().err == (
        "pypy-alloc: invalid command 'aded'; did you mean added?\n")


def test_several_profiles_of_a_run_and_a_name(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "b.vmprof").write_bytes(rich_log().data())
    assert cli.main(["callers", "app.vmprof", "--json", "b.vmprof", "main"]) == 0
    assert '"callers"' in capsys.readouterr().out
