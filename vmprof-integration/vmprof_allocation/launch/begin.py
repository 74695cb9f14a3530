"""Sampling begins, in the process that is the program's, before the program.

The command line has checked all that can be checked, and has then become a
new interpreter that runs the program itself (cli.py), as if we were not there:
what the command line had to import would stay on the program's heap, and be
walked by its collector.  What it found out comes in one variable of the
environment, and vmprof_allocation.pth calls begin() while `site` is imported.
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

#: it names the process that it is meant for, and is gone when the program
#: begins
VARIABLE = "VMPROF_ALLOCATION"
EXIT_BAD_INPUT = 2
_PACKAGE = __name__.partition(".")[0]
#: what is called when the process forks or ends, and the errors that it knows
_STAY = tuple(_PACKAGE + "." + name for name in (
    "errors", "critical.forks", "session.resident"))


def begin() -> None:
    """Start what the variable asks this process for.  Does not return if that
    fails: the program must not run unnoticed without."""
    fields = os.environ.pop(VARIABLE).split("\t", 5)
    if fields[0] != str(os.getpid()):
        return
    resident.is_of_command_line = True
    try:
        _run(fields)
    except AllocationSamplingError as e:
        refuse(str(e))
    except Exception as e:
        refuse("allocation sampling can't be started: %r" % e)


def follow(run: str) -> None:
    """This process is a child of one that is sampled, and became this interpreter
    by exec: go on with `run`, its variable's value.  If that can't be, it runs as
    it would without us."""
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
    """The program that the command line samples."""
    _, held, jitlog, text, knowledge, output = fields
    settings = Settings.parse(text)
    session = Session(settings, output)
    session.start(choose(knowledge, hook=settings.needs_hook))
    if int(held) >= 0:
        os.close(int(held))
    _start_jitlog(int(jitlog))
    # The module was imported before the program: what it does at the end comes after
    # all of the program's, whose threads have ended then.
    resident.end_at_interrupt()
    if settings.ends_with_snapshot:
        from vmprof_allocation.session import snapshots
        snapshots.plan(session)
    _leave(session)


def _leave(session: Session) -> None:
    """Leave the session to the threads that rotate its profile and take snapshots;
    without these, to the native half alone."""
    if session.settings.memory_at_end:
        # before all else that is done at the end, which takes memory
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
    # PyPy remembers what methods were called last, and with them all that they
    # refer to, until it collects because it is asked to.
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
    say(message)
    # an exception would only end the import of `site`
    os._exit(EXIT_BAD_INPUT)
