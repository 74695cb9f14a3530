"""Tests that compare the reader with vmprof-firefox-converter.

Users of PyPy know this package. Both have to find the same samples in the same
profiles, such as the examples of the package. `make bench` and `make test` install the
package in a separate environment.
"""
from __future__ import annotations

import collections
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from made_profiles import PID, Log
from vmprof_convert import cli, readers

PYTHON = Path(__file__).parents[2] / ".build" / "bench-cpython" / "bin" / "python"
WHERE = ("import os, vmprofconvert; print(os.path.join(os.path.dirname("
         "vmprofconvert.__file__), 'test', 'profiles'))")
CONVERT = ("import sys, vmprofconvert; sys.stdout.write("
           "vmprofconvert.convert_stats(sys.argv[1]))")

#: the examples of the package
EXAMPLES = ("example.prof", "example_with_lines.prof", "multithread_example.prof",
            "pypy-pystone.prof", "vmprof_cpuburn.prof")

Stacks = collections.Counter[tuple[str, ...]]

pytestmark = pytest.mark.slow


def theirs(path: Path) -> Stacks:
    """Return the number of samples of each stack of names, found by the package."""
    done = subprocess.run([PYTHON, "-c", CONVERT, path], text=True, check=True,
                          capture_output=True)
    result: Stacks = collections.Counter()
    for thread in json.loads(done.stdout)["threads"]:
        strings = thread["stringArray"]
        for stack in thread["samples"]["stack"]:
            names = []
            while stack is not None:
                function = thread["frameTable"]["func"][
                    thread["stackTable"]["frame"][stack]]
                names.append(strings[thread["funcTable"]["name"][function]])
                stack = thread["stackTable"]["prefix"][stack]
            result[tuple(reversed(names))] += 1
    return result


def ours(path: Path) -> Stacks:
    profile = readers.read(path)
    return collections.Counter(
        tuple(profile.function(frame.address).name
              for frame in profile.stacks[stack])
        for stack in profile.samples.stack)


@pytest.fixture(scope="session")
def examples() -> Iterator[Path]:
    done = subprocess.run([PYTHON, "-c", WHERE], text=True, check=True,
                          capture_output=True)
    yield Path(done.stdout.strip())


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_package(examples: Path, tmp_path: Path, name: str) -> None:
    found = ours(examples / name)
    assert sum(found.values()) == sum(theirs(examples / name).values())
    assert cli.main(["export", str(examples / name), "-o",
                     str(tmp_path / "out.json")]) == 0


@pytest.mark.parametrize("name, has_lines", [
    ("example_with_lines.prof", True), ("example.prof", False)])
def test_only_profiles_without_executed_lines_have_a_note(
        examples: Path, capsys: pytest.CaptureFixture[str], name: str,
        has_lines: bool) -> None:
    assert cli.main(["report", str(examples / name), "--by", "line", "--notes"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert ("these are the first lines of the functions" in out) is not has_lines
    assert ("example.py:3" in out) is has_lines


def test_example_of_the_package_with_the_time_before_each_stack(examples: Path) -> None:
    """The package itself does not read this example."""
    profile = readers.read(examples / "cpuburn.cpython.tsprof")
    assert len(profile.samples) == 3043
    # the package's own test has these seconds; the first sample is at 0
    assert profile.samples.time[-1] / 1e9 == pytest.approx(
        30.430785875 - 0.010832965, abs=1e-6)


def test_profiles_with_random_stacks(tmp_path: Path) -> None:
    """Our reader and the package find the same number of samples of each stack."""
    draw = random.Random(1)
    log = Log(period=1000)
    log.meta("os", "linux")
    log.meta("bits", "64")
    functions = [log.function("f%d" % i, i + 1, "app%d.py" % (i % 3))
                 for i in range(20)]
    for _ in range(500):
        log.raw_stack(log.words([draw.choice(functions)
                                 for _ in range(draw.randint(1, 30))]),
                      draw.choice([PID, PID + 1]))
    path = tmp_path / "app.prof"
    path.write_bytes(log.data())
    assert ours(path) == theirs(path)
