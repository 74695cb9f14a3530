"""Runs the two programs that print reports, in this process if possible."""
from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from vmprof_allocation.commands import reading
from vmprof_convert import cli
from vmprof_convert.analysis.summary import BY_FUNCTION, Choice, Tally, summarize
from vmprof_convert.meaning.origins import Origins
from vmprof_convert.profile.model import Profile
from vmprof_convert.report import tables, terminal_table
from vmprof_convert.text.terminal import Terminal

Done = subprocess.CompletedProcess[str]

PROGRAMS = {"allocation": "vmprof_allocation", "convert": "vmprof_convert"}
MAINS: dict[str, Callable[[list[str]], int]] = {
    "allocation": lambda words: reading.run(words[0], words[1:]),
    "convert": cli.main}
#: commands of both programs that the tests name after the profile
COMMANDS = ("tree", "callers", "leaks", "retainers", "memory", "export")
#: columns of a terminal in which no line is cut or wrapped
WIDE = 1000


def arguments_of(path: Path, options: Sequence[str]) -> list[str]:
    """Return the arguments of a program.

    Args:
        path: the profile.
        options: the options, after the name of the command unless it is report.
    """
    command, *rest = options if options and options[0] in COMMANDS else (
        "report", *options)
    return [command, str(path), *rest]


def report(path: Path, *options: str, program: str = "allocation",
           width: int | None = WIDE, python: str = sys.executable) -> Done:
    """Run the report, in a terminal of `width` columns, or without one if it is None.

    The report runs in this process if possible, because a new process takes ten times
    as long. test_report.py tests that both programs start. See arguments_of().
    """
    variables = {key: value for key, value in os.environ.items()
                 if key not in ("COLUMNS", "NO_COLOR")}
    if width is not None:
        variables["COLUMNS"] = str(width)
        if python == sys.executable:
            return called(program, arguments_of(path, options), variables)
    return subprocess.run(
        [python, "-m", PROGRAMS[program], *arguments_of(path, options)],
        text=True, capture_output=True, timeout=300, env=variables)


def called(program: str, arguments: Sequence[str],
           variables: dict[str, str]) -> Done:
    """Run a program in this process, with separate output streams and environment."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
                for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), mock.patch.dict(
            os.environ, variables, clear=True):
        try:
            code = MAINS[program](list(arguments))
        except SystemExit as e:
            assert isinstance(e.code, int)
            code = e.code
    said, complained = (stream.buffer.getvalue().decode() for stream in (out, err))
    return Done(arguments, code, said, complained)


def lines(path: Path, *options: str) -> list[str]:
    """Return the lines of a report, which must succeed."""
    done = report(path, *options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def as_json(path: Path, *options: str) -> dict[str, Any]:
    """Return the report as JSON."""
    found: dict[str, Any] = json.loads("\n".join(lines(path, *options, "--json")))
    return found


def refused(path: Path, *options: str, program: str = "allocation") -> str:
    """Run the report, which must fail with one line, and return the line."""
    done = report(path, *options, program=program)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def text(profile: Profile, choice: Choice = BY_FUNCTION, limit: int | None = 25, *,
         tally: Tally | None = None, width: int = WIDE) -> str:
    """Return a report on all code with all notes, as printed in a wide terminal."""
    out = io.StringIO()
    origins = Origins(profile)
    summary = summarize(profile, tally, choice, origins=origins)
    terminal_table.write(tables.of_rows(tables.View(
        profile, summary, choice, origins, limit=limit, all_remarks=True)), out,
        Terminal(width))
    return out.getvalue()
