"""Profiles of more samples than memory should hold: what is more is in a temporary
file, and nobody can tell."""
from __future__ import annotations

import array
import gc
import io
import os
import random
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import made_profiles
from made_profiles import Log
from vmprof_convert import cli, readers
from vmprof_convert.cli.formats import FORMATS
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile import long_columns, store
from vmprof_convert.profile.long_columns import PIECE, Long, Runs, picked, until
from vmprof_convert.profile.model import Columns
from vmprof_convert.profile.store import Store
from vmprof_convert.readers import kept
from vmprof_convert.writers import firefox


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that can be is in the file."""
    monkeypatch.setattr(store, "ROOM", 0)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in long_columns, kept:
        monkeypatch.setattr(module, "PIECE", 16)
    monkeypatch.setattr(long_columns, "_BITS", 4)
    monkeypatch.setattr(long_columns, "_IN_PIECE", 15)
    monkeypatch.setattr(long_columns, "_RUN", 40)


def of_threads(seed: int, samples: int = 40) -> bytes:
    """Pieces that hold several objects, some of which become old, and are freed much
    later; three threads; up to so many samples between two collections."""
    draw = random.Random(seed)
    log = Log()
    log.settings(facts="types,lifetimes")
    stacks = [[log.function("f%d" % number)] for number in range(5)]
    old: list[tuple[int, int]] = []
    time = 0
    for collection in range(30):
        first = log.keys + 1
        wholes = [draw.choice((64, 200, 1000))
                  for _ in range(draw.randrange(1, samples))]
        for number, size in enumerate(wholes):
            if number % 50 == 49:
                log.flush()
            time += draw.randrange(3000)
            log.allocation(draw.choice(stacks), size=size, time=time,
                           thread=draw.choice((1, 2, 3)))
        if draw.random() < 0.8:
            log.flush()
        time += 1000
        log.collection(time, collection)
        for key, whole in enumerate(wholes, first):
            for number in range(draw.choice((1, 1, 3))):
                outcome = draw.choice((0, 0, 1))
                log.young(key, outcome, size=16 if whole > 64 else whole)
                old += [(key, number)] if outcome else []
                if whole == 64:
                    break
        draw.shuffle(old)
        for key, number in old[:len(old) // 3]:
            log.freed(key, number)
        del old[:len(old) // 3]
    return log.data()


def written(data: bytes, folder: Path, to: str, *options: str) -> bytes:
    path, out = folder / "app.vmprof", folder / "out"
    path.write_bytes(data)
    assert cli.main([str(path), "--to", to, "-o", str(out), *options]) == 0
    return out.read_bytes()


#: (the page has a script that not everybody has made)
ALL = [(name,) for name in FORMATS if name != "html"] + [
    ("firefox", "--axis", "bytes"), ("firefox", "--thread", "2"),
    ("firefox", "--fate", "alive")]


@pytest.mark.parametrize("asked", ALL, ids=" ".join)
@pytest.mark.parametrize(("seed", "samples"), [(1, 40), (2, 900)])
def test_what_is_in_the_file_is_what_would_be_in_memory(
        seed: int, samples: int, asked: tuple[str, ...], tmp_path: Path,
        request: pytest.FixtureRequest) -> None:
    """With 900, facts come when samples have long been put away."""
    data = of_threads(seed, samples)
    plain = written(data, tmp_path, *asked)
    request.getfixturevalue("no_room")
    request.getfixturevalue("small_pieces")
    assert written(data, tmp_path, *asked) == plain


@pytest.mark.parametrize("seed", range(3))
def test_several_processes(seed: int, tmp_path: Path,
                           request: pytest.FixtureRequest) -> None:
    """Whose samples are not in the order of their times."""
    for number in range(3):
        log = Log()
        log.settings(facts="types,lifetimes", run="a", pid=100 + number,
                     clock=10**9 + number * 5000, **(
                         {"parent": 100} if number else {}))
        f = log.function("f%d" % number)
        for key in range(1, 200):
            log.allocation([f], size=24 + key % 3, time=key * 1000, thread=100 + number)
        log.collection(200_000)
        for key in range(1, 200):
            log.young(key, (key + seed) % 3 == 0)
        name = "app.%d.vmprof" % (100 + number) if number else "app.vmprof"
        (tmp_path / name).write_bytes(made_profiles.packed(log.data()))

    def converted() -> bytes:
        assert cli.main([str(tmp_path / "app.vmprof"), "-o",
                         str(tmp_path / "out.json")]) == 0
        return (tmp_path / "out.json").read_bytes()
    plain = converted()
    assert b"All processes" in plain
    request.getfixturevalue("no_room")
    request.getfixturevalue("small_pieces")
    assert converted() == plain


class Nowhere(io.BytesIO):
    def write(self, data: object) -> int:
        return 0


def test_memory_does_not_grow_with_the_samples(
        monkeypatch: pytest.MonkeyPatch, no_room: None) -> None:
    """It took 119 bytes an object.  What remains is a byte of each, of what became of
    it, and what there is of each block and each collection."""
    for module in long_columns, kept:
        monkeypatch.setattr(module, "PIECE", 2**9)
    monkeypatch.setattr(long_columns, "_BITS", 9)
    monkeypatch.setattr(long_columns, "_IN_PIECE", 2**9 - 1)
    monkeypatch.setattr(long_columns, "_RUN", 2**10)
    # what is drawn has a bound of its own, and so has what is added up at once
    monkeypatch.setattr("vmprof_convert.writers.firefox.activity.MOST", 1000)
    monkeypatch.setattr("vmprof_convert.analysis.summary._TOGETHER", 1000)
    monkeypatch.setattr(sys.modules[firefox.write.__module__], "_TOGETHER", 1000)

    def peak(samples: int) -> int:
        data = made_profiles.large(samples, 6, 50, facts=True)
        gc.collect()
        tracemalloc.start()
        try:
            # (the log itself is in memory here, and was before)
            firefox.write(readers.read_bytes(data), Nowhere())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    peak(1000)                      # what is imported, and remembered
    small, large = peak(20_000), peak(80_000)
    assert large - small < 60_000 * 8


def test_a_report_keeps_what_is_alive(tmp_path: Path) -> None:
    def peak(samples: int) -> int:
        path = tmp_path / "app.vmprof"
        path.write_bytes(made_profiles.large(samples, 6, 50, facts=True))
        gc.collect()
        tracemalloc.start()
        try:
            assert cli.main([str(path), "-o", str(tmp_path / "out.txt")]) == 0
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    peak(1000)
    small, large = peak(50_000), peak(100_000)
    assert large - small < 50_000 * 4


def test_what_is_told_of_all_samples_at_once(small_pieces: None, no_room: None) -> None:
    """In any order: what was put away is looked at again, and put away again."""
    samples = kept.Kept(Store())
    for number in range(1000):
        samples.extend(Columns(*[[number % 100 if name == 'fate' else number]
                                 for name in Columns._fields]), b"\0")
        samples.take(())
    keys = list(range(1, 1001))
    random.Random(1).shuffle(keys)
    for key in keys:
        found = samples.find(key)
        assert found is not None and found.table.get(found.row).size == key - 1
        found.table.size[found.row] = -key
        assert len(samples._near) <= 2 * kept._MOST + 2
    assert [size for rows in samples.rest() for size in rows.size] == [
        -key for key in range(1, 1001)]


def test_what_was_dropped_is_used_again(no_room: None) -> None:
    place = Store()
    for _ in range(5):
        Long("q", place).extend(range(10 * PIECE))
        gc.collect()
    assert place.size == 10 * PIECE * 8


def test_what_is_the_same_takes_nothing(no_room: None) -> None:
    place = Store()
    column = Long("q", place)
    column.extend([7] * (3 * PIECE))
    assert not place.size and column.count(7) == len(column) == 3 * PIECE
    assert column[PIECE:PIECE + 2].tolist() == [7, 7] and column.different() == {7}


def test_what_is_in_the_file_is_not_in_memory_too(no_room: None) -> None:
    tracemalloc.start()
    try:
        column = long_columns.made("q", Store(), (array.array("q", range(10**6)),))
        gc.collect()
        assert len(column) == 10**6
        # a piece that is not whole, and where the others are
        assert tracemalloc.get_traced_memory()[0] < 2 * 8 * PIECE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("keys", [10**9, 4])
def test_to_sort_takes_no_memory_for_each_row(no_room: None, keys: int) -> None:
    """Nor if many have the same key, as what one collection freed."""
    draw, rows = random.Random(1), 400_000
    runs = Runs("qi", Store())
    for start in range(0, rows, 1000):
        runs.add([draw.randrange(keys) for _ in range(1000)],
                 range(start, start + 1000))
    tracemalloc.start()
    try:
        whole, of_rows = runs.merged()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(whole) == rows and long_columns.does_ascend(whole)
    assert set(of_rows) == set(range(rows))
    # 12 bytes of each are in a row
    assert peak < 20 * rows


def test_facts_that_jump_from_page_to_page_end_in_memory(
        small_pieces: None, no_room: None) -> None:
    """Each of them would have a page read and written otherwise."""
    samples = long_columns.PIECE * 100
    data = kept.Kept(Store())
    for _ in range(100):
        data.extend(Columns(*[[1] * long_columns.PIECE] * len(Columns._fields)),
                    bytes(long_columns.PIECE))
        list(data.take(()))
    draw = random.Random(1)
    for _ in range(20_000):
        assert data.find(draw.randrange(1, samples + 1)) is not None
    assert data._loads < 10_000


def test_no_file_before_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", None)
    profile = readers.read_bytes(made_profiles.large(40_000, 6, 50, facts=True))
    assert len(profile.samples) == 40_000


SCRIPT = """
import resource, sys
from vmprof_convert import cli
from vmprof_convert.profile import store
store.ROOM = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("to", ["firefox", "pprof"])
def test_no_room_is_said_in_a_line(to: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "app.vmprof", tmp_path / "folder"
    folder.mkdir()
    path.write_bytes(made_profiles.large(100_000, 6, 50, facts=True))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, path, "--to", to, "-o", tmp_path / "out"],
        env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "vmprof-convert: %s: no room in %s for what is more than memory should hold: "
        "File too large\n" % (path, folder))
    assert not os.listdir(folder) and not (tmp_path / "out").exists()


def test_no_room_while_it_is_converted(tmp_path: Path) -> None:
    """Not only while it is read: what is complained of is not the output."""
    path = tmp_path / "app.vmprof"
    path.write_bytes(made_profiles.large(50_000, 6, 50, facts=True))
    script = SCRIPT.replace("(300_000, 300_000)", "(2**21, 2**21)")
    done = subprocess.run(
        [sys.executable, "-c", script, path, "--to", "firefox", "-o", tmp_path / "out"],
        capture_output=True, text=True)
    assert done.returncode == 2
    assert "app.vmprof: no room in " in done.stderr and done.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == ["app.vmprof"]


def test_a_profile_that_is_made_to_fill_the_disk(
        monkeypatch: pytest.MonkeyPatch, no_room: None) -> None:
    monkeypatch.setattr(store, "MAX_FILE", 10**6)
    with pytest.raises(ProfileError, match="more than 1000000 bytes beside memory"):
        readers.read_bytes(made_profiles.large(100_000, 6, 50, facts=True))


def test_nothing_is_left_of_a_process_that_is_killed(tmp_path: Path) -> None:
    path, folder = tmp_path / "app.vmprof", tmp_path / "folder"
    folder.mkdir()
    path.write_bytes(made_profiles.large(50_000, 6, 50, facts=True))
    done = subprocess.run([sys.executable, "-c", (
        "import os, sys\nfrom vmprof_convert import readers\n"
        "from vmprof_convert.profile import store\nstore.ROOM = 0\n"
        "assert readers.read(sys.argv[1]).samples.store.size > 10**6\n"
        "os.kill(os.getpid(), 9)"), path], env={**os.environ, "TMPDIR": str(folder)})
    assert done.returncode == -9 and not os.listdir(folder)


# ____________________________________________________________


@pytest.fixture(params=[0, 1, 15, 16, 17, 100])
def numbers(request: pytest.FixtureRequest, small_pieces: None,
            no_room: None) -> Iterator[list[int]]:
    draw = random.Random(request.param)
    yield [draw.choice((-1, 2, 2**40)) for _ in range(request.param)]


def test_a_column_is_a_sequence(numbers: list[int]) -> None:
    column = Long("q", Store())
    for start in range(0, len(numbers), 7):
        column.extend(array.array("q", numbers[start:start + 7]))
    again = Long("q", Store())
    again.extend(iter(numbers))
    again.extend(column)
    assert list(again) == numbers * 2
    assert list(column) == numbers and len(column) == len(numbers)
    assert column.different() == set(numbers)
    assert column.count(2) == numbers.count(2)
    for at in range(-len(numbers), len(numbers)):
        assert column[at] == numbers[at]
        assert column[at:].tolist() == numbers[at:]
        assert column[at:at + 18].tolist() == numbers[at:at + 18]
        assert column[at::-3].tolist() == numbers[at::-3]
    for at in len(numbers), -len(numbers) - 1:
        with pytest.raises(IndexError):
            column[at]


def test_rows_of_a_column(numbers: list[int]) -> None:
    column = Long("q", Store())
    column.extend(numbers)
    assert picked(column, range(len(numbers))) is column
    for count in 1, 5, 50:
        rows = [random.Random(count).randrange(len(numbers))
                for _ in range(count)] if numbers else []
        assert list(picked(column, rows)) == [numbers[row] for row in rows]
        rows = sorted(set(rows))
        changed = list(numbers)
        for row in rows:
            changed[row] = row
        assert list(column.changed(rows, rows)) == changed


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_sorted_as_they_come(seed: int, small_pieces: None,
                                      no_room: None) -> None:
    draw = random.Random(seed)
    runs = Runs("qi", Store())
    rows: list[tuple[int, int]] = []
    for number in range(draw.choice((0, 1, 300))):
        some = [(draw.randrange(1 + number // (1 + seed)), at)
                for at in range(draw.randrange(5))]
        rows += some
        runs.add([key for key, _ in some], [at for _, at in some])
    rows.sort(key=lambda row: row[0])
    assert len(runs) == len(rows)
    assert list(zip(*runs.merged())) == rows
    limits = range(10, 310, 10)
    assert [list(zip(*part)) for part in runs.parts(limits)] == [
        [row for row in rows if limit - 10 <= row[0] < limit] for limit in limits]


def test_where_a_limit_is() -> None:
    ascending = [1, 1, 2, 5, 5, 5, 9]
    for limit in range(11):
        for start in range(sum(number < limit for number in ascending) + 1):
            assert until(ascending, limit, start) == sum(
                number < limit for number in ascending)
