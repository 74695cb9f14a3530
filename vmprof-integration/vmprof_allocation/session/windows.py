"""What ends one profile and begins the next, each so many seconds, by a thread of its
own: in the process that began to sample, and in its forked children."""
from __future__ import annotations

import atexit
import os
from _thread import allocate_lock, get_native_id, start_new_thread

from vmprof_allocation.critical.after_fork import after_fork
from vmprof_allocation.critical.forks import Undivided

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType

    from vmprof_allocation.session.session import Session


class Windows:
    """From the first window to the last; who derives from it says what is done between
    two."""

    def __init__(self, session: Session, every: float) -> None:
        """`session` is on; `every`: seconds."""
        self._every = every
        #: None: there is none at present
        self._session: Session | None = session
        self._is_on = True
        self._is_of_thread = self._will_be_of_thread = False
        self._reset()

    def _reset(self) -> None:
        """For this process."""
        self._pid = os.getpid()
        #: who changes the session
        self._lock = allocate_lock()
        #: it is released when this is to end
        self._end = allocate_lock()
        self._end.acquire()

    def begin(self) -> None:
        # before that of the session, whose registration was before
        atexit.register(self.stop)
        os.register_at_fork(before=self._look_who_forks, after_in_child=self._go_on)
        self._start()

    def _look_who_forks(self) -> None:
        """A child ends with the thread that forked, but for a main one, if there is
        no other: one of ours would keep it.  Such a child has one window."""
        self._will_be_of_thread = self._is_of_thread or get_native_id() != os.getpid()

    def _go_on(self) -> None:
        """In a forked child: a thread of its own, if it is sampled."""
        session = self._session
        self._is_on = (self._is_on and session is not None
                       and session.is_inherited)
        if self._is_on:
            self._reset()
            self._forked()
            self._is_of_thread = self._will_be_of_thread
            if not self._is_of_thread:
                after_fork(self._start)

    def _forked(self) -> None:
        """This is such a child: what is the parent's is forgotten."""

    def _start(self) -> None:
        try:
            start_new_thread(self._run, (self._end,))
        except Exception:
            pass            # there are too many; it has one window

    def stop(self) -> None:
        """No window is begun any more."""
        if self._pid != os.getpid():
            return
        with Undivided(), self._lock:
            if not self._is_on:
                return
            self._is_on = False
            self._end.release()
            self._finish()

    def _run(self, end: LockType) -> None:
        _say_that_it_is_ours()
        while not end.acquire(True, self._every):
            with Undivided(), self._lock:
                try:
                    if self._is_on:
                        self._next()
                except Exception as error:
                    self._is_on = False
                    self._fail(error)
                if not self._is_on:
                    return

    def _next(self) -> None:
        """A window ends, and the next one begins."""
        raise NotImplementedError

    def _finish(self) -> None:
        """At the end."""

    def _fail(self, error: Exception) -> None:
        """None of these could be foreseen."""
        raise NotImplementedError


def _say_that_it_is_ours() -> None:
    """To native/shared/flusher.c: this thread is nothing that the process has to wait
    for when those of the program have ended."""
    try:
        number = os.readlink("/proc/thread-self").rpartition("/")[2]
        fd = os.open("/proc/thread-self/comm", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"vmprof " + os.fsencode(number))
        finally:
            os.close(fd)
    except OSError:
        pass            # there is no /proc
