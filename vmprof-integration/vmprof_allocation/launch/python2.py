"""What a PyPy 2.7 asks a Python 3 to do for it: read the arguments, and find out
where the garbage collector is in its build.  ../python2 has its side.

    python -m vmprof_allocation.launch.python2 run LIBRARY EXECUTABLE COUNT COMMAND...
    python -m vmprof_allocation.launch.python2 settings LIBRARY INTERVAL SEED GAPS
                                                 PERIOD LIFETIMES

LIBRARY is the file that holds PyPy's code; empty: that PyPy samples on its own, and
nothing has to be found.  The first form is the COMMAND line of
an EXECUTABLE with `-m vmprof` and COUNT arguments, and becomes it, as cli.py does
for this interpreter.  The second one prints the settings of a session, as they
stand in begin.py's variable.
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
    """A PyPy 2.7."""

    is_python_3 = False

    def __init__(self, library: str, executable: str) -> None:
        self.executable = executable
        self._library = library

    def find(self, program: str, is_module: bool) -> list[str]:
        if is_module:
            return ["-m", program]      # its modules are not ours to look at
        path = program
        if not os.path.exists(program) and program and os.sep not in program:
            path = shutil.which(program) or program
        if not os.access(path, os.R_OK):
            raise AllocationSamplingError(
                "can't open the program %r; is there such a file?" % program)
        return [os.path.join(os.curdir, path) if path.startswith("-") else path]

    def knowledge(self, settings: Settings) -> str:
        if not self._library:
            return ""
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile

        from vmprof_allocation.engines.hook.discovery import lookup, symbols
        try:
            with open(self._library, "rb") as file:
                build_id = symbols.build_id(ELFFile(file))
        except (OSError, ELFError) as e:
            raise AllocationSamplingError("can't read PyPy's code in %r: %s" % (
                self._library, getattr(e, "strerror", e))) from None
        evidence = Evidence()
        layout = lookup.known(evidence, build_id, "")
        if layout is None:
            cli.note(SEARCHING)
            layout = lookup.search(evidence, self._library, build_id)
        return layout.text()


def main(arguments: list[str]) -> None:
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
    if args is None:        # our flags are the program's
        os.environ[VARIABLE] = "-"
        os.execv(executable, command)
    cli.main(args, command, Python2(library, executable))


if __name__ == "__main__":
    main(sys.argv[1:])
