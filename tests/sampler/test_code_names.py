"""Names that vmprof writes only once, but that each profile needs (code_names.c)."""
from __future__ import annotations

import pathlib
import subprocess

import pytest

from native_build import build


@pytest.fixture(scope="session")
def harness() -> pathlib.Path:
    return build("names_harness", "shared/code_names.c")


@pytest.mark.parametrize("count", [0, 2, 1000, 30000])
def test_each_profile_gets_each_name_once(harness: pathlib.Path, count: int) -> None:
    done = subprocess.run([harness, str(count)], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "head 77 0 0" if count else "head 117 0 0", "time 1", "told %d" % count,
        "unknown 0", "again 1", "ended 0", "stay 0 1 1 0",
        "replaced py:f:1:a.py py:torn:1:a.py py:g:1:a.py py:g:1:b.py - -"
        " py:f:1:a.py py:g:1:b.py"]
