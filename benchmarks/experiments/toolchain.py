"""RPython's own toolchain, on PyPy 2.7: the annotation of a program, and the
guest interpreter of rpython/examples untranslated, as PyPy is run to find out
whether it works.  Whole processes, from the command line."""
from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import measuring
import turns
from experiments import Context, Json
from measuring import BUILD, ROOT

NAME = "toolchain"
PROGRAMS = ("annotate", "interpret")
RATES = ("32k", "128k", "512k", "4M", "32M", "auto")
PYTHON2 = BUILD / "py2" / "python2"
#: the same with our package
PYPY27 = ROOT / ".venv-pypy27" / "bin" / "pypy"
TREE = BUILD / "rpython" / "pristine"
EXAMPLES = ROOT / "rpython" / "examples"
BENCHMARKS = ROOT / "benchmarks"
#: of eight processes for each program, which all take 4 to 5 s
PAIRS = 9
#: of queens; before them 2 s go by
ROUNDS = 8


def run(context: Context) -> Json:
    for path in PYTHON2, PYPY27, TREE:
        if not path.exists():
            raise measuring.Failed("there is no %s: run `make bench`, which "
                                   "gets it" % path)
    rates = ("128k", "auto") if context.quick else RATES
    pairs, rounds = (1, 1) if context.quick else (PAIRS, ROUNDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        profile = folder / "out.vmprof"
        # the toolchain writes into the tree that it runs from
        tree = folder / "tree"
        shutil.copytree(TREE, tree)
        commands: dict[str, list[str | Path]] = {
            "annotate": [BENCHMARKS / "toolchain_worker.py",
                         tree / "rpython" / "jit" / "tl" / "targettlc.py"],
            "interpret": [EXAMPLES / "targetguest.py",
                          EXAMPLES / "programs" / "queens.guest",
                          "%d" % rounds]}

        def start(program: str, rate: str | None) -> measuring.Process:
            command: list[str | Path] = [PYTHON2]
            if rate is not None:
                command = [PYPY27, "-m", "vmprof", "--allocation-sampling", rate,
                           "-o", profile]
            return measuring.run(
                [*command, *commands[program]], folder,
                {"PYTHONPATH": str(tree), "PYPY_USESSION_DIR": name})

        for program in PROGRAMS:
            start(program, None)    # fills RPython's cache of what gcc says
        return {"python2": " ".join(measuring.run(
                    [PYTHON2, "-c", "import sys; print(sys.version)"]).out.split()),
                "runs": turns.take(PROGRAMS, rates, pairs, start, profile,
                                   "program", NAME)}


def report(results: Json) -> str:
    return "%s\n\nall in PyPy %s" % (
        turns.report(results["runs"], "program", RATES), results["python2"])


def plot(results: Json, path: Path) -> None:
    turns.plot(results["runs"], "program", PROGRAMS, RATES, path)
