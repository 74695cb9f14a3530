"""Build the translated programs that other tests run.

A test builds its program if necessary. This file starts all builds before the other
tests, so that no test waits for one.
"""
from __future__ import annotations

import os

import pytest

from rpython_tree import HARD_PROGRAMS, PROGRAMS, built, parameters

pytestmark = pytest.mark.translated


@pytest.mark.long(2)
@pytest.mark.parametrize("name", parameters(*PROGRAMS, *HARD_PROGRAMS))
def test_translation(name: str) -> None:
    assert os.access(built(name), os.X_OK)
