"""native/hook/trampoline.c on functions of its own: hooked, and put back."""
from __future__ import annotations

import pathlib
import subprocess

import pytest

from native_build import build

EXPECTED = """\
refused: 1 1
built: 6 15 105, set 0 0 0
hooked: -6 -15 -105, set 1 1 1
pages: r-xp
unhooked: 6 15 105, set 0 0 0
pages: r-xp
as before: 1
"""


@pytest.fixture(scope="module")
def harness() -> pathlib.Path:
    return build("trampoline_harness", "hook/trampoline.c",
                 "machines/x86_64/entry_patch.c")


@pytest.mark.parametrize("gigabytes", [0, 1, 2, 4])
def test_hooked_functions_and_a_full_neighbourhood(
        harness: pathlib.Path, gigabytes: int) -> None:
    done = subprocess.run([harness, str(gigabytes)], text=True,
                          capture_output=True)
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr
