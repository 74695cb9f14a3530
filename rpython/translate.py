"""Translate an RPython program to a native program.

    python3 rpython/translate.py PYTHON2 TREE TARGET OUTPUT [OPTIONS...]

runs `python -m rpython --batch --gc=incminimark OPTIONS --output=OUTPUT TARGET`
with the interpreter PYTHON2 and the RPython in TREE.  It also writes OUTPUT.log, the
log of the translation with the times of its steps, and the folder OUTPUT.c with the
generated C files.

A translation writes into its own tree.  Therefore this program runs it in a copy of the
tree, and several translations can run at the same time.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from python2 import Problem, absolute

#: number of lines of the log in the error message
TAIL = 25


def translate(python2: Path, tree: Path, target: Path, output: Path,
              options: list[str]) -> None:
    """Translate a program.

    Args:
        python2: a Python 2.7.
        tree: a tree of RPython.
        target: the module of the program.
        output: the native program; see the module's description for further files.
        options: options of RPython.

    Raises:
        Problem: a path is missing, or the translation failed.
    """
    for path in python2, tree, target:
        if not path.exists():
            raise Problem("there is no %s: `make` makes what a translation "
                          "needs" % path)
    output.parent.mkdir(parents=True, exist_ok=True)
    log = output.with_name(output.name + ".log")
    with tempfile.TemporaryDirectory(dir=output.parent,
                                     prefix=output.name + ".") as name:
        work = Path(name)
        shutil.copytree(tree, work / "tree")
        environment = {
            # These settings save a tenth of the time, and need a third more memory.
            "PYPY_GC_NURSERY": "32M", "PYPY_GC_MAJOR_COLLECT": "3",
            **os.environ, "PYTHONPATH": os.pathsep.join(
                [str(work / "tree"), str(target.parent)]),
            "PYPY_USESSION_DIR": str(work), "PYPY_USESSION_BASENAME": "c"}
        with open(log, "w", encoding="utf-8") as file:
            done = subprocess.run(
                [python2, "-m", "rpython", "--batch", "--gc=incminimark",
                 *options, "--output=" + str(work / "program"), target],
                cwd=work, env=environment, stdout=file,
                stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0 or not (work / "program").exists():
            lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
            raise Problem("%s was not translated; %s ends with\n%s" % (
                target, log, "\n".join(lines[-TAIL:])))
        sources = output.with_name(output.name + ".c")
        shutil.rmtree(sources, ignore_errors=True)
        sources.mkdir()
        for path in (work / "usession-c-0" / "testing_1").glob("*.[ch]"):
            shutil.copy(path, sources)
        os.replace(work / "program", output)


def main() -> int:
    """Run the command, and return its exit code."""
    if len(sys.argv) < 5:
        print("usage: translate.py PYTHON2 TREE TARGET OUTPUT [OPTIONS...]",
              file=sys.stderr)
        return 2
    try:
        python2, tree, target, output = (
            absolute(Path(argument)) for argument in sys.argv[1:5])
        translate(python2, tree, target, output, sys.argv[5:])
    except (Problem, OSError) as error:
        print("translate.py: error: %s" % error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
