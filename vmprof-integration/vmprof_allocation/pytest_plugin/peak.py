"""Find the largest amount of memory that a test holds at once, for limit_memory.

The sampler has a minor collection run after each thirty-second of the limit.  The
surviving objects include all objects that the test holds.  Only if they exceed the
limit, a heap snapshot finds the part that the program can still reach:

    survived a minor collection         limit
       v                                  v
       +--------------------+-------------+-----------+
       | reachable          | garbage, until a snapshot finds it
       +--------------------+-------------------------+

So a test that keeps to its limit seldom needs a snapshot.  The snapshots are taken in
gc.hooks.on_gc_minor.  PyPy calls this function between two bytecodes of the test, which
therefore waits for the snapshot.
"""
from __future__ import annotations

import gc as _gc
from _thread import allocate_lock
from typing import Any

import pytest

from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy
from vmprof_allocation.pytest_plugin import failures
from vmprof_allocation.pytest_plugin.sampling import add_not_measured
from vmprof_allocation.session.session import Session
from vmprof_convert.analysis import diff, thresholds
from vmprof_convert.analysis.summary import Choice, summarize
from vmprof_convert.analysis.thresholds import Condition, Verdict
from vmprof_convert.meaning.lifetimes import STILL_ALIVE
from vmprof_convert.profile.model import Profile
from vmprof_convert.text.units import format_bytes

#: PyPy's module, which has more functions than CPython's
gc: Any = _gc

#: Names of the marks at the beginning and at the largest snapshot, which differ from
#: all marks of the test.
_FIRST, _MOST = (__name__ + ": " + name for name in ("first", "most"))
#: Shares of the limit: the bytes between two minor collections, and the bytes that
#: survive in addition to the reachable ones before another snapshot is taken.
_BETWEEN, _MORE = 1 / 32, 1 / 16
#: Minimum of the bytes between two minor collections.
_SMALLEST = 2**16
#: If the reachable bytes exceed _CERTAIN times the limit, the test fails beyond doubt.
#: Then another snapshot is taken only if the surviving bytes exceed the largest
#: snapshot by a factor.  The factor is _GROWTH at first.  Each snapshot that does not
#: exceed the largest one by _GROWTH multiplies the factor by _GROWTH.
_CERTAIN, _GROWTH = 1.2, 9 / 8


class Peak:
    """The measurement of the largest amount of memory that a test holds at once."""

    def __init__(self, item: pytest.Function, condition: Condition) -> None:
        """Prepare to measure a test.

        Args:
            item: The test, which is listed as not measured if the measurement fails.
            condition: The limit in bytes.
        """
        self._item = item
        self._condition = condition
        self._between = max(condition.limit * _BETWEEN, _SMALLEST)
        self._session: Session | None = None
        self._lock = allocate_lock()
        #: The value of gc.hooks.on_gc_minor before begin().
        self._next: Any = None
        self._ours: Any = self._collected
        #: Another snapshot is taken if more than this number of bytes survive.
        self._ceiling = condition.limit
        #: The largest number of reachable bytes in a snapshot.
        self._most = 0.0
        self._growth = _GROWTH
        #: The largest number of bytes that the test can have held at once, including
        #: the bytes that it allocated between two minor collections.
        self._bound = 0.0
        self._snapshots = 0
        self._problem = ""

    def begin(self, session: Session | None) -> None:
        """Watch the allocations from now on.

        Args:
            session: The session that samples the test; None if nothing is sampled.
        """
        if session is None or session.engine is None:
            return
        if "held" not in session.engine.capabilities():
            self._problem = ("no heap snapshot is possible in this PyPy: `pypy-alloc "
                             "doctor` shows the reason (references)")
        elif not hasattr(gc, "hooks"):
            self._problem = "this PyPy has no gc.hooks"
        else:
            session.mark(_FIRST)
            session.engine.collect_every(int(self._between))
            self._next, gc.hooks.on_gc_minor = gc.hooks.on_gc_minor, self._ours
            self._session = session

    def end(self) -> None:
        """Stop watching the allocations.  Further calls have no effect."""
        session, self._session = self._session, None
        if session is None:
            return
        if gc.hooks.on_gc_minor is not self._ours:
            self._problem = "the test itself sets gc.hooks.on_gc_minor"
            return
        gc.hooks.on_gc_minor = self._next
        if session.is_on and session.engine is not None:
            session.engine.collect_every(0)

    def _collected(self, statistics: object) -> None:
        """Look at the surviving bytes; PyPy calls this after a minor collection.

        PyPy may call it in any thread.
        """
        if self._lock.acquire(False):
            try:
                self._look()
            except SamplingBusy:
                pass            # try again after the next minor collection
            except AllocationSamplingError as error:
                self._problem = str(error)
            finally:
                self._lock.release()
        if self._next is not None:
            self._next(statistics)

    def _look(self) -> None:
        session = self._session
        engine = None if session is None else session.engine
        if session is None or engine is None:
            return
        was_ignored = engine.ignore(True)
        try:
            held = survived = engine.survived_bytes()
            if survived > self._ceiling:
                # if snapshot() fails, do not try again after the next collection, but
                # later
                self._ceiling = survived * _GROWTH
                session.snapshot()
                self._snapshots += 1
                held = engine.survived_bytes()
                self._growth = _GROWTH * (
                    1 if held > self._most * _GROWTH else self._growth)
                if held > self._most:
                    self._most = held
                    session.mark(_MOST)
                limit = self._condition.limit
                self._ceiling = max(limit, held + limit * _MORE)
                if self._most > limit * _CERTAIN:
                    self._ceiling = max(self._ceiling, self._most * self._growth)
            self._bound = max(self._bound, held + self._between)
        finally:
            engine.ignore(was_ignored)

    def compare(self, profile: Profile) -> str:
        """Compare the largest amount that the test held with its limit, after end().

        Returns:
            The reason why the test fails, or "".
        """
        failure = ""
        if self._most > 0.0:
            profile = diff.without_interpreter(profile)
            reached, = diff.of_moments(
                profile, diff.find_moment(profile, _FIRST),
                diff.find_moment(profile, _MOST, is_last=True)).gained
            verdict = Verdict(self._condition, summarize(reached).figures.bytes(
                STILL_ALIVE, thresholds.quantile(1)), self._condition.limit)
            if verdict.failed:
                failure = failures.exceeded(
                    verdict, "%s held at once" % self._item.name, reached,
                    Choice(by=("line", "type"), sort="alive"),
                    "This is the largest heap snapshot (%d taken). Between two "
                    "snapshots, the test can have held up to %s." % (
                        self._snapshots, format_bytes(self._bound)))
        if self._problem and not failure:
            add_not_measured(self._item, "its memory is not known: " + self._problem)
        return failure
