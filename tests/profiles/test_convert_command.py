"""Tests of the output files, the formats and the progress bar of vmprof-convert."""
from __future__ import annotations

import gzip
import io
import json
import math
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import convert_runs
from convert_runs import load, names, run_and_fail
from firefox_profiles import converted, extra, remarks, rich_log
from vmprof_convert import cli
from vmprof_convert.cli import progress
from vmprof_convert.writers import firefox

folder = convert_runs.folder


def wrong(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command with invalid arguments, and return its message of one line."""
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    name, _, text = err.partition(": ")
    assert name == "vmprof-convert" and text.count("\n") == 1
    return text.rstrip("\n")


@pytest.mark.parametrize("arguments", [["--format", "firefox"], ["-o", "out.json"]])
def test_a_reader_that_closes_the_pipe_is_not_an_error(
        folder: Path, arguments: list[str]) -> None:
    """The command writes its output file, although it cannot print to the pipe."""
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "vmprof_convert", "export", "app.vmprof",
             *arguments],
            cwd=folder, stdout=write, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / ("out.json" if "-o" in arguments
                      else "app.vmprof.json.gz")).exists()


def test_the_output_is_named_after_the_profile(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", "app.vmprof", "--format", "firefox"]) == 0
    assert names(folder) == ["app.vmprof", "app.vmprof.json.gz"]
    assert load(folder / "app.vmprof.json.gz") == converted(rich_log())
    assert capsys.readouterr() == ("wrote app.vmprof.json.gz\n", "")


def test_the_output_is_compressed_if_its_name_says_so(folder: Path) -> None:
    assert cli.main(["export", "app.vmprof", "-o", "a.json"]) == 0
    assert cli.main(["export", "app.vmprof", "-o", "b.json.gz"]) == 0
    assert load(folder / "a.json") == load(folder / "b.json.gz")
    assert (folder / "a.json").read_bytes()[:1] == b"{"
    assert (folder / "b.json.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_the_same_profile_makes_the_same_file(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["export", "app.vmprof", "-o", "a.json.gz"]) == 0
    monkeypatch.setattr(time, "time", lambda: 1.0)
    assert cli.main(["export", "app.vmprof", "-o", "b.json.gz"]) == 0
    assert (folder / "a.json.gz").read_bytes() == (
        folder / "b.json.gz").read_bytes()


def test_gzipped_profiles_and_the_module_as_a_command(folder: Path) -> None:
    (folder / "zipped.vmprof").write_bytes(gzip.compress(rich_log().data()))
    done = subprocess.run(
        [sys.executable, "-m", "vmprof_convert", "export", "zipped.vmprof", "--format",
         "firefox"],
        cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert load(folder / "zipped.vmprof.json.gz") == converted(rich_log())


def test_a_profile_from_a_pipe(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vmprof_convert", "export", "/dev/stdin", "-o",
         "a.json"],
        cwd=folder, capture_output=True, input=rich_log().data())
    assert done.returncode == 0, done.stderr
    assert load(folder / "a.json") == converted(rich_log())


def test_salvage_reads_all_whole_records(folder: Path) -> None:
    data = rich_log().data()
    whole = len(data) - 25      # without the trailer
    (folder / "app.vmprof").write_bytes(data[:whole + 3])
    assert cli.main(["export", "app.vmprof", "-o", "a.json"]) == 2
    assert not (folder / "a.json").exists()
    assert cli.main(["export", "app.vmprof", "-o", "a.json", "--salvage"]) == 0
    profile = load(folder / "a.json")
    assert extra(profile)["Allocation samples"] == 5
    assert ("3 bytes at the end were left out, because they are an incomplete "
            "record") in remarks(profile)


# ________________________________________
# the output file


def test_an_existing_output_is_replaced_whole(folder: Path) -> None:
    old = folder / "old.json"
    old.write_text("x" * 10**6)
    old.chmod(0o640)
    (folder / "link.json").symlink_to("old.json")
    assert cli.main(["export", "app.vmprof", "-o", "link.json"]) == 0
    assert load(old) == converted(rich_log())
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert (folder / "link.json").is_symlink()
    assert names(folder) == ["app.vmprof", "link.json", "old.json"]


def test_a_new_output_has_the_usual_permissions(folder: Path) -> None:
    mask = os.umask(0o027)
    try:
        assert cli.main(["export", "app.vmprof", "-o", "a.json"]) == 0
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(mask)
    assert stat.S_IMODE((folder / "a.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("function", ["fsync", "chmod", "replace"])
def test_if_writing_fails_the_old_output_stays(
        function: str, folder: Path, capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")
    (folder / "old.json").write_text("precious")
    monkeypatch.setattr(os, function, full)
    assert run_and_fail(folder, capsys, "export", "app.vmprof", "-o", "old.json") == (
        "vmprof-convert: old.json: No space left on device\n")


def test_ctrl_c_leaves_the_old_output(
        folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt
    (folder / "old.json").write_text("precious")
    monkeypatch.setattr(os, "fsync", interrupt)
    assert cli.main(["export", "app.vmprof", "-o", "old.json"]) == 130
    assert (folder / "old.json").read_text() == "precious"
    assert names(folder) == ["app.vmprof", "old.json"]


def test_refuses_invalid_outputs(folder: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sub.json").mkdir()
    (folder / "in.json").write_bytes(rich_log().data())
    os.mkfifo(folder / "pipe.json")
    for source, target, message in (
            ("app.vmprof", "sub.json", "not a regular file"),
            ("app.vmprof", "pipe.json", "not a regular file"),
            ("app.vmprof", "no/a.json", "no such folder"),
            ("in.json", "in.json", "the profile itself")):
        assert message in run_and_fail(folder, capsys, "export", source, "-o", target)
    for target in "a.xls", "":
        said = wrong(capsys, "export", "app.vmprof", "-o", target)
        assert said.startswith("%s: the output's name must end with .json or .json.gz "
                               "or .html or " % target)
        assert said.endswith(" or .prof; or select the format with --format")


def test_nan_is_never_written() -> None:
    with pytest.raises(ValueError):
        firefox.encode({"time": [math.nan]})


# ________________________________________
# the progress bar


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_shown_on_terminals_only(
        terminal: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    stderr = Stream()
    monkeypatch.setattr(progress, "DELAY", 0)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", stderr)
    assert cli.main(["export", "app.vmprof", "--format", "firefox"]) == 0
    shown = stderr.getvalue()
    assert ("reading" in shown and "converting" in shown) == terminal
    assert terminal or shown == ""


# ________________________________________
# formats


@pytest.mark.parametrize("arguments,begin", [
    (["report"], "allocated in "), (["report", "-o", "-"], "allocated in "),
    (["report", "--json"], '{\n "schema"'),
    (["report", "--json", "-o", "-"], '{\n "schema"'),
    (["report", "--markdown"], "allocated in "),
    (["report", "--csv"], "function.name,function.file,"),
    (["export", "--format", "firefox", "-o", "-"], '{"meta":')])
def test_formats_that_are_written_to_standard_output(folder: Path, arguments: list[str],
                                                     begin: str) -> None:
    for source in ["app.vmprof"], ["-"]:
        done = subprocess.run(
            [sys.executable, "-m", "vmprof_convert", *arguments, *source],
            cwd=folder, capture_output=True, input=rich_log().data())
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.decode().startswith(begin)
        assert ("| allocated |" in done.stdout.decode()) == (
            "markdown" in "".join(arguments))
        assert names(folder) == ["app.vmprof"]


def test_the_profilers_format_of_standard_input(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vmprof_convert", "export", "-", "--format", "firefox"],
        cwd=folder, capture_output=True, input=rich_log().data())
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == converted(rich_log())


@pytest.mark.parametrize("command,arguments,begin", [
    ("report", ["-o", "a.txt"], "allocated in "),
    ("report", ["-o", "a.md"], "allocated in "),
    ("report", ["-o", "a.json"], '{\n "schema"'),
    ("report", ["-o", "a.csv"], "function.name,function.file,"),
    ("report", ["-o", "a.md", "--json"], '{\n "schema"'),
    ("tree", ["-o", "a.json"], '{\n "schema"'),
    ("export", ["-o", "a.json"], '{"meta":'),
    ("export", ["-o", "a.json.gz"], ""),
    ("export", ["-o", "a", "--format", "firefox"], '{"meta":')])
def test_format_follows_from_the_option_or_the_output_name(
        folder: Path, command: str, arguments: list[str], begin: str,
        capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "app.vmprof", *arguments]) == 0
    assert capsys.readouterr() == ("wrote %s\n" % arguments[1], "")
    text = (folder / arguments[1]).read_text(errors="replace")
    assert text.startswith(begin)
    assert ("| :--- |" in text) == (arguments == ["-o", "a.md"])
    assert names(folder) == [arguments[1], "app.vmprof"]


def test_several_profiles(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "b.vmprof").write_bytes(rich_log().data())
    assert cli.main(["report", "app.vmprof", "b.vmprof"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("allocated in 0.01 s by 2 processes (10 samples")
    assert cli.main(["export", "app.vmprof", "b.vmprof", "--format", "firefox"]) == 0
    assert capsys.readouterr().out == "wrote app.vmprof.json.gz\n"
    assert len({thread["pid"] for thread in load(
        folder / "app.vmprof.json.gz")["threads"]}) == 3


@pytest.mark.parametrize("arguments,why", [
    (["report", "app.vmprof", "--json", "--markdown"],
     "argument --markdown: not allowed with argument --json"),
    (["view", "app.vmprof", "-o", "-"], "-o names a file, because the command view"),
    (["view", "app.vmprof", "-o", "a.md"], "a.md: the output's name must end with"),
    (["flamegraph", "app.vmprof", "-o", "a.md"], "a.md: the output's name must end"),
    (["report", "app.vmprof", "-o", "a.html"],
     "a.html: the output's name must end with .txt or .md or .json or .csv; the "
     "command export writes other formats"),
    (["tree", "app.vmprof", "-o", "a.csv"], "a.csv: the output's name must end"),
    (["export", "app.vmprof", "-o", "a.txt"], "a.txt: the output's name must end with"),
    (["export", "app.vmprof"], "the format is missing: write --format, or the"),
    (["export", "app.vmprof", "-o", "a.pb", "--sources"],
     "--sources is for the Firefox Profiler: write --format firefox, or an output"),
    (["export", "app.vmprof", "--axis", "bytes", "--format", "html"],
     "--axis is for the Firefox Profiler: write"),
    (["export", "app.vmprof", "-o", "a.pb", "--group-storage"],
     "--group-storage is for --retainers"),
    (["view", "app.vmprof", "app.vmprof"], "a profile was named twice"),
    (["export", "app.vmprof", "-", "-o", "a.json"],
     "standard input contains one profile: to"),
    (["report", "-", "-"], "standard input contains one profile: to"),
    (["report", "app.vmprof", "--no-such"], "unrecognized arguments: --no-such"),
    (["report"], "the following arguments are required: FILE"),
    (["callers", "app.vmprof"], "the following arguments are required: NAME"),
])
def test_arguments_that_do_not_go_together(
        folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str],
        why: str) -> None:
    assert why in wrong(capsys, *arguments)
    assert names(folder) == ["app.vmprof"]


def test_bad_standard_input_is_named(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "vmprof_convert", "report", "-"], cwd=folder,
        capture_output=True, input=b"")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (b"vmprof-convert: standard input: not a vmprof profile: "
                           b"the file is empty\n")


@pytest.mark.parametrize("command", [
    ("report", "app.vmprof", "-o", "other.vmprof", "--json"),
    ("export", "app.vmprof", "-o", "other.vmprof", "--format", "pprof")])
def test_output_does_not_replace_another_profile(
        folder: Path, capsys: pytest.CaptureFixture[str],
        command: tuple[str, ...]) -> None:
    other = folder / "other.vmprof"
    other.write_bytes((folder / "app.vmprof").read_bytes())
    assert "other.vmprof: this is a profile" in run_and_fail(folder, capsys, *command)
    assert other.read_bytes() == (folder / "app.vmprof").read_bytes()


def test_output_for_stock_vmprof_replaces_an_earlier_one(folder: Path) -> None:
    """The earlier output is also a profile, but the command may replace it."""
    for _ in range(2):
        assert cli.main(["export", "app.vmprof", "-o", "out.prof"]) == 0
