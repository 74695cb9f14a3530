"""Tests of `--fail-if` with memory metrics of a process.

The metrics are the GC's heap, the resident and the private memory.
"""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from convert_runs import run_and_fail
from made_profiles import Log
from vmprof_convert import cli
from vmprof_convert.analysis.thresholds import parse

MIB = 2**20
#: the numbers of these metrics in made_profiles.Log.figure()
KINDS = {"rss": 1, "peak": 3, "private": 8}
Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def write_(name: str, *, run: str = "", pid: int = 10, samples: bool = True,
               **readings: list[int]) -> None:
        log = Log()
        if samples:
            log.settings(run=run or name, pid=pid)
            log.allocation([log.function("f")], size=64)
        else:
            log.raw_stack([log.function("f")], thread=5)
        for measure, values in readings.items():
            for number, value in enumerate(values):
                log.figure(KINDS[measure], 1000 + number, value * MIB)
        log.mark(10, "a")
        log.mark(2000, "b")
        (tmp_path / (name + ".vmprof")).write_bytes(log.data())
    return write_


@pytest.fixture
def folder(write: Write, tmp_path: Path) -> Path:
    """Write the runs a1, a2 and a3, and b1, b2 and b3 with a third more memory."""
    for number, more in enumerate((-1, 0, 1), 1):
        write("a%d" % number, rss=[50, 300 + more, 200], peak=[90, 120], private=[60])
        write("b%d" % number, rss=[50, 400 + more], peak=[120], private=[60])
    return tmp_path


@pytest.mark.parametrize("text, code, said", [
    ("rss > 300MB", 0, "passed: rss > 300MB: rss is 300 MiB, the largest reading\n"),
    ("rss > 299.9M", 1, "failed: rss > 299.9M: rss is 300 MiB, the largest"),
    ("peak > 119M", 1, "failed: peak > 119M: peak is 120 MiB, the largest"),
    ("peak > 120M", 0, "passed: peak > 120M"),
    ("private > 59M", 1, "failed: private > 59M: private is 60 MiB, the largest"),
])
def test_a_limit_is_evaluated_without_an_interval(
        folder: Path, capsys: pytest.CaptureFixture[str], text: str, code: int,
        said: str) -> None:
    assert cli.main(["check", "a2.vmprof", "--fail-if", text]) == code
    out = capsys.readouterr().out
    assert out.startswith(said) and "certain" not in out


@pytest.mark.parametrize("text, code, said", [
    ("rss growth > 99M", 1, "rss growth is 100 MiB; with one run per side"),
    ("rss growth > 100M", 0, "rss growth is 100 MiB\n"),
    ("rss growth > 33%", 1, "rss growth is 100 MiB; with one run per side"),
    ("rss growth > 34%", 0, "rss growth is 100 MiB\n"),
    ("rss > 399M", 1, "rss is 400 MiB, the largest reading\n"),
    ("peak growth > 0", 0, "peak growth is 0 B\n"),
])
def test_growth_from_one_run_to_another(
        folder: Path, capsys: pytest.CaptureFixture[str], text: str, code: int,
        said: str) -> None:
    assert cli.main(["diff", "a2.vmprof", "b2.vmprof", "--fail-if", text]) == code
    assert ": %s: %s" % (text, said) in unwrapped(capsys)


def unwrapped(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.replace("\n  ", " ")


SEVERAL = ["diff", *("a%d.vmprof" % number for number in (1, 2, 3)), "--against",
           *("b%d.vmprof" % number for number in (1, 2, 3))]


@pytest.mark.parametrize("text, code, said", [
    # with four degrees of freedom, 99.99 % is 13 standard errors of 0.82 MiB
    ("rss growth > 88M", 1, "failed: rss growth > 88M: rss growth is 100 MiB, 89."),
    ("rss growth > 90M", 0, "not certain"),
    ("rss growth > 28%", 1, "failed: rss growth > 28%: rss growth is 100 MiB, 8"),
    ("rss growth > 30%", 0, "not certain"),
    # one of the runs exceeded the limit
    ("rss > 400.5M", 1, "rss is 401 MiB, the largest reading"),
    ("private growth > 0", 0, "private growth is 0 B\n"),
])
def test_growth_of_several_runs_needs_more_than_their_spread(
        folder: Path, capsys: pytest.CaptureFixture[str], text: str, code: int,
        said: str) -> None:
    assert cli.main([*SEVERAL, "--fail-if", text]) == code
    out = unwrapped(capsys)
    assert said in out and "one run per side" not in out


def test_the_largest_of_several_processes_counts(
        write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write("app", run="r", rss=[100])
    write("app.11", run="r", pid=11, rss=[200])
    for limit, code in ("150M", 1), ("200M", 0):
        assert cli.main(["check", "app.vmprof", "--fail-if", "rss > " + limit]) == code
    assert cli.main(["check", "app.vmprof", "--process", "10", "--fail-if",
                     "rss > 150M"]) == 0
    capsys.readouterr()
    write("app.12", run="r", pid=12)
    assert ("cannot evaluate 'rss > 1G': resident memory was not read in process 12: "
            "choose others with --process") in run_and_fail(
                tmp_path, capsys, "check", "app.vmprof", "--fail-if", "rss > 1G")


def test_a_profile_of_time_alone_has_memory(
        write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write("time", samples=False, rss=[100])
    assert cli.main(["check", "time.vmprof", "--fail-if", "rss > 90M"]) == 1
    assert "failed: rss > 90M" in capsys.readouterr().out


@pytest.mark.parametrize("arguments, said", [
    (["check", "none.vmprof", "--fail-if", "peak > 1M"],
     "cannot evaluate 'peak > 1M': the use of the GC's heap was not read in this run"),
    (["diff", "a1.vmprof", "none.vmprof", "--fail-if", "rss growth > 1M"],
     "none.vmprof: cannot evaluate 'rss growth > 1M': resident memory was not read"),
    (["check", "a1.vmprof", "--function", "f", "--fail-if", "rss > 1M"],
     "'rss > 1M' is about whole processes: of the filters, it supports only --process "
     "and --user-code"),
    (["diff", "a1.vmprof", "--between", "a..b", "--fail-if", "rss > 1M"],
     "'rss > 1M' is about whole runs, and does not support --between"),
    (["check", "a1.vmprof", "--fail-if", "rss growth > 1M"],
     "is about two profiles"),
])
def test_refuses_conditions_that_cannot_be_evaluated(
        folder: Path, write: Write, capsys: pytest.CaptureFixture[str],
        arguments: list[str], said: str) -> None:
    write("none")
    assert said in run_and_fail(folder, capsys, *arguments)


@pytest.mark.parametrize("text, meant", [
    ("alloacted growth > 5%", "'allocated'"), ("objcts > 5", "'objects'"),
    ("rs > 5M", "'rss'"), ("peek > 5M", "'peak'")])
def test_a_misspelt_measure(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match="; there is %s$" % meant):
        parse(text)


def test_a_measure_without_a_similar_name() -> None:
    with pytest.raises(ValueError, match=r"'allocated growth > 5%'$"):
        parse("zzz > 5")
