"""Open, lock, check and close the file of a profile in the program's process."""
from __future__ import annotations

import fcntl
import os
import stat

from vmprof_allocation.critical.descriptors import move_up
from vmprof_allocation.errors import AllocationSamplingError

#: the first bytes of a profile
HEAD = bytes(8) + b"\3" + bytes(7)


def file_id(fd: int) -> tuple[int, int] | None:
    """Return device and inode of an open file, or None if `fd` is closed.

    They identify a file: the program may have closed the sampler's descriptor, and have
    opened another file with the same number.
    """
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def check_replaceable(fd: int, path: str) -> None:
    """Raise AllocationSamplingError if the open file contains anything but a profile.

    A user may omit the value of `-o`. The next argument, the program, is then the path.
    """
    status = os.fstat(fd)
    if (stat.S_ISREG(status.st_mode) and status.st_size > 0
            and not HEAD.startswith(os.pread(fd, len(HEAD), 0))):
        raise AllocationSamplingError(
            "cannot write the profile to %r: this file exists, and its %d bytes are "
            "not a profile. Choose another file, or remove this one"
            % (path, status.st_size))


def lost(path: str | None) -> AllocationSamplingError:
    """Return the error for a profile whose file was removed."""
    return AllocationSamplingError(
        "the profile is lost: this program or another one removed %r" % path)


class ProfileFile:
    """A profile that this process writes."""

    __slots__ = ("_file", "_is_new", "fd", "path")

    def __init__(self, path: str | None) -> None:
        """Set the path, without opening the file.

        Args:
            path: the path. None for a temporary file, which belongs to the caller.
        """
        self.path = path
        self.fd = -1
        self._file: tuple[int, int] | None = None
        self._is_new = False

    def state(self) -> tuple[object, ...]:
        """Return the state as arguments for restore()."""
        return self.path, self.fd, self._file, self._is_new

    @classmethod
    def restore(cls, path: str | None, fd: int, file: tuple[int, int] | None,
                is_new: bool) -> ProfileFile:
        """Return an object for a file that is already open.

        The arguments are the result of state().
        """
        restored = cls(path)
        restored.fd, restored._file, restored._is_new = fd, file, is_new
        return restored

    def where(self) -> str:
        """Return the path with which other processes can open the profile.

        The path is absolute, and valid even if the program has changed its folder.
        """
        path = self.path or ""
        try:
            if self.is_ours() and self.is_regular() and os.fstat(self.fd).st_nlink:
                return os.readlink("/proc/self/fd/%d" % self.fd)
            return os.path.abspath(path)
        except OSError:
            return path         # the program's current folder does not exist any more

    def wait_for_reader(self) -> None:
        """If the path is a named pipe, open the pipe, which waits for a reader.

        Signals can interrupt this wait, unlike open(). The pipe is opened for writing
        only. If the sampler itself could read the pipe, it would not notice that the
        reader has left, and would wait forever.
        """
        try:
            if self.path is not None and stat.S_ISFIFO(
                    os.stat(self.path).st_mode):
                self.fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            pass            # self.open() will raise the error

    def open(self) -> None:
        """Open the file, or prepare a pipe that wait_for_reader() has opened.

        Raises:
            AllocationSamplingError: the file cannot be opened, is locked, or contains
                something other than a profile.  It is closed then.
        """
        self._is_new = False
        if self.fd < 0:
            self._open()
        try:
            self.fd = move_up(self.fd)
            self._file = file_id(self.fd)
            if self.is_regular():
                self._lock()
            else:
                # a reader that stalls must not stop the program
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
                "cannot write the profile to %r: %s"
                % (self.path, e.strerror)) from None

    def is_regular(self) -> bool:
        """Return whether the file is a regular file, and not a pipe or device."""
        return stat.S_ISREG(os.fstat(self.fd).st_mode)

    def _lock(self) -> None:
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AllocationSamplingError(
                "another process writes its profile to %r. Choose another "
                "file" % self.path) from None
        except OSError:
                pass                # not all file systems support locks

    def is_ours(self) -> bool:
        """Return whether the descriptor still belongs to the profile.

        The program may have closed the descriptor.
        """
        return file_id(self.fd) == self._file

    def check(self) -> None:
        """Check that the file exists, and that only the sampler has changed the file.

        The sampler may write to the file during the check.

        Raises:
            AllocationSamplingError: the profile was removed or changed.
        """
        if not self.is_regular():
            return
        written = os.lseek(self.fd, 0, os.SEEK_CUR)
        before = os.fstat(self.fd)
        if before.st_nlink == 0:
            raise lost(self.path)
        if (before.st_size < written or os.pread(self.fd, 16, 0) != HEAD
                or before.st_size > os.lseek(self.fd, 0, os.SEEK_CUR)):
            raise AllocationSamplingError(
                "the profile is damaged: this program or another one changed %r"
                % self.path)

    def close(self) -> None:
        """Close the file, unless the program has closed it."""
        if not self.is_ours():
            return
        try:
            # a child that was forked meanwhile has the file open, and would keep the
            # lock
            fcntl.flock(self.fd, fcntl.LOCK_UN)
        except OSError:
            pass            # pipes and some file systems do not support locks
        os.close(self.fd)

    def discard(self, *, always: bool = False) -> None:
        """Remove the file of a run that failed to start.

        Args:
            always: remove the file even if it existed before the run.
        """
        if self.path is not None and (self._is_new or always):
            self._is_new = False
            try:
                os.unlink(self.path)
            except OSError:
                pass
