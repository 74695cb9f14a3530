"""A run in this process, from the beginning of its profile to the end, whichever
engine takes the samples.  Runs on PyPy 2.7."""
import errno
import fcntl
import os
import stat

from vmprof_allocation.process import Refused

#: Linux's; it has no name in Python
F_DUPFD_CLOEXEC = 1030
PROBLEMS = {
    errno.EBADF: "the program closed its file",
    errno.EPIPE: "its reader has left",
    errno.ETIMEDOUT: "its reader reads no more",
}

_running = []


def mark(name):
    if not isinstance(name, (bytes, unicode)):  # noqa: F821
        raise Refused('the mark %r is no text; write for example "warm"'
                      % (name,))
    if not isinstance(name, bytes):
        name = name.encode("utf-8")
    for run in _running:
        if os.getpid() == run.pid:
            run.mark(name)


def incomplete(error):
    """What a profile lacks that ended with this errno; 0: nothing."""
    return error and "the profile is not complete: %s" % PROBLEMS.get(
        error, os.strerror(error))


def file_id(fd):
    """Which file it leads to; None if it is closed.  The program may have closed
    ours, and have patch one of its own under the same number."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def open_output(path):
    """Under a number that is out of the program's way."""
    if not isinstance(path, (bytes, unicode)):  # noqa: F821
        raise Refused("the output %r is no path; write for example \"app.vmprof\""
                      % (path,))
    try:
        try:
            is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
        except OSError:
            is_pipe = False         # not there yet
        fd = os.open(path, os.O_WRONLY if is_pipe
                     else os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        for lowest in 512, 3:
            try:
                high = fcntl.fcntl(fd, F_DUPFD_CLOEXEC, lowest)
            except (EnvironmentError, ValueError):
                continue            # there are not so many
            os.close(fd)
            return high
        return fd
    except OSError as e:
        raise Refused("can't write the profile to %r: %s" % (path, e.strerror))


class Run(object):
    """As `fields` say, those of Python 3's package (begin.py)."""

    def __init__(self, fields, output):
        if _running:
            raise Refused("allocations are being sampled already")
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
        """Raises Refused if the profile is not complete."""
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

    # Of an engine:

    def prepare(self, knowledge):
        """Find out whether it can start.  Raises Refused."""
        raise NotImplementedError

    def begin(self, fd, settings):
        """Raises Refused; end() is called then, too."""
        raise NotImplementedError

    def end(self):
        """Put everything back, however far begin() came.  Returns why the profile is
        not complete, or nothing."""
        raise NotImplementedError

    def mark(self, name):
        raise NotImplementedError
