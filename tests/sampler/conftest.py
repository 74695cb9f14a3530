from __future__ import annotations

import pathlib

import pytest

from native_build import build


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build(tmp_path_factory.mktemp("nursery"), "nursery_harness",
                 "hook/sampler.c", "hook/nursery.c")
