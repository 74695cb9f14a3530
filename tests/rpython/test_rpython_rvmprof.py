"""Test that rvmprof with the patches survives difficult moments without side effects.

The program is python2/targetscenarios.py, translated. It makes objects of 16 bytes, and
samples are 1000 bytes apart on average.
"""
from __future__ import annotations

import collections
import subprocess
from pathlib import Path

import pytest

from rpython_tree import EARLY_SAMPLE_WARNINGS, built
from truth import SIGMAS, sigma
from vmprof_allocation.engines.builtin.engine import BuiltinEngine
from vmprof_convert import readers
from vmprof_convert.meaning.estimator import weight_objects
from vmprof_convert.profile.model import ALIVE, DIED, PENDING, Profile

pytestmark = pytest.mark.translated

SIZE, INTERVAL = 16, 1000


class Run:
    def __init__(self, folder: Path):
        self.folder = folder
        self.code = -1
        self.out: list[str] = []
        self.err = ""

    def __call__(self, name: str, files: int = 1) -> None:
        done = subprocess.run(
            [built("scenarios"), name, *(self.path(i) for i in range(files))],
            text=True, capture_output=True, timeout=120,
            env={"PYPY_GC_NURSERY": "1M"})
        self.code, self.err = done.returncode, done.stderr
        self.out = done.stdout.splitlines()

    def path(self, number: int) -> Path:
        return self.folder / ("%d.vmprof" % number)

    def profile(self, number: int = 0) -> Profile:
        return readers.read(self.path(number))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def objects(profile: Profile) -> dict[str, float]:
    """Return the estimated number of objects by function.

    Samples without a stack have the name "lost".
    """
    result: dict[str, float] = collections.defaultdict(float)
    samples = profile.samples
    for stack, size, interval in zip(samples.stack, samples.size,
                                     samples.interval):
        if size == SIZE:
            name = "lost" if stack < 0 else profile.function(
                profile.stacks[stack][-1].address).name
            result[name] += weight_objects(size, interval, profile.gaps)
    return dict(result)


def near(estimate: float, count: int, interval: int = INTERVAL) -> bool:
    return abs(estimate - count) <= SIGMAS * sigma(count, SIZE, interval) / SIZE


def test_plain(run: Run) -> None:
    run("plain")
    assert (run.code, run.out, run.err) == (0, [], "")
    profile = run.profile()
    assert profile.settings["engine"] == "builtin"
    assert profile.settings["capabilities"].split(",") == list(
        BuiltinEngine(None).capabilities())
    assert profile.end_time is not None
    found = objects(profile)
    assert set(found) == {"work"}
    assert near(found["work"], 100000)


def test_nothing_is_young_at_the_end(run: Run) -> None:
    """disable() runs a collection, so that all objects have types and outcomes."""
    run("plain")
    samples = run.profile().samples
    assert set(samples.fate) <= {DIED, ALIVE}
    assert min(samples.type) >= 0


def test_moments_have_names(run: Run) -> None:
    run("marks")
    assert (run.code, run.out, run.err) == (0, [], "")
    profile = run.profile()
    names = [mark.name for mark in profile.marks]
    assert [name[:6] for name in names] == ["begun", "\xe4\ufffd;:xx", ""]
    # The name of the second mark was longer, and was cut.
    assert 1000 < len(names[1]) <= 1024
    first, second, third = (mark.time for mark in profile.marks)
    samples = list(profile.samples.time)
    assert first <= samples[0] < samples[-1] <= second <= third


def test_errno_is_kept(run: Run) -> None:
    run("keeps_errno")
    assert (run.code, run.out) == (0, ["errno was lost 0 times"])
    assert len(run.profile().samples) > 1000


def test_no_code_path_leaves_the_signals_ignored(run: Run) -> None:
    run("signals")
    # During the sampling, SIGPROF has a handler.  Afterwards, its earlier action is
    # restored.
    assert run.out == ["SIGPROF 0", "SIGPROF 2", "SIGPROF 0"]
    profile = run.profile()
    by_function: dict[str, set[bool]] = collections.defaultdict(set)
    for stack, size in zip(profile.samples.stack, profile.samples.size):
        name = profile.function(profile.stacks[stack][-1].address).name
        by_function[name].add(size > 0)
    # All functions that allocate have allocation samples, and CPU samples are taken
    # until the end.
    assert all(True in by_function["f%d" % i] for i in range(20))
    assert all(False in by_function["g%d" % i] for i in range(20))
    assert profile.settings["period"] == "0.001"
    times = list(profile.samples.time)
    assert min(times) >= 0


def test_without_a_period_no_signal_is_touched(run: Run) -> None:
    run("no_time_samples")
    assert run.out == ["SIGPROF 0"]
    profile = run.profile()
    assert profile.settings["period"] == ""
    assert 0 not in profile.samples.size


def test_stop_and_start_neither_end_nor_revive_the_sampling(run: Run) -> None:
    run("stops", 2)
    assert (run.code, run.err) == (0, "")
    found = objects(run.profile())
    assert set(found) == {"before", "lost", "after"}
    # Bytes that are allocated while the sampling is stopped are counted, but not
    # sampled.
    assert all(near(count, 100000) for count in found.values())
    assert run.profile().moments[-1].lost == run.profile().lost_stacks
    found = objects(run.profile(1))
    assert set(found) == {"again"}
    assert near(found["again"], 100000)


def test_one_profile_after_another(run: Run) -> None:
    run("again", 3)
    assert run.code == 0
    for number in range(3):
        profile = run.profile(number)
        found = objects(profile)
        assert set(found) == {"run%d" % number, "slower"}
        assert near(found["run%d" % number], 50000)
        assert near(found["slower"], 50000, 2 * INTERVAL)
        # Each sample has the interval at its own time, not the first or last interval.
        assert set(profile.samples.interval) == {INTERVAL, 2 * INTERVAL}


def test_profiles_that_vmprof_stops_and_disables(run: Run) -> None:
    """Profiles are complete although vmprof's disable() never calls start_sampling().

    Three of the profiles have CPU samples only, and three have allocation samples, too.
    """
    run("disabled_as_vmprof_does", 6)
    assert set(run.err.splitlines()) <= EARLY_SAMPLE_WARNINGS
    assert run.code == 0
    for number in range(6):
        profile = run.profile(number)
        found = {profile.function(profile.stacks[stack][-1].address).name
                 for stack, size in zip(profile.samples.stack,
                                        profile.samples.size) if size == 0}
        assert found == {"run%d" % number}
        assert (profile.settings != {}) == (number >= 3)
        assert profile.lost_stacks == 0


def test_bad_intervals_are_refused_and_change_nothing(run: Run) -> None:
    run("bad_values")
    assert run.code == 0
    wrong = ("bad value for 'allocation_interval': %d, must be 1 to "
             "4611686018427387904")
    asked = ("allocation samples: bad value for 'interval': %d, must be 1 to "
             "4611686018427387904")
    assert run.out == [
        "change 1000: allocations are not being sampled",
        "disable 0: vmprof is not enabled",
        "enable -1: " + asked % -1,
        "enable 4611686018427387905: " + asked % (2**62 + 1),
        "enable 1000: vmprof is already enabled",
        "change 0: " + wrong % 0,
        "change -5: " + wrong % -5,
        "change 4611686018427387905: " + wrong % (2**62 + 1),
        "change 4611686018427387904: done",
        "change 1000: allocations are not being sampled"]
    profile = run.profile()
    assert near(objects(profile)["work"], 100000)
    assert set(profile.samples.interval) == {INTERVAL}


def test_a_forked_child_leaves_the_profile_alone(run: Run) -> None:
    run("forks", 2)
    assert (run.code, run.out) == (0, ["child 0"])
    profile = run.profile()
    found = objects(profile)
    assert set(found) == {"before", "after"}
    assert all(near(count, 100000) for count in found.values())
    # The child can record its own profile.
    child = run.profile(1)
    assert near(objects(child)["child"], 100000)
    assert child.settings["pid"] != profile.settings["pid"]


def test_a_forked_child_can_take_time_samples(run: Run) -> None:
    run("child_takes_time_samples", 2)
    assert run.out == ["child 0"]
    child = run.profile(1)
    assert child.settings == {}
    assert len(child.samples) > 5


def test_a_forked_child_can_fork(run: Run) -> None:
    run("child_forks")
    assert run.out == ["child 0"]
    assert set(run.err.splitlines()) <= EARLY_SAMPLE_WARNINGS


def test_threads(run: Run) -> None:
    run("threads")
    assert run.code == 0
    profile = run.profile()
    found = objects(profile)
    assert sum(near(count, 300000) for name, count in found.items()
               if name.startswith("thread")) == 3
    threads: dict[str, set[int]] = collections.defaultdict(set)
    for stack, thread in zip(profile.samples.stack, profile.samples.thread):
        if stack >= 0:      # STACK_LOST before the thread's first frame
            name = profile.function(profile.stacks[stack][-1].address).name
            threads[name].add(thread)
    assert threads["main"] == {int(profile.settings["pid"])}
    assert len({thread for name in found if name != "main"
                for thread in threads.get(name, ())}) == 3


def test_switches_between_stacks(run: Run) -> None:
    run("switches")
    assert (run.code, run.err) == (0, "")
    found = objects(run.profile())
    assert set(found) == {"outside", "inside", "lost"}
    assert near(found["outside"], 100000)
    # The function "inside" ran 51 times.  While the sampling was stopped, it ran
    # another 49 times, and its samples had no stack.
    assert near(found["inside"], 51000)
    assert near(found["lost"], 49000)


def test_pinned_objects_are_samples_too(run: Run) -> None:
    """Pinned objects do not move in ten collections, and are sampled.

    The objects around them are sampled with the usual probability.
    """
    run("pinned")
    assert (run.code, run.err) == (0, "")
    assert run.out == ["1 as it was"] * 3 + ["150000 characters"]
    profile = run.profile()
    assert profile.misfits == 0
    samples = profile.samples
    pinned = [size // 1000 for size, fate in zip(samples.size, samples.fate)
              if fate in (ALIVE, PENDING) and size > 50_000]
    assert pinned == [50] * 3
    assert near(objects(profile)["around"], 501000)


def test_killed_process_leaves_its_samples(run: Run) -> None:
    run("ends_without_disable")
    assert run.code == 3
    profile = run.profile()
    assert profile.end_time is None
    found = objects(profile)
    assert set(found) == {"work"}           # The function's name was written, too.
    assert near(found["work"], 300000)


def test_a_file_that_the_program_closed_is_not_written_to(run: Run) -> None:
    run("closed_file", 2)
    assert run.out == ["same number", "disable 0: Bad file descriptor"]
    assert run.path(1).read_bytes() == b"mine"


def test_nothing_goes_to_stdout(run: Run) -> None:
    for name in "plain", "stops", "threads":
        run(name, 2)
        assert run.out == []


@pytest.mark.hard
def test_a_program_without_vmprof_does_not_link_vmprof() -> None:
    symbols = subprocess.run(
        ["nm", built("gcbench-patched")],
        text=True, capture_output=True, check=True).stdout
    assert "SamplePoint" in symbols
    for name in "vmprof", "recorder", "profile_log":
        assert name not in symbols, name
