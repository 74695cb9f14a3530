"""The file that a profile goes to."""
from __future__ import annotations

import fcntl
import os
import stat

from vmprof_allocation.critical.descriptors import move_up
from vmprof_allocation.errors import AllocationSamplingError

#: how a profile begins
HEAD = bytes(8) + b"\3" + bytes(7)


def file_id(fd: int) -> tuple[int, int] | None:
    """Device and inode of an open file; None if `fd` is closed.  The program may
    have closed ours, and have opened one of its own under the same number."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def check_replaceable(fd: int, path: str) -> None:
    """Raise AllocationSamplingError if the open file contains anything but a profile.

    The name of a profile is easily mistaken: `-o` before the program takes its name.
    """
    status = os.fstat(fd)
    if (stat.S_ISREG(status.st_mode) and status.st_size > 0
            and not HEAD.startswith(os.pread(fd, len(HEAD), 0))):
        raise AllocationSamplingError(
            "can't write the profile to %r: this file exists, and its %d bytes are not "
            "a profile; choose another file, or remove this one"
            % (path, status.st_size))


def lost(path: str | None) -> AllocationSamplingError:
    return AllocationSamplingError(
        "the profile is lost: the program, or another, removed %r" % path)


class ProfileFile:
    """One that this process writes."""

    __slots__ = ("_file", "_is_new", "fd", "path")

    def __init__(self, path: str | None) -> None:
        """None: a temporary file, which belongs to the caller."""
        self.path = path
        self.fd = -1
        self._file: tuple[int, int] | None = None
        self._is_new = False

    def state(self) -> tuple[object, ...]:
        """For restore()."""
        return self.path, self.fd, self._file, self._is_new

    @classmethod
    def restore(cls, path: str | None, fd: int, file: tuple[int, int] | None,
                is_new: bool) -> ProfileFile:
        """Another one, of the same open file."""
        restored = cls(path)
        restored.fd, restored._file, restored._is_new = fd, file, is_new
        return restored

    def where(self) -> str:
        """Its path for other processes, wherever the program has gone meanwhile."""
        path = self.path or ""
        try:
            if self.is_ours() and self.is_regular() and os.fstat(self.fd).st_nlink:
                return os.readlink("/proc/self/fd/%d" % self.fd)
            return os.path.abspath(path)
        except OSError:
            return path         # the program is in a folder that is no more

    def wait_for_reader(self) -> None:
        """If it is a pipe that has a name: open it.  This waits, and can be
        interrupted.  It is for writing only: with an end of it to read, we would
        wait for ourselves when the reader has left."""
        try:
            if self.path is not None and stat.S_ISFIFO(
                    os.stat(self.path).st_mode):
                self.fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            pass            # open() tells

    def open(self) -> None:
        """Make sure of it.  Raises AllocationSamplingError; then it is closed."""
        self._is_new = False
        if self.fd < 0:
            self._open()
        try:
            self.fd = move_up(self.fd)
            self._file = file_id(self.fd)
            if self.is_regular():
                self._lock()
            else:
                # a reader that stalls must not stall the program for ever
                os.set_blocking(self.fd, False)
        except BaseException:
            os.close(self.fd)
            raise

    def _open(self) -> None:
        if self.path is None:
            import tempfile
            self.fd, self.path = tempfile.mkstemp(suffix=".vmprof")
            self._is_new = True
            return
        try:
            try:
                self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT
                                  | os.O_EXCL | os.O_CLOEXEC, 0o600)
                self._is_new = True
            except FileExistsError:
                self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    check_replaceable(self.fd, self.path)
                except BaseException:
                    os.close(self.fd)
                    self.fd = -1
                    raise
        except OSError as e:
            raise AllocationSamplingError(
                "can't write the profile to %r: %s"
                % (self.path, e.strerror)) from None

    def is_regular(self) -> bool:
        return stat.S_ISREG(os.fstat(self.fd).st_mode)

    def _lock(self) -> None:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AllocationSamplingError(
                "another process writes its profile to %r; choose another "
                "file" % self.path) from None
        except OSError:
            pass                # not all file systems can

    def is_ours(self) -> bool:
        """The program did not close it."""
        return file_id(self.fd) == self._file

    def check(self) -> None:
        """Raise AllocationSamplingError if somebody did something to the profile, of
        which more may just be written."""
        if not self.is_regular():
            return
        written = os.lseek(self.fd, 0, os.SEEK_CUR)
        before = os.fstat(self.fd)
        if before.st_nlink == 0:
            raise lost(self.path)
        if (before.st_size < written or os.pread(self.fd, 16, 0) != HEAD
                or before.st_size > os.lseek(self.fd, 0, os.SEEK_CUR)):
            raise AllocationSamplingError(
                "the profile is damaged: the program, or another, changed %r"
                % self.path)

    def close(self) -> None:
        if not self.is_ours():
            return
        try:
            # a child that was forked meanwhile has it open, and would hold the lock
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        except OSError:
            pass            # not all file systems can, nor what is no file
        os.close(self.fd)

    def discard(self, *, always: bool = False) -> None:
        """Remove the file of a run that did not begin, if it is new."""
        if self.path is not None and (self._is_new or always):
            self._is_new = False
            try:
                os.unlink(self.path)
            except OSError:
                pass
