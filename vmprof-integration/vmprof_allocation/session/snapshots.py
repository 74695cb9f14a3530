"""Take heap snapshots at the end of the program, and periodically while it runs.

A snapshot finds the sampled objects that the program can still reach
(Session.snapshot()). The last snapshot, at the end of a profile, decides which objects
count as alive. With --leaks, more snapshots are taken while the program runs, and
`leaks` compares these snapshots.
"""
from __future__ import annotations

import os
from _thread import allocate_lock, start_new_thread
from time import monotonic, sleep, thread_time

from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy, say
from vmprof_allocation.memory.room import refuse_if_short
from vmprof_allocation.session import own_thread, resident

# keep imports to a minimum: see engines/base.py
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vmprof_allocation.session.session import Session

#: pid of the process that the command line samples.  Its children take their last
#: snapshots elsewhere (engines/hook/ending.py).
_pid = os.getpid()
#: seconds to wait for another thread that takes a snapshot
_PATIENCE = 30.0
#: The first snapshot is due after _FIRST seconds, and each later one at _GROWTH times
#: the time of the previous one. A run of a week has 50 snapshots.
_FIRST, _GROWTH = 1.0, 1.3
#: Shares of the run time that snapshots may take. A comparison needs _NEEDED snapshots
#: after the first quarter of the run, the warm-up. The larger share applies until these
#: snapshots are taken. The plan assumes _WARM_UP, a longer warm-up than a quarter,
#: because snapshots may be late.
SHARE, _NEEDED_SHARE, _NEEDED, _WARM_UP = 0.01, 0.1, 3, 0.3


def plan(session: Session) -> None:
    """Arrange the snapshot at the program's end, and requested snapshots before."""
    resident.at_end(take_last)
    if session.settings.snapshots:
        PeriodicSnapshots(session).begin()


def take_last() -> None:
    """Take the snapshot at the end of the program, and record the retainers.

    Raises:
        AllocationSamplingError: no snapshot is possible.
    """
    if os.getpid() != _pid:
        return
    try:
        refuse_if_short("no heap snapshot is taken")
        # importing session continues a suspended session (resident.py)
        from vmprof_allocation.session.session import current
        session = current()
        if session is None:
            raise AllocationSamplingError(
                "no heap snapshot at the program's end: sampling has ended before")
        in_turn(session.held)
    except AllocationSamplingError:
        raise
    except Exception as e:
        raise AllocationSamplingError(
            "no heap snapshot at the program's end: %r" % (e,)) from None


def in_turn(take: Callable[[], object]) -> None:
    """Take a snapshot as soon as no other thread takes one.

    Args:
        take: takes the snapshot, and raises SamplingBusy if another thread takes one.

    Raises:
        AllocationSamplingError: no snapshot is possible.
    """
    until = monotonic() + _PATIENCE
    while True:
        try:
            take()
            return
        except SamplingBusy:
            if monotonic() > until:
                raise
            sleep(0.01)


def next_time(taken: Sequence[float], cost: float, now: float) -> float:
    """Return the time when the next snapshot is due.

    All times are in seconds since the thread began.

    Args:
        taken: times of the snapshots so far.
        cost: the total cost of the snapshots so far, in seconds.
        now: the present time.
    """
    needed = cost / _NEEDED_SHARE
    if len(taken) >= _NEEDED:
        needed = max(needed, taken[-_NEEDED] / _WARM_UP)
    return max(now * _GROWTH, min(cost / SHARE, needed))


class PeriodicSnapshots:
    """A thread that takes snapshots while the program runs, in this process only."""

    def __init__(self, session: Session) -> None:
        """Prepare the thread, without starting it."""
        self._session = session
        self._pid = os.getpid()
        #: locked until the thread is to end
        self._end = allocate_lock()
        self._end.acquire()

    def begin(self) -> None:
        """Start the thread."""
        resident.at_end(self._stop)
        try:
            start_new_thread(self._run, ())
        except Exception as e:
            say("no heap snapshots are taken while the program runs, because there is "
                "no thread for them (%s); one is taken at the end" % e)

    def _stop(self) -> None:
        if os.getpid() == self._pid and self._end.locked():
            self._end.release()

    def _run(self) -> None:
        own_thread.declare()
        began = monotonic()
        cost, wait = 0.0, _FIRST
        taken: list[float] = []
        while not self._end.acquire(True, wait):
            start = thread_time()
            try:
                self._session.snapshot(holders=True)
                taken.append(monotonic() - began)
                cost += self._session.snapshot_cost
            except SamplingBusy:
                pass
            except AllocationSamplingError as e:
                if self._session.is_on:
                    say("no more heap snapshots are taken while the program runs: "
                        "%s" % e)
                return
            cost += thread_time() - start
            lasted = monotonic() - began
            wait = max(next_time(taken, cost, lasted) - lasted, 0.1)
