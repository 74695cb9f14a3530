"""Test the first submission to RPython about allocations, by a translated program.

Its patches record samples with size, type and stack in vmprof's own buffers. The
program is python2/targetsamples.py, translated without the recorder. It makes objects
of 16 bytes, and samples are 1000 bytes apart on average.
"""
from __future__ import annotations

import collections
import subprocess
import sys
from pathlib import Path

import pytest
from test_rpython_rvmprof import INTERVAL, SIZE, near, objects

from rpython_tree import EARLY_SAMPLE_WARNINGS, built, python2
from vmprof_convert import readers
from vmprof_convert.meaning.estimator import weight_bytes
from vmprof_convert.profile.model import Profile

pytestmark = pytest.mark.translated


def run(name: str, folder: Path) -> tuple[Profile, list[str]]:
    path = folder / "out.vmprof"
    done = subprocess.run([built("samples"), name, path], text=True,
                          capture_output=True, timeout=120,
                          env={"PYPY_GC_NURSERY": "1M"})
    assert done.returncode == 0, done.stderr
    takes_time_samples = name in ("both", "threads")
    assert set(done.stderr.splitlines()) <= (
        EARLY_SAMPLE_WARNINGS if takes_time_samples else set())
    return readers.read(path), done.stdout.splitlines()


def test_allocation_samples_with_time_samples(tmp_path: Path) -> None:
    profile, _ = run("both", tmp_path)
    found = objects(profile)
    assert all(near(found["f%d" % i], 100000) for i in range(10))
    ticks = collections.Counter(
        profile.function(profile.stacks[stack][-1].address).name
        for stack, size in zip(profile.samples.stack, profile.samples.size) if not size)
    assert all(ticks["g%d" % i] for i in range(10))
    # The records have no times of CPU samples. The reader gives each CPU sample the
    # time of the previous allocation sample.
    times = [time for time, size in zip(profile.samples.time, profile.samples.size)
             if not size]
    assert min(times) >= 0 and times == sorted(times) and len(set(times)) >= 5
    assert profile.settings["interval"] == "1000" and profile.misfits == 0


def test_sizes_and_types(tmp_path: Path) -> None:
    profile, out = run("types", tmp_path)
    assert out == ["2001"]
    layouts: dict[str, float] = collections.defaultdict(float)
    for size, type_ in zip(profile.samples.size, profile.samples.type):
        assert type_ >= 0
        layouts[profile.types[type_].layout] += weight_bytes(
            size, INTERVAL, "exponential")
    (node,) = (name for name in layouts if "Node" in name)
    (array,) = (name for name in layouts if name.startswith("GcArray of Signed"))
    assert layouts[node] == pytest.approx(50000 * SIZE, rel=0.1)
    assert layouts[array] == pytest.approx(2000 * 8016 + 8000016, rel=0.1)
    (moment,) = profile.moments
    # The sum of the estimates agrees with the GC's count.
    assert sum(layouts.values()) == pytest.approx(moment.allocated, rel=0.02)
    assert profile.missing == 0


def test_deep_stacks_are_cut(tmp_path: Path) -> None:
    profile, _ = run("deep", tmp_path)
    depths = {profile.function(stack[-1].address).name: len(stack)
              for stack in profile.stacks}
    # A record has room for 508 frames, including the function that allocates.
    assert depths == {"deep10": 11, "deep500": 501, "deep600": 508, "deep3000": 508}
    assert profile.cut_stacks > 300 and profile.misfits == 0
    found = objects(profile)
    assert all(near(found[name], 20000) for name in depths)


def test_no_samples_while_sampling_is_stopped(tmp_path: Path) -> None:
    profile, _ = run("stops", tmp_path)
    found = objects(profile)
    assert near(found["before"], 100000) and near(found["after"], 100000)
    assert "between" not in found and "disabled" not in found
    # The GC counted the bytes while the sampling was stopped, and the reader computes
    # the number of missing samples.
    assert abs(profile.missing - 100000 * SIZE / INTERVAL) < 300


def test_threads(tmp_path: Path) -> None:
    profile, _ = run("threads", tmp_path)
    found = objects(profile)
    assert all(near(found["thread%d" % i], 300000) for i in range(3))
    assert len({thread for thread, size in zip(
        profile.samples.thread, profile.samples.size) if size}) >= 3


def test_a_forked_child_leaves_the_profile_alone(tmp_path: Path) -> None:
    profile, _ = run("forks", tmp_path)
    found = objects(profile)
    assert near(found["before"], 50000) and near(found["after"], 50000)
    assert "child" not in found


def test_refused_calls_change_nothing(tmp_path: Path) -> None:
    profile, out = run("refused", tmp_path)
    assert out == ["allocation samples: " + text for text in (
        "bad value: 'interval=0'", "bad value: 'interval=x'",
        "bad value: 'interval=4611686018427387905'", "no interval: 'seed=1'",
        "bad value: 'color=red'", "bad value: 'interval'", "bad value: ''",
        "bad value: 'seed=-1'")] + ["bad value for 'interval'"]
    assert near(objects(profile)["work"], 100000)


def test_the_report_has_error_bars(tmp_path: Path) -> None:
    run("types", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "vmprof_convert", "report",
         tmp_path / "out.vmprof"], text=True,
        capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "±" in done.stdout and "keep" in done.stdout
    assert "the GC itself counted" in done.stdout


def test_its_own_tests() -> None:
    tree = built("samples").parent / "tree-samples"
    done = python2(tree, "-m", "pytest", "-p", "no:cacheprovider",
                   "rpython/rlib/rvmprof/test/test_allocations.py", cwd=tree)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "19 passed" in done.stdout
