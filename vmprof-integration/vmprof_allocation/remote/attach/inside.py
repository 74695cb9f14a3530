"""What attach has run in the program's process: `begin`, and then `end`."""
from __future__ import annotations

import _thread
import os

from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.engines.choose import choose
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.session.session import Session
from vmprof_allocation.settings.processes import Processes
from vmprof_allocation.settings.settings import Settings

# nothing that is not needed: see engines/base.py

_session: Session | None = None


def begin(fd: int, output: str, knowledge: str, settings: str, first: str = "",
          run: str = "", parent: int = 0) -> None:
    """Start, and tell the attaching command how that went.  `run`: of a process that
    began before, whose number is `parent`, and whose profile is `first`."""
    global _session
    try:
        session = Session(Settings.parse(settings), output,
                          Processes(first, run, parent) if run else None)
        with Undivided():
            engine = choose(knowledge)
            _let_go()
            session.start(engine)
        _session = session
    except AllocationSamplingError as e:
        _tell(fd, "e%s" % e)
    except Exception as e:
        _tell(fd, "eallocation sampling can't be started: %r" % e)
    else:
        _tell(fd, "s" + session.run)


def _let_go() -> None:
    """A program that used no threads would keep the GIL until it waits for something:
    we would not get it again.  PyPy gives it away from the first thread on."""
    if not isinstance(_thread.start_new_thread, type(len)):
        return              # gevent's makes no thread
    lock = _thread.allocate_lock()
    lock.acquire()
    _thread.start_new_thread(lock.release, ())
    lock.acquire()


def end(fd: int) -> None:
    global _session
    session, _session = _session, None
    if session is None:
        return              # it did not begin
    try:
        session.stop()
    except AllocationSamplingError as e:
        _tell(fd, "e%s" % e)
    except Exception as e:
        _tell(fd, "eallocation sampling can't be stopped: %r" % e)
    else:
        _tell(fd, "d")


def _tell(fd: int, message: str) -> None:
    try:
        os.write(fd, message.encode("utf-8", "replace"))
    except OSError:
        pass                # it is gone
