"""Tests of the reports' rows and notes about compiled code.

A function of compiled code may be unknown, for example on AArch64 if it was compiled
before the sampling began. A note reports the bytes that PyPy allocates to write the
JIT's log.
"""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from made_profiles import FrameSpec, Log, jit, machine_code
from report_runs import as_json, lines
from vmprof_convert import readers
from vmprof_convert.analysis.summary import sum_up

COMPILER, LOG, NOT_KNOWN = map(machine_code, (1, 2, 3))
LABEL = "[compiled code, function not known]"


@pytest.fixture
def log() -> Log:
    log = Log()
    log.settings(lines=1, capabilities="labels,lines,names")
    return log


def write(path: Path, log: Log, *stacks: Sequence[FrameSpec]) -> Path:
    """Write a profile with 20 samples of each stack."""
    for number in range(20 * len(stacks)):
        log.allocation(stacks[number % len(stacks)], size=24, time=number)
    path.write_bytes(log.data())
    return path


def samples(path: Path, of: str, *options: str) -> dict[str, float]:
    """Return the number of samples of each function.

    `of` is "self" for the function itself, or "total" to include its callees.
    """
    return {row["function"]["name"]: row[of]["allocated"]["samples"]
            for row in as_json(path, *options)["rows"]}


def remarks(path: Path, about: str, *options: str) -> list[str]:
    return [line for line in lines(path, *options) if line.startswith(about + ": ")]


def test_an_unknown_function_has_its_own_row(log: Log, tmp_path: Path) -> None:
    main, work, called = map(log.function, ("main", "work", "called"))
    path = write(tmp_path / "app.vmprof", log,
                 [main, work, jit(work), NOT_KNOWN],
                 [main, work, jit(work), NOT_KNOWN, called], [main], [main])
    assert samples(path, "self", "--by", "function") == {
        "main": 40, "work": 0, "called": 20, LABEL: 20}
    assert samples(path, "total", "--by", "function") == {
        "main": 80, "work": 40, "called": 20, LABEL: 40}
    (said,) = remarks(path, "callers")
    assert said.startswith(
        "callers: the stacks of 50 % of the bytes contain " + LABEL)


def test_an_unknown_function_called_by_a_library_is_not_user_code(
        log: Log, tmp_path: Path) -> None:
    main = log.function("main", file=str(tmp_path / "app.py"))
    library = log.function("library", file="/usr/lib/python3/site-packages/x.py")
    path = write(tmp_path / "app.vmprof", log, [main, library, jit(library), NOT_KNOWN],
                 [main, jit(main), NOT_KNOWN, library])
    assert samples(path, "self", "--user-code", "--by", "function") == {
        "main": 20, LABEL: 20}


@pytest.mark.parametrize("settings, said, is_brief", [
    # x86-64 without and with recorded lines, and a PyPy that cannot write the JIT's log
    ({"capabilities": "callers,labels"},
     "callers: in compiled code, some callers are wrong", False),
    ({"capabilities": "callers,labels", "lines": "1"}, None, False),
    ({"capabilities": "labels"}, "callers: where compiled code calls compiled", True)])
def test_note_on_callers_depends_on_the_capabilities(
        tmp_path: Path, settings: dict[str, str], said: str | None,
        is_brief: bool) -> None:
    log = Log()
    log.settings(**settings)
    main = log.function("main")
    path = write(tmp_path / "app.vmprof", log, [main, jit(main)])
    assert len(remarks(path, "callers")) == is_brief
    found = remarks(path, "callers", "--notes")
    assert len(found) == (said is not None)
    assert all(line.startswith(said or "") for line in found)


@pytest.mark.parametrize("capabilities, reason", [
    ("callers,lines", "which contains the lines"),
    ("lines", "without which stacks lack functions on this machine")])
@pytest.mark.parametrize("by", ["function", "type"])
def test_notes_the_bytes_of_the_jit_log(tmp_path: Path, capabilities: str, reason: str,
                                        by: str) -> None:
    log = Log()
    log.settings(lines=1, capabilities=capabilities, facts="types,lifetimes")
    main = log.function("main")
    path = write(tmp_path / "app.vmprof", log, [main, LOG], [main, COMPILER], [main],
                 [main])
    assert remarks(path, "log", "--by", by) == [
        "log: 25 % of the bytes are PyPy's log of its compiled code, " + reason
        + ". Without the sampler, the program does not allocate them"]
    # the Firefox profile takes the bytes of the log from sum_up()
    summary = sum_up(readers.read(path))
    assert summary.log_bytes == pytest.approx(0.25 * summary.bytes.value)
