"""How long attach lets a thread of the program stand still."""
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.attach import command
from vmprof_allocation.remote.attach.agent import Agent
from vmprof_allocation.settings.settings import Settings

#: it has no lock yet, so that its thread is to stand still until we have it
TARGET = SimpleNamespace(pid=7, uid=0, allocate=(1, 1), threads=lambda: [7],
                         check_descriptors=lambda: None)


class StandIn:
    """Of a tracer; nobody ever calls."""

    def __init__(self, fails_when_left: bool):
        self.left = 0
        self._fails_when_left = fails_when_left

    def enter(self, *arguments: object) -> int:
        return 0

    def has_failed(self) -> bool:
        return not self._fails_when_left or self.left > 0

    def leave(self) -> int:
        self.left += 1
        return 0


@pytest.mark.parametrize("fails_when_left", [False, True], ids=[
    "its library can't be loaded", "it is not known why nobody calls"])
def test_a_thread_does_not_stand_still_for_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_when_left: bool) -> None:
    """With no end to the waiting for a call, it goes on all the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "_CALL_SECONDS", 1e9)
    monkeypatch.setattr(command, "_HELD_SECONDS", 0.05 if fails_when_left else 1e9)
    tracer: Any = StandIn(fails_when_left)
    target: Any = TARGET
    with Agent(7, ".") as agent:
        run = command._Run(target, agent, tracer, deadline=0.0, output="x.vmprof")
        with pytest.raises(AllocationSamplingError, match="did not load"):
            run.enter(1, Settings(1024, seed=1), knowledge="", first=())
    assert tracer.left == 1
