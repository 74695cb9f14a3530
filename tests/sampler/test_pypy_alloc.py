"""The program pypy-alloc: its help, its errors, and the choice of the command."""
from __future__ import annotations

import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from conftest import PYPY, ROOT, PyPy, Run
from controlled import WAITS, done, prepared, profile, status
from made_profiles import Log
from running import running
from vmprof_allocation.commands import memory, program
from vmprof_convert.cli import command as converter

#: the most lines of a help, and the columns of its terminal
LINES, COLUMNS = 40, 80
#: commands of this package, and the subcommands of control
NAMES = [*(command.name for command in program.RECORDING), "memory",
         *("control 1 " + name for name in (
             "start", "stop", "status", "interval", "snapshot", "rotate"))]
#: words that were replaced, as parts of options (design/language.md of issue 55)
OLD_WORDS = {"held", "holders", "fate", "raw", "gaps", "mine", "remarks", "caveats"}


def called(*arguments: str) -> Run:
    """Run the program in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = program.main(arguments)
        except SystemExit as end:
            assert isinstance(end.code, int)
            code = end.code
    return Run(code, out.getvalue(), err.getvalue(), Path())


def refused(*arguments: str) -> str:
    """Run the program, which must fail with one line, and return the line."""
    run = called(*arguments)
    assert (run.code, run.out, run.err.count("\n")) == (2, "", 1), run
    assert run.err.startswith("pypy-alloc: ")
    return run.err


def help_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    run = called(*name.split(), "--help")
    assert (run.code, run.err) == (0, "")
    return run.out.splitlines()


# ____________________________________________________________
# help and version

@pytest.mark.parametrize("name", ["", *NAMES])
def test_help_fits_on_a_screen_and_ends_with_an_example(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = help_of(name, monkeypatch)
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    assert lines[0].startswith("usage: pypy-alloc " + name.replace(" 1 ", " PID "))
    assert lines[-1].startswith(
        "example: pypy-alloc " + name.replace(" 1 ", " 1234 "))


def test_help_names_each_command_once(monkeypatch: pytest.MonkeyPatch) -> None:
    named = [line.split()[0] for line in help_of("", monkeypatch)
             if re.match("  [a-z]", line)]
    assert named == list(program.COMMANDS)
    assert len(named) == len(program.RECORDING) + len(program.READING)


@pytest.mark.parametrize("name", ["run", "attach", "live", "control", "memory"])
def test_example_of_the_help_is_valid(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example = help_of(name, monkeypatch)[-1].partition(": ")[2]
    module = importlib.import_module("vmprof_allocation.commands." + name)
    module._parser().parse_args(shlex.split(example)[2:])


@pytest.mark.parametrize("name", NAMES)
def test_options_contain_no_replaced_word(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = re.findall(r"--([a-z-]+)", "\n".join(help_of(name, monkeypatch)))
    assert "help" in options or name == "doctor"
    assert {word for option in options for word in option.split("-")
            }.isdisjoint(OLD_WORDS)


def test_help_of_vmprof_contains_no_replaced_word(pypy: PyPy) -> None:
    run = pypy.command("-m", "vmprof", "--help")
    options = set(re.findall(r"--([a-z-]+)", run.out))
    assert {"retainers", "native-memory", "allocation-distribution"} <= options
    assert {word for option in options for word in option.split("-")
            }.isdisjoint(OLD_WORDS)


def test_version() -> None:
    run = called("--version")
    assert (run.code, run.out, run.err) == (
        0, "pypy-alloc %s\n" % version("vmprof-allocation"), "")


# ____________________________________________________________
# errors

@pytest.mark.parametrize("arguments, hint", [
    (["atach", "1"], "Did you mean attach?"),
    (["flamgraph", "a.vmprof"], "Did you mean flamegraph?"),
    (["top", "1"], "Did you mean live?"),
    (["ctl", "1", "stop"], "Did you mean control?"),
    (["record", "app.py"], "Did you mean run?"),
    (["run", "--lekas", "app.py"], "Did you mean --leaks?"),
    (["run", "--retainer", "app.py"], "Did you mean --retainers?"),
    (["attach", "1", "--held"], "unrecognized arguments: --held"),
    (["attach", "1", "--durations=3"], "Did you mean --duration?"),
    (["control", "1", "strat"], "Did you mean start?"),
    (["control", "1", "start", "--outptu", "x"], "Did you mean --output?"),
    (["live", "1", "--dely", "3"], "Did you mean --delay?"),
    (["memory", "1", "--jsno"], "Did you mean --json?"),
    (["doctor", "--verbose"], "unrecognized arguments: --verbose"),
])
def test_misspelt_word_gets_a_suggestion(arguments: list[str], hint: str) -> None:
    assert hint in refused(*arguments)


@pytest.mark.parametrize("arguments, reason", [
    ([], "no command: pypy-alloc --help lists the commands"),
    (["xyz"], "unknown command 'xyz': pypy-alloc --help lists the commands"),
    (["--leaks"], "unknown option --leaks: write a command first"),
    (["run"], "no program to record"),
    (["run", "--quiet"], "no program to record"),
    (["run", "-m"], "no program to record"),
    (["control", "1"], "the following arguments are required: COMMAND"),
    (["control", "1", "rotate"], "the following arguments are required: -o"),
    (["attach"], "the following arguments are required: PID"),
    (["detach", "0"], "invalid PID 0"),
])
def test_incomplete_command_is_refused(arguments: list[str], reason: str) -> None:
    assert reason in refused(*arguments)


def test_file_without_a_command(tmp_path: Path) -> None:
    for name, command in ("app.py", "run"), ("app.vmprof", "report"):
        path = tmp_path / name
        path.touch()
        assert "Did you mean pypy-alloc %s %s?" % (command, path) in refused(str(path))


def test_interrupted_command_has_its_own_exit_code(
        monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: list[str]) -> int:
        raise KeyboardInterrupt
    monkeypatch.setattr(importlib.import_module("vmprof_allocation.commands.doctor"),
                        "run", interrupted)
    assert called("doctor").code == 130


def test_cpython_cannot_record(tmp_path: Path) -> None:
    assert "it is not PyPy" in refused("run", "-o", str(tmp_path / "x"), "-c", "1")
    assert list(tmp_path.iterdir()) == []


# ____________________________________________________________
# run

LOADED = ("import sys; print(sys.argv, sorted(name for name in sys.modules if "
          "name.startswith(('vmprof_convert', 'vmprof_allocation.commands'))))")


def recorded(pypy: PyPy, *arguments: str, **environment: str) -> Run:
    """Record a program into out.vmprof."""
    return pypy.command("-m", "vmprof_allocation", "run", "-o", "out.vmprof",
                        *arguments, timeout=300, **environment)


@pytest.mark.parametrize("how", ["-c", "-m", "script"])
def test_run_records_code_a_module_or_a_script(pypy: PyPy, how: str) -> None:
    """The recorded process contains no module of the converter and of the commands."""
    pypy.script(LOADED, "amodule.py")
    words = {"-c": ["-c", LOADED], "-m": ["-m", "amodule"],
             "script": ["amodule.py"]}[how]
    run = recorded(pypy, *words, "--leaks", "x y")
    assert (run.code, run.err) == (0, "")
    first = {"-c": "-c", "-m": str(pypy.folder / "amodule.py"),
             "script": "amodule.py"}[how]
    assert run.out == "%r []\n" % [first, "--leaks", "x y"]
    settings = run.profile().settings
    assert settings["limit"] == "5000ppm" and run.profile().end_time is not None


def test_run_without_an_output_prints_the_report(pypy: PyPy) -> None:
    run = pypy.command("-m", "vmprof_allocation", "run", "-c", "print(1)")
    assert (run.code, run.out) == (0, "1\n")
    assert run.err.startswith("allocated in ")


def test_run_has_the_options_of_vmprof(pypy: PyPy) -> None:
    run = recorded(pypy, "--allocation-sampling", "4k", "--allocation-seed", "7",
                   "--allocation-distribution", "fixed", "--no-lifetimes",
                   "-p", "0.01", "-c", "print(len([str(i) for i in range(10**5)]))")
    assert (run.code, run.out, run.err) == (0, "100000\n", "")
    settings = run.profile().settings
    assert [settings[name] for name in ("interval", "seed", "gaps", "period", "facts")
            ] == ["4096", "7", "fixed", "0.01", "types"]


def test_run_accepts_each_option_of_vmprof(pypy: PyPy) -> None:
    """No option of ``-m vmprof`` is missing, except the ones for vmprof's server."""
    helps = [pypy.command("-m", *words, "--help").out
             for words in (("vmprof",), ("vmprof_allocation", "run"))]
    of_vmprof, ours = ({name for line in re.findall("^  (-.*?)(?:  |$)", text, re.M)
                        for name in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", line)}
                       for text in helps)
    assert len(of_vmprof) > 25
    assert {name for name in of_vmprof - ours if not name.startswith("--web")} == set()


def test_run_keeps_the_flags_of_the_interpreter(pypy: PyPy) -> None:
    code = "import sys; print(sys.flags.optimize, sys.warnoptions)"
    for module in ["-m", "vmprof_allocation"], ["-mvmprof_allocation"]:
        run = pypy.command("-O", "-W", "error", *module, "run", "-o", "out.vmprof",
                           "-c", code)
        assert (run.code, run.out, run.err) == (0, "1 ['error']\n", "")


def test_run_keeps_the_log_of_pypy(pypy: PyPy) -> None:
    """PyPy removes PYPYLOG from the environment, and `run` needs two interpreters."""
    assert recorded(pypy, "-c", "print(1)", PYPYLOG="gc:log").code == 0
    assert "gc-" in (pypy.folder / "log").read_text()


def test_run_reports_the_exit_code_of_the_program(pypy: PyPy) -> None:
    assert recorded(pypy, "-c", "raise SystemExit(7)").code == 7


def test_run_with_control_begins_without_sampling(pypy: PyPy) -> None:
    run = pypy.command("-m", "vmprof_allocation", "run", "--control", "-c", """if 1:
        import os, subprocess, sys
        print(subprocess.run([sys.executable, "-m", "vmprof_allocation", "control",
                              str(os.getpid()), "status"], capture_output=True,
                             text=True).stdout)
    """)
    assert run.code == 0 and "is not sampled" in run.out, run


@pytest.mark.parametrize("arguments, reason", [
    (["missing.py"], "cannot open the program"),
    (["-m", "no_such_module"], "no module named 'no_such_module'"),
    (["--allocation-sampling", "0", "-c", "1"], "invalid sample interval"),
    (["--rotate", "app.py"], "no program follows '--rotate app.py'"),
    (["-m", "-c", "x"], "-m runs a module, and -c runs code"),
])
def test_program_that_cannot_be_recorded(
        pypy: PyPy, arguments: list[str], reason: str) -> None:
    run = pypy.command("-m", "vmprof_allocation", "run", *arguments)
    assert (run.code, run.out, run.err.count("\n")) == (2, "", 1), run
    assert reason in run.err


def test_console_script_is_the_same_program(pypy: PyPy) -> None:
    script = Path(PYPY).with_name("pypy-alloc")
    if not script.exists():
        pytest.skip("this interpreter has no console scripts")
    assert pypy.command(str(script), "--version").out == called("--version").out
    done = subprocess.run(
        [str(script), "run", "-o", "out.vmprof", "-c", "print(1)"], cwd=pypy.folder,
        env=pypy.environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
    assert len(profile(pypy, "out.vmprof").stacks) >= 0


# ____________________________________________________________
# commands for running processes

def test_detach_ends_the_sampling(pypy: PyPy) -> None:
    with prepared(pypy, WAITS) as program_:
        done(pypy, program_, "start", "-o", "out.vmprof")
        run = pypy.command("-m", "vmprof_allocation", "detach", str(program_.pid))
        assert (run.code, run.err) == (0, "")
        assert str(pypy.folder / "out.vmprof") in run.out
        assert status(pypy, program_)["is_on"] is False
        again = pypy.command("-m", "vmprof_allocation", "detach", str(program_.pid))
        assert (again.code, again.out) == (2, "") and "is not on" in again.err
        assert program_.end() == "ended\n"
    assert profile(pypy, "out.vmprof").end_time is not None


@pytest.mark.parametrize("arguments, is_process", [
    (["1234"], True), (["--timeout", "5", "1234"], True), (["1234", "--json"], True),
    (["missing.vmprof"], False), (["--limit", "5", "missing.vmprof"], True),
    (["--limit", "5", "there.vmprof"], False), (["56"], False), (["--help"], True),
])
def test_memory_is_for_a_process_or_a_file(
        arguments: list[str], is_process: bool, tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "there.vmprof", "56":
        (tmp_path / name).touch()
    assert memory.is_for_process(arguments) is is_process


@pytest.mark.parametrize("command", ["live", "memory"])
def test_commands_for_processes_need_the_converter(pypy: PyPy, command: str) -> None:
    (pypy.folder / "hidden").mkdir()
    pypy.script("import sys; sys.modules['vmprof_convert'] = None",
                "hidden/sitecustomize.py")
    with running(pypy, WAITS, interpreter=PYPY) as program_:
        run = pypy.command("-m", "vmprof_allocation", command, str(program_.pid),
                           PYTHONPATH=str(pypy.folder / "hidden"))
        assert (run.code, run.out, run.err.count("\n")) == (2, "", 1)
        assert "needs the package vmprof-convert" in run.err


# ____________________________________________________________
# commands that read files

def stand_in(main: Callable[..., int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the converter by one with this function."""
    package = types.ModuleType("vmprof_convert")
    package.cli = types.SimpleNamespace(main=main)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vmprof_convert", package)


@pytest.mark.parametrize("name", [command.name for command in program.READING])
def test_reading_command_is_one_of_the_converter(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def main(arguments: list[str], *, command: str, name: str, more: object = ()
             ) -> int:
        asked.append((arguments, command, name))
        return 1
    stand_in(main, monkeypatch)
    run = called(name, "app.vmprof", "--json")
    assert (run.code, run.out, run.err) == (1, "", "")
    assert asked == [([name, "app.vmprof", "--json"], "pypy-alloc", "pypy-alloc")]


@pytest.mark.parametrize("name", [command.name for command in program.READING])
def test_reading_command_without_the_converter(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vmprof_convert", None)
    assert ("%s needs the package vmprof-convert" % name) in refused(
        name, "app.vmprof")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a profile with two functions."""
    log = Log()
    log.settings()
    main, make = log.function("main"), log.function("make")
    log.allocation([main, make], size=16, time=10**9)
    path = tmp_path / "app.vmprof"
    path.write_bytes(log.data())
    return path


@pytest.mark.parametrize("words, shown", [
    (["report"], "make"), (["report", "--by", "file"], "allocated in"),
    (["tree"], "main"), (["callers", "FILE", "make"], "main"),
])
def test_converter_shows_a_profile(
        small: Path, words: list[str], shown: str) -> None:
    name, *rest = words
    run = called(name, *([str(small) if word == "FILE" else word for word in rest]
                         if "FILE" in rest else [str(small), *rest]))
    assert (run.code, run.err) == (0, ""), run
    assert shown in run.out


def test_converter_writes_other_formats(small: Path) -> None:
    for name, file in ("flamegraph", "out.html"), ("export", "out.pb.gz"):
        out = small.with_name(file)
        run = called(name, str(small), "-o", str(out))
        assert run.code == 0 and out.stat().st_size > 100, run


def test_converter_judges_a_profile(small: Path) -> None:
    assert called("check", str(small), "--fail-if", "allocated > 1").code == 1
    assert called("check", str(small), "--fail-if", "allocated > 1T").code == 0


def test_reading_commands_are_those_of_the_converter() -> None:
    assert [command.name for command in program.READING] == [
        command.name for command in converter.COMMANDS]


def test_program_imports_only_the_module_of_its_command() -> None:
    code = ("import json, sys; from vmprof_allocation.commands import program; "
            "program.main(['--version']); print(json.dumps(sorted(sys.modules)))")
    loaded: list[str] = json.loads(subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        cwd=ROOT / "tests", env={**os.environ}).stdout.splitlines()[-1])
    ours = [name for name in loaded if name.startswith("vmprof_allocation.commands.")]
    assert ours == ["vmprof_allocation.commands.program"]
    assert not {"argparse", "vmprof_convert", "rich"} & set(loaded)


def names_of(module: Any) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]


def test_each_command_has_a_module_with_the_same_function() -> None:
    for command in (*program.RECORDING, program.MEMORY):
        module = importlib.import_module(command.module)
        assert "run" in names_of(module), command
