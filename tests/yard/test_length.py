"""No file is too long to be read at once."""
from __future__ import annotations

import subprocess

from conftest import ROOT

MOST = 600

#: not to be read
FIGURES = "benchmarks/results/"


def lengths() -> dict[str, int]:
    """Of all text files that are committed, or will be."""
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True).stdout
    result = {}
    for name in filter(None, names.split("\0")):
        path = ROOT / name
        # it may be a moment before it is committed that it is gone
        data = path.read_bytes() if path.exists() else b""
        if b"\0" not in data and not name.startswith(FIGURES):
            result[name] = data.count(b"\n")
    return result


def test_no_file_is_too_long() -> None:
    found = lengths()
    assert len(found) > 100
    assert [name for name, lines in found.items() if lines > MOST] == []
