"""One run of the sampler: an engine, its settings, and the file it fills."""
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

#: of an engine without the capability
_NO_LINES = ("lines can't be known with this interpreter, nor with any engine but the "
             "hook engine: leave --lines, or lines=True, out")
_NO_RAW_MEMORY = ("cannot sample native memory (malloc) with this interpreter: only "
                  "the hook engine on x86-64 does. Omit --raw-memory, or raw_memory=")
_NOT_KNOWN = ("who holds what can't be known with this interpreter: `python -m "
             "vmprof_allocation doctor` says why (references)")
_NOT_BUILTIN = ("no heap snapshot is taken: the builtin engine of this PyPy takes "
                "none; start with --leaks or --held, so that the hook engine samples")
#: the profiles are bounded (Settings.max_files)
_PUSHED = ("no heap snapshot is taken: this process pushes its profiles, and the "
           "protocols have no field for retainers; sample into a file instead")
_running: list[Session] = []
#: one thread at a time starts or stops
_lock = Lock()


#: stop_all() was called
is_ending = False


def stop_all() -> None:
    """End all sessions at the end of this process, with a heap snapshot."""
    global is_ending
    is_ending = True
    for session in _running[:]:
        session.settings.last_snapshot = True
        try:
            session.stop()
        except AllocationSamplingError:
            if not session.is_child:
                raise           # it was asked for, and somebody waits for it


def go_on() -> None:
    """In a forked child."""
    for session in _running:
        session.go_on()


def restore(state: tuple[Any, ...], pids: list[int]) -> None:
    """The session that was suspended with this `state` is on, as it was.  `pids`: of
    the process then, and of those that were forked from it, one from the other, down
    to this one."""
    session = Session.restore(*state)
    _running.append(session)
    for parent in pids[:-1]:
        session.go_on(parent)


def make_room() -> None:
    """End the sessions that a new session, or tracemalloc, replaces.

    These are the session that a forked child inherited, and those that give way.
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
    """The one that is on, whoever began it."""
    return _running[-1] if _running else None


def mark_all(name: str) -> None:
    """In every session of this process, whoever started it."""
    _check_mark(name)       # also if there is none: a program is not to fail
                            # only because it is sampled
    for session in _running[:]:
        session.mark(name)


def _check_mark(name: object) -> None:
    if not isinstance(name, str):
        raise AllocationSamplingError(
            "the mark %r is no text; write for example \"warm\"" % (name,))


def _labelling() -> Any:
    """What sets labels, if the program uses it."""
    return sys.modules.get("vmprof_allocation.session.labelling")


class Session:
    """Samples from start() to stop(), in the process that called start().
    A context manager that does both."""

    def __init__(self, settings: Settings, output: Path | None = None,
                 processes: Processes | None = None):
        """`output` is where the profile goes; None: a temporary file, which
        belongs to the caller.  `processes`: a run that there is already; this is
        a child of its."""
        self.settings = settings
        #: the profile's path; after start() never None
        self.output = None if output is None else os.fspath(output)
        self._engine: Engine | None = None
        #: None: the engine has opened it, in a forked child
        self._file: ProfileFile | None = None
        self._pid = 0
        self._processes = processes
        #: what the profile belongs to; None: it is a pipe
        self._run: Processes | None = None
        self._part = 1
        #: set_interval()'s, since start()
        self._interval: int | None = None
        #: of the last part that says where the memory is; 0: none does
        self._memory_part = 0
        #: this is a forked child, and goes on as its parent
        self.is_inherited = False
        #: seconds that the last heap snapshot cost: see Engine.take_held()
        self.snapshot_cost = 0.0
        #: Whether a session that the program starts meanwhile replaces this one.
        self.gives_way = False

    def start(self, engine: Engine | None = None) -> None:
        """Begin to sample, with choose()'s engine, which may be given; a
        profile that was there before is replaced.

        Raises AllocationSamplingError, and puts everything back.  What
        `output` held is still there if the request, the interpreter or the
        file were refused, that is before any hook is set.
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
                    self.stop()     # it is that of a handler that had to wait
                file.discard()
                raise

    def _start(self, engine: Engine, file: ProfileFile) -> None:
        engine.prepare()        # a handler may have started another meanwhile
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
        """From start() to stop()."""
        return self._engine

    @property
    def is_on(self) -> bool:
        """True from start() to stop()."""
        return self._engine is not None

    @property
    def path(self) -> str:
        """The profile that this process writes; empty: there is none as yet."""
        if self.is_inherited and self._part == 1:
            return "" if self._engine is None else self._engine.child_path()
        return self.output or ""

    @property
    def where(self) -> str:
        """`path`, absolute."""
        return self.path if self._file is None else self._file.where()

    def check(self) -> None:
        """Raise AllocationSamplingError if the profile is lost or gets no more records.

        In a forked child, the engine has opened the file: it flushes its records and
        returns the error.
        """
        path = self.path
        if self._file is None:
            if path and not os.path.exists(path):
                raise lost(path)
        elif not self._file.is_ours():
            raise AllocationSamplingError(
                "the profile is cut off: the program closed %r" % path)
        else:
            self._file.check()
        problem = "" if self._engine is None else self._engine.flush()
        if problem:
            raise AllocationSamplingError(
                "the profile %r is cut off: %s" % (path, problem))

    @property
    def part(self) -> int:
        """Of the profiles that rotate() makes, the number of the present one."""
        return self._part

    @property
    def run(self) -> str:
        """The same in all profiles of a run; empty: this one goes to a pipe."""
        return "" if self._run is None else self._run.run

    @property
    def is_parent(self) -> bool:
        """False in a forked child of the process that called start(), sampled
        or not."""
        return self._pid == os.getpid() and not self.is_inherited

    @property
    def is_child(self) -> bool:
        """Nobody asked for it in this process: it is a sampled child."""
        return self.is_inherited or self._processes is not None

    def suspend(self) -> Suspended | None:
        """What resident.py needs while it samples without our modules; None: its
        engine can't do that."""
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
        """Another one that goes on where suspend() left it, or in a forked child of
        that process, where go_on() is then to be called."""
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
        """In a forked child: if its engine goes on, so does this.  `parent`: a pid;
        None: of the one in which this was last called, or began."""
        if self._engine is None:
            return
        if not self._engine.is_sampled_child():
            self._engine.leave_child()
        else:
            parent, self._pid = parent or self._pid, os.getpid()
            self._file = None       # the engine has one of its own
            self._part, self._memory_part = 1, 0
            if self._run is not None:
                self._run = self._run.of_child(parent)
            self.is_inherited = True

    def __enter__(self) -> Session:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def set_interval(self, interval: int | str) -> None:
        """Another mean interval, in bytes, from the next allocation on; a
        limit ends."""
        with Section(_lock):
            from vmprof_allocation.settings.parsing import make_interval
            interval = make_interval(interval)
            if self._engine is None:
                raise AllocationSamplingError("allocation sampling is not on")
            self._engine.set_interval(interval)
            self._interval = interval

    @property
    def pace(self) -> tuple[int, Limit | None]:
        """The mean interval, in bytes; or, with a limit, the first one."""
        if self._interval is not None:
            return self._interval, None
        return self.settings.interval, self.settings.limit

    def rotate(self, output: Path) -> None:
        """The profile ends, whole, and the next one of this run begins, in the file
        `output`, at the same moment: sampling goes on, no sample gets lost, and none
        is in both.  `vmprof-convert` takes them one by one, or together.  What was at
        `output` is replaced, but for an earlier part of the run: that is refused.

        Raises AllocationSamplingError: if the next one can't be written, then the
        present one goes on, and is still `self.output`; or if the one that ended is
        not complete, then the next one has begun.
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
                self._memory_part = 0   # the present one may go on, too

    def _go_on_in(self, file: ProfileFile) -> None:
        self.output = file.path
        if not self.is_inherited:
            self._file = file
        self._part += 1

    def mark(self, name: str) -> None:
        """Name this moment: `report --leaks` tells what was allocated between
        two of these.  Harmless while this session is not on."""
        _check_mark(name)
        with Section(_lock):
            if self._engine is not None and self.is_on:
                self._engine.mark(name)

    def held(self) -> str:
        """Take a heap snapshot that also tells what holds each object.

        `report --held` shows it.  See snapshot().
        """
        return self._take_snapshot(True, False)

    def snapshot(self, *, holders: bool = False) -> str:
        """Take a heap snapshot: which sampled objects the program can still reach.

        The others end at this moment, as if a major collection had found them dead.
        The program stops while a process is forked; then only the caller waits.

        Args:
            holders: find out what holds the objects, too, as held() does.

        Returns:
            The path of the profile.

        Raises:
            AllocationSamplingError: no snapshot is possible here, or the profile ended
                meanwhile.  Sampling continues.
            SamplingBusy: another thread takes a snapshot.
        """
        return self._take_snapshot(holders, True)

    def _take_snapshot(self, holders: bool, ends_garbage: bool) -> str:
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
                wait = engine.ask_held(holders, ends_garbage)
                asked = engine
            # others may fork meanwhile, stop this, or rotate
            wait()
            with Section(_lock):
                asked = None
                self.snapshot_cost = engine.take_held()
            return where
        finally:
            if asked is not None:
                self._forget_held(asked)

    def take_last_snapshot(self) -> None:
        """Take the heap snapshot at the end of a segment, if the heap is small enough.

        The profile continues.  Sessions whose settings have no such snapshot take none.
        """
        wait: Callable[[], None] | None = None
        asked: Engine | None = None
        try:
            with Section(_lock):
                if (self._engine is not None and self._pid == os.getpid()
                        and self.settings.has_last_snapshot):
                    wait = self._engine.ask_last_snapshot()
                    asked = self._engine
            if wait is not None:
                wait()
        finally:
            if wait is not None and asked is not None:
                with Section(_lock):
                    asked.take_last_snapshot()

    @staticmethod
    def _forget_held(engine: Engine) -> None:
        """Of a caller who was interrupted."""
        with Section(_lock):
            try:
                engine.take_held()
            except AllocationSamplingError:
                pass

    def note_memory(self) -> None:
        """The profile is about to end: write into it where the memory is, if
        Settings.memory_at_end asks for it, and unless it says so already."""
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
                say(str(e))     # the profile is whole without

    def statistics(self) -> Statistics:
        if self._engine is None:
            raise AllocationSamplingError("allocation sampling is not on")
        return self._engine.statistics()

    def stop(self) -> None:
        """End the sampling and finish the profile.

        Once is enough.  In a forked child, which is not sampled, it does nothing.

        Raises:
            AllocationSamplingError: the profile could not be written to the end, after
                everything else was put back.
        """
        asked: Engine | None = None
        wait: Callable[[], None] | None = None
        try:
            with Section(_lock):
                if self._engine is not None and self._pid == os.getpid():
                    wait = self._ask_last_snapshot(self._engine)
                    asked = self._engine
            if wait is not None:
                # others may fork meanwhile, and handlers of signals run
                wait()
        finally:
            self._stop(asked if wait is not None else None)

    def _stop(self, asked: Engine | None) -> None:
        """End the sampling.

        Args:
            asked: the engine that takes a last snapshot, if one does.
        """
        with Section(_lock):
            engine = self._engine
            if engine is None:
                return
            try:
                if self._pid == os.getpid():
                    self._end(engine, asked is engine)
            except SamplingBusy:
                raise
            except AllocationSamplingError:
                self._close()
                raise
            # after any other exception it can be tried again
            self._close()

    def _ask_last_snapshot(self, engine: Engine) -> Callable[[], None] | None:
        # this note allocates, and so comes before the snapshot
        self._note_memory(engine)
        if self.settings.has_last_snapshot and (
                self.is_child or not self.settings.ends_with_snapshot):
            return engine.ask_last_snapshot()
        return None

    def _end(self, engine: Engine, has_snapshot: bool) -> None:
        self._note_memory(engine)
        if self.is_inherited:
            self.output = self.path or self.output
        if has_snapshot:
            engine.take_last_snapshot()
        engine.stop()
        if self._file is not None and self._file.is_ours():
            self._file.check()
            if (self._processes is not None and self._part == 1
                    and engine.statistics().samples == 0):
                self._file.discard(always=True)     # a child has nothing to tell

    def _close(self) -> None:
        if self._engine is None:
            return              # another thread has done it
        self._engine = None
        _running.remove(self)
        if not _running and (labelling := _labelling()) is not None:
            labelling.leave()
        if self._pid == os.getpid() and self._file is not None:
            self._file.close()
        self._file = None


with Uninterrupted():
    resident.imported(sys.modules[__name__])
