"""Make an environment for a PyPy 2.7, as `python -m venv` does for others.

    python3 make_environment.py PYPY WHEEL PYPY3 FOLDER

FOLDER/bin/pypy is PYPY with what is in the WHEEL (make_wheel.py), and asks PYPY3,
which has the package for Python 3.  Debian's PyPy 2.7 has no pip; elsewhere,
`pypy -m pip install WHEEL` does the same.
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
    """Replaces an older one.  Raises OSError, BadZipFile or CalledProcessError."""
    found = shutil.which(pypy)
    if found is None:
        raise OSError("there is no program %s" % pypy)
    script = folder / "bin" / "pypy"
    if folder.exists() and not (
            script.is_file() and MARK in script.read_text(errors="replace")):
        raise OSError("%s is there, and is no such environment: name another folder"
                      % folder)
    zipfile.ZipFile(wheel).close()
    shutil.rmtree(folder, ignore_errors=True)
    # where it will be: names in it are absolute
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
