"""Tests of is_alive_exact() for profiles with and without a heap snapshot.

It returns whether the objects that count as alive certainly include no garbage.
"""
from __future__ import annotations

import pytest

from made_profiles import Log
from vmprof_convert.meaning.lifetimes import is_alive_exact
from vmprof_convert.profile.model import Profile
from vmprof_convert.readers import read
from vmprof_convert.readers.records import SNAPSHOTS

MIB = 2**20
SECOND = 10**9


def profile(path: str, snapshot: int, end: int, *, live: int = MIB,
            part: dict[str, int] | None = None) -> Profile:
    """Return a profile of two seconds with a heap snapshot after the first second.

    Args:
        path: the name of the file.
        snapshot: bytes that were allocated before the snapshot.
        end: bytes that were allocated before the end.
        live: bytes that the snapshot found.
        part: settings of a later segment.
    """
    log = Log()
    log.settings(facts="types,lifetimes", **(part or {}))
    log.allocated, log.last_time = snapshot, SECOND
    log.row(SNAPSHOTS, SECOND, 5, live, 1000, 1000, 1000, 5, snapshot)
    log.flush()
    log.allocated, log.last_time = end, 2 * SECOND
    log.mark(2 * SECOND, "end")
    with open(path, "wb") as file:
        file.write(log.data())
    return read(path)


@pytest.mark.parametrize("snapshot, end, live, is_exact", [
    (100 * MIB, 100 * MIB, MIB, True),
    # the end of the sampling allocates a few bytes
    (100 * MIB, 100 * MIB + 80000, MIB, True),
    (100 * MIB, 102 * MIB, MIB, False),
    # allocations after the snapshot may be a small share of the live bytes, but a small
    # share of all allocated bytes may be too much
    (100 * MIB, 102 * MIB, 300 * MIB, True),
    (10**6 * MIB, 10**6 * MIB + 100 * MIB, 20 * MIB, False)])
@pytest.mark.parametrize("part", [None, {"part": 3, "clock": 5, "first": 1}])
def test_alive_is_exact_shortly_after_the_last_snapshot(
        tmp_path: object, snapshot: int, end: int, live: int, is_exact: bool,
        part: dict[str, int] | None) -> None:
    found = profile("%s/a.vmprof" % tmp_path, snapshot, end, live=live, part=part)
    assert is_alive_exact(found) is is_exact


def test_moment_before_the_next_totals_is_not_exact(tmp_path: object) -> None:
    found = profile("%s/a.vmprof" % tmp_path, 100 * MIB, 300 * MIB)
    assert is_alive_exact(found, SECOND)
    assert not is_alive_exact(found, SECOND + SECOND // 2)
    assert not is_alive_exact(found, SECOND - 1)


def test_profile_without_a_snapshot(tmp_path: object) -> None:
    log = Log()
    log.settings(facts="types,lifetimes")
    path = "%s/a.vmprof" % tmp_path
    with open(path, "wb") as file:
        file.write(log.data())
    assert not is_alive_exact(read(path))


def test_totals_of_an_earlier_session_do_not_count(tmp_path: object) -> None:
    """The first totals of a profile may be from the previous session."""
    log = Log()
    log.settings(facts="types,lifetimes")
    log.allocated, log.last_time = 300 * MIB, 1000
    log.flush()
    log.allocated, log.last_time = 100 * MIB, SECOND
    log.row(SNAPSHOTS, SECOND, 5, MIB, 1000, 1000, 1000, 5, 100 * MIB)
    log.flush()
    log.last_time = 2 * SECOND
    path = "%s/a.vmprof" % tmp_path
    with open(path, "wb") as file:
        file.write(log.data())
    assert is_alive_exact(read(path))
