"""Build the translated programs that other tests run.

A test builds its program if necessary. This file starts all builds before the other
tests, so that no test waits for one.
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
