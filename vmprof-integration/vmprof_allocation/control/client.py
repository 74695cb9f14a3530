"""The other side: a prepared process is asked for something."""
from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator

from vmprof_allocation.control import meeting
from vmprof_allocation.control.prepared import SIGNAL, VARIABLE, number_of
from vmprof_allocation.errors import AllocationSamplingError

#: until the program's main thread has come to it; and then until it is done
DEFAULT_TIMEOUT = 10.0
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
            self._peer.send("\t".join(request).encode("utf-8", "surrogateescape"))
            answer = self._peer.recv(meeting.MAX_MESSAGE).decode(
                "utf-8", "surrogateescape")
        except TimeoutError:
            raise AllocationSamplingError(
                "process %d did not do it in time; ask for its status" % self._pid
            ) from None
        except OSError:
            answer = ""
        kind, *rest = answer.split("\t")
        if kind == meeting.REFUSED:
            raise AllocationSamplingError("process %d: %s" % (self._pid, rest[0]))
        if kind != meeting.DONE:
            raise AllocationSamplingError(
                "process %d has ended, or has become another program" % self._pid)
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
        self._is_stopped = status["State"][:1] in "Tt"

    def _fail(self, why: str, what_to_do: str) -> AllocationSamplingError:
        return AllocationSamplingError(
            "process %d %s; %s" % (self.pid, why, what_to_do))

    def _status(self) -> dict[str, str]:
        try:
            with open("/proc/%d/status" % self.pid, encoding="utf-8",
                      errors="replace") as file:
                return {key: value.strip() for key, _, value in (
                    line.partition(":") for line in file)}
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
        with contextlib.suppress(OSError, AllocationSamplingError), open(
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
        with socket.socket(socket.AF_UNIX,
                           socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as listener:
            path = self._listen(listener)
            try:
                peer = self._called(listener)
            finally:
                _remove(path)
        with peer:
            yield Connection(self.pid, peer)

    def _listen(self, listener: socket.socket) -> str:
        path = meeting.socket_of(self.pid, self.uid)
        try:
            meeting.make_folder(self.uid)
            old = os.umask(0o177)
            try:
                _bind(listener, path)
            finally:
                os.umask(old)
            if self.uid != os.geteuid():
                os.chown(path, self.uid, self.gid)
            listener.listen(1)
        except BlockingIOError:
            raise AllocationSamplingError(
                "another command is just asking process %d; try again" % self.pid
            ) from None
        except OSError as e:
            raise AllocationSamplingError(
                "can't listen for process %d at %r: %s" % (
                    self.pid, path, e.strerror or e)) from None
        return path

    def _called(self, listener: socket.socket) -> socket.socket:
        """Its side of the connection."""
        deadline = time.monotonic() + self._timeout
        try:
            os.kill(self.pid, self._signal)
        except OSError:
            raise self._fail("has ended", "it can't be asked") from None
        while True:
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                peer, _ = listener.accept()
            except OSError:
                raise self._fail("does not answer", (
                    "it is stopped: kill -CONT %d" % self.pid if self._is_stopped
                    else "its main thread runs no Python code (it may wait in C), or "
                    "what it caught is not our signal")) from None
            pid, uid, _ = meeting.CREDENTIALS.unpack(peer.getsockopt(
                socket.SOL_SOCKET, meeting.SO_PEERCRED, meeting.CREDENTIALS.size))
            if pid == self.pid and uid == self.uid:
                peer.settimeout(self._timeout)
                return peer
            peer.close()        # it is nobody that we know


def _bind(listener: socket.socket, path: str) -> None:
    try:
        listener.bind(path)
    except OSError:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                pass            # of a command that was killed
            except OSError:
                raise BlockingIOError from None
            else:
                raise BlockingIOError from None
        os.unlink(path)
        listener.bind(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
