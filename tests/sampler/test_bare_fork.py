"""The end of the forked process of a heap snapshot (hook/snapshots/bare_fork.c)."""
from __future__ import annotations

import subprocess

import pytest

from native_build import build


@pytest.mark.parametrize("who, ended", [
    ("clock", "Alarm clock 0\n"), ("parent", "Killed 1\n"), ("stranger", "Killed 1\n")])
def test_only_the_alarm_or_the_parent_ends_the_forked_process(
        who: str, ended: str) -> None:
    """The forked process ignores SIGTERM, which other processes may send."""
    harness = build("bare_fork_harness", "hook/snapshots/bare_fork.c")
    assert subprocess.run([harness, who], check=True, text=True,
                          stdout=subprocess.PIPE).stdout == ended
