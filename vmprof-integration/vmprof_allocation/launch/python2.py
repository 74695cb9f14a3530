"""Parse the arguments of a PyPy 2.7, and search its build for the GC.

A PyPy 2.7 runs this module with a Python 3 (see ../python2)::

    python -m vmprof_allocation.launch.python2 run LIBRARY EXECUTABLE COUNT COMMAND...
    python -m vmprof_allocation.launch.python2 settings LIBRARY INTERVAL SEED GAPS
                                                 PERIOD LIFETIMES

LIBRARY is the file with the code of PyPy 2.7. It is "" if that PyPy has the builtin
engine, which needs no search. The first form gets the COMMAND line of EXECUTABLE with
`-m vmprof` and COUNT arguments. This process then becomes the program's process, as in
cli.py. The second form prints the settings of a session in the format of
begin.VARIABLE.
"""
from __future__ import annotations

import os
import shutil
import sys

from vmprof_allocation.engines.searching import SEARCHING
from vmprof_allocation.errors import AllocationSamplingError, Evidence
from vmprof_allocation.launch import cli
from vmprof_allocation.launch.begin import VARIABLE, refuse
from vmprof_allocation.settings.parsing import make_settings
from vmprof_allocation.settings.settings import Settings


class Python2(cli.Target):
    """A PyPy 2.7 that runs the program."""

    is_python_3 = False

    def __init__(self, library: str, executable: str) -> None:
        """Set the paths of PyPy's code and of the interpreter."""
        self.executable = executable
        self._library = library

    def find(self, program: str, is_module: bool) -> list[str]:
        """Return the arguments for PyPy that run the program.

        Raises:
            AllocationSamplingError: the program does not exist.
        """
        if is_module:
            return ["-m", program]      # this Python 3 cannot find modules of PyPy 2.7
        path = program
        if not os.path.exists(program) and program and os.sep not in program:
            path = shutil.which(program) or program
        if not os.access(path, os.R_OK):
            raise AllocationSamplingError(
                "cannot open the program %r. Check that this file exists" % program)
        return [os.path.join(os.curdir, path) if path.startswith("-") else path]

    def knowledge(self, settings: Settings) -> str:
        """Return the build profile of this PyPy, or "" if it has the builtin engine.

        Raises:
            AllocationSamplingError: PyPy's code cannot be read.
            UnknownBuild: the GC was not found in PyPy's code.
        """
        if not self._library:
            return ""
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile

        from vmprof_allocation.engines.hook.discovery import lookup, symbols
        try:
            with open(self._library, "rb") as file:
                build_id = symbols.build_id(ELFFile(file))
        except (OSError, ELFError) as e:
            raise AllocationSamplingError("cannot read PyPy's code in %r: %s" % (
                self._library, getattr(e, "strerror", e))) from None
        evidence = Evidence()
        layout = lookup.known(evidence, build_id, "")
        if layout is None:
            cli.note(SEARCHING)
            layout = lookup.search(evidence, self._library, build_id)
        return layout.text()


def main(arguments: list[str]) -> None:
    """Run the command that the module docstring describes."""
    what, library, *rest = arguments
    if what == "settings":
        interval, seed, gaps, period, lifetimes = rest
        try:
            settings = make_settings(
                interval, cli.seed(seed or None),
                gaps,  # type: ignore[arg-type,unused-ignore]
                float(period) if period else None,
                lifetimes=lifetimes != "False")
            print(cli.pack(settings, "", held=-1, jitlog=-1,
                           knowledge=Python2(library, "").knowledge(settings)), end="")
        except (AllocationSamplingError, ValueError) as e:
            refuse(str(e))
        return
    executable, count, *command = rest
    sys.argv = ["vmprof", *command[len(command) - int(count):]]
    args = cli.parse(sys.argv[1:])
    if args is None:        # the command line has no flag of the sampler
        os.environ[VARIABLE] = "-"
        os.execv(executable, command)
    cli.main(args, command, Python2(library, executable))


if __name__ == "__main__":
    main(sys.argv[1:])
