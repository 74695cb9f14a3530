"""On a stock PyPy 2.7: a translation, by RPython's own toolchain without our patches,
from the Python of a program to its C; and gcbench.  Whole processes, from the command
line."""
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
#: of gcbench: three seconds
ROUNDS = 200
RATES = ("32k", "128k", "512k", "1M", "4M", "auto")
PYTHON2 = BUILD / "py2" / "python2"
#: where that one has the module py, which the toolchain needs
FOLDER_OF_PY = "import os, py; print(os.path.dirname(os.path.dirname(py.__file__)))"
#: with our package: make .build/pypy27
PYPY27 = ROOT / ".venv-pypy27" / "bin" / "pypy"
TREE = BUILD / "rpython" / "pristine"
#: of eight processes, of some 20 s each
PAIRS = 5


def run(context: Context) -> Json:
    for path in PYTHON2, PYPY27, TREE:
        if not path.exists():
            raise measuring.Failed("there is no %s: run `make bench`, which "
                                   "gets it" % path)
    rates = ("128k",) if context.quick else RATES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = folder / "out.vmprof"
        # the toolchain writes into the tree that it runs from
        tree = folder / "tree"
        shutil.copytree(TREE, tree)
        target = tree / "rpython" / "translator" / "goal" / (TARGET + ".py")
        # a few seconds, where it is only to be seen that it works
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
    return "%s\n\nin PyPy %s" % (
        turns.report(results["runs"], "program", RATES), results["python2"])


def plot(results: Json, path: Path) -> None:
    turns.plot(results["runs"], "program", [TARGET, GCBENCH], RATES, path)
