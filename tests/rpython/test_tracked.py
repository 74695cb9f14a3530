"""Test tracked.c and type_names.c of the builtin engine.

After random collections, a segment inherits the live tracked objects.
"""
from __future__ import annotations

import collections
import subprocess
from pathlib import Path

import pytest

import made_profiles
from log_lines import TRAILER
from native_build import ALLOCATION, build
from vmprof_convert import readers
from vmprof_convert.profile.model import (
    ALIVE,
    DIED,
    FREED,
    LOST,
    PENDING,
    UNKNOWN,
    Profile,
)

PARTS = 8


@pytest.fixture(scope="module")
def harness() -> Path:
    return build(
        "tracked_harness",
        *(str(ALLOCATION / name) for name in ("tracked.c", "type_names.c")),
        *("shared/%s.c" % name for name in (
            "code_names", "recorder", "profile_log", "records", "pending", "children",
            "file_sink", "stack_tree", "figures", "pace", "flusher")))


def carried(profile: Profile) -> collections.Counter[str]:
    """Return the inherited objects in the form in which the harness prints them.

    The number of the segment is omitted.
    """
    result: collections.Counter[str] = collections.Counter()
    for object_ in profile.samples.carried:
        stack = profile.stacks[object_.stack][-1].address if object_.stack >= 0 else 0
        if object_.fate == PENDING or object_.collected >= 0:
            result["%d %d %d young" % (stack, object_.size, object_.interval)] += 1
            continue
        type_ = profile.types[object_.type]
        result["%d %d %d %d %s %s" % (
            stack, object_.size, object_.live_size or object_.size, object_.interval,
            type_.layout, type_.python or "-")] += 1
    return result


@pytest.mark.parametrize("seed", range(5))
def test_live_objects_are_inherited(harness: Path, tmp_path: Path, seed: int) -> None:
    done = subprocess.run(
        [harness, tmp_path / "profile", bytes(made_profiles.Log().bytes).hex(),
         TRAILER.hex(), str(seed)], text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    expected: dict[int, collections.Counter[str]] = collections.defaultdict(
        collections.Counter)
    for line in done.stdout.splitlines():
        part, _, object_ = line.partition(" ")
        expected[int(part)][object_] += 1
    paths = [tmp_path / ("profile.%d" % number) for number in range(1, PARTS + 1)]
    found = [readers.read(path) for path in paths]
    for number, profile in enumerate(found, 1):
        assert (profile.misfits, profile.torn) == (0, 0)
        assert profile.end_time is not None
        assert carried(profile) == expected[number]
        assert {object_.fate for object_ in profile.samples.carried} <= {
            ALIVE, DIED, FREED, LOST, PENDING, UNKNOWN}
    assert expected[PARTS]
    whole = readers.read(paths)
    assert whole.misfits == 0
    assert len(whole.samples) == sum(len(profile.samples) for profile in found)
