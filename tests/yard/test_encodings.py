"""Check that our packages open text files with an explicit encoding.

Otherwise our packages would depend on the locale, and cause warnings in a sampled
program with -X warn_default_encoding.
"""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("vmprof-integration/vmprof_allocation", "converter/vmprof_convert")


def depending(source: str) -> list[int]:
    """Return the numbers of the lines in `source` that open a text file without an
    encoding.
    """
    return [node.lineno for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            and node.func.id == "open"
            and not any(isinstance(mode, ast.Constant) and "b" in str(mode.value)
                        for mode in (*node.args[1:2], *(
                            word.value for word in node.keywords
                            if word.arg == "mode")))
            and not any(word.arg == "encoding" for word in node.keywords)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_text_files_are_opened_with_an_encoding(folder: str) -> None:
    found = ["%s:%d" % (path.relative_to(ROOT), line)
             for path in sorted((ROOT / folder).rglob("*.py"))
             for line in depending(path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize("call, depends", [
    ("open(x)", True), ("open(x, 'r')", True), ("open(x, mode='w')", True),
    ("open(x, errors='replace')", True), ("open(x, 'rb')", False),
    ("open(x, mode='wb')", False), ("open(x, encoding='utf-8')", False)])
def test_finds_calls_without_an_encoding(call: str, depends: bool) -> None:
    assert bool(depending(call)) is depends
