"""Begin the sampling in the program's process, before the program starts.

The command line (cli.py) checks as much as possible. It then replaces its process by a
new interpreter, which runs the program. Otherwise, the modules that the command line
imports would stay on the program's heap, and the GC would visit them. The environment
variable VARIABLE contains the settings. vmprof_allocation.pth calls begin() while
Python imports `site`.
"""
from __future__ import annotations

import gc
import os
import sys

from vmprof_allocation.critical.interrupts import Uninterrupted
from vmprof_allocation.engines.choose import choose
from vmprof_allocation.errors import AllocationSamplingError, say
from vmprof_allocation.session import resident
from vmprof_allocation.session.session import Session
from vmprof_allocation.settings.processes import make_own, unpack
from vmprof_allocation.settings.settings import Settings

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

#: Environment variable with the settings, and with the pid of the process that these
#: settings are for. begin() removes the variable before the program starts.
VARIABLE = "VMPROF_ALLOCATION"
EXIT_BAD_INPUT = 2
_PACKAGE = __name__.partition(".")[0]
#: modules that _leave() keeps, because they are called when the process forks or ends,
#: or define errors
_STAY = tuple(_PACKAGE + "." + name for name in (
    "errors", "critical.forks", "session.resident"))


def begin() -> None:
    """Start the sampling that VARIABLE requests for this process.

    If the start fails, end the process, because the user would not notice that the
    program runs without the sampling.
    """
    fields = os.environ.pop(VARIABLE).split("\t", 5)
    if fields[0] != str(os.getpid()):
        return
    resident.is_of_command_line = True
    try:
        _run(fields)
    except AllocationSamplingError as e:
        refuse(str(e))
    except Exception as e:
        refuse("cannot start the allocation sampling: %r" % e)


def follow(run: str) -> None:
    """Continue the sampling in a child that became this interpreter by exec.

    If the sampling cannot start, the program runs without the sampling.

    Args:
        run: value of processes.VARIABLE, which the parent set.
    """
    path = None
    resident.is_of_command_line = True
    try:
        processes, settings, knowledge = unpack(run)
        engine = choose(knowledge, hook=settings.needs_hook)
        path = make_own(processes)
        if path is not None:
            session = Session(settings, path, processes)
            session.start(engine)
            _leave(session)
    except Exception:
        if path is not None and os.path.exists(path):
            os.unlink(path)


def _run(fields: list[str]) -> None:
    """Start the sampling of the program that the command line runs.

    Args:
        fields: the fields of VARIABLE; see cli.pack().
    """
    _, held, jitlog, text, knowledge, output = fields
    settings = Settings.parse(text)
    session = Session(settings, output)
    session.start(choose(knowledge, hook=settings.needs_hook))
    if int(held) >= 0:
        os.close(int(held))
    _start_jitlog(int(jitlog))
    # This module was imported before the program, so its exit handler runs after all
    # handlers of the program, when the program's threads have ended.
    resident.end_at_interrupt()
    if settings.ends_with_snapshot:
        from vmprof_allocation.session import snapshots
        snapshots.plan(session)
    _leave(session)


def _leave(session: Session) -> None:
    """Remove the modules that are not needed while the program runs.

    If threads rotate the profile or take snapshots, the modules stay.
    """
    if session.settings.memory_at_end:
            # look() runs before all other work at the end, because this work takes
            # memory
        from vmprof_allocation.session import memory_at_end
        resident.at_end(memory_at_end.look)
    if session.settings.rotate:
        from vmprof_allocation.session.periodic_rotation import PeriodicRotation
        PeriodicRotation(session).begin()
    if session.settings.rotate or session.settings.snapshots:
        return
    with Uninterrupted():
        suspended = session.suspend()
        if suspended is None:
            return
        resident.suspended(suspended)
        for name in [*sys.modules]:
            if name == _PACKAGE or (name.startswith(_PACKAGE + ".")
                                    and name not in _STAY):
                file: Any = sys.modules.pop(name).__file__
                sys.path_importer_cache.pop(os.path.dirname(file), None)
    # PyPy caches the methods that were called last, and so keeps all objects alive that
    # these methods refer to, until gc.collect() is called.
    suspended.ending.ignore(True)
    gc.collect()
    suspended.ending.ignore(False)


def _start_jitlog(fd: int) -> None:
    if fd < 0:
        return
    os.set_inheritable(fd, False)
    try:
        import _jitlog
    except ImportError:
        return
    _jitlog.enable(fd)
    resident.at_end(_jitlog.disable)


def refuse(message: str) -> NoReturn:
    """Print an error, and end the process."""
    say(message)
    # os._exit(), because an exception would only end the import of `site`
    os._exit(EXIT_BAD_INPUT)
