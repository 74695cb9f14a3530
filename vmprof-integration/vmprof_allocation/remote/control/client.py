"""The other side: a prepared process is asked for something."""
from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.control import meeting
from vmprof_allocation.remote.control.prepared import SIGNAL, VARIABLE, number_of
from vmprof_allocation.remote.peers import pid_and_user
from vmprof_allocation.remote.process_info import has_descriptors, read_status

#: until the program's main thread has come to it; and then until it is done
DEFAULT_TIMEOUT = 10.0
#: between two looks at whether it is still there
_LOOK_SECONDS = 0.1
_HOW = ("start it with %s=1 in its environment, or with python -m vmprof --control, "
        "or attach to it" % VARIABLE)


class Connection:
    """With a prepared process."""

    def __init__(self, pid: int, peer: socket.socket):
        self._pid = pid
        self._peer = peer

    def ask(self, *request: str) -> list[str]:
        """As Prepared.ask()."""
        try:
            self._peer.send(meeting.BETWEEN.join(request).encode(
                "utf-8", "surrogateescape"))
            answer = self._peer.recv(meeting.MAX_MESSAGE).decode(
                "utf-8", "surrogateescape")
        except (TimeoutError, socket.timeout):      # two things before Python 3.10
            raise AllocationSamplingError(
                "process %d did not do it in time; ask for its status" % self._pid
            ) from None
        except OSError:
            answer = ""
        # what comes from there may be anything
        kind, *rest = map(_printable, answer.split(meeting.BETWEEN))
        if kind == meeting.REFUSED:
            raise AllocationSamplingError("process %d: %s" % (
                self._pid, " ".join(rest)))
        if kind != meeting.DONE:
            raise AllocationSamplingError(
                "process %d has ended, has become another program, or has waited too "
                "long for what comes next" % self._pid)
        return rest


class Prepared:
    """A process that can be asked.  Raises AllocationSamplingError if it can't."""

    def __init__(self, pid: int, timeout: float = DEFAULT_TIMEOUT, word: str = ""):
        """`word` names the signal, if neither its environment does nor it is the
        usual one."""
        self.pid = pid
        self._timeout = timeout
        status = self._status()
        if status.get("Tgid", str(pid)) != str(pid):
            raise self._fail("is a thread", "the process's number is %s"
                             % status["Tgid"])
        if status["State"][:1] in "ZX":
            raise self._fail("has ended", "it can't be asked")
        #: effective user and group
        self.uid = int(status["Uid"].split()[1])
        self.gid = int(status["Gid"].split()[1])
        if os.geteuid() not in (0, self.uid):
            raise self._fail("belongs to user %d" % self.uid,
                             "run this as that user, or as root")
        if not self._is_here():
            raise self._fail("runs in another container", "run this in there")
        self._signal = number_of(word) if word else self._find_signal()
        if not int(status["SigCgt"], 16) >> self._signal - 1 & 1:
            raise self._fail("is not prepared", _HOW)

    def _fail(self, why: str, what_to_do: str) -> AllocationSamplingError:
        return AllocationSamplingError(
            "process %d %s; %s" % (self.pid, why, what_to_do))

    def _status(self) -> dict[str, str]:
        try:
            return read_status(self.pid)
        except OSError:
            raise self._fail("does not exist", "ps lists those that do") from None

    def _is_here(self) -> bool:
        """It sees the files that we see, and is called what we call it."""
        with contextlib.suppress(OSError):
            return all(os.readlink("/proc/%d/ns/%s" % (self.pid, kind))
                       == os.readlink("/proc/self/ns/%s" % kind)
                       for kind in ("mnt", "pid"))
        return True

    def _find_signal(self) -> int:
        """As far as it is in the environment that it began with."""
        with contextlib.suppress(OSError), open(
                "/proc/%d/environ" % self.pid, "rb") as file:
            for word in os.fsdecode(file.read()).split("\0"):
                name, _, value = word.partition("=")
                if name == VARIABLE:
                    return number_of(value)
        return SIGNAL

    def runs_this(self) -> bool:
        """The same interpreter as this process."""
        with contextlib.suppress(OSError):
            return os.path.samefile("/proc/%d/exe" % self.pid, "/proc/self/exe")
        return False

    def ask(self, *request: str) -> list[str]:
        """What it answers.  Raises AllocationSamplingError, also if it refuses."""
        with self.connected() as connection:
            return connection.ask(*request)

    @contextlib.contextmanager
    def connected(self) -> Iterator[Connection]:
        """Raises AllocationSamplingError."""
        deadline = time.monotonic() + self._timeout
        with contextlib.ExitStack() as stack:
            with socket.socket(
                    socket.AF_UNIX,
                    socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as listener:
                path = meeting.socket_of(self.pid, self.uid)
                try:
                    identity = self._listen(listener, path, deadline)
                except OSError as e:
                    raise AllocationSamplingError(
                        "can't listen for process %d at %r: %s" % (
                            self.pid, path, e.strerror or e)) from None
                try:
                    peer = stack.enter_context(self._called(listener, deadline))
                finally:
                    self._remove(path, identity, deadline)
            yield Connection(self.pid, peer)

    def _listen(self, listener: socket.socket, path: str,
                deadline: float) -> tuple[int, int]:
        """Returns which file it is.  Raises OSError."""
        meeting.make_folder(self.uid)
        with _locked(os.path.dirname(path), deadline):
            if os.path.lexists(path):
                self._check_dead(path)
                os.unlink(path)
            # root's is another user's to connect to; nobody else looks into the folder
            before = os.umask(0o177 if self.uid == os.geteuid() else 0o111)
            try:
                listener.bind(path)
            finally:
                os.umask(before)
            listener.listen(1)
            return _file(path)

    def _check_dead(self, path: str) -> None:
        """Raise AllocationSamplingError unless that is of a command that was killed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                return
            except OSError:
                pass
        raise AllocationSamplingError(
            "another command is just asking process %d; try again" % self.pid)

    def _remove(self, path: str, identity: tuple[int, int], deadline: float) -> None:
        with contextlib.suppress(OSError, AllocationSamplingError), _locked(
                os.path.dirname(path), deadline + 1):
            if _file(path) == identity:
                os.unlink(path)

    def _called(self, listener: socket.socket, deadline: float) -> socket.socket:
        """Its side of the connection."""
        try:
            os.kill(self.pid, self._signal)
        except OSError:
            raise self._has_ended() from None
        while True:
            listener.settimeout(_LOOK_SECONDS)
            try:
                peer, _ = listener.accept()
            except OSError:
                if self._status()["State"][:1] in "ZX":
                    raise self._has_ended() from None
                if time.monotonic() > deadline:
                    raise self._fail("does not answer", self._why_not()) from None
                continue
            if pid_and_user(peer) == (self.pid, self.uid):
                peer.settimeout(max(self._timeout, 1.0))
                return peer
            peer.close()        # it is nobody that we know

    def _has_ended(self) -> AllocationSamplingError:
        return self._fail("has ended", "it can't be asked")

    def _why_not(self) -> str:
        status = self._status()
        if status["State"][:1] in "Tt":
            return "it is stopped: kill -CONT %d" % self.pid
        if int(status["SigBlk"], 16) >> self._signal - 1 & 1:
            return ("its main thread blocks signal %d: name another one with %s"
                    % (self._signal, VARIABLE))
        if not has_descriptors(self.pid):
            return ("it has as many descriptors open as it may have: end what leaks "
                    "them, or give it more (prlimit --nofile)")
        return ("its main thread runs no Python code (it may wait in C, or in "
                "sigwait), what it caught is not our signal, or it can't import "
                "vmprof_allocation any more")


@contextlib.contextmanager
def _locked(folder: str, deadline: float) -> Iterator[None]:
    """Commands look for sockets, and make and remove them, one at a time."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def _file(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _printable(text: str) -> str:
    """For a terminal, which would take some characters as orders."""
    return "".join(c if c.isprintable() or 0xdc80 <= ord(c) <= 0xdcff
                   else ascii(c)[1:-1] for c in text)
