"""Tests of the report on the use of resident memory at the end of a run."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_memory_rows import GROWN, facts

from convert_runs import run_and_fail
from made_profiles import Log
from vmprof_convert import cli
from vmprof_convert.report import where_memory

MIB, SECOND = 2**20, 10**9


def note(clock: int = 0, **changed: int) -> str:
    """Return the setting in which the sampler records the use of the memory.

    Args:
        clock: the time of the reading in seconds after the start of the process, which
            is at 100 s; 0 for no time.
        changed: numbers that replace the default ones.
    """
    found = {**({"clock": (100 + clock) * SECOND} if clock else {}), **facts(**GROWN),
             **changed}
    return "memory=" + ",".join("%s %d" % fact for fact in found.items())


def profile(*notes: str, pid: int = 10, end: int = 5, part: int = 0,
            figures: tuple[tuple[int, int, int], ...] = (), **settings: object
            ) -> bytes:
    """Return a profile with settings of note(), and figures (kind, second, MiB)."""
    log = Log()
    log.settings(pid=pid, run="r", clock=(100 + 10 * part) * SECOND, **settings,
                 **({"part": part} if part else {}))
    log.command("app.py")
    log.allocation([log.function("f")], size=64, time=1)
    for kind, time, value in figures:
        log.figure(kind, time * SECOND, value * MIB)
    log.mark(end * SECOND, "end")
    log.flush()
    for text in notes:
        log.settings_text(text)
    return log.data()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    return tmp_path


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["memory", *arguments]) == 0
    return capsys.readouterr().out


def test_report_has_the_table_of_ctl(folder: Path,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.vmprof").write_bytes(profile(note(5)))
    head, _, *lines = report(capsys, "a.vmprof").splitlines()
    assert head == ("process 10 (app.py), at its end (5 s): 260 MiB resident, 224 MiB "
                    "of it in no other process; 0 B swapped out")
    (table,) = where_memory.sheet(facts(**GROWN), 10).tables
    for row in table.rows:
        (line,) = [line for line in lines if line.endswith("  " + row[-1])]
        assert line.split()[:2] == row[0].split()
    assert any(line.startswith("Python objects hold 46 % of it") for line in lines)


def test_reading_before_the_end_of_the_profile(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For example, the next segment could not start, and the process was killed."""
    (folder / "a.vmprof").write_bytes(profile(note(2)))
    assert "process 10 (app.py), at 2 s, which was not its end: " in report(
        capsys, "a.vmprof")


def test_the_last_reading_counts(folder: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.vmprof").write_bytes(profile(
        note(2, **{"pypy.resident": 90 * MIB}), "children=1", note(5)))
    assert "at its end (5 s): 260 MiB resident" in report(capsys, "a.vmprof")


def test_the_last_segment_counts(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.vmprof").write_bytes(profile(note(5)))
    (folder / "a.w2.vmprof").write_bytes(profile(
        note(24, **{"pypy.resident": 90 * MIB}), part=2, end=4))
    assert "at its end (24 s): 300 MiB resident" in report(capsys, "a.vmprof")
    # the process was killed, and only the first segment has a reading
    (folder / "a.w2.vmprof").write_bytes(profile(part=2, end=4))
    assert "at 5 s, which was not its end: 260 MiB" in report(capsys, "a.vmprof")


def test_report_has_the_peak_if_it_was_much_larger(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = ((1, 1, 100), (2, 1, 40), (1, 3, 900), (2, 3, 300), (1, 5, 260))
    (folder / "a.vmprof").write_bytes(profile(note(5, peak=950 * MIB), figures=figures))
    out = report(capsys, "a.vmprof")
    assert "resident memory: 100 MiB at the start, at most 900 MiB (at 3.00 s), " in out
    assert "950 MiB were resident at the peak" in out
    (folder / "a.vmprof").write_bytes(profile(note(5, peak=270 * MIB), figures=figures))
    assert "at the peak" not in report(capsys, "a.vmprof")


def test_a_process_without_a_reading(folder: Path,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.vmprof").write_bytes(profile(note(5)))
    (folder / "a.11.vmprof").write_bytes(profile(pid=11, figures=((1, 1, 70),)))
    out = report(capsys, "a.vmprof")
    assert "process 11 (app.py): the use of its memory is unknown: " in out
    assert "resident memory: 70 MiB" in out
    assert out.count(" not explained\n") == 1
    found = json.loads(report(capsys, "a.vmprof", "--json"))
    assert found["schema"] == where_memory.LIST_SCHEMA
    first, second = found["processes"]
    assert (first["pid"], first["command"], first["time"]) == (10, "app.py", 5.0)
    assert sum(row["bytes"] for row in first["rows"]) == first["resident"] == 260 * MIB
    assert second["pid"] == 11 and "rows" not in second
    assert "is unknown" in second["error"]
    assert second["memory"]["resident"]["most"] == 70 * MIB
    out = report(capsys, "a.vmprof", "--process", "10", "--markdown")
    assert "| 120 MiB | 46.2 |" in out and "11" not in out.splitlines()[0]


def test_refuses_a_profile_without_a_reading(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.vmprof").write_bytes(profile())
    assert "this profile does not contain the use of the memory: request it while " \
        "the program runs" in run_and_fail(folder, capsys, "memory", "a.vmprof")


@pytest.mark.parametrize("text, why", [
    ("memory=pypy.resident 1", "is damaged: 'libraries.resident' is missing"),
    ("memory=" + "x" * 50, "is damaged"),
    (note(5).replace("clock 105", "clock -105"), "is damaged"),
    (note(5) + "," + "1" * 30, "is damaged"),
])
def test_a_damaged_reading_is_refused(folder: Path, capsys: pytest.CaptureFixture[str],
                                      text: str, why: str) -> None:
    (folder / "a.vmprof").write_bytes(profile(text))
    assert "a.vmprof: the setting memory " + why in run_and_fail(
        folder, capsys, "memory", "a.vmprof")
    # other reports do not need the reading
    assert cli.main(["report", "a.vmprof"]) == 0


def test_other_views_do_not_show_the_facts(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.vmprof").write_bytes(profile(note(5)))
    assert cli.main(["export", "a.vmprof", "-o", "a.json"]) == 0
    assert "pypy.resident" not in (folder / "a.json").read_text()
