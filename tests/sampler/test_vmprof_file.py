"""vmprof_file.c: where vmprof keeps its descriptor, from its handler's code."""
from __future__ import annotations

import subprocess

import pytest

from native_build import build, machines, run_of


@pytest.mark.parametrize("machine", machines())
def test_where_the_descriptor_is(machine: str) -> None:
    """Only what is certain is found: one word, that the handler reads."""
    harness = build("file_harness", "hook/vmprof/vmprof_file.c",
                    "machines/%s/handler_word.c" % machine, "machines/guarded_read.c",
                    machine=machine)
    done = subprocess.run(run_of(harness, machine), text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "nothing 0 0", "read 1 1", "returned 1 1", "returned behind a landing 1 1",
        "returned behind something 0 0", "returned behind what is there in part 1 1",
        "two 0 0"]
