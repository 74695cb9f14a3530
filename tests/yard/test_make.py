"""Check that the program of `make hard` starts; running it would take hours."""
from __future__ import annotations

import os
import re
import subprocess

from conftest import ROOT


def test_the_hard_tests_can_start() -> None:
    """The Makefile has to set the import path of hard.py."""
    planned = subprocess.run(
        ["make", "-n", "hard"], cwd=ROOT, check=True, text=True,
        capture_output=True, env={**os.environ, "MAKEFLAGS": ""}).stdout
    command = re.search(r"PYTHONPATH=(\S+)[\s\\]+(\S+) (tests/hard/hard.py)",
                        planned)
    assert command, planned
    path, python, program = command.groups()
    done = subprocess.run([python, program, "--help"], cwd=ROOT, text=True,
                          capture_output=True,
                          env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: hard.py")
