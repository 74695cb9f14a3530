"""How tests are sorted."""
from __future__ import annotations

import ast

import conftest
from conftest import ROOT


def test_slow_tests_exist() -> None:
    names = [node.name for path in (ROOT / "tests").rglob("test_*.py")
             if "python2" not in path.parts
             for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.FunctionDef)]
    assert set(names) >= conftest.SLOW
