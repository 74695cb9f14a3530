"""Test that the study in benchmarks/ runs, from the command line to the plots.

The tests check no measured times, because these need an idle machine.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import measuring
from experiments import costs, fresh
from rpython_tree import built

# One worker of pytest runs all tests of this module, so that the study runs once.
pytestmark = pytest.mark.xdist_group("study")

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "benchmarks" / "study.py"
EXPERIMENTS = ("depth", "fresh", "toolchain", "costs", "profilers", "lifetimes",
               "lines", "builtin", "held", "memory", "raw_memory",
               "formats", "accuracy", "coverage",
               "verdicts")
#: the experiments that take longest
LONG = ("service", "equal_runs", "liveness")
#: The profilers that write no file.  pyroscope sends its samples to a server, which
#: does not exist here.
WRITE_NOTHING = {"off", "pyroscope, heap, 512k"}


def study(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, STUDY, *arguments], text=True,
                          capture_output=True, timeout=900)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for program in "guest", "guest-jit":
        built(program)
    folder = tmp_path_factory.mktemp("study")
    done = study("--quick", "--output", folder)
    assert done.returncode == 0, done.stderr
    return folder


def check(quick: Path, name: str) -> None:
    kept = json.loads((quick / (name + ".json")).read_text())
    assert kept["quick"] is True
    assert kept["environment"]["cpus"] > 0
    text = (quick / (name + ".txt")).read_text()
    assert "nan" not in text and len(text.splitlines()) > 4
    assert (quick / (name + ".png")).read_bytes().startswith(b"\x89PNG")


@pytest.mark.hard
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_leaves_figures_tables_and_plots(quick: Path,
                                                         name: str) -> None:
    check(quick, name)


@pytest.mark.hard
@pytest.mark.parametrize("name", LONG)
def test_each_long_experiment_runs(tmp_path: Path, name: str) -> None:
    done = study("--quick", "--output", tmp_path, name)
    assert done.returncode == 0, done.stderr
    check(tmp_path, name)


@pytest.mark.hard
def test_all_configurations_took_their_samples(quick: Path) -> None:
    costs = json.loads((quick / "costs.json").read_text())["results"]
    for processes in costs["programs"].values():
        for segment in processes[0]:
            name = segment["configuration"]
            assert segment["wall"] > 0
            if name in ("32k", "fixed:128k"):
                assert segment["samples"] > 0 and segment["lost"] == 0
            assert segment.get("time_samples", 0) == 0 or name.startswith("both")


@pytest.mark.hard
def test_all_profilers_ran(quick: Path) -> None:
    results = json.loads((quick / "profilers.json").read_text())["results"]
    for python, count in (("PyPy", 10), ("CPython", 8)):
        assert len({row["profiler"] for row in results[python]}) == count
        assert all(row["profile"] > 0 for row in results[python]
                   if "nothing" not in row["profiler"]
                   and row["profiler"] not in WRITE_NOTHING)


@pytest.mark.hard
def test_tables_and_plots_can_be_made_again(quick: Path) -> None:
    before = {path.name: path.read_text() for path in quick.glob("*.txt")}
    done = study("--again", "--output", quick)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_text()
            for path in quick.glob("*.txt")} == before


def test_results_in_the_repository_are_of_a_full_run() -> None:
    folder = ROOT / "benchmarks" / "results"
    for name in (*EXPERIMENTS, *LONG):
        kept = json.loads((folder / (name + ".json")).read_text())
        assert kept["quick"] is False
        assert (folder / (name + ".txt")).exists()


@pytest.mark.parametrize("arguments,said", [
    (("speed",), "the experiment 'speed' is not known"),
    (("--again", "costs"), "costs.json is not there"),
])
def test_bad_arguments(tmp_path: Path, arguments: tuple[str, ...],
                       said: str) -> None:
    done = study("--output", tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


def test_interpreter_that_is_not_there(tmp_path: Path) -> None:
    done = study("--output", tmp_path, "--pypy", tmp_path / "none", "depth")
    assert done.returncode == 1
    assert "none" in done.stderr and not (tmp_path / "depth.json").exists()


def test_median_and_its_interval() -> None:
    found = measuring.estimate([1.0, 2.0, 3.0, 4.0, 100.0] * 4)
    assert found.median == 3 and 1 < found.low <= 3 <= found.high < 100
    assert measuring.estimate([7.0]) == measuring.Estimate(7, 7, 7)
    assert found.includes(3) and not found.includes(99)


def test_a_segment_is_compared_with_the_plain_ones_around_it() -> None:
    def segments(*rows: tuple[str, float]) -> list[dict[str, object]]:
        return [{"configuration": name, "wall": wall, "pass": 0}
                for name, wall in rows]

    found = costs.ratios([segments(
        ("plain", 1), ("32k", 3), ("1M", 2), ("plain", 2), ("32k", 6),
        ("plain", 6))])
    assert found["32k"] == [3 / 1.5, 6 / 4]
    assert found["1M"] == [2 / 1.5]
    assert found["off"] == [2 / 3.5]


def test_a_fresh_process_is_compared_with_those_that_had_as_many_collections() -> None:
    def rows(rate: str, *pairs: tuple[int, float]) -> list[dict[str, object]]:
        return [{"rate": rate, "minors": minors, "cpu": cpu}
                for minors, cpu in pairs]

    found = [*rows("plain", (4001, 1.0), (3999, 2.0), (4700, 5.0)),
             *rows("again", (4002, 4.0)), *rows("1G", (4010, 3.0), (4700, 9.0))]
    assert fresh.matched(found, "1G") == [3 / 2.0]
    # Only two plain processes had about as many collections, which is too few.
    assert fresh.matched(found, "again") == []
    found += rows("plain", (4003, 3.0))
    assert fresh.matched(found, "again") == [4 / 2.0]
