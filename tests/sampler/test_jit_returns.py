"""machines/aarch64/jit_returns.c: return addresses of compiled code, by unwinding."""
from __future__ import annotations

import subprocess

import pytest

from native_build import AARCH64, X86_64, build, machines, run_of

KINDS = "small", "large", "of any size", "through stubs", "both"


@pytest.mark.parametrize("machine", [m for m in machines() if m != X86_64])
def test_return_addresses_of_pieces(machine: str) -> None:
    """Ten pieces, of which each calls a function that calls the next one."""
    harness = build("jit_returns_harness", "machines/aarch64/jit_returns.c",
                    "machines/aarch64/unwind.c", "machines/aarch64/segment.c",
                    machine=AARCH64)
    done = subprocess.run(run_of(harness, machine), text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(": ") for line in done.stdout.splitlines())
    assert tuple(lines) == KINDS
    for kind, found in lines.items():
        pieces, _, right, same = (int(part.split()[0]) for part in found.split(", "))
        assert (kind, pieces, right, same) == (kind, 10, 10, 10)
