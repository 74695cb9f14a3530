"""--rotate and --push: one profile after the other, each of so many seconds:
app.vmprof, app.w2.vmprof and so on, and of a child app.123.vmprof, app.123.w2.vmprof.
A thread ends one and begins the next one, in the process that began to sample, and in
its forked children."""
from __future__ import annotations

import os
from _thread import allocate_lock, get_native_id, start_new_thread
from time import monotonic, sleep

from vmprof_allocation.critical.after_fork import after_fork
from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy, say
from vmprof_allocation.session import own_thread, resident, snapshots

# nothing that is not needed: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType

    from vmprof_allocation.session.session import Session

#: process 1 of a container takes the pusher with it, and waits so many seconds
_LAST = 5.0
#: the share of the time that heap snapshots of segments may take by default
_SHARE = 0.01


class PeriodicRotation:
    """A context manager that ends the sampling, and with it the rotation."""

    def __init__(self, session: Session) -> None:
        """`session` is on; its settings say how often, and what may be there at most.
        If there is a bound, somebody takes the profiles away, and removes their folder
        when nobody does any more."""
        self.session = session
        self._every = session.settings.rotate
        self._is_on = True
        self._is_of_thread = self._will_be_of_thread = False
        self._reset()

    def _reset(self) -> None:
        """For this process."""
        self._pid = os.getpid()
        #: it is released when this is to end
        self._end = allocate_lock()
        self._end.acquire()
        path = self.session.path
        #: the first profile of this process, as soon as there is one
        self._first = os.path.abspath(path) if path else ""
        #: why the last one could not be begun, or is not whole
        self._problem = ""
        #: why it was not known who held what in it
        self._not_held = ""
        #: the earliest time of the next snapshot, without --leaks and --held
        self._next_snapshot = 0.0
        #: of later ones that have ended, the oldest first: path and bytes
        self._ended: list[tuple[str, int]] = []
        self._bytes = 0

    def begin(self) -> None:
        os.register_at_fork(before=self._look_who_forks, after_in_child=self._go_on)
        if self._is_bounded and self._pid == 1:
            resident.at_end(self.stop)
        if self.session.settings.ends_with_snapshot:
            resident.at_end(self._stay)
        self._start()

    @property
    def _is_bounded(self) -> bool:
        return self.session.settings.max_files > 0

    def __enter__(self) -> PeriodicRotation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the sampling.  Profiles that somebody takes away are waited for as
        process 1, for some seconds at most."""
        if self._pid != os.getpid() or not self._is_on:
            return
        self._is_on = False
        self._end.release()
        self.session.stop()
        if self._is_bounded and self._pid == 1:
            self._wait()

    def _stay(self) -> None:
        """In the present profile: who holds what at the end is asked for it."""
        with Undivided():
            self._is_on = False

    def _wait(self) -> None:
        until = monotonic() + _LAST
        while monotonic() < until and self._waits():
            sleep(0.1)

    def _waits(self) -> bool:
        """There is a profile that nobody has taken as yet."""
        stem, suffix = os.path.splitext(self._first)
        folder = os.path.dirname(stem)
        try:
            return any(os.stat(os.path.join(folder, name)).st_size > 0
                       for name in os.listdir(folder) if name.endswith(suffix))
        except OSError:
            return True             # it has just been taken

    # ____________________________________________________________
    # the thread

    def _start(self) -> None:
        try:
            start_new_thread(self._run, (self._end,))
        except Exception:
            pass            # there are too many; it has one profile

    def _run(self, end: LockType) -> None:
        own_thread.declare()
        while not end.acquire(True, self._every):
            if self.session.settings.ends_with_snapshot:
                self._look()
            elif monotonic() >= self._next_snapshot:
                self._take_snapshot()
            with Undivided():
                try:
                    if self._is_on:
                        self._next()
                except Exception as error:
                    self._is_on = False
                    say("the profile does not rotate any more: %r" % error)
                if not self._is_on:
                    return

    def _look_who_forks(self) -> None:
        """A child ends with the thread that forked, but for a main one, if there is
        no other: one of ours would keep it.  Such a child has one profile."""
        self._will_be_of_thread = self._is_of_thread or get_native_id() != os.getpid()

    def _go_on(self) -> None:
        """In a forked child: a thread of its own, if it is sampled."""
        self._is_on = self._is_on and self.session.is_inherited
        if self._is_on:
            self._reset()
            self._is_of_thread = self._will_be_of_thread
            if not self._is_of_thread:
                after_fork(self._start)

    def _look(self) -> None:
        """Take a heap snapshot at the end of a profile.  Forks do not wait."""
        session = self.session
        part = session.part
        if not (self._is_on and session.is_on and session.path):
            return
        problem = ""
        try:
            snapshots.in_turn(session.held)
        except Exception as error:
            if self._is_on and session.is_on and session.part == part:
                problem = str(error)
            # else it was ended, or rotated, by others
        if problem and not self._not_held:
            say(problem)
        self._not_held = problem

    def _take_snapshot(self) -> None:
        """Take a heap snapshot at the end of a segment, if it is cheap enough."""
        began = monotonic()
        try:
            self.session.take_last_snapshot()
        except AllocationSamplingError:
            pass                        # the segment has no snapshot
        self._next_snapshot = began + (monotonic() - began) / _SHARE

    def _next(self) -> None:
        session = self.session
        if not session.is_on:
            self._is_on = False         # the program, or who controls it, ended it
            return
        self._first = self._first or session.path
        if not self._first:
            return                      # there is no sample as yet
        stem, suffix = os.path.splitext(self._first)
        part, ended, problem = session.part, session.path, ""
        following = "%s.w%d%s" % (stem, part + 1, suffix)
        if self._is_abandoned():
            self._is_on = False
            say("nobody takes the profiles any more: sampling ends")
            try:
                session.stop()
            except AllocationSamplingError:
                pass            # the present one is gone, too
            return
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
        # a folder that vanished meanwhile is a matter of the next call
        if problem and not self._problem and not self._is_abandoned():
            say(problem)
        self._problem = problem
        if self._is_bounded and session.path == following and part > 1:
            self._bound(ended)

    def _is_abandoned(self) -> bool:
        """Return True if the pusher has removed the folder of the profiles."""
        return self._is_bounded and not os.path.isdir(os.path.dirname(self._first))

    def _bound(self, ended: str) -> None:
        """What is there is bounded, whoever takes it away, or not: but for the first
        one, which children look for."""
        try:
            size = os.stat(ended).st_size
        except OSError:
            return              # somebody did
        self._ended.append((ended, size))
        self._bytes += size
        settings = self.session.settings
        while (len(self._ended) > settings.max_files
               or self._bytes > settings.max_bytes):
            oldest, size = self._ended.pop(0)
            self._bytes -= size
            try:
                os.unlink(oldest)
            except OSError:
                pass            # it was taken
