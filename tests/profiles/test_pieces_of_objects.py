"""Objects that share a piece of memory, and so a sample: they are read with all others,
and nobody can tell."""
from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from made_profiles import Log
from vmprof_convert import readers
from vmprof_convert.profile.model import ALIVE, FREED, Carried, Columns

#: key, outcome, type, size: of an object that a minor collection met
Met = tuple[int, int, int, int]
COLLECTIONS, SAMPLES = 12, 40


class Handed:
    """Takes samples as a report does."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []

    def begin(self, settings: dict[str, str]) -> None:
        self.rows.clear()

    def extend(self, rows: Columns) -> None:
        self.rows += zip(*rows)

    def carry(self, object_: Carried) -> None:
        raise AssertionError

    def add_object(self, key: int, type_: int, survived: int) -> None:
        raise AssertionError


def drawn(seed: int, *, all_fit: bool = False) -> tuple[bytes, bytes]:
    """The same profile twice: the entries of one are in the usual form, those of the
    other one all have a number more, as they may in times to come."""
    draw = random.Random(seed)
    usual, longer = Log(), Log()
    for log in usual, longer:
        log.settings(facts="types,lifetimes")
    stacks = [[usual.function("f%d" % number) for _ in range(number)]
              for number in range(1, 4)]
    for number in range(1, 4):
        longer.function("f%d" % number)
    old: list[tuple[int, int]] = []
    for collection in range(COLLECTIONS):
        first, time = usual.keys + 1, (collection + 1) * 1000
        sizes = [draw.choice((64, 200, 1000)) for _ in range(SAMPLES)]
        for at, size in enumerate(sizes):
            for log, frames in (usual, stacks[at % 3]), (longer, stacks[at % 3]):
                log.allocation(frames, size=size, time=time - SAMPLES + at)
        flush_at = draw.randrange(SAMPLES)
        for log in usual, longer:
            log.collection(time, collection)
        for at, whole in enumerate(sizes):
            if draw.random() < 0.05:
                continue            # nothing is said of it
            for number, met in enumerate(
                    objects(draw, first + at, whole, all_fit)):
                write(usual, longer, met, whole if not number else -1)
                if met[1] == 1:
                    old.append((met[0], number))
            if at == flush_at:
                for log in usual, longer:
                    log.flush()
                    log.collection(time, collection)
        for key, number in draw.sample(old, len(old) // 3):
            old.remove((key, number))
            for log in usual, longer:
                log.freed(key, number)
        for log in usual, longer:
            log.flush()
    return usual.data(), longer.data()


def objects(draw: random.Random, key: int, whole: int, all_fit: bool) -> list[Met]:
    """Of one piece; some are too large for it, or come when it is full."""
    found: list[Met] = []
    left = whole
    for _ in range(draw.choice((1, 1, 1, 2, 3, 5))):
        size = draw.choice((whole, whole // 2, whole // 4, 16, 16, whole + 8))
        if all_fit and size > left:
            continue
        left -= size
        found.append((key, draw.choice((0, 0, 1, 2, 3)), draw.randrange(4), size))
    return found


def write(usual: Log, longer: Log, met: Met, whole: int) -> None:
    key, outcome, type_, size = met
    # that of the sample need not be said
    usual.young(key, outcome, type_, None if size == whole else size)
    longer._fact(1, key, outcome, type_, size, 0, 7)


@pytest.mark.parametrize("seed", range(12))
def test_in_one_table_they_are_what_they_are_one_by_one(seed: int) -> None:
    usual, longer = map(readers.read_bytes, drawn(seed))
    assert usual.samples == longer.samples
    assert usual.misfits == longer.misfits > 0
    assert {ALIVE, FREED} <= set(usual.samples.fate)
    # there are some
    assert len(usual.samples) > COLLECTIONS * SAMPLES + 20


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("together", [1, 7, 2**14])
def test_those_that_fit_are_what_they_are_one_by_one(
        seed: int, together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmprof_convert.readers.kept.PIECE", together)
    usual, longer = map(readers.read_bytes, drawn(seed, all_fit=True))
    assert usual.samples == longer.samples
    assert usual.misfits == longer.misfits == 0
    assert {ALIVE, FREED} <= set(usual.samples.fate)
    assert len(usual.samples) > COLLECTIONS * SAMPLES + 20


def test_they_are_in_the_order_in_which_they_were_made() -> None:
    log = Log()
    log.settings(facts="types,lifetimes")
    f = log.function("f")
    for key in range(1, 4):
        log.allocation([f], size=1000, time=key)
    for time, keys in (10, (2,)), (20, (1, 3)):
        log.collection(time)
        for key in keys:
            for size in 100, 200, 300:
                log.young(key, 1 if size == 200 else 0, 0, size)
    # the second ones became old, and are freed in another order
    for key, number in (3, 1), (2, 1), (1, 1):
        log.collection(30 + key)
        log.freed(key, number)
    samples = readers.read_bytes(log.data()).samples
    assert list(samples.size) == [100, 200, 300] * 3
    assert list(samples.time) == [1] * 3 + [2] * 3 + [3] * 3
    assert list(samples.fate)[1::3] == [FREED] * 3
    assert list(samples.ended)[1::3] == [31, 32, 33]


@pytest.mark.parametrize("seed", range(12))
def test_for_a_report_those_that_fit_are_the_same(
        seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmprof_convert.readers.held._MOST", 30)
    monkeypatch.setattr("vmprof_convert.readers.held._TOGETHER", 7)
    data, longer = drawn(seed, all_fit=True)
    path, handed = tmp_path / "app.vmprof", Handed()
    path.write_bytes(data)
    readers.read_into(str(path), handed)
    table = readers.read_bytes(longer).samples
    assert sorted(handed.rows) == sorted(zip(*table.columns()))


@pytest.mark.parametrize("seed", range(12))
def test_for_a_report_they_are_what_they_are_one_by_one(
        seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # what is known is handed on early
    monkeypatch.setattr("vmprof_convert.readers.held._MOST", 30)
    monkeypatch.setattr("vmprof_convert.readers.held._TOGETHER", 7)
    found = []
    for data in drawn(seed):
        path = tmp_path / "app.vmprof"
        path.write_bytes(data)
        handed = Handed()
        profile = readers.read_into(str(path), handed)
        found.append((sorted(handed.rows), profile.misfits))
    assert found[0] == found[1]
    table = readers.read_bytes(drawn(seed)[0]).samples
    assert found[0][0] == sorted(zip(*table.columns()))


@pytest.mark.parametrize("runs", [0, 1, 3])
def test_more_runs_than_are_remembered_as_they_are(
        runs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmprof_convert.readers.collector._MOST_RUNS", runs)
    usual, longer = map(readers.read_bytes, drawn(99))
    assert (usual.samples, usual.misfits) == (longer.samples, longer.misfits)


def test_an_object_of_a_piece_takes_no_call_of_its_own() -> None:
    def calls(objects_: int) -> int:
        log = Log()
        log.settings(facts="types,lifetimes")
        f = log.function("f")
        for _ in range(500):
            log.allocation([f], size=1000)
        log.collection(1)
        for key in range(1, 501):
            for _ in range(objects_):
                log.young(key, 0, 0, 16)
        data, number = log.data(), 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal number
            number += event == "call"
        sys.setprofile(count)
        try:
            readers.read_bytes(data)
        finally:
            sys.setprofile(None)
        return number
    assert calls(4) - calls(1) < 500
