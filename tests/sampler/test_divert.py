"""Changes of libpypy's pointers by threads and in forked children (divert.c)."""
from __future__ import annotations

import subprocess

from native_build import build


def test_threads_change_pointers_of_one_read_only_page() -> None:
    done = subprocess.run([build("divert_harness", "hook/patches/divert.c")], text=True,
                          capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
