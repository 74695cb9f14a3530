"""What stays of this package in the process of a program that the command line runs.

Each major collection visits all objects on the heap, and ours would make it longer.
The native half needs none of them.  So when sampling has begun, begin.py leaves the
state of the session here, a few values, and takes our other modules out of
sys.modules.  Who imports `session` later gets a Session with that state.

The interpreter tells this module of a fork, of the end, and of a KeyboardInterrupt
that nobody catches.  It imports nothing then: the program may be anywhere.
"""
from __future__ import annotations

import atexit
import os
import sys
from _thread import get_ident

from vmprof_allocation.critical.interrupts import Uninterrupted
from vmprof_allocation.errors import AllocationSamplingError, say

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from vmprof_allocation.engines.ending import Ending
    from vmprof_allocation.session.profile_file import ProfileFile

#: the part of PyPy that runs a program
_PYPY = "<builtin>/app_main.py"

#: the module `session`, if it was imported
_session: Any = None
#: of the session that was suspended; None: none was
_suspended: Suspended | None = None
#: what else the command line's run has to end, the last one first
_at_end: list[Callable[[], object]] = []
#: the command line began to sample this process, or one that it is a child of
is_of_command_line = False


class Suspended:
    """A session without its modules."""

    __slots__ = ("ending", "file", "pids", "state")

    def __init__(self, state: tuple[object, ...], ending: Ending,
                 file: ProfileFile) -> None:
        #: Session.suspend()
        self.state = state
        self.ending = ending
        self.file = file
        #: of the process that was suspended, and of those that were forked from it,
        #: one from the other, down to this one
        self.pids = [os.getpid()]


def suspended(session: Suspended) -> None:
    """The modules are about to go; `session` is all that stays."""
    global _suspended, _session
    _suspended, _session = session, None


def imported(session: ModuleType) -> None:
    """The module `session` was: what is suspended goes on there."""
    global _session
    if _suspended is not None and _session is None:
        session.restore(_suspended.state, _suspended.pids)
    _session = session


def at_end(function: Callable[[], object]) -> None:
    """Call it at the end of the process, before sampling ends."""
    _at_end.append(function)


# ____________________________________________________________
# what the interpreter tells

@atexit.register
def _end() -> None:
    try:
        # a signal's handler is the program's, which has ended
        with Uninterrupted():
            for end in (*reversed(_at_end), _end_sampling):
                try:
                    end()
                except AllocationSamplingError as e:
                    say(str(e))
                except BaseException as e:
                    say("the profile is whole, but for names of threads, which could "
                        "not be written at the program's end (%r)" % (e,))
    except BaseException:
        pass                # raised by such a handler, which had to wait


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
    """KeyboardInterrupt ends PyPy without exit handlers: it is shown, and
    then the process kills itself.  Between the two there is nothing but
    the function that shows it, unless the program has one of its own."""
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
        # they are the same, as programs may ask
        sys.__excepthook__ = excepthook
