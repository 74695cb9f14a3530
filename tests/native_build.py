"""The C programs of tests/native, built once per session with sanitizers."""
from __future__ import annotations

import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
NATIVE = HERE.parent / "vmprof-integration" / "vmprof_allocation" / "native"
FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all",
         "-Wall", "-Wextra", "-Werror", "-std=gnu99", "-g", "-O1"]


def build(directory: pathlib.Path, program: str, *sources: str) -> pathlib.Path:
    """Compile tests/native/`program`.c with these files of the package."""
    target = directory / program
    subprocess.run(
        ["gcc", *FLAGS, "-I", str(NATIVE), "-I", str(NATIVE / "shared"),
         "-o", str(target),
         str(HERE / "native" / (program + ".c")),
         *(str(NATIVE / source) for source in sources), "-lm"],
        check=True)
    return target
