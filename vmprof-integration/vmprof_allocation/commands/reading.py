"""The commands that read files, which the package vmprof-convert contains."""
from __future__ import annotations

import os
import sys

from vmprof_allocation.remote.process_info import PROGRAM, note


def run(name: str, arguments: list[str]) -> int:
    """Run a command of the converter.

    Args:
        name: the command.
        arguments: the arguments after the command.

    Returns:
        The exit code, which is 2 if the converter is missing.
    """
    try:
        from vmprof_convert import cli
    except ImportError as error:
        note("%s needs the package vmprof-convert (%s). Install it into this "
             "environment" % (name, error))
        return 2
    with_little_memory()
    return cli.main([name, *arguments], command=PROGRAM, name=PROGRAM)


def with_little_memory() -> None:
    """Replace this process by a PyPy with a small nursery that runs the same command.

    This has no effect if the user has set the size of the nursery. The default size is
    half of the processor's cache. It may be larger than all other memory of a report,
    and the GC keeps more garbage if the nursery is larger.
    """
    if (sys.implementation.name != "pypy" or "PYPY_GC_NURSERY" in os.environ
            or not sys.executable):
        return
    flags = ["-%s" % letter for letter, is_set in (
        ("I", sys.flags.isolated), ("E", sys.flags.ignore_environment),
        ("s", sys.flags.no_user_site), ("S", sys.flags.no_site)) if is_set]
    try:
        os.execve(sys.executable,
                  [sys.executable, *flags, "-m", "vmprof_allocation",
                   *sys.argv[1:]],
                  {**os.environ, "PYPY_GC_NURSERY": "2M"})
    except OSError:
        pass            # continue with the default nursery
