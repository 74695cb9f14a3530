"""The translated programs that other tests run, made where they have to be.

A test that needs one makes it, too; here they are begun before all others, so
that no test waits for them.
"""
from __future__ import annotations

import os

import pytest

from rpython_tree import PROGRAMS, built

pytestmark = pytest.mark.translated


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.long(7 if name == "guest-jit" else 1))
    for name in PROGRAMS])
def test_translation(name: str) -> None:
    assert os.access(built(name), os.X_OK)
