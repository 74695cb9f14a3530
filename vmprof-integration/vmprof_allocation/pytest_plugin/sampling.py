"""The sampling session around one test."""
from __future__ import annotations

import hashlib
import os
import re
import tempfile
from typing import NamedTuple

import pytest

from vmprof_allocation.engines.base import Engine
from vmprof_allocation.engines.choose import choose
from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.pytest_plugin.markers import profiles_folder
from vmprof_allocation.session.session import Session
from vmprof_allocation.settings.parsing import make_settings
from vmprof_convert import readers
from vmprof_convert.errors import ProfileError
from vmprof_convert.profile.model import Profile

#: Name of the entry in a test's user_properties with the reason why there is no result.
NOT_MEASURED = "allocations: not measured"
#: Name of the entry in a test's user_properties with the path of its kept profile.
PROFILE = "allocations: profile"
#: Maximum number of bytes of a test's name in the file name of its profile.  A file
#: name may have 255 bytes.
_LONGEST = 200


def add_not_measured(item: pytest.Function, reason: str) -> None:
    """Have the summary list the test with the reason why it was not measured."""
    item.user_properties.append((NOT_MEASURED, "%s: %s" % (item.nodeid, reason)))


class Profiles(NamedTuple):
    heap: Profile
    #: The samples of native memory; None if these were not requested, or if this PyPy
    #: cannot sample native memory.
    native: Profile | None


class Sampling:
    """A sampling session around one test, as a context manager.

    The attribute `session` is None if the session could not be started; the test then
    runs without sampling.  If the test itself starts a session, or tracemalloc, the
    plugin's session ends, so that the test behaves as without the plugin.
    """

    def __init__(self, item: pytest.Function, interval: int | str, what: str, *,
                 native_memory: bool = False, lines: bool = False,
                 snapshots: bool = False) -> None:
        """Prepare to sample a test.

        Args:
            item: The test, which is listed as not measured if the sampling fails.
            interval: Mean number of bytes between two samples.
            what: The last part of the profile's name, if the profile is kept.
            native_memory: Sample native memory, too, if this PyPy can.
            lines: Record executed lines, too, if this PyPy can.
            snapshots: Take heap snapshots, if this PyPy can.
        """
        self._item = item
        self._interval = interval
        self._what = what
        self._native_memory = native_memory
        self._lines = lines
        self._snapshots = snapshots
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._engine: Engine | None = None
        self._was_ignored = False
        self.session: Session | None = None

    def __enter__(self) -> Sampling:
        """Start the session, which ignores the allocations of this thread at first."""
        if _is_sampled():
            add_not_measured(self._item, "this process is already sampled")
            return self
        folder = profiles_folder(self._item.config)
        if folder:
            self._path = os.path.join(folder, _file_name(self._item.nodeid, self._what))
        else:
            self._folder = tempfile.TemporaryDirectory(prefix="allocations")
            self._path = os.path.join(self._folder.name, "test.vmprof")
        try:
            self.session = self._start_with_most()
        except AllocationSamplingError as error:
            add_not_measured(self._item, str(error))
        except BaseException:
            self._clean_up()
            raise
        return self

    def _start_with_most(self) -> Session:
        """Start a session that records as much of the requested data as possible."""
        wanted = [(self._native_memory, self._lines, self._snapshots),
                  (False, self._lines, self._snapshots),
                  (False, False, self._snapshots), (False, False, False)]
        for some in list(dict.fromkeys(wanted))[:-1]:
            try:
                return self._start(*some)
            except AllocationSamplingError:
                pass
        return self._start(*wanted[-1])

    def _start(self, native_memory: bool, lines: bool, snapshots: bool) -> Session:
        # do not follow child processes, because nothing reads their profiles
        session = Session(make_settings(
            self._interval, follow=False, lines=lines,
            raw_memory=self._interval if native_memory else None), self._path)
        session.gives_way = True
        self._engine = choose(hook=session.settings.needs_hook or snapshots)
        self._was_ignored = self._engine.ignore(True)
        try:
            session.start(self._engine)
            return session
        except AllocationSamplingError:
            self._end_ignoring()
            raise

    def _clean_up(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def _end_ignoring(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.ignore(self._was_ignored)

    def __exit__(self, *exception: object) -> None:
        """End the session, and remove the profile unless it is kept."""
        self.finish()
        self._clean_up()

    @property
    def is_on(self) -> bool:
        """Whether the plugin's session samples this process."""
        return self.session is not None and self.session.is_on

    def count(self, is_counted: bool) -> None:
        """Begin or stop to sample the allocations of this thread.

        At first, they are ignored, because the start and the end of a session allocate
        some 15 kilobytes.  This is no context manager, because its exit would be
        sampled.

        Args:
            is_counted: Whether further allocations are sampled.
        """
        if self._engine is not None:
            self._engine.ignore(self._was_ignored or not is_counted)

    def finish(self) -> Profiles | None:
        """End the session.

        Returns:
            The profiles; None if the test was not measured, and at further calls.
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
            if self._folder is None:
                self._item.user_properties.append((PROFILE, self._path))
            return Profiles(heap, readers.read(self._path, raw=True)
                            if heap.raw_interval else None)
        except (AllocationSamplingError, ProfileError, OSError) as error:
            add_not_measured(self._item, str(error))
            return None


def _file_name(test: str, what: str) -> str:
    """Return the file name of a test's profile, which begins with the test's file.

    Args:
        test: The node ID.
        what: The last part of the name, or "".
    """
    name = re.sub(r"[^\w.\[\]=,+]+", "-", test)
    if len(name.encode()) > _LONGEST or "-" in test or (
            name != test.replace("::", "-").replace("/", "-")):
        # after the changes, another test could have the same name
        digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = "%s-%s" % (name.encode()[:_LONGEST].decode("utf-8", "ignore"), digest)
    return name + ("-" + what if what else "") + ".vmprof"


def _is_sampled() -> bool:
    """Return whether a command, a fixture or another program samples this process."""
    try:
        import _vmprof
    except ImportError:
        return False        # Sampling's start raises an error that says why
    return bool(_vmprof.is_enabled())
