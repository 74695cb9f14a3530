"""Run the sampler in a process: an engine, its settings, and the profile that it fills.

The command line, the API, the pytest plugin, and attach, ctl and top start a Session. A
lock ensures that only one thread at a time starts, stops or changes a session.
"""
from __future__ import annotations

import os
import sys

from vmprof_allocation.critical.forks import Undivided
from vmprof_allocation.critical.interrupts import Lock, Section, Uninterrupted
from vmprof_allocation.engines.choose import choose, find
from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy, say
from vmprof_allocation.session import resident
from vmprof_allocation.session.profile_file import ProfileFile, lost
from vmprof_allocation.session.resident import Suspended
from vmprof_allocation.settings.processes import Processes
from vmprof_allocation.settings.settings import Limit, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Union

    from vmprof_allocation.engines.base import Engine, Statistics
    Path = Union[str, os.PathLike[str]]

#: errors of engines without a capability
_NO_LINES = ("cannot record lines with this interpreter: only the hook engine "
             "records them. Omit --lines, or lines=True")
_NO_RAW_MEMORY = ("cannot sample native memory (malloc) with this interpreter: only "
                  "the hook engine on x86-64 does. Omit --raw-memory, or raw_memory=")
_NOT_KNOWN = ("cannot find retainers with this interpreter: `python -m "
              "vmprof_allocation doctor` shows the reason (references)")
_NOT_BUILTIN = ("no heap snapshot is taken: the builtin engine of this PyPy takes "
                "none; start with --leaks or --held, so that the hook engine samples")
#: error for a session that pushes its profiles (Settings.max_files)
_PUSHED = ("no heap snapshot is taken: this process pushes its profiles, and the "
           "protocols have no field for retainers; sample into a file instead")
_running: list[Session] = []
#: lets one thread at a time start or stop a session
_lock = Lock()


#: whether stop_all() was called
is_ending = False


def stop_all() -> None:
    """End all sessions at the end of this process, each with a last heap snapshot."""
    global is_ending
    is_ending = True
    for session in _running[:]:
        session.settings.last_snapshot = True
        try:
            session.stop()
        except AllocationSamplingError:
            if not session.is_child:
                raise           # the user has started this session: report the error


def go_on() -> None:
    """Continue all sessions in a sampled forked child; leave them in other children."""
    for session in _running:
        session.go_on()


def restore(state: tuple[Any, ...], pids: list[int]) -> None:
    """Continue a session that was suspended.

    Args:
        state: arguments for Session.restore().
        pids: the suspended process, and each forked descendant down to this process.
    """
    session = Session.restore(*state)
    _running.append(session)
    for parent in pids[:-1]:
        session.go_on(parent)


def make_room() -> None:
    """End the sessions that a new session, or tracemalloc, replaces.

    These are a session that a forked child inherited, and sessions with `gives_way`.
    """
    for session in _running[:]:
        if session.is_inherited:
            session.stop()
        elif session.gives_way:
            try:
                session.stop()
            except AllocationSamplingError:
                pass        # its profile is incomplete, and nothing will read it


def current() -> Session | None:
    """Return the session that started last and has not ended, or None."""
    return _running[-1] if _running else None


def mark_all(name: str) -> None:
    """Give the present moment a name in the profile of each session."""
    _check_mark(name)       # even without a session, so that a wrong mark always fails
    for session in _running[:]:
        session.mark(name)


def _check_mark(name: object) -> None:
    if not isinstance(name, str):
        raise AllocationSamplingError(
            'invalid mark %r: write text, such as "warm"' % (name,))


def _labelling() -> Any:
    """Return the module `labelling`, or None if the program does not use it."""
    return sys.modules.get("vmprof_allocation.session.labelling")


class Session:
    """A session samples the process from start() to stop().

    As a context manager, the session starts and stops with the block.
    """

    def __init__(self, settings: Settings, output: Path | None = None,
                 processes: Processes | None = None):
        """Create a session.

        Args:
            settings: the settings.
            output: path of the profile. None for a temporary file, which belongs to the
                caller.
            processes: the run that this process belongs to as a child. None for the
                first process of a run.
        """
        self.settings = settings
        #: path of the profile; not None after start()
        self.output = None if output is None else os.fspath(output)
        self._engine: Engine | None = None
        #: function that waits for the last heap snapshot; None unless stop() requested
        #: the snapshot
        self._wait: Callable[[], None] | None = None
        #: the present profile; None before start(), and in a forked child, where the
        #: engine opens the file
        self._file: ProfileFile | None = None
        self._pid = 0
        self._processes = processes
        #: the run; None if the profile is a pipe
        self._run: Processes | None = None
        self._part = 1
        #: interval of the last set_interval() since start(), in bytes
        self._interval: int | None = None
        #: number of the last segment with memory counts; 0 if no segment has them
        self._memory_part = 0
        #: whether this is a forked child that continues the session of its parent
        self.is_inherited = False
        #: cost of the last heap snapshot in seconds: see Engine.take_held()
        self.snapshot_cost = 0.0
        #: whether a session that the program starts replaces this one
        self.gives_way = False

    def start(self, engine: Engine | None = None) -> None:
        """Begin to sample, and replace an existing profile.

        Args:
            engine: the engine; None for the engine that choose() finds.

        Raises:
            AllocationSamplingError: sampling is not possible, and all changes are
                undone.  If the settings, the interpreter or the file are the reason,
                the content of `output` is unchanged.
        """
        with Undivided():
            make_room()
            if engine is None:
                engine = choose(hook=self.settings.needs_hook)
            file = ProfileFile(self.output)
        file.wait_for_reader()
        has_begun = False
        with Undivided():
            try:
                with Section(_lock):
                    self._start(engine, file)
                    has_begun = True
            except SamplingBusy:
                raise
            except BaseException:
                if has_begun:
                    self.stop()     # a delayed signal handler raised the exception
                file.discard()
                raise

    def _start(self, engine: Engine, file: ProfileFile) -> None:
        engine.prepare()        # a signal handler may have started another engine
        if self._processes is None:
            for wanted, name, why in (
                    (self.settings.held, "held", _NOT_KNOWN),
                    (self.settings.lines, "lines", _NO_LINES),
                    (self.settings.raw_memory, "raw-memory", _NO_RAW_MEMORY)):
                if wanted and name not in engine.capabilities():
                    raise AllocationSamplingError(why)
        file.open()
        self._pid = os.getpid()
        self.output = file.path
        self._run = None
        if file.is_regular():
            assert file.path is not None
            self._run = self._processes or Processes(file.path)
        self._engine, self._file, self._part = engine, file, 1
        self._interval, self._memory_part = None, 0
        _running.append(self)
        try:
            engine.start(file.fd, self.settings, self._run)
        except BaseException:
            self._close()
            raise
        if (labelling := _labelling()) is not None:
            labelling.use(engine)

    @property
    def engine(self) -> Engine | None:
        """The engine from start() to stop(), otherwise None."""
        return self._engine

    @property
    def is_on(self) -> bool:
        """Whether the session is between start() and stop()."""
        return self._engine is not None

    @property
    def path(self) -> str:
        """Path of the profile that this process writes, or "" before it exists."""
        if self.is_inherited and self._part == 1:
            return "" if self._engine is None else self._engine.child_path()
        return self.output or ""

    @property
    def where(self) -> str:
        """Absolute path of the profile, or "" before it exists."""
        return self.path if self._file is None else self._file.where()

    def check(self) -> None:
        """Raise AllocationSamplingError if the profile is lost or gets no more records.

        In a forked child, the engine has opened the file.  There, this function has the
        engine flush its records, and raises the engine's error.
        """
        path = self.path
        if self._file is None:
            if path and not os.path.exists(path):
                raise lost(path)
        elif not self._file.is_ours():
            raise AllocationSamplingError(
                "the profile is incomplete: the program closed %r" % path)
        else:
            self._file.check()
        problem = "" if self._engine is None else self._engine.flush()
        if problem:
            raise AllocationSamplingError(
                "the profile %r is incomplete: %s" % (path, problem))

    @property
    def part(self) -> int:
        """Number of the present segment; rotate() adds 1."""
        return self._part

    @property
    def run(self) -> str:
        """Run ID, the same in all profiles of a run; empty if the profile is a pipe."""
        return "" if self._run is None else self._run.run

    @property
    def is_parent(self) -> bool:
        """Whether this process called start(), and is not a forked child."""
        return self._pid == os.getpid() and not self.is_inherited

    @property
    def is_child(self) -> bool:
        """Whether this process is sampled only because its parent is."""
        return self.is_inherited or self._processes is not None

    def suspend(self) -> Suspended | None:
        """Return the state of this session, which then continues without its modules.

        resident.py keeps the state.  The result is None if the engine does not support
        this.
        """
        engine, file, run = self._engine, self._file, self._run
        state = None if engine is None else engine.state()
        if engine is None or file is None or state is None:
            return None
        return Suspended((
            state, self.settings.text(), self.output, file.state(),
            None if run is None else (run.first, run.run, run.parent),
            self._processes is not None, self._pid),
            engine.ending(self.settings.has_last_snapshot), file)

    @classmethod
    def restore(cls, engine_state: tuple[Any, ...], settings: str,
                output: str | None, file: tuple[Any, ...],
                run: tuple[Any, ...] | None, is_child: bool, pid: int) -> Session:
        """Return a session that continues where suspend() ended.

        In a forked child of the suspended process, call go_on() next.
        """
        session = cls(Settings.parse(settings), output)
        engine = find(hook=session.settings.needs_hook)
        engine.restore(engine_state)
        session._engine = engine
        session._file = ProfileFile.restore(*file)
        session._run = None if run is None else Processes(*run)
        session._processes = session._run if is_child else None
        session._pid = pid
        return session

    def go_on(self, parent: int | None = None) -> None:
        """Continue the session in a forked child if the engine samples this child.

        Args:
            parent: pid of the parent. None for the process that called this function
                last, or that started the session.
        """
        if self._engine is None:
            return
        if not self._engine.is_sampled_child():
            self._engine.leave_child()
        else:
            parent, self._pid = parent or self._pid, os.getpid()
            self._file = None       # the engine opens the file of the child
            self._part, self._memory_part = 1, 0
            if self._run is not None:
                self._run = self._run.of_child(parent)
            self.is_inherited = True

    def __enter__(self) -> Session:
        """Start the session."""
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop the session."""
        self.stop()

    def set_interval(self, interval: int | str) -> None:
        """Set the mean interval in bytes, from the next allocation on.

        A limit that the interval followed has no effect any more.
        """
        with Section(_lock):
            from vmprof_allocation.settings.parsing import make_interval
            interval = make_interval(interval)
            if self._engine is None:
                raise AllocationSamplingError("allocation sampling is not on")
            self._engine.set_interval(interval)
            self._interval = interval

    @property
    def pace(self) -> tuple[int, Limit | None]:
        """Mean interval in bytes, and the limit or None.

        With a limit, the interval is the first interval of the run.
        """
        if self._interval is not None:
            return self._interval, None
        return self.settings.interval, self.settings.limit

    def rotate(self, output: Path) -> None:
        """End the profile, and begin the next one of this run at the same moment.

        Sampling continues, and each sample is in one of the two profiles.
        `vmprof-convert` reads the profiles separately or together.

        Args:
            output: path of the next profile.  An existing file is replaced, unless it
                is an earlier profile of this run.

        Raises:
            AllocationSamplingError: there are two cases.  If the next profile cannot be
                written, the present one continues and is still `self.output`.  If the
                profile that ended is incomplete, the next one has begun.
        """
        with Section(_lock):
            from vmprof_allocation.session import next_profile
            if self._engine is None or self._pid != os.getpid():
                raise AllocationSamplingError(
                    "allocation sampling is not on; call start() first")
            self._note_memory(self._engine)
            try:
                next_profile.rotate(
                    self._engine, self.settings.with_pace(*self.pace), self._run,
                    self._file, self.path,
                    self._part + 1, output, self._go_on_in)
            finally:
                self._memory_part = 0   # after an error, the present segment continues

    def _go_on_in(self, file: ProfileFile) -> None:
        self.output = file.path
        if not self.is_inherited:
            self._file = file
        self._part += 1

    def mark(self, name: str) -> None:
        """Give the present moment a name in the profile.

        `leaks` and `diff --between` can compare two marks. If the session is
        not on, this has no effect.
        """
        _check_mark(name)
        with Section(_lock):
            if self._engine is not None and self.is_on:
                self._engine.mark(name)

    def held(self) -> str:
        """Take a heap snapshot that also finds the retainers of each object.

        `retainers` shows the retainers.  See snapshot() for the rest.
        """
        return self._take_snapshot(True, False)

    def snapshot(self, *, holders: bool = False) -> str:
        """Take a heap snapshot, which finds the sampled objects that are reachable.

        All other sampled objects end at this moment, as if a major collection had freed
        these objects. The program is paused while a process is forked. Afterwards, only
        the calling thread waits.

        Args:
            holders: also find the retainers of the objects, as held() does.

        Returns:
            The path of the profile.

        Raises:
            AllocationSamplingError: no snapshot is possible here, or the profile ended
                meanwhile.  Sampling continues.
            SamplingBusy: another thread takes a snapshot.
        """
        return self._take_snapshot(holders, True)

    def snapshot_of_segment(self) -> None:
        """Take a heap snapshot before rotate(), as snapshot() does.

        Raises:
            AllocationSamplingError: no snapshot is possible, or the heap is larger than
                a heap whose snapshot is taken at the end of a profile.
        """
        self._take_snapshot(False, True, is_bounded=True)

    def _take_snapshot(self, holders: bool, ends_garbage: bool,
                       is_bounded: bool = False) -> str:
        asked: Engine | None = None
        try:
            with Section(_lock):
                engine = self._engine
                if engine is None or self._pid != os.getpid():
                    raise AllocationSamplingError(
                        "allocation sampling is not on; call start() first")
                if "held" not in engine.capabilities():
                    raise AllocationSamplingError(
                        _NOT_BUILTIN if engine.name == "builtin" else _NOT_KNOWN)
                if self.settings.max_files:
                    raise AllocationSamplingError(_PUSHED)
                where = self.where
                wait = engine.ask_held(holders, ends_garbage, is_bounded)
                asked = engine
            # without the lock: other threads may fork, stop this session, or rotate
            wait()
            with Section(_lock):
                asked = None
                self.snapshot_cost = engine.take_held()
            return where
        finally:
            if asked is not None:
                self._forget_held(asked)

    @staticmethod
    def _forget_held(engine: Engine) -> None:
        """End a heap snapshot whose requester was interrupted while it waited."""
        with Section(_lock):
            try:
                engine.take_held()
            except AllocationSamplingError:
                pass

    def note_memory(self) -> None:
        """Write the memory counts into the profile, which is about to end.

        This has an effect only with Settings.memory_at_end, and once per segment.
        """
        with Section(_lock):
            if self._engine is not None and self._pid == os.getpid():
                self._note_memory(self._engine)

    def _note_memory(self, engine: Engine) -> None:
        if (not self.settings.memory_at_end or self._memory_part == self._part
                or not self.path):
            return
        self._memory_part = self._part
        try:
            from vmprof_allocation.engines import memory_note
            memory_note.note(engine)
        except AllocationSamplingError as e:
            if not self.is_child:
                say(str(e))     # the profile is complete without the counts

    def statistics(self) -> Statistics:
        """Return the engine's counters since start()."""
        if self._engine is None:
            raise AllocationSamplingError("allocation sampling is not on")
        return self._engine.statistics()

    def stop(self) -> None:
        """End the sampling and finish the profile.

        Further calls have no effect. In a forked child that is not sampled, stop() has
        no effect either.

        Raises:
            AllocationSamplingError: the end of the profile could not be written.
                Everything else was restored.
        """
        wait: Callable[[], None] | None = None
        try:
            with Section(_lock):
                if self._engine is not None and self._pid == os.getpid():
                    # another call of stop() may have requested the snapshot
                    self._wait = self._wait or self._ask_last_snapshot(self._engine)
                    wait = self._wait
            if wait is not None:
                # without the lock: other threads may fork, and signal handlers may run
                wait()
        finally:
            self._stop()

    def _stop(self) -> None:
        """End the sampling, after stop() has waited for the last heap snapshot."""
        with Section(_lock):
            engine = self._engine
            if engine is None:
                return
            try:
                if self._pid == os.getpid():
                    self._end(engine)
            except SamplingBusy:
                raise
            except AllocationSamplingError:
                self._close()
                raise
            # after any other exception, the caller can try again
            self._close()

    def _ask_last_snapshot(self, engine: Engine) -> Callable[[], None] | None:
        # reading the counts allocates objects, so it comes before the snapshot
        self._note_memory(engine)
        if self.settings.has_last_snapshot and (
                self.is_child or not self.settings.ends_with_snapshot):
            return engine.ask_last_snapshot()
        return None

    def _end(self, engine: Engine) -> None:
        self._note_memory(engine)
        if self.is_inherited:
            self.output = self.path or self.output
        if self._wait is not None:
            self._wait = None
            engine.take_last_snapshot()
        engine.stop()
        if self._file is not None and self._file.is_ours():
            self._file.check()
            if (self._processes is not None and self._part == 1
                    and engine.statistics().samples == 0):
                self._file.discard(always=True)     # the profile of this child is empty

    def _close(self) -> None:
        if self._engine is None:
            return              # another thread has closed the session
        self._engine = self._wait = None
        _running.remove(self)
        if not _running and (labelling := _labelling()) is not None:
            labelling.leave()
        if self._pid == os.getpid() and self._file is not None:
            self._file.close()
        self._file = None


with Uninterrupted():
    resident.imported(sys.modules[__name__])
