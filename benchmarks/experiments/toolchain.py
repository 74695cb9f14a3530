"""RPython's own toolchain, on PyPy 2.7: the annotation of a program, and the
guest interpreter of rpython/examples untranslated, as PyPy is run to find out
whether it works.  Whole processes; sampled27.py starts what is sampled."""
from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import measuring
import turns
from experiments import Context, Json
from measuring import BUILD, ROOT
from vmprof_allocation.engines.hook.library import LIBRARY
from vmprof_allocation.parsing import make_settings

NAME = "toolchain"
PROGRAMS = ("annotate", "interpret")
RATES = ("32k", "128k", "512k", "4M", "32M", "auto")
PYTHON2 = BUILD / "py2" / "python2"
TREE = BUILD / "rpython" / "pristine"
EXAMPLES = ROOT / "rpython" / "examples"
BENCHMARKS = ROOT / "benchmarks"
SAMPLED = BENCHMARKS / "sampled27.py"
#: where _hook.so is, which knows nothing of the interpreter that loads it
PACKAGE = Path(LIBRARY).parent
#: of eight processes for each program, which all take 4 to 5 s
PAIRS = 9
#: of richards; before them 2 s go by
ROUNDS = 15


def run(context: Context) -> Json:
    for path in PYTHON2, TREE:
        if not path.exists():
            raise measuring.Failed("there is no %s: run `make bench`, which "
                                   "gets it" % path)
    rates = ("128k", "auto") if context.quick else RATES
    pairs, rounds = (1, 1) if context.quick else (PAIRS, ROUNDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        layout, profile = folder / "layout", folder / "out.vmprof"
        layout.write_text(_layout(context.pypy))
        # the toolchain writes into the tree that it runs from
        tree = folder / "tree"
        shutil.copytree(TREE, tree)
        commands: dict[str, list[str | Path]] = {
            "annotate": [BENCHMARKS / "toolchain_worker.py",
                         tree / "rpython" / "jit" / "tl" / "targettlc.py"],
            "interpret": [EXAMPLES / "targetguest.py",
                          EXAMPLES / "programs" / "richards.guest",
                          "%d" % rounds]}

        def start(program: str, rate: str | None) -> measuring.Process:
            sampled: list[str | Path] = []
            if rate is not None:
                settings = make_settings(rate)
                sampled = [SAMPLED, PACKAGE, layout, "%d" % settings.interval,
                           str(settings.limit or ""), profile]
            return measuring.run(
                [PYTHON2, *sampled, *commands[program]], folder,
                {"PYTHONPATH": str(tree), "PYPY_USESSION_DIR": name})

        for program in PROGRAMS:
            start(program, None)    # fills RPython's cache of what gcc says
        return {"python2": " ".join(measuring.run(
                    [PYTHON2, "-c", "import sys; print(sys.version)"]).out.split()),
                "runs": turns.take(PROGRAMS, rates, pairs, start, profile,
                                   "program", NAME)}


def _layout(pypy: Path) -> str:
    """Of the file that holds the code of PYTHON2.  Raises Failed."""
    library = measuring.run([PYTHON2, SAMPLED, PACKAGE]).out.rstrip("\n")
    found = json.loads(measuring.run(
        [pypy, "-m", "vmprof_allocation.engines.hook.find", library]).out)
    if found["layout"] is None:
        raise measuring.Failed(found["problem"])
    return str(found["layout"])


def report(results: Json) -> str:
    return "%s\n\nall in PyPy %s" % (
        turns.report(results["runs"], "program", RATES), results["python2"])


def plot(results: Json, path: Path) -> None:
    turns.plot(results["runs"], "program", PROGRAMS, RATES, path)
