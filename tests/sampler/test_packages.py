"""The installed packages, the C sources, and rules for the repository."""
from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT, PyPy
from native_build import AARCH64, COMPILERS, X86_64, machines

NATIVE = ROOT / "vmprof-integration" / "vmprof_allocation" / "native"


def sources(machine: str) -> list[str]:
    """Return all C files except the ones for other processors."""
    found = (path.relative_to(NATIVE) for path in NATIVE.rglob("*.c"))
    return sorted(str(path) for path in found
                  if len(path.parts) == 2 or path.parts[0] == "hook"
                  or path.parts[1] == machine)


def compile_alone(machine: str, name: str, folder: Path) -> None:
    subprocess.run(
        [COMPILERS[machine], "-std=gnu99", "-O2", "-fPIC", "-Wall", "-Wextra",
         "-Werror", "-Wstrict-prototypes", "-Wmissing-prototypes",
         *("-I%s" % (NATIVE / folder) for folder in ("", "hook", "shared")), "-c",
         str(NATIVE / name), "-o", str(folder / "x.o")], check=True)


@pytest.mark.parametrize("name", sources(X86_64))
def test_c_compiles_without_warnings(tmp_path: Path, name: str) -> None:
    compile_alone(X86_64, name, tmp_path)


@pytest.mark.parametrize("machine", machines()[1:])
@pytest.mark.parametrize("name", sources(AARCH64))
def test_c_compiles_for_aarch64(tmp_path: Path, name: str, machine: str) -> None:
    compile_alone(machine, name, tmp_path)


def test_other_programs_do_not_load_us(pypy: PyPy) -> None:
    """The .pth file only affects `-m vmprof`."""
    script = pypy.script("""
        import sys
        print([m for m in sys.modules if m.startswith("vmprof")],
              [f for f in sys.meta_path if "vmprof" in type(f).__module__])
    """, "vmprof_user.py")
    assert pypy.command(str(script)).out == "[] []\n"
    assert pypy.command("-m", "vmprof_user").out == "[] []\n"


def test_import_hook_is_gone_when_the_program_runs(pypy: PyPy) -> None:
    source = """
        import sys
        print([f for f in sys.meta_path if "vmprof" in type(f).__module__])
    """
    assert pypy.sample(source, "1k").out == "[]\n"


@pytest.mark.parametrize("rate,said", [
    ("1G", "There is no sample"), ("1k", "Look at it in the Firefox Profiler")])
def test_make_run_of_a_tiny_program(pypy: PyPy, rate: str, said: str) -> None:
    profile = pypy.folder / "app.vmprof"
    done = subprocess.run(
        ["make", "-o", ".build/pypy", "-o", ".build/python", "run",
         "APP=%s" % pypy.script("print('tiny')"), "RATE=" + rate,
         "PROFILE=%s" % profile],
        cwd=ROOT, capture_output=True, text=True,
        # `make test` sets variables for its own jobs
        env={name: value for name, value in os.environ.items()
             if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")})
    assert done.returncode == 0, done.stderr
    assert "\ntiny\n" in done.stdout and said in done.stdout
    assert done.stderr == ""
    assert (pypy.folder / "app.vmprof.json.gz").exists() == (rate == "1k")


def test_no_absolute_paths_of_a_machine_in_the_repository() -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True,
                           capture_output=True).stdout.split(b"\0")[:-1]
    assert len(files) > 20
    for name in files:
        text = (ROOT / name.decode()).read_bytes()
        for word in b"/wo" + b"rk/", b"/tm" + b"p/scr", b"/ro" + b"ot/":
            assert word not in text, (name, word)


@pytest.mark.parametrize("name", ["README.rst",
                                  "vmprof-integration/README.rst"])
def test_documented_commands_install_into_environments(name: str) -> None:
    """Debian refuses `pip install` outside of virtual environments."""
    lines = (ROOT / name).read_text().splitlines()
    installs = [number for number, line in enumerate(lines)
                if re.match(" {4}.*pip install", line)]
    assert installs or name != "README.rst"
    for number in installs:
        assert re.match(r" +\S+/bin/\S+ -m pip", lines[number]) or re.fullmatch(
            r" +\. \S+/bin/activate", lines[number - 1]), lines[number]
