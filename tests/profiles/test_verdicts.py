"""Tests of the meaning and the error rate of conditions (`--fail-if`)."""
from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from convert_runs import run_and_fail
from made_heap import Heap
from made_profiles import Log
from vmprof_convert import cli
from vmprof_convert.analysis import thresholds
from vmprof_convert.analysis.summary import Figures
from vmprof_convert.analysis.thresholds import judge, parse
from vmprof_convert.meaning.estimator import Sum
from vmprof_convert.meaning.lifetimes import STILL_ALIVE
from vmprof_convert.profile.probability import probability


@pytest.mark.parametrize("text, measure, is_growth, limit, is_share", [
    ("alive > 10M", "alive", False, 10 * 2**20, False),
    ("alive>1.5 MiB", "alive", False, 1.5 * 2**20, False),
    ("allocated > 100", "allocated", False, 100, False),
    (" allocated   growth > 5% ", "allocated", True, 0.05, True),
    ("alive growth > 64kB", "alive", True, 65536, False),
    ("objects > 2M", "objects", False, 2e6, False),
    ("objects growth > .5k", "objects", True, 500, False),
    ("alive growth > 0", "alive", True, 0, False),
    ("raw > 10M", "alive", False, 10 * 2**20, False),
    ("raw growth > 10 MiB", "alive", True, 10 * 2**20, False),
    ("raw  alive growth > 5%", "alive", True, 0.05, True),
    ("raw objects > 2k", "objects", False, 2000, False),
])
def test_conditions(text: str, measure: str, is_growth: bool, limit: float,
                    is_share: bool) -> None:
    found = parse(text)
    assert (found.measure, found.is_growth, found.is_share) == (
        measure, is_growth, is_share)
    assert found.is_raw == ("raw" in text)
    assert found.limit == pytest.approx(limit)
    assert found.text == " ".join(text.split())


@pytest.mark.parametrize("text", [
    "", "alive", "alive < 10M", "alive > -1", "alive > 10X", "live > 10M",
    "alive > 5%", "alive > 10M%", "objects > 5MB", "alive > 1e9", "alive > ٣",
    "alive > 10M; rm", "alive growth 5", "growth > 1M",
    "raw", "raw > 5%", "rawgrowth > 1", "raw growth", "raw rss > 1M", "raw peak > 1M",
    "raw raw > 1M", "alive raw > 1M", "raw objects > 5MB"])
def test_refuses_invalid_conditions(text: str) -> None:
    with pytest.raises(ValueError, match=r"^invalid condition .*: write allocated"):
        parse(text)


def figures(samples: int, alive: int = 0, interval: int = 1000) -> Figures:
    result = Figures(interval)
    for count, state in ((samples, "died young"), (alive, STILL_ALIVE)):
        sum_ = Sum()
        if count:
            sum_.add(64, probability(64, interval, "exponential"), count)
        result.add(state, sum_)
    return result


def judged(text: str, after: Figures, before: Figures | None = None) -> bool:
    others = [] if before is None else [before]
    verdict, = judge([parse(text)], [after], [after], others, others)
    assert str(verdict).startswith("failed: " if verdict.failed else "passed: ")
    return verdict.failed


def test_only_certain_violations_fail() -> None:
    """100 samples represent 103 ± 20 KB."""
    run = figures(0, 100)
    assert judged("alive > 60k", run)
    assert not judged("alive > 95k", run)
    assert not judged("alive > 200k", run)
    verdict, = judge([parse("alive > 95k")], [run])
    assert "it is not certain that this is less than the limit" in str(verdict)
    verdict, = judge([parse("alive > 200k")], [run])
    assert "not certain" not in str(verdict)


def test_growth() -> None:
    assert judged("allocated growth > 10k", figures(400), figures(200))
    assert not judged("allocated growth > 10k", figures(210), figures(200))
    assert judged("allocated growth > 20%", figures(4000), figures(2000))
    assert not judged("allocated growth > 20%", figures(2500), figures(2000))
    assert not judged("allocated growth > 20%", figures(0), figures(2000))
    # all growth from 0 is more than 5 %, but one sample may be chance
    assert judged("alive growth > 5%", figures(0, 100), figures(100))
    assert not judged("alive growth > 5%", figures(0, 1), figures(100))


def test_conditions_share_the_error_rate() -> None:
    assert thresholds.quantile(1) == pytest.approx(3.719, abs=1e-3)
    assert thresholds.quantile(100) > thresholds.quantile(2) > thresholds.quantile(1)


def poisson(rng: random.Random, mean: float) -> int:
    count, at = 0, rng.expovariate(1)
    while at < mean:
        count += 1
        at += rng.expovariate(1)
    return count


@pytest.mark.parametrize("mean", [2, 30, 300])
def test_a_run_at_its_limit_seldom_fails(mean: int) -> None:
    """At the limit, a run fails with a probability of 1 in 10,000."""
    rng = random.Random(3)
    limit = mean * 1000 / probability(64, 1000, "exponential") * 64 / 1000
    text = "alive > %d" % math.ceil(limit)
    wrong = sum(judged(text, figures(0, poisson(rng, mean))) for _ in range(3000))
    assert wrong <= 4


def test_equal_runs_seldom_fail() -> None:
    rng = random.Random(4)
    for mean in (5, 100):
        wrong = sum(judged("alive growth > 0", figures(0, poisson(rng, mean)),
                           figures(0, poisson(rng, mean))) for _ in range(1500))
        assert wrong <= 3


@pytest.mark.parametrize("share, turnover", [
    (0.05, 0), (0.5, 0), (1, 0), (1, 0.3), (1, 1), (3, 0.3)])
def test_a_run_that_grows_by_the_limit_seldom_fails(
        share: float, turnover: float) -> None:
    """The live bytes at the first of two moments are an estimate, too.

    0.3 of 3000 runs are expected to fail. `turnover` is the share of these bytes that
    the program frees before the second moment.
    """
    rng = random.Random(5)
    condition, wrong = parse("alive growth > %g%%" % (100 * share)), 0
    for _ in range(3000):
        went = poisson(rng, 100 * turnover)
        stayed = poisson(rng, 100 * (1 - turnover))
        came = figures(0, poisson(rng, 100 * (turnover + share)))
        verdict, = judge([condition], [came], [came], [figures(0, went)],
                         [figures(0, went + stayed)])
        wrong += verdict.failed
    assert wrong <= 4


def test_growth_of_one_run_that_is_beyond_doubt_fails() -> None:
    came, nothing, old = figures(0, 400), figures(0), figures(0, 200)
    verdict, = judge([parse("alive growth > 20%")], [came], [came], [nothing], [old])
    assert verdict.failed and str(verdict).startswith("failed: ")


# ____________________________________________________________
# the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a.vmprof with 400 KB of live objects, and b.vmprof with 800 KB."""
    monkeypatch.chdir(tmp_path)
    for name, seed, count in (("a", 1, 1000), ("b", 2, 2000)):
        heap = Heap(interval=1000, seed=seed)
        for _ in range(count):
            heap.allocate("main f", ("list", 400, 1e12))
        for _ in range(1000):
            heap.allocate("main g", ("str", 100, 10))
        heap.collect()
        (tmp_path / (name + ".vmprof")).write_bytes(heap.data())
    return tmp_path


@pytest.mark.parametrize("arguments, code, said", [
    (["check", "a.vmprof", "--fail-if", "alive > 300k"], 1,
     "failed: alive > 300k: alive is "),
    (["check", "a.vmprof", "--fail-if", "alive > 1M"], 0, "passed: alive > 1M"),
    (["check", "b.vmprof", "--fail-if", "alive > 10M", "--fail-if", "objects > 1"], 1,
     "passed: alive > 10M"),
    (["check", "b.vmprof", "--fail-if", "alive > 10", "--type", "str"], 0, "passed"),
    (["diff", "a.vmprof", "b.vmprof", "--fail-if", "alive growth > 50%"], 1,
     "failed: alive growth > 50%: alive growth is "),
    (["diff", "a.vmprof", "b.vmprof", "--fail-if", "alive > 600k"], 1,
     "failed: alive > 600k"),
    (["diff", "b.vmprof", "a.vmprof", "--fail-if", "alive growth > 0"], 0,
     "alive growth is -"),
])
def test_the_exit_code(folder: Path, capsys: pytest.CaptureFixture[str],
                       arguments: list[str], code: int, said: str) -> None:
    assert cli.main(arguments) == code
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", [
    ["check", "a.vmprof"], ["diff", "a.vmprof", "b.vmprof"],
    ["diff", "a.vmprof", "b.vmprof", "--format", "pprof"]])
def test_a_reader_that_closes_the_pipe_changes_no_verdict(
        folder: Path, command: list[str]) -> None:
    for limit, code in (("300k", 1), ("10M", 0)):
        read, write = os.pipe()
        os.close(read)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "vmprof_convert", *command, "--fail-if",
                 "alive > " + limit], cwd=folder, stdout=write,
                stderr=subprocess.PIPE, text=True)
        finally:
            os.close(write)
        assert done.returncode == code
        # stderr has the verdict if stdout has a profile
        assert done.stderr.count("\n") == (2 if "pprof" in command else 0), done.stderr
        assert "roken" not in done.stderr


def test_standard_output_that_is_closed(folder: Path) -> None:
    for command, code, said in (
            (["check", "a.vmprof"], 1, ""),
            (["diff", "a.vmprof", "b.vmprof"], 2, "vmprof-convert: cannot write to "
                                                  "standard output: it is closed\n")):
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "vmprof_convert",
             *command, "--fail-if", "alive > 300k"], cwd=folder,
            stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (code, said)


def test_verdicts_with_a_profile_on_stdout_need_no_stderr(folder: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-m", "vmprof_convert",
         "diff", "a.vmprof", "b.vmprof", "--format", "collapsed", "-o", "-",
         "--fail-if", "alive > 300k"], cwd=folder, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "failed" not in done.stdout
    assert "main" in done.stdout


def test_a_failed_condition_does_not_prevent_the_output_file(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "a.vmprof", "b.vmprof", "-o", "x.pb.gz", "--fail-if",
                     "alive growth > 50%"]) == 1
    assert (folder / "x.pb.gz").exists()
    assert "failed: alive growth" in capsys.readouterr().out


def test_refuses_conditions_that_cannot_be_evaluated(
        folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    log.settings(gaps="fixed")
    log.allocation([log.function("f")], size=24)
    (folder / "fixed.vmprof").write_bytes(log.data())
    log = Log()
    log.settings()
    log.allocation([log.function("f")], size=24)
    (folder / "old.vmprof").write_bytes(log.data())
    stock = Log(interpreter="cpython")
    stock.raw_stack([stock.function("f")], thread=5)
    (folder / "stock.vmprof").write_bytes(stock.data())
    for name, condition, said in (
            ("fixed", "objects > 1", "the errors of its figures are unknown"),
            ("old", "alive > 1", "taken without lifetimes"),
            ("stock", "objects > 1", "no allocation samples, which --fail-if needs"),
            ("a", "alive growth > 1", "about two profiles, or two moments")):
        assert said in run_and_fail(folder, capsys, "check", name + ".vmprof",
                                    "--fail-if", condition)
