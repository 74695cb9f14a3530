"""Create an environment for a PyPy 2.7, as `python -m venv` does for Python 3.

    python3 make_environment.py PYPY WHEEL PYPY3 FOLDER

FOLDER/bin/pypy runs PYPY with the packages of the WHEEL (make_wheel.py).  It uses
PYPY3, which has the package for Python 3.  Debian's PyPy 2.7 has no pip; with another
PyPy, `pypy -m pip install WHEEL` has the same effect.
"""
from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

SITE = "import site, sys; assert sys.version_info[0] == 2; " \
    "sys.stdout.write(site.getusersitepackages())"
MARK = "# Written by make_environment.py"
SCRIPT = "#!/bin/sh\n" + MARK + """
export PYTHONUSERBASE=%s VMPROF_ALLOCATION_PYTHON3=%s
exec %s "$@"
"""


def make(pypy: str, wheel: Path, pypy3: Path, folder: Path) -> None:
    """Create or replace an environment.

    Args:
        pypy: the PyPy 2.7, a path or a name on PATH.
        wheel: the wheel for PyPy 2.7.
        pypy3: the Python 3 with vmprof-allocation.
        folder: the environment.

    Raises:
        OSError: a file or a program is missing, or the folder exists but was not made
            by this function.
        BadZipFile: the wheel is invalid.
        CalledProcessError: the PyPy failed.
    """
    found = shutil.which(pypy)
    if found is None:
        raise OSError("there is no program %s" % pypy)
    script = folder / "bin" / "pypy"
    if folder.exists() and not (
            script.is_file() and MARK in script.read_text(errors="replace")):
        raise OSError("%s exists, and is not such an environment. Write another folder"
                      % folder)
    zipfile.ZipFile(wheel).close()
    shutil.rmtree(folder, ignore_errors=True)
    # the environment contains absolute paths
    base = str(folder.absolute())
    try:
        packages = subprocess.run(
            [found, "-c", SITE], env={**os.environ, "PYTHONUSERBASE": base},
            check=True, text=True, stdout=subprocess.PIPE).stdout
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(packages)
        script.parent.mkdir(parents=True)
        script.write_text(SCRIPT % tuple(map(shlex.quote, (
            base, str(pypy3.absolute()), os.path.abspath(found)))))
        script.chmod(0o755)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(
        description="Make an environment for a PyPy 2.7.")
    parser.add_argument("pypy")
    for name in "wheel", "pypy3", "folder":
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    try:
        make(**vars(arguments))
    except (OSError, zipfile.BadZipFile, subprocess.CalledProcessError) as e:
        print("make_environment.py: error: %s" % e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
