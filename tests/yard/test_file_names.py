"""Check that the files named in comments and docstrings exist."""
from __future__ import annotations

import re
import subprocess
from pathlib import Path

from conftest import ROOT

#: files of PyPy, vmprof and the system, which comments may name
OTHERS = frozenset((
    "gctypelayout.py", "pyjitpl.py", "rgc.py", "rvmprof.py", "shadowstack.py",
    "skiplist.c", "vmp_stack.c", "vmprof.h", "vmprof_common.c",
    "vmprof_get_custom_offset.h", "vmprof_unix.c", "prctl.h"))
#: names of files in examples, and of files that a command writes
EXAMPLES = frozenset(("OUTPUT.c", "app.py", "serving.py", "views.py"))
NAME = re.compile(r"(?<![\w./*%-])(?:[\w-]+/)*([\w-]+\.(?:py|c|h|rst|js|mjs))\b(?!\w)")
COMMENT = {".py": r'#[^\n]*|"""[\s\S]*?"""', ".c": r"/\*[\s\S]*?\*/"}
COMMENT[".h"] = COMMENT[".c"]


def files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).exists()]


def test_files_named_in_comments_exist() -> None:
    names = {path.name for path in files()}
    named = {(path.relative_to(ROOT).as_posix(), name)
             for path in files()
             if path.suffix in COMMENT and "tests" not in path.parts
             for comment in re.findall(COMMENT[path.suffix], path.read_text("utf-8"))
             for name in NAME.findall(comment)}
    assert len(named) > 300
    assert sorted(found for found in named
                  if found[1] not in names | OTHERS | EXAMPLES) == []
    assert {name for _, name in named} >= OTHERS
