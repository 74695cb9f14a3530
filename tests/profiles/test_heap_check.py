"""What is estimated to be alive, beside what the GC counts after a collection."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

import report_runs
from made_profiles import SWEPT, Log
from vmprof_convert import readers
from vmprof_convert.analysis import heap_check
from vmprof_convert.profile.model import Swept

MIB = 2**20


def log(*swept: tuple[int, int, int, int, int]) -> Log:
    """Each: the GC's bytes, those at the beginning, estimated ones, the standard
    deviation, and those of which nothing is known."""
    made = Log()
    made.settings(facts="types,lifetimes")
    made.allocation([made.function("main")], size=100, time=10)
    for time, (heap, begin, *estimated) in enumerate(swept, 1):
        made.row(SWEPT, time * 10**9, heap, begin, *estimated)
    return made


def said(folder: Path, *swept: tuple[int, int, int, int, int]) -> list[str]:
    path = folder / "app.vmprof"
    path.write_bytes(log(*swept).data())
    done = report_runs.report(path, "--json")
    assert done.returncode == 0, done.stderr
    return [line for line in json.loads(done.stdout)["remarks"]
            if line.startswith("wrong")]


def test_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "app.vmprof"
    path.write_bytes(log((100, 20, 90, 5, 1), (200, -1, 180, 6, 2)).data())
    assert readers.read(path).swept == [
        Swept(10**9, 100, 20, 90, 5, 1), Swept(2 * 10**9, 200, -1, 180, 6, 2)]


@pytest.mark.parametrize("heap, begin, alive, deviation, not_known", [
    # some of what was there at the beginning is gone
    (100, 20, 80, 1, 0), (100, 20, 100, 1, 0), (100, 20, 90, 1, 0),
    # within the interval of 99.9 %
    (100, 20, 77, 1, 0), (100, 20, 104, 1, 0),
    # attached: most is from before
    (100, 95, 3, 1, 0), (100, -1, 0, 0, 0),
    # it is not known of all
    (100, 20, 50, 1, 30),
])
def test_what_agrees(tmp_path: Path, heap: int, begin: int, alive: int,
                     deviation: int, not_known: int) -> None:
    assert said(tmp_path, (heap * MIB, begin * MIB if begin >= 0 else -1, alive * MIB,
                           deviation * MIB, not_known * MIB)) == []


def test_more_than_there_is(tmp_path: Path) -> None:
    line, = said(tmp_path, (13 * MIB, 3 * MIB, 3758 * MIB, 10 * MIB, 0))
    assert line == (
        "wrong: 3.67 GiB are estimated to be alive, but the GC itself counts 13 MiB of "
        "old objects at 1.00 s: do not rely on what is said of alive objects, and "
        "please report this")


def test_less_than_there_is(tmp_path: Path) -> None:
    line, = said(tmp_path, (100 * MIB, 20 * MIB, 50 * MIB, MIB, 0))
    assert line.startswith(
        "wrong: only 50 MiB are estimated to be alive, but the GC itself counts 100 MiB"
        " of old objects at 1.00 s, and 20 MiB of them are from before the sampling")


def test_the_last_collection_counts(tmp_path: Path) -> None:
    assert not said(tmp_path, (13 * MIB, 3 * MIB, 3758 * MIB, MIB, 0),
                    (13 * MIB, 3 * MIB, 12 * MIB, MIB, 0))


def test_nothing_is_said_without_it(tmp_path: Path) -> None:
    assert not said(tmp_path)


def test_a_bound_is_never_negative() -> None:
    least, most = heap_check.bounds(Swept(1, 5 * MIB, 50 * MIB, 4 * MIB, MIB, 0))
    assert least == 0.0 < most
