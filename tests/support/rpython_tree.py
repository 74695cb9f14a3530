"""The RPython trees, programs and Python 2 that `make` creates, and how to run them."""
from __future__ import annotations

import fcntl
import functools
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

ROOT = Path(__file__).parents[2]
BUILD = ROOT / ".build"
PYTHON2 = BUILD / "py2" / "python2"
PATCHED = BUILD / "rpython" / "tree"
PRISTINE = BUILD / "rpython" / "pristine"

#: the programs that `make test` translates
PROGRAMS = ("guest", "scenarios", "samples")
#: The programs whose tests are marked `hard`. The translation of guest-jit takes as
#: long as the translations of PROGRAMS together.
HARD_PROGRAMS = ("guest-jit", "gcbench-patched", "gcbench-pristine")

#: Messages that vmprof writes to stderr for a CPU sample before the first function.
#: Every program with CPU samples may write them, mostly on a busy machine.
EARLY_SAMPLE_WARNINGS = frozenset({
    "WARNING: get_stack_trace, frame is NULL",
    "WARNING: canceled buffer, no stack trace was written"})


def parameters(*ids: str) -> list[ParameterSet]:
    """Return parameters of a test, with the marker `hard` for HARD_PROGRAMS.

    Args:
        ids: names of programs, with or without options after a space.
    """
    return [pytest.param(text, marks=[pytest.mark.hard] * (
        text.split()[0] in HARD_PROGRAMS)) for text in ids]


@functools.cache
def built(name: str) -> Path:
    """Return the path of a program of PROGRAMS or HARD_PROGRAMS.

    `make` translates the program if it is missing or older than its sources. Other
    processes wait meanwhile.
    """
    with open(BUILD / (name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-C", ROOT, ".build/rpython/" + name], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            # this call of `make` must not use the job server of `make test`
            env={key: value for key, value in os.environ.items()
                 if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")})
    assert done.returncode == 0, done.stdout
    return BUILD / "rpython" / name


def python2(tree: Path, *arguments: str | Path,
            path: Path | None = None, **options: Any
            ) -> subprocess.CompletedProcess[str]:
    """Run Python 2 with the RPython of `tree`, and the modules in `path`."""
    folders = [str(tree)] + ([str(path)] if path else [])
    return subprocess.run(
        [PYTHON2, *arguments], text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)}, **options)


def assert_python2(paths: list[str]) -> None:
    """Check that each file compiles under Python 2."""
    done = subprocess.run(
        [PYTHON2, "-c", "import sys\nfor path in sys.argv[1:]:\n"
         "    compile(open(path).read(), path, 'exec')", *paths],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
