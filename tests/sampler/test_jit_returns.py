"""Return addresses of compiled code by unwinding (machines/aarch64/jit_returns.c)."""
from __future__ import annotations

import subprocess

import pytest

from native_build import AARCH64, X86_64, build, machines, run_of

KINDS = "small", "large", "of any size", "through stubs", "both"
#: Place where a signal interrupts the innermost function, and the number of parts of
#: compiled code ("pieces") that are running in addition to the ten of the test.
INTERRUPTED = {"without a frame": 0, "with a signature": 0, "with a small frame": 0,
               "in the piece": 1, "in a stub": 1, "in a stub with a frame": 1,
               "in a stub's function": 1, "while it waits for the GIL": 1}


@pytest.mark.parametrize("machine", [m for m in machines() if m != X86_64])
def test_return_addresses_of_pieces(machine: str) -> None:
    """Each of ten parts of compiled code calls a function that calls the next part.

    The signal handler changes no word of the stack.
    """
    harness = build("jit_returns_harness", "machines/aarch64/jit_returns.c",
                    "machines/aarch64/unwind.c", "machines/aarch64/segment.c",
                    "machines/found_object.c", "machines/guarded_read.c",
                    machine=AARCH64)
    done = subprocess.run(run_of(harness, machine), text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(": ") for line in done.stdout.splitlines())
    assert tuple(lines) == (*KINDS, *INTERRUPTED)
    for kind, found in lines.items():
        pieces, _, right, same = (int(part.split()[0]) for part in found.split(", "))
        all_ = 10 + INTERRUPTED.get(kind, 0)
        assert (kind, pieces, right, same) == (kind, all_, all_, all_)
