"""The forked process of a heap snapshot ends (hook/snapshots/bare_fork.c)."""
from __future__ import annotations

import subprocess

import pytest

from native_build import build


@pytest.mark.parametrize("who, ended", [
    ("clock", "Alarm clock 0\n"), ("parent", "Killed 1\n"), ("stranger", "Killed 1\n")])
def test_it_has_so_much_time(who: str, ended: str) -> None:
    """And goes on until then, whoever may want it to end, but for its parent."""
    harness = build("bare_fork_harness", "hook/snapshots/bare_fork.c")
    assert subprocess.run([harness, who], check=True, text=True,
                          stdout=subprocess.PIPE).stdout == ended
