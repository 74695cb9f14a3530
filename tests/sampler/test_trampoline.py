"""Entry patches of test functions (hook/patches/trampoline.c)."""
from __future__ import annotations

import subprocess

import pytest

from native_build import AARCH64, X86_64, build, machines, run_of

EXPECTED = """\
refused: 1 1
built: 6 15 105, set 0 0 0
hooked: -6 -15 -105, set 1 1 1
pages: r-xp
unhooked: 6 15 105, set 0 0 0
pages: r-xp
as before: 1
"""



@pytest.mark.parametrize("machine", machines())
def test_hooked_functions(machine: str) -> None:
    check(machine, 0)


@pytest.mark.parametrize("gigabytes", [1, 2, 4])
def test_hooked_functions_without_free_memory_next_to_them(gigabytes: int) -> None:
    """The emulator cannot run this test, because it keeps records of all mappings."""
    check(X86_64, gigabytes)


def check(machine: str, gigabytes: int) -> None:
    harness = build("trampoline_harness", "hook/patches/trampoline.c",
                    "machines/%s/entry_patch.c" % machine,
                    *(["machines/aarch64/segment.c"] if machine == AARCH64 else []),
                    machine=machine)
    done = subprocess.run([*run_of(harness, machine), str(gigabytes)], text=True,
                          capture_output=True)
    assert (done.returncode, done.stdout) == (0, EXPECTED), done.stderr
