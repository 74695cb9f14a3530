"""Find the command line that would run the user's program without the sampler."""
from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import stat
import sys
import sysconfig
import zipfile

from vmprof_allocation.errors import AllocationSamplingError


def read_command_line() -> list[str]:
    """Return the command line of this process, or an empty list if it is unknown."""
    original: list[str] | None = getattr(sys, "orig_argv", None)
    if original is None:
        original = _read("/proc/self/cmdline")
    return original


def read_log_request() -> str | None:
    """Return the value of PYPYLOG when this process started, or None.

    PyPy removes PYPYLOG from the environment, so that children do not write into the
    same file.
    """
    for variable in _read("/proc/self/environ"):
        name, _, value = variable.partition("=")
        if name == "PYPYLOG":
            return value
    return None


def _read(path: str) -> list[str]:
    """Return the strings of a file, each of which ends with a zero byte.

    The list is empty if the file is unreadable.
    """
    try:
        with open(path, "rb") as file:
            return [os.fsdecode(text) for text in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def interpreter(original: list[str], arguments: int) -> list[str]:
    """Return the interpreter and its flags from a command line.

    Args:
        original: the command line, with `-m vmprof` and its arguments.
        arguments: number of arguments after `-m vmprof`.

    Raises:
        AllocationSamplingError: the command line has an unknown form.
    """
    if not original:
        raise AllocationSamplingError(
            "cannot read PyPy's command line from /proc/self/cmdline. Check that /proc "
            "is mounted (mount -t proc proc /proc)")
    flags = original[:len(original) - arguments]
    # -m vmprof, -mvmprof, -Om vmprof, -Omvmprof
    letters, _, _ = (flags or [""]).pop().rpartition("vmprof")
    if not letters and flags:
        letters = flags.pop()
    if not (flags and letters.startswith("-") and letters.endswith("m")):
        raise AllocationSamplingError(
            "cannot find the interpreter's own flags in its command line %r"
            % original)
    return flags if letters == "-m" else [*flags, letters[:-1]]


def find(program: str, is_module: bool) -> list[str]:
    """Return the arguments for the interpreter that run the program.

    Args:
        program: the name of a script, folder, archive or module.
        is_module: whether the program is a module.

    Raises:
        AllocationSamplingError: the program does not exist.  Some missing modules are
            not noticed before the program runs.
    """
    if is_module:
        _check_module(program)
        return ["-m", program]
    path = program
    if not os.path.exists(program) and program and os.sep not in program:
        path = _find_script(program) or program
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISREG(mode):
            with open(path, "rb"):
                pass
    except OSError as e:
        raise AllocationSamplingError(
            "cannot open the program %r: %s" % (program, e.strerror)) from None
    if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and zipfile.is_zipfile(path)):
        spec = importlib.machinery.PathFinder.find_spec("__main__", [path])
        if spec is None or spec.loader is None:
            raise AllocationSamplingError(
                "cannot run the program %r: it has no __main__.py" % program)
    # the interpreter would take a name that begins with - for a flag, or for stdin
    return [os.path.join(os.curdir, path) if path.startswith("-") else path]


def _check_module(name: str) -> None:
    """Check that the outermost package of a module exists.

    A check of the module itself would import the package, but the program must not be
    imported twice.
    """
    try:
        spec = importlib.util.find_spec(name.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise AllocationSamplingError("no module named %r" % name)


def _find_script(name: str) -> str | None:
    """Return the path of a script that pip installed or that is on the PATH."""
    path = os.pathsep.join(
        (sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    found = shutil.which(name, path=path)
    if found is not None:
        with open(found, "rb") as file:
            source = file.read()
        try:
            compile(source, found, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            raise AllocationSamplingError(
                "cannot run the program %r: the file %s is not written in Python"
                % (name, found)) from None
    return found
