"""Where `make` leaves RPython, patched and not, what it translates, and how to
run Python 2 on it."""
from __future__ import annotations

import fcntl
import functools
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUILD = ROOT / ".build"
PYTHON2 = BUILD / "py2" / "python2"
PATCHED = BUILD / "rpython" / "tree"
PRISTINE = BUILD / "rpython" / "pristine"

#: what `make` translates; guest-jit takes as long as all others
PROGRAMS = ("guest-jit", "guest", "scenarios", "samples", "gcbench-patched",
            "gcbench-pristine")

#: What vmprof writes to stderr about a time sample before the first function.
#: Every program with time samples may write it, above all on a busy machine.
EARLY_SAMPLE_WARNINGS = frozenset({
    "WARNING: get_stack_trace, frame is NULL",
    "WARNING: canceled buffer, no stack trace was written"})


@functools.cache
def built(name: str) -> Path:
    """One of PROGRAMS.  Where there is none, or an older one than its sources,
    `make` translates it first; who asks meanwhile waits."""
    with open(BUILD / (name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-C", ROOT, ".build/rpython/" + name], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            # `make test` has some for its own jobs
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
    """Each of the files compiles under Python 2."""
    done = subprocess.run(
        [PYTHON2, "-c", "import sys\nfor path in sys.argv[1:]:\n"
         "    compile(open(path).read(), path, 'exec')", *paths],
        capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
