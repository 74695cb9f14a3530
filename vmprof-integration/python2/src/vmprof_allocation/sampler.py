"""A run in this process: one profile, with either engine.  Runs on PyPy 2.7."""
import errno
import fcntl
import os
import stat

from vmprof_allocation.process import Refused

#: the number of this command of fcntl() in Linux, which Python 2's module lacks
F_DUPFD_CLOEXEC = 1030
#: reasons for an incomplete profile, by errno
PROBLEMS = {
    errno.EBADF: "the program closed its file",
    errno.EPIPE: "the reader of the pipe has ended",
    errno.ETIMEDOUT: "the reader of the pipe no longer reads",
}

_running = []


def mark(name):
    """Record a mark in the profile of this process.  Raises Refused."""
    if not isinstance(name, (bytes, unicode)):  # noqa: F821
        raise Refused('invalid mark %r: write text, such as "warm"'
                      % (name,))
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
    """Return the identity of an open file, or None if the descriptor is closed.

    The program may have closed our descriptor, and opened another file with the same
    number.
    """
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_output(path):
    """Open a profile with a high descriptor, which the program is unlikely to use.

    Returns:
        The file descriptor.

    Raises:
        Refused: the file cannot be opened.
    """
    if not isinstance(path, (bytes, unicode)):  # noqa: F821
        raise Refused("invalid output %r: write the name of a file, such as "
                      '"app.vmprof"'
                      % (path,))
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
                continue            # the process's limit of descriptors is lower
            os.close(fd)
            return high
        return fd
    except OSError as e:
        raise Refused("cannot write the profile to %r: %s" % (path, e.strerror))


class Run(object):
    """A run: the sampling of this process, from the constructor to stop().

    Python 3's package prepares the settings, which are called fields (launch/begin.py).
    An engine implements prepare(), begin(), end() and mark().
    """

    def __init__(self, fields, output):
        """Start to sample into the file `output`.  Raises Refused."""
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
        """Stop the sampling, and close the profile.

        Raises Refused if the profile is not complete.
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

    # the methods that an engine implements

    def prepare(self, knowledge):
        """Check whether the run can start.  Raises Refused.

        Args:
            knowledge: the text of the build's layout (process.Layout).
        """
        raise NotImplementedError

    def begin(self, fd, settings):
        """Start to sample.  If this raises Refused, the caller calls end().

        Args:
            fd: the file descriptor of the profile.
            settings: the settings of the run, by name.
        """
        raise NotImplementedError

    def end(self):
        """Undo begin(), even if begin() failed.

        Returns:
            The reason why the profile is not complete, or None or 0.
        """
        raise NotImplementedError

    def mark(self, name):
        """Record a mark, in UTF-8.  Raises Refused."""
        raise NotImplementedError
