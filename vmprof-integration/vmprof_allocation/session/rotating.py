"""--rotate: one profile after the other, each of so many seconds: app.vmprof,
app.w2.vmprof and so on, and of a child app.123.vmprof, app.123.w2.vmprof."""
from __future__ import annotations

import os

from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy, say
from vmprof_allocation.session.windows import Windows

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from vmprof_allocation.session.session import Session


class Rotating(Windows):
    def __init__(self, session: Session, every: float) -> None:
        super().__init__(session, every)
        #: the first one of this process, as soon as there is one
        self._first = os.path.abspath(session.path)
        #: why the last one could not be begun, or is not whole
        self._problem = ""

    def _forked(self) -> None:
        self._first = self._problem = ""

    def _next(self) -> None:
        session = self._session
        if session is None or not session.is_on:
            self._is_on = False         # the program, or who controls it, ended it
            return
        self._first = self._first or session.path
        if not self._first:
            return                      # there is no sample as yet
        stem, suffix = os.path.splitext(self._first)
        part, problem = session.part, ""
        following = "%s.w%d%s" % (stem, part + 1, suffix)
        try:
            session.rotate(following)
        except SamplingBusy:
            pass                        # the process ends
        except AllocationSamplingError as error:
            if session.path == following:
                problem = str(error)
            elif session.is_on and session.part == part:
                problem = "no new profile is begun: %s" % error
            # else it was ended, or rotated, by others
        # the next one may do better: a disk that is full is not so for ever
        if problem and not self._problem:
            say(problem)
        self._problem = problem

    def _fail(self, error: Exception) -> None:
        say("the profile does not rotate any more: %r" % error)
