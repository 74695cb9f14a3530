"""vmprof_file.c: where vmprof keeps its descriptor, from its handler's code."""
from __future__ import annotations

import pathlib
import subprocess

from native_build import build


def test_where_the_descriptor_is(tmp_path: pathlib.Path) -> None:
    """Only what is certain is found: one word, that the handler reads."""
    done = subprocess.run(
        [build("file_harness", "hook/vmprof_file.c",
               "machines/x86_64/handler_word.c", "machines/pipe_copy.c")], text=True,
        capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "nothing 0 0", "read 1 1", "returned 1 1", "returned behind endbr64 1 1",
        "returned behind something 0 0", "returned behind what is there in part 1 1",
        "two 0 0"]
