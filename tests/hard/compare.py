"""Run suites of tests with and without sampling, and compare each test's outcome."""
from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from builds import Build
from suites import EXPLAINED, Suite
from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Carried, Columns

RUN_MODULE = Path(__file__).with_name("run_module.py")
#: number of further runs of a suite with different outcomes
AGAIN = 2

#: outcomes by the ids of tests; the keys "(process)" and "(profile)" have the results
#: of the process and of the profile
Outcomes = dict[str, str]
#: value of Profile.ended if the process called os._exit()
OS_EXIT = "the program called os._exit()"
NO_END = "no end in time"


@dataclasses.dataclass
class Difference:
    """A test with different outcomes, and its outcomes in all runs."""

    test: str
    plain: list[str]
    sampled: list[str]

    @property
    def is_flaky(self) -> bool:
        """Whether the test is flaky.

        It is if its outcome once was the same with and without sampling, or if it
        varies without sampling.
        """
        return (any(a == b for a, b in zip(self.plain, self.sampled))
                or len(set(self.plain)) > 1)

    @property
    def kind(self) -> str:
        if self.is_flaky:
            return "flaky"
        return "explained" if self.test in EXPLAINED else "differs"

    def __str__(self) -> str:
        text = "``%s``: %s, sampled: %s" % (
            self.test, "/".join(self.plain), "/".join(self.sampled))
        if self.kind == "explained":
            text += " (%s)" % EXPLAINED[self.test]
        return text


@dataclasses.dataclass
class Comparison:
    """The outcomes of a suite without sampling, and the differences with sampling."""

    suite: Suite
    plain: Outcomes
    #: differences by interval; empty if the run without sampling did not end
    differences: dict[str, list[Difference]]
    samples: dict[str, int]

    def notes(self, kind: str) -> list[tuple[str, Difference]]:
        """Return the differences of this kind, each with its interval."""
        return [(interval, difference)
                for interval, differences in self.differences.items()
                for difference in differences if difference.kind == kind]


def tests(outcomes: Outcomes) -> list[str]:
    """Return the ids of the tests, without the process and the profile."""
    return [test for test in outcomes if not test.startswith("(")]


def run(build: Build, suite: Suite, interval: str = "",
        keep: Path | None = None) -> tuple[Outcomes, int]:
    """Run a suite once, and return its outcomes.

    Args:
        build: The PyPy.
        suite: The suite.
        interval: Mean bytes between two samples, or "" for a run without sampling.
        keep: Receives the output of the tests.

    Returns:
        The outcomes and the number of samples.
    """
    with tempfile.TemporaryDirectory(prefix="hard") as scratch:
        folder = Path(scratch)
        (folder / "tmp").mkdir()
        profile = folder / "out.vmprof"
        sampling: list[str | Path] = [
            "-m", "vmprof", "--allocation-sampling", interval, "-o", profile]
        log = folder / "log"
        with open(log, "wb") as file:
            code = execute(
                build.command(*(sampling if interval else []), RUN_MODULE,
                              folder / "outcomes", *suite.arguments),
                folder, file.fileno(),
                build.source(suite.name) if suite.source else folder / "tmp",
                build.timeout)
        outcomes = read_outcomes(folder / "outcomes")
        outcomes["(process)"] = code
        samples = 0
        if interval and code != NO_END:
            outcomes["(profile)"], samples = read_profile(profile)
        if keep is not None:
            keep.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, keep)
    return outcomes, samples


def execute(command: list[str], home: Path, output: int, folder: Path,
            timeout: float) -> str:
    """Run a command, and return how the process ended."""
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
        stderr=output, start_new_session=True, env={
            "PATH": os.environ["PATH"], "HOME": str(home),
            "TMPDIR": str(home / "tmp"), "LANG": "C.UTF-8",
            "XDG_CACHE_HOME": str(home.parent / "hard-cache"),
            "PYPY_GC_NURSERY": "4M", "PYTHONHASHSEED": "0"})
    try:
        code = process.wait(timeout)
        return "exit code %d" % code if code >= 0 else "signal %d" % -code
    except subprocess.TimeoutExpired:
        return NO_END
    finally:
        # this also ends processes that the tests have left
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def read_outcomes(path: Path) -> Outcomes:
    """Read the file of outcomes that run_module.py writes.

    A test with failed subtests, or a repeated test, may have several outcomes, which
    are joined by "+".
    """
    found: dict[str, set[str]] = {}
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            outcome, _, test = line.partition(" ")
            found.setdefault(test, set()).add(outcome)
    return {test: "+".join(sorted(all)) for test, all in found.items()}


class Count:
    """Counts the samples of a profile, of which a table could need too much memory."""

    def __init__(self) -> None:
        self.samples = 0

    def begin(self, settings: dict[str, str]) -> None:
        self.samples = 0

    def extend(self, rows: Columns) -> None:
        self.samples += len(rows.time)

    def carry(self, object_: Carried) -> None:
        pass


def read_profile(path: Path) -> tuple[str, int]:
    """Return the fault of a profile, or "whole", and the profile's number of samples.
    """
    count = Count()
    try:
        profile = readers.read_into(path, count)
    except (OSError, ProfileError) as e:
        return str(e), 0
    # gevent's tests call os._exit() if they take too long
    if profile.end_time is None and profile.ended != OS_EXIT:
        return "no end", count.samples
    surprises = profile.moments[-1].surprises if profile.moments else 0
    if surprises:
        return "%d surprises" % surprises, count.samples
    return "whole", count.samples


def compare(build: Build, suite: Suite) -> Comparison:
    """Run a suite with and without sampling, and repeat the runs if outcomes differ."""
    def kept(what: str) -> Path:
        return build.folder / "logs" / ("%s.%s" % (suite.name, what))

    plain, _ = run(build, suite, keep=kept("plain"))
    result = Comparison(suite, plain, {}, {})
    # a run without sampling has no profile, which is not a difference
    expected = {"(profile)": "whole"}
    for interval in suite.intervals:
        if plain["(process)"] == NO_END:
            continue
        sampled, samples = run(build, suite, interval, kept(interval))
        result.samples[interval] = samples
        runs = [({**expected, **plain}, sampled)]
        differing = differ(*runs[0])
        for _ in range(AGAIN if differing else 0):
            # first with and then without sampling: files that tests leave may matter
            sampled, _samples = run(build, suite, interval, kept(interval))
            runs.append(({**expected, **run(build, suite)[0]}, sampled))
        result.differences[interval] = [
            Difference(test, [a.get(test, "none") for a, _ in runs],
                       [b.get(test, "none") for _, b in runs])
            for test in differing]
    return result


def differ(plain: Outcomes, sampled: Outcomes) -> list[str]:
    """Return the ids of the tests with different outcomes in two runs."""
    return sorted(test for test in plain.keys() | sampled.keys()
                  if plain.get(test) != sampled.get(test))
