"""One run of the sampler: an engine, its settings, and the file it fills."""
from __future__ import annotations

import atexit
import os
import stat

from vmprof_allocation.engines.choose import choose
from vmprof_allocation.errors import AllocationSamplingError, SamplingBusy
from vmprof_allocation.interrupts import Lock, Section
from vmprof_allocation.processes import Processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    from vmprof_allocation.engines.base import Engine, Statistics
    from vmprof_allocation.settings import Settings
    Path = Union[str, os.PathLike[str]]

#: Linux's; it has no name in PyPy
F_DUPFD_CLOEXEC = 1030
#: how a profile begins
GZIP = b"\x1f\x8b"

_running: list[Session] = []
#: one thread at a time starts or stops
_lock = Lock()


@atexit.register
def _stop_all() -> None:
    for session in _running[:]:
        try:
            session.stop()
        except AllocationSamplingError:
            if not session.is_child:
                raise           # it was asked for, and somebody waits for it


def _go_on() -> None:
    """In a forked child."""
    for session in _running:
        session.go_on()


def end_inherited() -> None:
    """A forked child that is followed, and that begins to sample by itself: what it
    began with ends."""
    for session in _running[:]:
        if session.is_inherited:
            session.stop()


os.register_at_fork(after_in_child=_go_on)


def move_up(fd: int) -> int:
    """The same file under a number that is out of the program's way: it gets
    the numbers that it would get without us, and what it writes to a number
    that it takes for its output does not end up in the profile."""
    import fcntl
    for lowest in 512, 3:
        try:
            high = fcntl.fcntl(fd, F_DUPFD_CLOEXEC, lowest)
        except OSError:
            continue        # there are not so many; or it is not Linux
        os.close(fd)
        return high
    return fd


def file_id(fd: int) -> tuple[int, int] | None:
    """Which file a descriptor leads to; None if it is closed.  The program may
    have closed ours, and have opened one of its own under the same number."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


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
        self._fd = -1
        self._file: tuple[int, int] | None = None
        self._pid = 0
        self._is_new = False
        self._processes = processes
        #: this is a forked child, and goes on as its parent
        self.is_inherited = False

    def start(self, engine: Engine | None = None) -> None:
        """Begin to sample, with choose()'s engine, which may be given; a
        profile that was there before is replaced.

        Raises AllocationSamplingError, and puts everything back.  What
        `output` held is still there if the request, the interpreter or the
        file were refused, that is before any hook is set.
        """
        end_inherited()
        if engine is None:
            engine = choose()
        fifo = self._open_fifo()
        has_begun = False
        try:
            with Section(_lock):
                self._start(engine, fifo)
                has_begun = True
        except SamplingBusy:
            raise
        except BaseException:
            if has_begun:
                self.stop()     # it is that of a handler that had to wait
            self._discard()
            raise

    def _start(self, engine: Engine, fifo: int) -> None:
        engine.prepare()        # a handler may have started another meanwhile
        self._is_new = False
        if fifo < 0:
            fifo, self._is_new = self._open()
        self._fd, self._pid = fifo, os.getpid()
        try:
            self._fd = move_up(fifo)
            processes = self._look_at_file()
        except BaseException:
            os.close(self._fd)
            raise
        self._engine = engine
        _running.append(self)
        try:
            engine.start(self._fd, self.settings, processes)
        except BaseException:
            self._close()
            raise

    def _look_at_file(self) -> Processes | None:
        """Make sure of it.  Returns what belongs together with it, unless it is a
        pipe."""
        status = os.fstat(self._fd)
        self._file = status.st_dev, status.st_ino
        if not stat.S_ISREG(status.st_mode):
            # a reader that stalls must not stall the program for ever
            os.set_blocking(self._fd, False)
            return None
        self._lock_file()
        assert self.output is not None
        return self._processes or Processes(self.output)

    def _lock_file(self) -> None:
        import fcntl
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AllocationSamplingError(
                "another process writes its profile to %r; choose another "
                "file" % self.output) from None
        except OSError:
            pass                # not all file systems can

    def _check_file(self) -> None:
        """Raise AllocationSamplingError if the program did something to the
        profile."""
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            return
        if status.st_nlink == 0:
            raise AllocationSamplingError(
                "the profile is lost: the program removed %r" % self.output)
        if (status.st_size != os.lseek(self._fd, 0, os.SEEK_CUR)
                or os.pread(self._fd, 2, 0) != GZIP):
            raise AllocationSamplingError(
                "the profile is damaged: the program, or another, changed %r"
                % self.output)

    def _open_fifo(self) -> int:
        """A pipe that has a name; -1: it is none.  This waits for a reader,
        and can be interrupted.  It is for writing only: with an end of it to
        read, we would wait for ourselves when the reader has left."""
        try:
            if self.output is not None and stat.S_ISFIFO(
                    os.stat(self.output).st_mode):
                return os.open(self.output, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            pass            # _open() tells
        return -1

    def _open(self) -> tuple[int, bool]:
        """Returns the file's descriptor, and whether the file is new."""
        if self.output is None:
            import tempfile
            fd, self.output = tempfile.mkstemp(suffix=".vmprof")
            return fd, True
        try:
            try:
                return os.open(self.output, os.O_RDWR | os.O_CREAT
                               | os.O_EXCL | os.O_CLOEXEC, 0o666), True
            except FileExistsError:
                return os.open(self.output, os.O_RDWR | os.O_CLOEXEC), False
        except OSError as e:
            raise AllocationSamplingError(
                "can't write the profile to %r: %s"
                % (self.output, e.strerror)) from None

    def _discard(self) -> None:
        """Remove the file of a run that did not begin."""
        if self._is_new and self.output is not None:
            self._is_new = False
            try:
                os.unlink(self.output)
            except OSError:
                pass

    @property
    def is_on(self) -> bool:
        """True from start() to stop()."""
        return self._engine is not None

    @property
    def engine(self) -> Engine | None:
        """That it samples with; None: it is not on."""
        return self._engine

    @property
    def path(self) -> str:
        """The profile that this process writes; empty: there is none as yet."""
        if self.is_inherited:
            return "" if self._engine is None else self._engine.followed_path()
        return self.output or ""

    @property
    def is_parent(self) -> bool:
        """False in a forked child of the process that called start(), followed
        or not."""
        return self._pid == os.getpid() and not self.is_inherited

    @property
    def is_child(self) -> bool:
        """Nobody asked for it in this process, which was followed."""
        return self.is_inherited or self._processes is not None

    def go_on(self) -> None:
        """In a forked child: if its engine goes on, so does this."""
        if self._engine is not None and self._engine.followed():
            self._pid = os.getpid()
            self._fd = -1           # the engine has one of its own
            self.is_inherited = True

    def __enter__(self) -> Session:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def set_interval(self, interval: int | str) -> None:
        """Another mean interval, in bytes, from the next allocation on; a
        limit ends."""
        from vmprof_allocation.parsing import make_interval
        interval = make_interval(interval)
        with Section(_lock):
            if self._engine is None:
                raise AllocationSamplingError("allocation sampling is not on")
            self._engine.set_interval(interval)

    def mark(self, name: str) -> None:
        """Name this moment: `report --leaks` tells what was allocated between
        two of these.  Harmless while this session is not on."""
        _check_mark(name)
        with Section(_lock):
            if self._engine is not None and self.is_on:
                self._engine.mark(name)

    def statistics(self) -> Statistics:
        if self._engine is None:
            raise AllocationSamplingError("allocation sampling is not on")
        return self._engine.statistics()

    def stop(self) -> None:
        """End the sampling and finish the profile.  Once is enough; in a
        forked child, which is not sampled, it does nothing.

        Raises AllocationSamplingError if the profile could not be written to
        the end, after everything else was put back.
        """
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
            # after any other exception it can be tried again
            self._close()

    def _end(self, engine: Engine) -> None:
        samples = engine.statistics().samples
        if self.is_inherited:
            self.output = engine.followed_path() or self.output
        engine.stop()
        if file_id(self._fd) == self._file:
            self._check_file()
            if self._processes is not None and samples == 0:
                self._is_new = True     # a child that has nothing to tell
                self._discard()

    def _close(self) -> None:
        if self._engine is None:
            return              # another thread has done it
        self._engine = None
        _running.remove(self)
        if self._pid == os.getpid() and file_id(self._fd) == self._file:
            os.close(self._fd)
