"""Measure a translation by RPython's toolchain, and gcbench, on a stock PyPy 2.7.

The toolchain does not contain this project's patches. It translates a program from
Python to C. The experiment measures whole processes from the command line.
"""
from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import measuring
import turns
from experiments import Context, Json
from measuring import BUILD, ROOT

NAME = "toolchain"
TARGET, GCBENCH = "targetgcbench", "gcbench"
SCRIPT = ROOT / "benchmarks" / "programs" / "gcbench.py"
#: The rounds of gcbench, which take three seconds.
ROUNDS = 200
RATES = ("32k", "128k", "512k", "1M", "4M", "auto")
PYTHON2 = BUILD / "py2" / "python2"
#: The program that prints the folder of the module py, which the toolchain needs.
FOLDER_OF_PY = "import os, py; print(os.path.dirname(os.path.dirname(py.__file__)))"
#: A PyPy 2.7 with this project's package.  `make .build/pypy27` installs it.
PYPY27 = ROOT / ".venv-pypy27" / "bin" / "pypy"
TREE = BUILD / "rpython" / "pristine"
#: The number of turns.  Each has eight processes of about 20 s.
PAIRS = 5


def run(context: Context) -> Json:
    """Run both programs at all rates.

    Raises:
        measuring.Failed: An interpreter or the tree of RPython is missing.
    """
    for path in PYTHON2, PYPY27, TREE:
        if not path.exists():
            raise measuring.Failed("there is no %s: run `make bench`, which "
                                   "gets it" % path)
    rates = ("128k",) if context.quick else RATES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = folder / "out.vmprof"
        # The toolchain writes into the tree that it runs from.
        tree = folder / "tree"
        shutil.copytree(TREE, tree)
        target = tree / "rpython" / "translator" / "goal" / (TARGET + ".py")
        # A quick trial stops after the annotation, which takes a few seconds.
        steps = ["--annotate"] if context.quick else ["--source"]

        libraries = measuring.run([PYTHON2, "-c", FOLDER_OF_PY]).out.strip()

        def start(program: str, rate: str | None) -> measuring.Process:
            flags: list[str | Path] = [] if rate is None else [
                "-m", "vmprof", "--allocation-sampling", rate, "-o", profile]
            if program == GCBENCH:
                return measuring.run([PYPY27, *flags, SCRIPT,
                                      "1" if context.quick else "%d" % ROUNDS], folder)
            return measuring.run(
                [PYPY27, *flags, "-m", "rpython", "--batch", "-O2", *steps, target],
                folder, {"PYTHONPATH": "%s:%s" % (tree, libraries),
                         "PYPY_USESSION_DIR": name})

        return {"python2": " ".join(measuring.run(
                    [PYPY27, "-c", "import sys; print(sys.version)"]).out.split()),
                "runs": turns.take([TARGET, GCBENCH], rates,
                                   1 if context.quick else PAIRS,
                                   start, profile, "program", NAME)}


def report(results: Json) -> str:
    """Return the table of time ratios, and the version of PyPy."""
    return "%s\n\nin PyPy %s" % (
        turns.report(results["runs"], "program", RATES), results["python2"])


def plot(results: Json, path: Path) -> None:
    """Plot the time ratios of both programs."""
    turns.plot(results["runs"], "program", [TARGET, GCBENCH], RATES, path)
