"""The part of this package that stays in the process of a program, and ends sampling.

A major collection visits all objects on the heap, and the sampler's objects would make
it longer. The native code does not need these objects. When sampling has begun,
begin.py stores the state of the session in this module, which is a few values. It
removes the other modules from sys.modules. If the module `session` is imported again
later, it creates a Session from this state.

The interpreter calls this module after a fork, at the end, and for an uncaught
KeyboardInterrupt. These calls do not import anything, because the program may be at any
point of its code.
"""
from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident

from vmprof_allocation.critical.interrupts import Uninterrupted
from vmprof_allocation.errors import AllocationSamplingError, say

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from vmprof_allocation.engines.ending import Ending
    from vmprof_allocation.session.profile_file import ProfileFile

#: file name of the part of PyPy that runs a program
_PYPY = "<builtin>/app_main.py"

#: the module `session`; None until it is imported
_session: Any = None
#: the suspended session; None if no session was suspended
_suspended: Suspended | None = None
#: functions to call before sampling ends, the last one first
_at_end: list[Callable[[], object]] = []
#: whether the command line has started to sample this process or a parent of it
is_of_command_line = False


class Suspended:
    """The state of a session whose modules were removed."""

    __slots__ = ("ending", "file", "pids", "state")

    def __init__(self, state: tuple[object, ...], ending: Ending,
                 file: ProfileFile) -> None:
        """Store the state, the object that ends the run, and the profile."""
        #: arguments for Session.restore()
        self.state = state
        self.ending = ending
        self.file = file
        #: the suspended process, and each forked descendant down to this process
        self.pids = [os.getpid()]


def suspended(session: Suspended) -> None:
    """Keep the state of a session whose modules are about to be removed."""
    global _suspended, _session
    _suspended, _session = session, None


def imported(session: ModuleType) -> None:
    """Continue a suspended session in the module `session`, which has been imported."""
    global _session
    if _suspended is not None and _session is None:
        session.restore(_suspended.state, _suspended.pids)
    _session = session


def at_end(function: Callable[[], object]) -> None:
    """Call a function at the end of the process, before sampling ends."""
    _at_end.append(function)


# ____________________________________________________________
# calls from the interpreter

@atexit.register
def _end() -> None:
    try:
        # the program has ended, so its signal handlers must not run meanwhile
        with Uninterrupted():
            for end in (*reversed(_at_end), _end_sampling):
                try:
                    end()
                except AllocationSamplingError as e:
                    say(str(e))
                except BaseException as e:
                    say("the profile lacks names of threads, which could not be "
                        "written at the program's end (%r); the rest is "
                        "complete" % (e,))
    except BaseException:
        pass                # a signal handler that ran late raised this exception


def _end_sampling() -> None:
    if _session is not None:
        _session.stop_all()
    elif _suspended is not None and len(_suspended.pids) > 1:
        _suspended.ending.end_child()
    elif _suspended is not None:
        file, is_ended = _suspended.file, True
        try:
            is_ended = _suspended.ending.end()
            if is_ended and file.is_ours():
                file.check()
        finally:
            if is_ended:
                file.close()


def _forked() -> None:
    if _session is not None:
        _session.go_on()
    elif _suspended is not None:
        _suspended.pids.append(os.getpid())
        _suspended.ending.forked()


os.register_at_fork(after_in_child=_forked)


def end_at_interrupt() -> None:
    """End sampling if the program ends by a KeyboardInterrupt.

    After a KeyboardInterrupt, PyPy runs no exit handlers. It calls sys.excepthook, and
    kills the process. So this function replaces sys.excepthook, unless the program has
    replaced it already.
    """
    shown = sys.__excepthook__

    def excepthook(kind: Any, value: Any, traceback: Any) -> None:
        shown(kind, value, traceback)
        if kind is KeyboardInterrupt and get_ident() == main_thread:
            caller = sys._getframe().f_back
            if caller is None or caller.f_code.co_filename == _PYPY:
                _end()

    main_thread = get_ident()
    if sys.excepthook is shown:
        sys.excepthook = excepthook
        # programs compare sys.excepthook with sys.__excepthook__, so keep both equal
        sys.__excepthook__ = excepthook
