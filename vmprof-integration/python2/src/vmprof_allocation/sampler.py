"""A run in this process, from the beginning to the end of its profile.

The subclasses are the engines.  Runs on PyPy 2.7.
"""
import errno
import fcntl
import os
import stat

from vmprof_allocation.process import Refused

#: number of this operation in Linux; Python 2.7 has no name for it
F_DUPFD_CLOEXEC = 1030
#: reasons, by errno, why a profile is incomplete
PROBLEMS = {
    errno.EBADF: "the program closed its file",
    errno.EPIPE: "the reader of the pipe has ended",
    errno.ETIMEDOUT: "the reader of the pipe no longer reads",
}

_running = []


def mark(name):
    """Write a mark into the profiles of this process.

    Raises:
        Refused: the name is not text.
    """
    if not isinstance(name, (bytes, unicode)):  # noqa: F821
        raise Refused('invalid mark %r: write text, such as "warm"' % (name,))
    if not isinstance(name, bytes):
        name = name.encode("utf-8")
    for run in _running:
        if os.getpid() == run.pid:
            run.mark(name)


def incomplete(error):
    """Return the message for a profile that ended with this errno, or 0 for errno 0."""
    return error and "the profile is not complete: %s" % PROBLEMS.get(
        error, os.strerror(error))


def file_id(fd):
    """Return the device and inode of a descriptor's file, or None if it is closed.

    The program may have closed the sampler's file, and may have opened another file
    with the same number.
    """
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_output(path):
    """Open the profile, and return a descriptor with a high number.

    The program then gets the same low numbers as without the sampler.

    Raises:
        Refused: the path is invalid, or the file cannot be opened.
    """
    if not isinstance(path, (bytes, unicode)):  # noqa: F821
        raise Refused("invalid output %r: write the name of a file, such as "
                      "\"app.vmprof\"" % (path,))
    try:
        try:
            is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
        except OSError:
            is_pipe = False         # the file does not exist
        fd = os.open(path, os.O_WRONLY if is_pipe
                     else os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        for lowest in 512, 3:
            try:
                high = fcntl.fcntl(fd, F_DUPFD_CLOEXEC, lowest)
            except (EnvironmentError, ValueError):
                continue            # the limit of descriptors is lower
            os.close(fd)
            return high
        return fd
    except OSError as e:
        raise Refused("cannot write the profile to %r: %s" % (path, e.strerror))


class Run(object):
    """A run with an engine, which is a subclass."""

    def __init__(self, fields, output):
        """Start to sample.

        Args:
            fields: the fields of launch/begin.py of the package for Python 3, by name.
            output: path of the profile.

        Raises:
            Refused: sampling is not possible.
        """
        if _running:
            raise Refused("allocation sampling is already on in this process")
        self.pid = os.getpid()
        self.prepare(fields["knowledge"])
        fd = open_output(output)
        try:
            self.begin(fd, dict(pair.split("=", 1)
                                for pair in fields["settings"].split(";")))
        except BaseException:
            self.end()
            os.close(fd)
            raise
        self.fd, self.file = fd, file_id(fd)
        _running.append(self)

    def stop(self):
        """End the sampling.

        Raises:
            Refused: the profile is incomplete.
        """
        if self not in _running:
            return
        _running.remove(self)
        if os.getpid() != self.pid:
            return              # a forked child is not sampled
        problem = self.end()
        if file_id(self.fd) == self.file:
            os.close(self.fd)
        if problem:
            raise Refused(problem)

    # An engine implements these functions:

    def prepare(self, knowledge):
        """Prepare the start.

        Args:
            knowledge: the build profile, or "".

        Raises:
            Refused: sampling is not possible.
        """
        raise NotImplementedError

    def begin(self, fd, settings):
        """Start to sample.  After an exception, end() is called.

        Args:
            fd: descriptor of the profile.
            settings: the settings by name, as text.

        Raises:
            Refused: sampling is not possible.
        """
        raise NotImplementedError

    def end(self):
        """Undo begin(), even if begin() failed.

        Returns:
            The reason why the profile is incomplete, or a false value.
        """
        raise NotImplementedError

    def mark(self, name):
        """Write a mark."""
        raise NotImplementedError
