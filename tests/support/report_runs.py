"""Runs of the report, by both commands that have it."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

Done = subprocess.CompletedProcess[str]

COMMANDS = {"report": ["vmprof_allocation", "report"],
            "convert": ["vmprof_convert", "--report"]}


def report(path: Path, *options: str, command: str = "report") -> Done:
    return subprocess.run(
        [sys.executable, "-m", *COMMANDS[command], str(path), *options],
        text=True, capture_output=True, timeout=300)


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
