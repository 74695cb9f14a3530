"""The C programs of tests/support/native, built once per session with sanitizers."""
from __future__ import annotations

import ctypes
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "vmprof-integration" / "vmprof_allocation" / "native"
#: of the builtin engine, what is no patch
ALLOCATION = HERE.parents[1] / "rpython/added/rpython/rlib/rvmprof/src/allocation"
FLAGS = ["-fno-sanitize-recover=all", "-DCHECK_INVARIANTS",
         "-Wall", "-Wextra", "-Werror", "-std=gnu99", "-g", "-O1"]
#: what is to be found: -fsanitize=
MEMORY, THREADS = "address,undefined", "thread"


def load(directory: pathlib.Path, *names: str) -> ctypes.CDLL:
    """native/shared/NAME.c as a library, to be called from here; what it calls
    comes before it.  What is undefined ends the process: address sanitizer
    can't be loaded so late."""
    target = directory / (names[-1] + ".so")
    text = "".join((NATIVE / "shared" / (name + suffix)).read_text()
                   for name in names for suffix in (".h", ".c"))
    for name in names:
        text = text.replace('#include "%s.h"' % name, "")
    text = "#define _GNU_SOURCE\n" + text.replace("#define _GNU_SOURCE", "")
    # without the visibility, which is for what is linked together
    text = text.replace("#pragma once", "")
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-std=gnu99",
         "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error",
         "-DCHECK_INVARIANTS",
         "-I", str(NATIVE / "shared"), "-o", str(target), "-x", "c", "-"],
        input=text.replace("#pragma GCC visibility", "//"), text=True,
        check=True)
    return ctypes.CDLL(str(target))


def build(directory: pathlib.Path, program: str, *sources: str,
          sanitizer: str = MEMORY) -> pathlib.Path:
    """Compile tests/support/native/`program`.c with these files: of the package, or
    with their whole path."""
    target = directory / program
    subprocess.run(
        ["gcc", *FLAGS, "-fsanitize=" + sanitizer, "-pthread",
         "-I", str(NATIVE / "hook"), "-I", str(NATIVE / "shared"),
         "-I", str(NATIVE / "attach"), "-I", str(ALLOCATION),
         # what they load looks for their functions
         "-rdynamic",
         "-o", str(target),
         str(HERE / "native" / (program + ".c")),
         *(str(NATIVE / source) for source in sources), "-lm"],
        check=True)
    return target
