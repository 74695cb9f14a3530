"""attach's end of the socket to the program."""
from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.attach.agent import HERE, Agent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One whose sockets have short names, wherever it is."""
    monkeypatch.chdir(tmp_path)
    return Path(os.curdir)


def test_a_job_that_is_too_long_is_not_sent(folder: Path) -> None:
    """The program would drop it, and go away."""
    with Agent(os.getpid(), str(folder)) as agent, \
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as program:
        program.connect(agent.path)
        assert agent.accept(10)
        with pytest.raises(AllocationSamplingError, match="at most 65536 are possible"):
            agent.send_job(1, "b" * 65536, "e")
        agent.send_job(1, "b", "e")
        assert program.recv(65536).endswith(b"b\0e\0")
        program.send(HERE.encode() + b"7")
        assert agent.receive(10) == (HERE, "7")


def test_a_folder_with_a_name_that_is_too_long_for_a_socket(tmp_path: Path) -> None:
    with pytest.raises(AllocationSamplingError, match="too long; name another place"):
        Agent(os.getpid(), str(tmp_path / ("x" * 108)))
