"""Builds the C programs of tests/support/native with sanitizers.

The programs are kept in .build/native until a C file of this project or the compiler
changes.
"""
from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import pathlib
import shutil
import subprocess
from typing import Any

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "vmprof-integration" / "vmprof_allocation" / "native"
#: C files of the builtin engine that are new, not patches
ALLOCATION = ROOT / "rpython/added/rpython/rlib/rvmprof/src/allocation"
KEPT = ROOT / ".build" / "native"
FLAGS = ["-fno-sanitize-recover=all", "-DCHECK_INVARIANTS",
         "-Wall", "-Wextra", "-Werror", "-std=gnu99", "-g", "-O1"]
#: names of the folders in native/machines
X86_64, AARCH64 = "x86_64", "aarch64"
COMPILERS = {X86_64: "gcc", AARCH64: "aarch64-linux-gnu-gcc"}
EMULATOR = "qemu-aarch64-static"
#: values of -fsanitize= for memory errors and for races
MEMORY, THREADS = "address,undefined", "thread"


@functools.cache
def all_c() -> bytes:
    """Return a hash of the compiler and all C files."""
    found = hashlib.sha256(subprocess.run(
        ["gcc", "-v"], check=True, stderr=subprocess.PIPE).stderr)
    for path in sorted((*NATIVE.rglob("*.[ch]"), *ALLOCATION.rglob("*.[ch]"),
                        *(HERE / "native").iterdir())):
        found.update(b"%s %d\n" % (path.name.encode(), path.stat().st_size))
        found.update(path.read_bytes())
    return found.digest()


def compiled(name: str, *arguments: str, text: str = "",
             compiler: str = "gcc") -> pathlib.Path:
    """Compile the file KEPT / name if necessary, and return its path.

    Other processes that need the file wait.
    """
    KEPT.mkdir(parents=True, exist_ok=True)
    target = KEPT / name
    made_of = hashlib.sha256(
        all_c() + repr((arguments, text)).encode()).hexdigest()
    with open(KEPT / (name + ".made-of"), "a+") as note:
        fcntl.flock(note, fcntl.LOCK_EX)
        note.seek(0)
        if note.read() != made_of or not target.exists():
            note.truncate(0)
            subprocess.run([compiler, *arguments, "-o", str(target)], input=text,
                           text=True, check=True)
            note.write(made_of)
    return target


def load(*names: str) -> ctypes.CDLL:
    """Load native/shared/NAME.c as a library, for calls from Python.

    In `names`, a called file comes before its callers. Undefined behaviour ends the
    process. The address sanitizer is off, because a running process cannot load it.
    """
    text = "".join((NATIVE / "shared" / (name + suffix)).read_text()
                   for name in names for suffix in (".h", ".c"))
    for name in names:
        text = text.replace('#include "%s.h"' % name, "")
    text = "#define _GNU_SOURCE\n" + text.replace("#define _GNU_SOURCE", "")
    # hidden visibility would hide the functions from ctypes
    text = text.replace("#pragma once", "").replace("#pragma GCC visibility", "//")
    return ctypes.CDLL(str(compiled(
        names[-1] + ".so",
        "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-std=gnu99",
        "-fsanitize=undefined", "-fsanitize-undefined-trap-on-error",
        "-DCHECK_INVARIANTS", "-I", str(NATIVE / "shared"), "-x", "c", "-",
        text=text)))


def build(program: str, *sources: str, sanitizer: str = MEMORY,
          machine: str = X86_64) -> pathlib.Path:
    """Compile tests/support/native/`program`.c together with `sources`.

    A source is a path in the package's native folder, or an absolute path. The program
    for another machine is static and without a sanitizer, as the emulator requires. Run
    it with `run_of`.
    """
    kind, flags = (sanitizer.partition(",")[0], ["-fsanitize=" + sanitizer])
    if machine != X86_64:
        # static programs have the sorted unwind table of a shared library only on
        # request
        kind, flags = machine, ["-static", "-Wl,--eh-frame-hdr"]
    return compiled(
        "%s-%s" % (program, kind), *FLAGS, *flags, "-pthread",
        *(argument for folder in (*(NATIVE / name for name in (
            "", "hook", "shared", "held", "sampler", "attach", "machines")), ALLOCATION)
          for argument in ("-I", str(folder))),
        # so that loaded libraries can use functions of the program
        "-rdynamic",
        str(HERE / "native" / (program + ".c")),
        *(str(NATIVE / source) for source in sources), "-lm",
        compiler=COMPILERS[machine])


def run_of(harness: pathlib.Path, machine: str) -> list[str]:
    """Return the beginning of the command that runs a program."""
    return [str(harness)] if machine == X86_64 else [EMULATOR, str(harness)]


def machines() -> list[Any]:
    """Return parameters that run a test for each machine with its own C code.

    A machine is skipped if its compiler or emulator is missing.
    """
    return [X86_64, pytest.param(AARCH64, marks=pytest.mark.skipif(
        not (shutil.which(COMPILERS[AARCH64]) and shutil.which(EMULATOR)),
        reason="no %s, or no %s: Debian's gcc-aarch64-linux-gnu and qemu-user-static"
        % (COMPILERS[AARCH64], EMULATOR)))]
