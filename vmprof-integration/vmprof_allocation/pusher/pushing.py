"""Sampling in windows: one file after the other, in a folder from where another process
sends and removes them (pusher/).  What can be slow or fail there, the program never
waits for: what lies in the folder is bounded, and if nobody empties it any more,
sampling ends.
"""
from __future__ import annotations

import os
from time import monotonic, sleep

from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy, say
from vmprof_allocation.pusher.folder import (
    DROPPED,
    LOCK,
    MAX_BYTES,
    MAX_WINDOWS,
    SUFFIX,
    remove,
)
from vmprof_allocation.session.session import Session
from vmprof_allocation.session.windows import Windows
from vmprof_allocation.settings.processes import MAX_SEED, PUSH_EVERY, Processes

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from vmprof_allocation.engines.base import Engine
    from vmprof_allocation.settings.settings import Settings

#: A pusher that was killed comes again within some seconds.  One that is longer away
#: does not.
_AWAY = 30.0
#: process 1 of a container takes the pusher with it, and waits so many seconds
_LAST = 5.0


def processes_of(folder: str) -> Processes:
    """A run in this folder, of which this process is the first."""
    return Processes(os.path.join(folder, "%d%s" % (os.getpid(), SUFFIX)))


def begin(settings: Settings, processes: Processes,
          engine: Engine | None = None) -> Pushing:
    """Raises AllocationSamplingError."""
    session = Session(settings, window(processes, 1), processes)
    session.start(engine)
    return push(session, processes, 1)


def push(session: Session, processes: Processes, number: int = 0) -> Pushing:
    """As Pushing(); `session` ends if that can't be."""
    pushing = None
    try:
        pushing = Pushing(session, processes, number)
        pushing.begin()
    except BaseException:
        (pushing or session).stop()
        raise
    return pushing


def window(processes: Processes, number: int) -> str:
    return "%s-%d%s" % (processes.path, number, processes.suffix)


def _read_every(folder: str) -> float:
    """Seconds between two windows."""
    with open(os.path.join(folder, PUSH_EVERY), "rb") as file:
        return float(file.read())


class Pushing(Windows):
    """From the first window to the last.  A context manager that ends it."""

    def __init__(self, session: Session, processes: Processes,
                 number: int = 0) -> None:
        """`session` is on, one of `processes`, and writes its profile into the folder
        of a pusher: window `number`, or a child's that has none."""
        self.folder = os.path.dirname(processes.first)
        super().__init__(session, _read_every(self.folder))
        self._settings: Settings = session.settings
        self._engine = session.engine
        self._begin_anew(processes.run, processes.parent, number)

    def _forked(self) -> None:
        self._begin_anew(self._processes.run, os.getppid(), 0)

    def _begin_anew(self, run: str, parent: int, number: int) -> None:
        """For this process."""
        self._number = number
        #: of the windows that come
        self._processes = processes_of(self.folder)
        self._processes.run, self._processes.parent = run, parent
        #: of the windows that may be there, the oldest first: path and bytes
        self._waiting: list[tuple[str, int]] = []
        self._bytes = 0
        self._dropped = 0
        #: why there is no window, or none that is whole
        self._problem = ""
        #: since when there is no pusher; 0.0: there is one
        self._away = 0.0

    def _start(self) -> None:
        # children begin as long as it is there
        _write(self._processes.first, "")
        super()._start()

    @property
    def number(self) -> int:
        """Of the window that is being written."""
        return self._number

    def __enter__(self) -> Pushing:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the sampling.  What waits is sent, as far as it can be within some
        seconds."""
        is_last = self._is_on and self._pid == os.getpid() == 1
        super().stop()
        if is_last:
            self._wait()

    def _wait(self) -> None:
        until = monotonic() + _LAST
        while monotonic() < until and any(
                name.endswith(SUFFIX) for name in _names(self.folder)):
            sleep(0.1)

    def _finish(self) -> None:
        try:
            self._end_window()
        finally:
            _unlink(self._processes.first)

    def _fail(self, error: Exception) -> None:
        _unlink(self._processes.first)
        say("sampling ends, and nothing is pushed any more: %r" % error)

    def _next(self) -> None:
        if self._has_no_pusher():
            self._is_on = False
            self._end_window()
            remove(self.folder)
            say("the process that pushes is gone: sampling ends")
            return
        problem = ""
        try:
            self._rotate()
        except SamplingBusy:
            pass                # the process ends
        except AllocationSamplingError as error:
            problem = str(error)
        # the next one may do better: a disk that is full is not so for ever
        if problem and not self._problem:
            say("a window is missing: %s" % problem)
        self._problem = problem

    def _rotate(self) -> None:
        session, engine = self._session, self._engine
        following = window(self._processes, self._number + 1)
        if (session is not None and session.is_on and not session.is_inherited
                and engine is not None):
            ended = session.path
            try:
                session.rotate(following)
            finally:
                if session.path != ended:
                    self._number += 1
                    self._count(ended)
            return
        # what is allocated in between is in no window
        try:
            self._end_window()
        finally:
            if self._session is None:
                begun = Session(self._settings.with_seed(self._seed()), following,
                                self._processes)
                begun.start(engine)
                self._session = begun
                self._number += 1

    def _seed(self) -> int:
        """Of a window that does not go on from the one before: two that began alike
        would choose the same bytes, whatever process they are of."""
        # of numbers: the same in each process
        return hash((self._settings.seed, self._pid, self._number + 1)) & MAX_SEED

    def _end_window(self) -> None:
        """The present window ends.  Raises AllocationSamplingError if it is not
        whole."""
        session = self._session
        if session is None:
            return
        path = session.path
        try:
            session.stop()
        finally:
            if not session.is_on:
                self._session = None
                self._count(path)

    def _count(self, path: str) -> None:
        """What waits is bounded, whatever the pusher does."""
        try:
            size = os.stat(path).st_size
        except OSError:
            return              # it was removed, as there was no sample in it, or sent
        self._waiting.append((path, size))
        self._bytes += size
        dropped = self._dropped
        while len(self._waiting) > MAX_WINDOWS or self._bytes > MAX_BYTES:
            oldest, size = self._waiting[0]
            is_held, is_dropped = _unless_held(oldest, _unlink)
            if is_held:
                break           # it is being sent
            del self._waiting[0]
            self._bytes -= size
            self._dropped += is_dropped
        if self._dropped != dropped:
            _write(os.path.join(self.folder, "%d%s" % (self._pid, DROPPED)),
                   str(self._dropped))

    def _has_no_pusher(self) -> bool:
        if _unless_held(os.path.join(self.folder, LOCK), lambda _: False)[0]:
            self._away = 0.0
            return False
        now = monotonic()
        self._away = self._away or now
        return now - self._away > _AWAY


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _write(path: str, text: str) -> None:
    try:
        with open(path, "wb") as file:
            file.write(text.encode("ascii"))
    except OSError:
        pass


def _unlink(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _unless_held(path: str, function: Callable[[str], bool]) -> tuple[bool, bool]:
    """Whether somebody holds a file; if nobody does, and nobody can meanwhile, what
    `function` returns.  One that is not there is held by nobody."""
    import fcntl
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False, False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False, function(path)
    except BlockingIOError:
        return True, False
    finally:
        os.close(fd)
