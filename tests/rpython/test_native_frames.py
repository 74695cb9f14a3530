"""Test native_frames.c, which finds the native frames of an allocation sample.

native/frames_harness.c calls it with stacks of all kinds.
"""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rpython_tree import PATCHED, ROOT

pytestmark = pytest.mark.python2

ADDED = ROOT / "rpython/added/rpython/rlib/rvmprof/src/allocation"
SOURCES = PATCHED / "rpython/rlib/rvmprof/src"


@pytest.fixture(scope="module", params=["-O0", "-O2", "-O3"])
def harness(request: pytest.FixtureRequest,
            tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("frames") / "harness"
    subprocess.run(
        ["gcc", request.param, "-std=gnu99", "-Wall", "-Wextra", "-Werror",
         # No merged or cloned function may replace a function in the stacks.
         "-fno-ipa-icf", "-fno-ipa-cp", "-fno-ipa-sra", "-fno-partial-inlining",
         "-fno-optimize-sibling-calls",
         "-DRPYTHON_VMPROF", "-DVMPROF_UNIX", "-DRPY_EXTERN=extern",
         "-I", str(ADDED), "-I", str(SOURCES), "-I", str(SOURCES / "shared"),
         "-o", str(target),
         str(ROOT / "tests" / "support" / "native" / "frames_harness.c"),
         str(ADDED / "native_frames.c"), "-pthread"], check=True)
    return target


def lines(harness: Path, scenario: str) -> list[str]:
    done = subprocess.run([harness, scenario], text=True, capture_output=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_full_buffer_ends_the_walk(harness: Path) -> None:
    assert lines(harness, "depths") == [
        "inner recursive recurses", "inner recursive recursive recurses",
        "inner recursive recursive recursive recurses",
        "inner recursive recursive recursive recursive recurses"]


def test_function_that_moves_its_stack_pointer(harness: Path) -> None:
    assert lines(harness, "moves") == ["inner moves outer"] * 3


def test_generated_code_ends_the_walk(harness: Path) -> None:
    assert lines(harness, "generated") == ["inner called_by_generated"]


def test_stack_without_an_interpreted_frame_ends_where_it_ends(
        harness: Path) -> None:
    line, = lines(harness, "end")
    assert line.startswith("inner ?")
