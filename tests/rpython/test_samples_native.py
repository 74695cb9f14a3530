"""Test the C code of the first submission, with sanitizers and on AArch64.

support/native/samples_harness.c makes stacks that fill a record to its last word.
"""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from native_build import COMPILERS, X86_64, machines, run_of
from rpython_tree import PRISTINE, ROOT

pytestmark = pytest.mark.python2

OURS = ROOT / "rpython/samples/rpython/rlib/rvmprof/src"
#: vmprof's sources.  The submission does not change the functions that are used here.
VMPROF = PRISTINE / "rpython/rlib/rvmprof/src"
FLAGS = ["-std=gnu99", "-g", "-O1", "-DRPYTHON_VMPROF", "-DVMPROF_UNIX",
         "-DVMPROF_LINUX", "-DPYPY_JIT_CODEMAP", "-DRPY_EXTERN=extern", *(
             "-I%s" % folder for folder in (
                 OURS / "allocation", OURS / "shared", VMPROF, VMPROF / "shared"))]


@pytest.fixture(scope="module", params=machines())
def harness(request: pytest.FixtureRequest,
            tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Compile the harness, and return its command."""
    folder = tmp_path_factory.mktemp("samples")
    # The sanitizers do not run in the emulator.
    command = [COMPILERS[request.param], *FLAGS, *(
        ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        if request.param == X86_64 else ["-static"])]
    subprocess.run([
        *command, "-Wall", "-Wextra", "-Werror", "-c", "-o", folder / "ours.o",
        OURS / "allocation" / "rvmprof_allocation.c"], check=True)
    subprocess.run([        # vmprof's own code has warnings.
        *command, "-w", "-o", folder / "harness",
        ROOT / "tests/support/native/samples_harness.c", folder / "ours.o",
        VMPROF / "shared" / "vmp_stack.c", VMPROF / "shared" / "vmprof_mt.c"],
        check=True)
    return run_of(folder / "harness", request.param)


def sizes(harness: list[str], folder: Path, frames: int, *options: str) -> list[int]:
    """Run the harness, and return three sizes of the profile in bytes.

    They are the sizes after the samples, after the records of objects, and at the end.
    """
    profile = folder / "profile"
    done = subprocess.run([*harness, profile, str(frames), *options], text=True,
                          capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return [*map(int, done.stdout.split()), profile.stat().st_size]


@pytest.mark.parametrize("frames", [
    10, 486, 487, 488, 496, 504, 505, 506, 507, 508, 600])
def test_no_word_is_written_after_a_record(harness: list[str], tmp_path: Path,
                                           frames: int) -> None:
    """A frame has two words, and vmprof writes it even if only one word is free."""
    before, behind, end = sizes(harness, tmp_path, frames)
    assert before <= behind < end


def test_nothing_is_written_while_vmprof_is_stopped(harness: list[str],
                                                    tmp_path: Path) -> None:
    """No write may disturb vmprof.disable(), which reads the file at this time."""
    before, behind, end = sizes(harness, tmp_path, 500, "stopped")
    assert before == behind < end
