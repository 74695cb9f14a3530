"""Test the rules for the two series of patches, in rpython/ and pypy-branch/."""
from __future__ import annotations

import re

import pytest

import apply
import tree
from patch_files import Patch, parse


@pytest.fixture(params=apply.OURS, ids=["rpython", "pypy-branch"])
def ours(request: pytest.FixtureRequest) -> tree.Ours:
    ours: tree.Ours = request.param
    return ours


@pytest.fixture
def series(ours: tree.Ours) -> list[Patch]:
    result = [parse(patch) for patch in ours.series()]
    assert result, "%s names no patch" % ours.patches
    return result


def test_series_lists_every_patch(ours: tree.Ours, series: list[Patch]) -> None:
    assert sorted(path.name for path in ours.patches.iterdir()) \
        == sorted([patch.name for patch in series] + ["series"])
    for number, patch in enumerate(series):
        assert re.match("%02d-[a-z0-9-]+[.]patch$" % number, patch.name)


def test_each_patch_gives_its_reason(series: list[Patch]) -> None:
    for patch in series:
        assert len(patch.header.split()) >= 10, patch.name


def test_patches_do_not_repeat_what_they_patch(series: list[Patch]) -> None:
    for patch in series:
        assert patch.context == [], patch.name


def test_each_patch_has_gits_hash_of_each_file(ours: tree.Ours,
                                               series: list[Patch]) -> None:
    for patch, whole in zip(series, ours.series()):
        hashes = dict(tree.git_hashes(whole))
        assert list(hashes) == list(patch.files), patch.name
        assert all(hashes.values()), patch.name
