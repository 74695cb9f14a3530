"""Sampling begins, in the process that is the program's, before the program.

The command line has checked all that can be checked, and has then become a
new interpreter that runs the program itself (cli.py), as if we were not there:
what the command line had to import would stay on the program's heap, and be
walked by its collector.  What it found out comes in one variable of the
environment, and vmprof_allocation.pth calls begin() while `site` is imported.
"""
from __future__ import annotations

import os

from vmprof_allocation import resting
from vmprof_allocation import session as _session
from vmprof_allocation.engines.choose import choose, find
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.processes import PUSH_EVERY, Processes
from vmprof_allocation.put_away import pack, put_away
from vmprof_allocation.resting import say
from vmprof_allocation.settings import Limit, Settings

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from vmprof_allocation.engines.base import Engine

#: it names the process that it is meant for, and is gone when the program
#: begins
VARIABLE = "VMPROF_ALLOCATION"
EXIT_BAD_INPUT = 2
#: instead of a descriptor: there is a report to be made, and nobody who waits
NO_WATCHER = -2


def begin() -> None:
    """Start what the variable asks this process for.  Does not return if that
    fails: the program must not run unnoticed without."""
    fields = os.environ.pop(VARIABLE).split("\t", 16)
    if fields[0] != str(os.getpid()):
        return
    problem = ""
    try:
        Run.begin(fields)
    except AllocationSamplingError as e:
        problem = str(e)
    except Exception as e:
        problem = "allocation sampling can't be started: %r" % e
    if problem:
        if int(fields[14]) == NO_WATCHER:
            try:
                os.unlink(fields[16])
            except OSError:
                pass
        refuse(problem)


def follow(run: str) -> None:
    """This process is a child of one that is sampled, and became this interpreter
    by exec: go on with `run`, its variable's value.  If that can't be, it runs as
    it would without us."""
    path = None
    try:
        from vmprof_allocation.children import make_own, unpack
        processes, settings, knowledge = unpack(run)
        engine = choose(knowledge)
        path = make_own(processes)
        if path is not None:
            session = _session.Session(settings, path, processes)
            is_pushed = _is_pushed(path)
            if not (is_pushed or settings.rotate):
                pack()
            session.start(engine)
            if is_pushed:
                from vmprof_allocation.pushing import push
                push(session, processes)
            else:
                _rotate(session)
                if not settings.rotate:
                    put_away()
    except Exception:
        if path is not None and os.path.exists(path):
            os.unlink(path)


def _is_pushed(profile: str) -> bool:
    return os.path.exists(os.path.join(os.path.dirname(profile), PUSH_EVERY))


def _rotate(session: _session.Session) -> None:
    if session.settings.rotate:
        from vmprof_allocation.rotating import Rotating
        Rotating(session, session.settings.rotate).begin()


class Run:
    """From the beginning of the program to its end."""

    def __init__(self, engine: Engine, session: _session.Session,
                 watcher: int) -> None:
        """`watcher`: a descriptor, NO_WATCHER, or -1: no report is to be made."""
        self._engine = engine
        self._session = session
        self._watcher = watcher
        self._pushing: Any = None
        self._jitlog: Any = None

    @classmethod
    def begin(cls, fields: list[str]) -> Run:
        (_, interval, seed, gaps, period, memory, lifetimes, per_second, share,
         follow, rotate, native, held, jitlog, watcher, knowledge, output) = fields
        limit = Limit(int(per_second), int(share))
        settings = Settings(
            int(interval), int(seed), gaps,  # type: ignore[arg-type,unused-ignore]
            float(period) if period else None, memory == "1",
            limit if limit.per_second or limit.share else None,
            lifetimes == "1", follow=follow == "1", rotate=float(rotate),
            native=native == "1")
        if int(watcher) >= 0:
            os.set_inheritable(int(watcher), False)
        run = cls(choose(knowledge), _session.Session(settings, output), int(watcher))
        run._start(output)
        if int(held) >= 0:
            os.close(int(held))
        run._jitlog = _start_jitlog(int(jitlog))
        # `resting` was imported before the program: what it calls at the end comes
        # after all of the program's, whose threads have ended then
        resting.stay(run, run._watcher)
        if not (run._pushing or settings.rotate):
            put_away(run)
        return run

    def rest(self) -> tuple[object, ...]:
        """What wake() needs."""
        return self._watcher, self._jitlog is not None

    def ends_simply(self) -> bool:
        """With the profile, and who is told: resting.py can do that."""
        return self._jitlog is None and self._watcher != NO_WATCHER

    @classmethod
    def wake(cls, watcher: int, has_jitlog: bool) -> Run:
        """The run whose session was resting."""
        session = _session.woken
        assert session is not None
        run = cls(find(), session, watcher)
        if has_jitlog:
            import _jitlog
            run._jitlog = _jitlog
        return run

    def _start(self, output: str) -> None:
        settings = self._session.settings
        if _is_pushed(output):
            from vmprof_allocation import pushing
            self._pushing = pushing.begin(settings, Processes(output), self._engine)
        else:
            if not settings.rotate:
                pack()
            self._session.start(self._engine)
            _rotate(self._session)

    def end(self, at_once: bool = False) -> None:
        is_parent = self._session.is_parent
        if self._jitlog is not None:
            self._jitlog.disable()
            self._jitlog = None
        try:
            if self._pushing is not None:
                self._pushing.stop()
            self._session.stop()
        except AllocationSamplingError as e:
            say(str(e))
        if is_parent and self._watcher != -1:
            try:
                self._report(at_once)
                self._watcher = -1
            except BaseException:
                pass    # the user is in a hurry, or there is nobody to tell

    def _report(self, at_once: bool) -> None:
        """Have the report printed, and wait for it: it comes before the
        shell's prompt.  Unless that must be `at_once`, the interpreter ends
        before: its files are written then, and no signal is taken."""
        assert self._session.output is not None
        if resting.has_reported(self._engine.wait_at_exit, at_once):
            return
        if os.path.exists(self._session.output):
            from vmprof_allocation.watcher import report_script
            code = os.system("exec </dev/null >&2\n"
                             + report_script(self._session.output))
            if code != 3 << 8 and os.path.exists(self._session.output):
                say("the report could not be made; the profile is in %r"
                    % self._session.output)


def _start_jitlog(fd: int) -> Any:
    if fd < 0:
        return None
    os.set_inheritable(fd, False)
    try:
        import _jitlog
    except ImportError:
        return None
    _jitlog.enable(fd)
    return _jitlog


def refuse(message: str) -> NoReturn:
    say(message)
    # an exception would only end the import of `site`
    os._exit(EXIT_BAD_INPUT)
