"""Rotate the profile at a fixed period, for --rotate and --push.

The segments of the first process are app.vmprof, app.w2.vmprof and so on. A child
writes app.123.vmprof, app.123.w2.vmprof and so on. In the first process and in each
forked child, a thread of the sampler ends a segment and begins the next one.
"""
from __future__ import annotations

import os
from _thread import allocate_lock, get_native_id, start_new_thread
from time import monotonic, sleep, thread_time

from vmprof_allocation.critical.after_fork import after_fork
from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy, say
from vmprof_allocation.session import own_thread, resident, snapshots

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType

    from vmprof_allocation.session.session import Session

#: seconds to wait for the pusher, the process that sends the segments to a server.  It
#: is killed when process 1 of a container ends.
_LAST = 5.0


class PeriodicRotation:
    """A thread that rotates the profile of a session.

    As a context manager, the object ends the sampling and the rotation with the block.
    """

    def __init__(self, session: Session) -> None:
        """Prepare the rotation.

        Args:
            session: a session that has started. Its settings contain the period and the
                limits for the number and bytes of the segments. With limits, a pusher
                takes the segments, and removes their folder when it ends.
        """
        self.session = session
        self._every = session.settings.rotate
        self._is_on = True
        self._is_of_thread = self._will_be_of_thread = False
        self._reset()

    def _reset(self) -> None:
        """Set the initial state of the rotation in this process or forked child."""
        self._pid = os.getpid()
        #: locked until the thread is to end
        self._end = allocate_lock()
        self._end.acquire()
        path = self.session.path
        #: path of this process's first segment; empty before the first sample
        self._first = os.path.abspath(path) if path else ""
        #: error of the last rotation, or ""; further errors are not reported
        self._problem = ""
        #: error of the last heap snapshot, or ""; further errors are not reported
        self._not_held = ""
        #: the time before which segments get only snapshots that the user requested
        self._next_snapshot = 0.0
        #: path and bytes of the later segments that have ended, the oldest first
        self._ended: list[tuple[str, int]] = []
        self._bytes = 0

    def begin(self) -> None:
        """Start the thread in this process, and later in its forked children."""
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
        """Return this object."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End the sampling."""
        self.stop()

    def stop(self) -> None:
        """End the sampling.

        Process 1 of a container also waits up to _LAST seconds for the pusher to take
        the segments.
        """
        if self._pid != os.getpid() or not self._is_on:
            return
        self._is_on = False
        self._end.release()
        self.session.stop()
        if self._is_bounded and self._pid == 1:
            self._wait()

    def _stay(self) -> None:
        """End the rotation at the end of the program.

        The present segment then gets the last heap snapshot.
        """
        with Undivided():
            self._is_on = False

    def _wait(self) -> None:
        until = monotonic() + _LAST
        while monotonic() < until and self._waits():
            sleep(0.1)

    def _waits(self) -> bool:
        """Return whether the pusher has not taken all segments."""
        stem, suffix = os.path.splitext(self._first)
        folder = os.path.dirname(stem)
        try:
            return any(os.stat(os.path.join(folder, name)).st_size > 0
                       for name in os.listdir(folder) if name.endswith(suffix))
        except OSError:
            return True             # the pusher has just removed the file

    # ____________________________________________________________
    # the thread that rotates

    def _start(self) -> None:
        try:
            start_new_thread(self._run, (self._end,))
        except Exception:
            pass            # no thread is possible, so the profile has only one segment

    def _run(self, end: LockType) -> None:
        own_thread.declare()
        while not end.acquire(True, self._every):
            if self.session.settings.ends_with_snapshot:
                self._look()
            elif (self.session.settings.has_last_snapshot
                    and monotonic() >= self._next_snapshot):
                self._take_snapshot()
            with Undivided():
                try:
                    if self._is_on:
                        self._next()
                except Exception as error:
                    self._is_on = False
                    say("the rotation of the profile ended with an error: %r" % error)
                if not self._is_on:
                    return

    def _look_who_forks(self) -> None:
        """Store whether a thread other than the main thread forks.

        The child of such a fork ends when its only thread ends. A thread of the
        sampler would keep the child alive, so the child does not rotate its profile.
        """
        self._will_be_of_thread = self._is_of_thread or get_native_id() != os.getpid()

    def _go_on(self) -> None:
        """Start the thread in a forked child that is sampled."""
        self._is_on = self._is_on and self.session.is_inherited
        if self._is_on:
            self._reset()
            self._is_of_thread = self._will_be_of_thread
            if not self._is_of_thread:
                after_fork(self._start)

    def _look(self) -> None:
        """Take the heap snapshot with retainers that the user requested for a segment.

        This precedes the rotation.  A fork by another thread does not wait for the
        snapshot.
        """
        session = self.session
        part = session.part
        if not (self._is_on and session.is_on and session.path):
            return
        problem = ""
        try:
            snapshots.in_turn(session.retainers)
        except Exception as error:
            if self._is_on and session.is_on and session.part == part:
                problem = str(error)
            # otherwise, another thread has ended or rotated the session
        if problem and not self._not_held:
            say(problem)
        self._not_held = problem

    def _take_snapshot(self) -> None:
        """Take a heap snapshot at the end of a segment, if the heap is small."""
        began, start = monotonic(), thread_time()
        try:
            self.session.snapshot_of_segment()
            cost = thread_time() - start + self.session.snapshot_cost
        except Exception:
            # the segment has no snapshot, and the engine does not return the cost of a
            # failed attempt
            cost = monotonic() - began
        self._next_snapshot = began + cost / snapshots.SHARE

    def _next(self) -> None:
        session = self.session
        if not session.is_on:
            self._is_on = False         # the program or a command has ended the session
            return
        self._first = self._first or session.path
        if not self._first:
            return                      # no sample yet, so no profile
        stem, suffix = os.path.splitext(self._first)
        part, ended, problem = session.part, session.path, ""
        following = "%s.w%d%s" % (stem, part + 1, suffix)
        if self._is_abandoned():
            self._is_on = False
            say("the process that pushes the profiles has ended: sampling ends")
            try:
                session.stop()
            except AllocationSamplingError:
                pass            # the present profile is gone, too
            return
        try:
            session.rotate(following)
        except SamplingBusy:
                pass                        # the process ends
        except AllocationSamplingError as error:
            if session.path == following:
                problem = str(error)
            elif session.is_on and session.part == part:
                problem = "cannot begin a new profile: %s" % error
            # otherwise, another thread has ended or rotated the session
        # The next rotation may succeed, for example when the disk is no longer full. If
        # the folder has vanished meanwhile, the next call ends the sampling.
        if problem and not self._problem and not self._is_abandoned():
            say(problem)
        self._problem = problem
        if self._is_bounded and session.path == following and part > 1:
            self._bound(ended)

    def _is_abandoned(self) -> bool:
        """Return whether the pusher has removed the folder of the profiles."""
        return self._is_bounded and not os.path.isdir(os.path.dirname(self._first))

    def _bound(self, ended: str) -> None:
        """Remove the oldest segments if there are too many, or too many bytes.

        This works even if the pusher has failed.  The first segment remains, because
        children check that it exists.

        Args:
            ended: path of the segment that has just ended.
        """
        try:
            size = os.stat(ended).st_size
        except OSError:
            return              # the pusher has sent and removed the segment
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
                pass            # the pusher has sent and removed the segment
