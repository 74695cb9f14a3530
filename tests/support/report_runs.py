"""Runs of the report, by both commands that have it."""
from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

from vmprof_convert import sheet
from vmprof_convert.model import Profile
from vmprof_convert.summary import BY_FUNCTION, Choice, Tally
from vmprof_convert.terminal import Terminal
from vmprof_convert.writers import table

Done = subprocess.CompletedProcess[str]

COMMANDS = {"report": ["vmprof_allocation", "report"],
            "convert": ["vmprof_convert"]}
#: columns of a terminal in which nothing is cut or wrapped
WIDE = 1000


def report(path: Path, *options: str, command: str = "report",
           width: int | None = WIDE, python: str = sys.executable) -> Done:
    """`width` None: as in a pipe."""
    variables = {key: value for key, value in os.environ.items()
                 if key not in ("COLUMNS", "NO_COLOR")}
    if width is not None:
        variables["COLUMNS"] = str(width)
    return subprocess.run(
        [python, "-m", *COMMANDS[command], str(path), *options],
        text=True, capture_output=True, timeout=300, env=variables)


def lines(path: Path, *options: str) -> list[str]:
    done = report(path, *options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def refused(path: Path, *options: str, command: str = "report") -> str:
    """The one line that says why."""
    done = report(path, *options, command=command)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def text(profile: Profile, choice: Choice = BY_FUNCTION, limit: int | None = 25, *,
         tally: Tally | None = None, width: int = WIDE) -> str:
    """The table of all code, in a terminal that is wide enough for each line."""
    out = io.StringIO()
    table.write(sheet.of(profile, choice, limit, tally=tally), out,
                Terminal(width))
    return out.getvalue()
