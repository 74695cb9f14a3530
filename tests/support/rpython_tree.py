"""Where `make` leaves RPython, patched and not, and how to run Python 2 on it."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BUILD = ROOT / ".build"
PYTHON2 = BUILD / "py2" / "python2"
PATCHED = BUILD / "rpython" / "tree"
PRISTINE = BUILD / "rpython" / "pristine"


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
