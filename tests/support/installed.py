"""Checks that the installed packages, which the tests run, equal the source."""
from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {"vmprof_allocation": ROOT / "vmprof-integration",
           "vmprof_push": ROOT / "vmprof-integration",
           "vmprof_convert": ROOT / "converter"}

WHERE = """
import importlib.util, os, sys
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    print(os.path.dirname(spec.origin) if spec else "")
"""


def folders(python: str) -> dict[str, Path]:
    """Return the folders of our packages in an interpreter."""
    done = subprocess.run(
        # -I ignores modules in the current folder
        [python, "-I", "-c", WHERE, *SOURCES], text=True, check=True,
        stdout=subprocess.PIPE)
    return {name: Path(line)
            for name, line in zip(SOURCES, done.stdout.splitlines()) if line}


def contents(folder: Path) -> dict[str, bytes]:
    """Return the Python files in a folder, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*.py")
            # modules that setup.py generates are not in the source
            if not path.name.endswith("_abi.py")}


def differing(source: Path, installed: Path) -> Iterator[str]:
    """Yield the modules that differ between the source and the installed package."""
    ours, theirs = contents(source), contents(installed)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            yield name


def changed(hashes: Path) -> Iterator[str]:
    """Yield the C files that differ from the installed library.

    When `make` installs the library, it writes the hashes of the library's sources to
    the file `hashes`.
    """
    built: dict[str, str] = {}
    if hashes.exists():
        for line in hashes.read_text().splitlines():
            digest, name = line.split(maxsplit=1)
            built[name] = digest
    native = SOURCES["vmprof_allocation"]
    now = {str(path.relative_to(ROOT)):
           hashlib.sha256(path.read_bytes()).hexdigest()
           for path in native.rglob("*.[ch]")}
    for name in sorted(built.keys() | now.keys()):
        if built.get(name) != now.get(name):
            yield name


def problem(python: str, target: str) -> str | None:
    """Return the reason why tests would not run the current source, or None.

    Args:
        python: The interpreter.
        target: The target in the Makefile that installs into the interpreter, or "" if
            the Makefile does not create this interpreter.
    """
    advice = ("run `rm -f %s && make %s`" % (target, target) if target
              else "install ./converter and ./vmprof-integration into it")
    if not Path(python).exists():
        return "there is no %s: %s" % (python, advice)
    found = folders(python)
    for name in sorted(SOURCES.keys() - found.keys()):
        return "%s has no %s: %s" % (python, name, advice)
    for name, folder in found.items():
        for path in differing(SOURCES[name] / name, folder):
            return "%s/%s of %s is not that of the source: %s" % (
                name, path, python, advice)
    for path in changed(ROOT / (target + ".c")) if target else ():
        return "%s has a library of another %s: %s" % (python, path, advice)
    return None


def problems(pypy: str, is_ours: bool) -> str | None:
    """Return the first problem() of PyPy or of this Python, or None."""
    return (problem(pypy, ".build/pypy" if is_ours else "")
            or problem(sys.executable, ".build/python"))
