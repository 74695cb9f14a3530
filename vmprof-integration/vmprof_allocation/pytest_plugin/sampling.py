"""The sampling session around one test."""
from __future__ import annotations

import os
import tempfile
from typing import NamedTuple

import pytest

from vmprof_allocation.engines.base import Engine
from vmprof_allocation.engines.choose import choose
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.session.session import Session
from vmprof_allocation.settings.parsing import make_settings
from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Profile

#: Name of the entry in a test's user_properties with the reason why there is no result.
NOT_MEASURED = "allocations: not measured"


def add_not_measured(item: pytest.Function, reason: str) -> None:
    """Have the summary list the test with the reason why it was not measured."""
    item.user_properties.append((NOT_MEASURED, "%s: %s" % (item.nodeid, reason)))


class Profiles(NamedTuple):
    heap: Profile
    #: Native memory; None if not requested, or if this PyPy cannot sample it.
    native: Profile | None


class Sampling:
    """A sampling session around one test, as a context manager.

    The session is None if it could not be started; the test then runs without it.  If
    the test itself starts a session, or tracemalloc, this session ends, so that the
    test behaves as without the plugin.
    """

    def __init__(self, item: pytest.Function, interval: int | str, *,
                 native_memory: bool = False) -> None:
        """
        Args:
            item: The test, which is listed as not measured if that fails.
            interval: Mean number of bytes between two samples.
            native_memory: Sample native memory, too, if this PyPy can.
        """
        self._item = item
        self._interval = interval
        self._native_memory = native_memory
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._engine: Engine | None = None
        self._was_ignored = False
        self.session: Session | None = None

    def __enter__(self) -> Sampling:
        if _is_sampled():
            add_not_measured(self._item, "this process is already sampled")
            return self
        self._folder = tempfile.TemporaryDirectory(prefix="allocations")
        self._path = os.path.join(self._folder.name, "test.vmprof")
        try:
            self.session = self._start(self._native_memory)
        except AllocationSamplingError as error:
            add_not_measured(self._item, str(error))
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def _start(self, native_memory: bool) -> Session:
        # the profiles of the test's child processes would not be read
        session = Session(make_settings(
            self._interval, follow=False,
            raw_memory=self._interval if native_memory else None), self._path)
        session.gives_way = True
        self._engine = choose(hook=session.settings.needs_hook)
        self._was_ignored = self._engine.ignore(True)
        try:
            session.start(self._engine)
            return session
        except AllocationSamplingError:
            self._end_ignoring()
            if not native_memory:
                raise
        return self._start(False)

    def _end_ignoring(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.ignore(self._was_ignored)

    def __exit__(self, *exception: object) -> None:
        self.finish()
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def is_on(self) -> bool:
        return self.session is not None and self.session.is_on

    def count(self, is_counted: bool) -> None:
        """Sample what this thread allocates, or ignore it, as at the beginning.

        The start and the end of a session allocate some 15 kilobytes.  This is no
        context manager, because leaving one would be sampled.
        """
        if self._engine is not None:
            self._engine.ignore(self._was_ignored or not is_counted)

    def finish(self) -> Profiles | None:
        """End the session.

        Returns:
            The profiles; None if the test was not measured, or at a second call.
        """
        session, self.session = self.session, None
        if session is None:
            return None
        self.count(False)
        try:
            return self._end(session)
        finally:
            self._end_ignoring()

    def _end(self, session: Session) -> Profiles | None:
        if not session.is_on:
            add_not_measured(self._item, "the test itself starts a sampler")
            return None
        try:
            session.stop()
            heap = readers.read(self._path)
            return Profiles(heap, readers.read(self._path, raw=True)
                            if heap.raw_interval else None)
        except (AllocationSamplingError, ProfileError, OSError) as error:
            add_not_measured(self._item, str(error))
            return None


def _is_sampled() -> bool:
    """Whether the command line, a fixture or another program samples this process."""
    try:
        import _vmprof
    except ImportError:
        return False        # Sampling's start raises an error that says why
    return bool(_vmprof.is_enabled())
