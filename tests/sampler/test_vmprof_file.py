"""The address of vmprof's descriptor, found in its handler's code (vmprof_file.c)."""
from __future__ import annotations

import subprocess

import pytest

from native_build import build, machines, run_of


@pytest.mark.parametrize("machine", machines())
def test_address_of_the_descriptor_is_found(machine: str) -> None:
    """The handler must read exactly one word that contains the descriptor."""
    harness = build("file_harness", "hook/vmprof/vmprof_file.c",
                    "machines/%s/handler_word.c" % machine, "machines/guarded_read.c",
                    machine=machine)
    done = subprocess.run(run_of(harness, machine), text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "nothing 0 0", "read 1 1", "returned 1 1", "returned behind a landing 1 1",
        "returned behind something 0 0", "returned behind what is there in part 1 1",
        "two 0 0"]
