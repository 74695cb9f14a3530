"""Test that the documented make targets succeed on a clean checkout of the project."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT

pytestmark = pytest.mark.hard


@pytest.mark.parametrize("target", ["run", "check"])
def test_target_on_a_clean_checkout(tmp_path: Path, target: str) -> None:
    checkout = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", ROOT, checkout], check=True)
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("PYTEST", "MAKE", "MFLAGS"))}
    done = subprocess.run(["make", target], cwd=checkout, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-5000:]
