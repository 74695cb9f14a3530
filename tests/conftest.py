"""Fixtures that run real programs in a real PyPy, with or without the sampler.

The interpreter is the PyPy of .venv-pypy, which `make` creates. To test another build
of PyPy, set the environment variable PYPY to an interpreter with our package. The build
may have a builtin engine.

pytest.ini describes the markers of the tests.
"""
from __future__ import annotations

import dataclasses
import functools
import gc
import json
import os
import signal
import subprocess
import textwrap
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import installed
import native_build
import opened_page
from vmprof_convert import readers
from vmprof_convert.profile.model import Profile

ROOT = Path(__file__).parent.parent
PYPY = os.path.abspath(os.environ.get(
    "PYPY", str(ROOT / ".venv-pypy" / "bin" / "pypy3")))
CACHE = os.environ.get("XDG_CACHE_HOME", str(ROOT / ".build" / "cache"))
#: root folder of an emulated machine's PyPy (tests/emulated/arm64.py)
EMULATED_ROOT = Path(PYPY).with_name("root")
EMULATED = EMULATED_ROOT.exists()
not_emulated = pytest.mark.skipif(
    EMULATED, reason="the emulator is no kernel, and its Debian has no pip")

#: marker that a test gets if it uses the fixture, by the fixture's name
MARKERS = {"pypy": "pypy", "pprof": "go", "speedscope_schema": "node",
           "opened": "node", "page": "node", "wheels": "slow",
           "pushers": "slow"}


def pytest_configure(config: pytest.Config) -> None:
    # tests send SIGINT, which is ignored if a shell script has started pytest with "&"
    signal.signal(signal.SIGINT, signal.default_int_handler)
    is_worker = hasattr(config, "workerinput")
    if not is_worker and (problem := installed.problems(
            PYPY, is_ours="PYPY" not in os.environ)):
        raise pytest.UsageError(problem)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    opened_page.is_allowed = item.get_closest_marker("node") is not None


def minutes(item: pytest.Item) -> float:
    """Return the minutes of a test's marker `long`, or 0."""
    long = item.get_closest_marker("long")
    return float(long.args[0]) if long else 0.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests so that all workers finish at about the same time.

    Tests with the marker `long` come first, the longest at the beginning. Tests of
    translated programs come after two thirds of the others, because `make` first has to
    translate the programs. They do not come last, because one of them takes three
    minutes.
    """
    for item in items:
        for fixture in getattr(item, "fixturenames", ()):
            if fixture in MARKERS:
                item.add_marker(MARKERS[fixture])
    translated = [item for item in items
                  if item.get_closest_marker("translated") and not minutes(item)]
    later = set(translated)
    items[:] = sorted((item for item in items if item not in later),
                      key=minutes, reverse=True)
    two_thirds = len(items) * 2 // 3
    items[two_thirds:two_thirds] = translated


def pytest_collection_finish() -> None:
    # about 5,000 collected tests stay alive, so this process's GC need not examine them
    gc.collect()
    gc.freeze()


SPEEDSCOPE_SCHEMA = (ROOT / ".node" / "node_modules" / "speedscope" / "dist" / "release"
          / "file-format-schema.json")


@pytest.fixture
def speedscope_schema() -> dict[str, Any]:
    """Return the schema of speedscope's files from the npm package speedscope."""
    if not SPEEDSCOPE_SCHEMA.exists():
        pytest.fail("%s is missing: run `make test`, which installs it"
                    % SPEEDSCOPE_SCHEMA.relative_to(ROOT))
    found: dict[str, Any] = json.loads(SPEEDSCOPE_SCHEMA.read_text())
    return found


@dataclasses.dataclass
class Run:
    """A finished run of a program."""

    code: int
    out: str
    err: str
    path: Path

    def profile(self) -> Profile:
        """Read the profile that the run wrote."""
        return readers.read(self.path)


@functools.cache
def has_builtin() -> bool:
    """Return whether PyPy has a builtin engine."""
    done = subprocess.run(
        [PYPY, "-c", "import _vmprof; _vmprof.alive_allocations"],
        stderr=subprocess.DEVNULL)
    return done.returncode == 0


class PyPy:
    """The PyPy under test, with a folder for programs and the environment variables."""

    def __init__(self, folder: Path, nursery: str = "1M"):
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(folder),
            # set the nursery's size, because PyPy's default depends on the processor
            "PYPY_GC_NURSERY": nursery, "PYTHONHASHSEED": "0",
            # no line of a report is wrapped at this width
            "COLUMNS": "1000",
            "XDG_CACHE_HOME": CACHE,
        }

    def script(self, source: str, name: str = "app.py") -> Path:
        """Write a program into the folder, and return the file's path."""
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def command(self, *arguments: str, timeout: float = 300,
                **environment: str) -> Run:
        """Run PyPy with these arguments and additional environment variables."""
        return self._command(arguments, environment, timeout)

    def _command(self, arguments: Sequence[str], environment: dict[str, str],
                 timeout: float = 300) -> Run:
        done = subprocess.run(
            [PYPY, *arguments], cwd=self.folder, text=True, timeout=timeout,
            env={**self.environment, **environment}, capture_output=True)
        return Run(done.returncode, done.stdout, done.stderr,
                   self.folder / "out.vmprof")

    def run(self, source: str, *arguments: str, jit: str = "",
            **environment: str) -> Run:
        """Run a program without the sampler."""
        flags = ["--jit", jit] if jit else []
        return self._command(
            [*flags, str(self.script(source)), *arguments], environment)

    def shell(self, command: str, *arguments: str) -> tuple[int, str]:
        """Run `command` in sh, with PyPy as $0.

        Returns the exit code and the output.
        """
        done = subprocess.run(
            ["sh", "-c", command, PYPY, *arguments], cwd=self.folder, text=True,
            env=self.environment, stdout=subprocess.PIPE)
        return done.returncode, done.stdout

    def compile_c(self, source: str, target: str, *flags: str) -> Path:
        """Compile a shared library for PyPy's machine, in the folder of the programs.

        In `flags`, {0} is replaced by the root folder of this PyPy.
        """
        compiler = native_build.COMPILERS[
            native_build.AARCH64 if EMULATED else native_build.X86_64]
        root = EMULATED_ROOT if EMULATED else ""
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-xc", "-", "-o", target,
             *(flag.format(root) for flag in flags)],
            input=source, cwd=self.folder, text=True, check=True)
        return self.folder / target

    def compile_extension(self, name: str, source: str, *flags: str) -> Path:
        """Compile an extension module of CPython's C API for this release of PyPy."""
        folder, suffix = json.loads(self.command("-c", """if 1:
            import json, sysconfig
            print(json.dumps([sysconfig.get_paths()["include"],
                              sysconfig.get_config_var("EXT_SUFFIX")]))
        """).out)
        return self.compile_c(source, name + suffix, "-I{0}" + folder, *flags)

    def profile(self) -> Profile:
        """Read out.vmprof, the profile of the last run."""
        return readers.read(self.folder / "out.vmprof")

    def sample(self, source: str, interval: str, *flags: str,
               arguments: tuple[str, ...] = (), jit: str = "", seed: int = 1,
               **environment: str) -> Run:
        """Run a program under the sampler; the program must succeed."""
        result = self._command(
            [*(["--jit", jit] if jit else []),
             "-m", "vmprof", "--allocation-sampling", interval,
             "--allocation-seed", str(seed), "-o", "out.vmprof", *flags,
             str(self.script(source)), *arguments], environment)
        assert result.code == 0, result.err
        return result


@functools.cache
def look_once() -> None:
    """Run `doctor`, because the first run for a build of PyPy prints a message."""
    subprocess.run([PYPY, "-m", "vmprof_allocation", "doctor"],
                   env={"PATH": os.environ["PATH"], "XDG_CACHE_HOME": CACHE},
                   stdout=subprocess.DEVNULL)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with each of the nursery sizes that its marker `nurseries` names.

    `make test` runs each test with one of the sizes, and about as many tests with each
    size. The other sizes are left to `make hard`.
    """
    marker = metafunc.definition.get_closest_marker("nurseries")
    if marker is not None and "nursery" in metafunc.fixturenames:
        chosen = zlib.crc32(metafunc.definition.name.encode()) % len(marker.args)
        metafunc.parametrize("nursery", [
            pytest.param(size, marks=[pytest.mark.hard] * (number != chosen))
            for number, size in enumerate(marker.args)])


@pytest.fixture
def nursery() -> str:
    """Return the default value of PYPY_GC_NURSERY in tests."""
    return "1M"


@pytest.fixture
def pypy(tmp_path: Path, nursery: str) -> PyPy:
    """Return the PyPy under test, in a temporary folder."""
    if not Path(PYPY).exists():
        pytest.fail("%s is missing: run `make test`, which installs it" % PYPY)
    look_once()
    return PyPy(tmp_path, nursery)


@pytest.fixture
def stock_pypy(pypy: PyPy) -> PyPy:
    """Return the PyPy under test; skip the test if PyPy has a builtin engine."""
    if has_builtin():
        pytest.skip("%s samples on its own: nothing is hooked" % PYPY)
    return pypy
