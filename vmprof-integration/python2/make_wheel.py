"""Make the wheel for PyPy 2.7 from the wheel for Python 3.

    python3 make_wheel.py vmprof_allocation-VERSION-py3-none-PLATFORM.whl

writes vmprof_allocation-VERSION-py2-none-PLATFORM.whl into the same folder.  The native
library and its cffi description do not depend on the version of Python, so both wheels
contain the same files.
"""
from __future__ import annotations

import argparse
import re
import sys
import zipfile
from pathlib import Path

from wheel.wheelfile import WheelFile

SOURCE = Path(__file__).resolve().parent / "src"
NATIVE = ("vmprof_allocation/engines/hook/_hook.so",
          "vmprof_allocation/engines/hook/_hook_abi.py")


class Problem(Exception):
    """An error with a one-line message for the user; no file was written."""


def metadata(text: str) -> str:
    """Return the metadata for PyPy 2.7 from the metadata for Python 3.

    The wheel has no requirements, because PyPy contains cffi.
    """
    head, _, _ = text.partition("\n\n")
    lines = [line for line in head.splitlines() if not re.match(
        "(Requires|Classifier: Programming Language|License-File|Description-"
        "Content)", line)]
    return "\n".join((*lines, "Requires-Python: ==2.7.*", "", ""))


def make(source: Path) -> Path:
    """Make the wheel for PyPy 2.7, in the folder of the wheel for Python 3.

    Args:
        source: the wheel for Python 3.

    Returns:
        The path of the wheel for PyPy 2.7.

    Raises:
        Problem: 'source' is not readable, or no wheel for Python 3.
    """
    name = source.name.replace("-py3-none-", "-py2-none-")
    if name == source.name:
        raise Problem("%s is not a wheel for Python 3" % source)
    try:
        with zipfile.ZipFile(source) as theirs:
            info = "%s.dist-info" % "-".join(name.split("-")[:2])
            files = {path: theirs.read(path) for path in NATIVE}
            tags = theirs.read("%s/WHEEL" % info).decode()
            about = theirs.read("%s/METADATA" % info).decode()
            licence = theirs.read("%s/licenses/LICENSE" % info)
    except (OSError, KeyError, zipfile.BadZipFile) as e:
        raise Problem("cannot make the wheel from %s: %s" % (source, e)) from None
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in (".py", ".pth"):
            files[path.relative_to(SOURCE).as_posix()] = path.read_bytes()
    target = source.with_name(name)
    with WheelFile(str(target), "w") as ours:
        for place, data in sorted(files.items()):
            ours.writestr(place, data)
        ours.writestr("%s/LICENSE" % info, licence)
        ours.writestr("%s/METADATA" % info, metadata(about))
        ours.writestr("%s/WHEEL" % info, tags.replace("Tag: py3-", "Tag: py2-"))
    return target


def main() -> int:
    """Run the command, and return its exit code."""
    parser = argparse.ArgumentParser(description="Make the wheel for PyPy 2.7.")
    parser.add_argument("wheel", type=Path, help="the wheel for Python 3")
    try:
        print(make(parser.parse_args().wheel))
    except Problem as e:
        print("make_wheel.py: error: %s" % e, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
