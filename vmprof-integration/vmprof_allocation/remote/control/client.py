"""Send requests to a process, for the commands attach, control, live and memory."""
from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import stat
import time
from collections.abc import Iterator

from vmprof_allocation.errors import AllocationSamplingError
from vmprof_allocation.remote.control import answers, meeting
from vmprof_allocation.remote.control.prepared import SIGNAL, VARIABLE, number_of
from vmprof_allocation.remote.entry.enter import Entry
from vmprof_allocation.remote.entry.target import Target
from vmprof_allocation.remote.peers import pid_and_user
from vmprof_allocation.remote.process_info import (
    has_descriptors,
    note,
    printable,
    read_status,
)

#: seconds between two checks whether the process still exists
_LOOK_SECONDS = 0.1
#: seconds to wait for an answer to the signal before a thread is injected by ptrace
_PATIENCE = 2.0


class Connection:
    """A connection to a process.  Sampling that HOLD began ends with the connection."""

    def __init__(self, pid: int, peer: socket.socket):
        """Store the process's pid and the connected socket."""
        self._pid = pid
        self._peer = peer

    def ask(self, *request: str) -> list[str]:
        """Send a request, and return the answer.

        Args:
            request: the name of the request (meeting.py), and its fields.

        Raises:
            AllocationSamplingError: the process refused, did not answer in time, or
                gave an invalid answer.
        """
        message = meeting.BETWEEN.join(request).encode("utf-8", "surrogateescape")
        if len(message) > meeting.MAX_MESSAGE:
            raise AllocationSamplingError(
                "cannot send the request to process %d: it has %d bytes, but at most "
                "%d are possible. Write a shorter name for the output" % (
                    self._pid, len(message), meeting.MAX_MESSAGE))
        try:
            self._peer.send(message)
            answer = self._peer.recv(meeting.MAX_MESSAGE).decode(
                "utf-8", "surrogateescape")
        except (TimeoutError, socket.timeout):      # two classes before Python 3.10
            # close the connection, so that a late answer is not taken for the answer to
            # the next request
            self._peer.close()
            raise AllocationSamplingError(
                "process %d did not answer in time. Check its status with `pypy-alloc "
                "control %d status`" % (self._pid, self._pid)
            ) from None
        except OSError:
            answer = ""
        # the answer may come from any program
        kind, *rest = map(printable, answer.split(meeting.BETWEEN))
        if kind == meeting.REFUSED:
            raise AllocationSamplingError("process %d: %s" % (
                self._pid, " ".join(rest)))
        if not answer:
            raise AllocationSamplingError(
                "process %d has ended, has become another program, or has waited too "
                "long for the next request" % self._pid)
        if kind != meeting.DONE or not answers.is_valid(request[0], rest):
            raise AllocationSamplingError(
                "process %d gave an invalid answer to %r: %.100r. It runs another "
                "version of vmprof-allocation, or another program" % (
                    self._pid, request[0], " ".join([kind, *rest])))
        return rest

    def is_closed(self, seconds: float) -> bool:
        """Wait for the peer to close the connection, and return whether it is closed.

        The connection is also closed after a request that timed out.
        """
        return self._peer.fileno() < 0 or bool(
            select.select([self._peer], [], [], seconds)[0])


class Process:
    """A process that answers requests, over a new connection for each request."""

    def __init__(self, pid: int, timeout: float, word: str = "", *,
                 despite_seccomp: bool = False):
        """Find out how to reach the process.

        Args:
            pid: the process.
            timeout: seconds to wait for the process.
            word: name of the signal that the process is prepared for; empty for the
                signal that its environment names, or for the default.
            despite_seccomp: see Target.

        Raises:
            AllocationSamplingError: the process cannot be reached.
        """
        self.pid = pid
        self._timeout = timeout
        status = self._status()
        if status.get("Tgid", str(pid)) != str(pid):
            raise self._fail("is a thread", "write the PID of its process: %s"
                             % status["Tgid"])
        if status["State"][:1] in "ZX":
            raise self._has_ended()
        #: effective user and group
        self.uid = int(status["Uid"].split()[1])
        self.gid = int(status["Gid"].split()[1])
        #: pid of the process in its own namespace
        self.own_pid = int(status.get("NSpid", str(pid)).split()[-1])
        if os.geteuid() not in (0, self.uid):
            raise self._fail("belongs to user %d" % self.uid,
                             "run this command as that user, or as root")
        said = word or self._said()
        self._signal = SIGNAL if said is None else number_of(said)
        self._despite_seccomp = despite_seccomp
        #: the process, if a thread is to be injected; None if the process gets a signal
        self._target: Target | None = None
        may_be_prepared = (int(status["SigCgt"], 16) >> self._signal - 1 & 1
                           and self._is_here())
        if not may_be_prepared or said is None:
            try:
                self._target = Target(pid, despite_seccomp)
            except AllocationSamplingError:
                # The process has a handler for the signal. The handler may come from
                # prepare(), or from the program.
                if not may_be_prepared:
                    raise

    def _fail(self, why: str, what_to_do: str) -> AllocationSamplingError:
        return AllocationSamplingError(
            "process %d %s; %s" % (self.pid, why, what_to_do))

    def _status(self) -> dict[str, str]:
        try:
            return read_status(self.pid)
        except OSError:
            raise self._fail("does not exist", "ps lists the processes") from None

    def _is_here(self) -> bool:
        """Return whether the process has the same mounts and pids as this one.

        If not, a prepared process cannot find the socket.
        """
        with contextlib.suppress(OSError):
            return all(os.readlink("/proc/%d/ns/%s" % (self.pid, kind))
                       == os.readlink("/proc/self/ns/%s" % kind)
                       for kind in ("mnt", "pid"))
        return True

    def _said(self) -> str | None:
        """Return the value of VMPROF_CONTROL, which prepares the process, or None.

        The value is the name of the signal. It is in the environment that the process
        began with.
        """
        with contextlib.suppress(OSError), open(
                "/proc/%d/environ" % self.pid, "rb") as file:
            for word in os.fsdecode(file.read()).split("\0"):
                name, _, value = word.partition("=")
                if name == VARIABLE:
                    return value
        return None

    def runs_this(self) -> bool:
        """Return whether the process runs the same interpreter as this process."""
        with contextlib.suppress(OSError):
            return os.path.samefile("/proc/%d/exe" % self.pid, "/proc/self/exe")
        return False

    def ask(self, *request: str) -> list[str]:
        """Send a request over a new connection.  See Connection.ask()."""
        with self.connected() as connection:
            return connection.ask(*request)

    @contextlib.contextmanager
    def connected(self) -> Iterator[Connection]:
        """Connect to the process until the block ends.

        Raises:
            AllocationSamplingError: the process does not connect in time.
        """
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
                        "cannot listen for process %d at %r: %s" % (
                            self.pid, path, e.strerror or e)) from None
                try:
                    peer = stack.enter_context(self._called(listener, path, deadline))
                finally:
                    self._remove(path, identity, deadline)
            yield Connection(self.pid, peer)

    def _listen(self, listener: socket.socket, path: str,
                deadline: float) -> tuple[int, int]:
        """Create the socket at `path`, and return its device and inode.

        Raises:
            OSError: the socket cannot be created.
            AllocationSamplingError: another command sends requests to the process.
        """
        meeting.make_folder(self.uid)
        name = os.path.basename(path)
        with _locked(os.path.dirname(path), deadline) as folder:
            # use the open folder, because the user may have replaced its path by a link
            there = "/proc/self/fd/%d/%s" % (folder, name)
            if os.path.lexists(there):
                if not os.path.islink(there):
                    self._check_dead(there)
                os.unlink(name, dir_fd=folder)
            # a process of another user must be able to connect to root's socket; the
            # folder keeps other users out
            before = os.umask(0o177 if self.uid == os.geteuid() else 0o111)
            try:
                listener.bind(there)
            finally:
                os.umask(before)
            listener.listen(1)
            return _file(name, folder)

    def _check_dead(self, path: str) -> None:
        """Check that no command listens at an existing socket any more.

        Raises:
            AllocationSamplingError: another command listens at the socket.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.setblocking(False)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    return
            except OSError:
                pass
        raise AllocationSamplingError(
            "another command is just talking to process %d; try again" % self.pid)

    def _remove(self, path: str, identity: tuple[int, int], deadline: float) -> None:
        with contextlib.suppress(OSError, AllocationSamplingError), _locked(
                os.path.dirname(path), deadline + 1) as folder:
            name = os.path.basename(path)
            if _file(name, folder) == identity:
                os.unlink(name, dir_fd=folder)

    def _called(self, listener: socket.socket, path: str,
                deadline: float) -> socket.socket:
        """Have the process connect, by a signal or an injected thread.

        Returns:
            The connection.
        """
        target = self._target
        if target is None:
            peer = self._signalled(listener, deadline)
            if peer is not None:
                return peer
            target = Target(self.pid, self._despite_seccomp)
        entry = Entry(target, path, deadline, note)
        entry.begin()
        try:
            while True:
                peer = self._accept(listener, entry.pause)
                if peer is not None:
                    return peer
                entry.look()
        finally:
            entry.leave()

    def _signalled(self, listener: socket.socket,
                   deadline: float) -> socket.socket | None:
        """Send the signal to a prepared process, and wait for its connection.

        Returns:
            The connection. None if the process does not answer, but a thread can be
            injected.
        """
        try:
            os.kill(self.pid, self._signal)
        except OSError:
            raise self._has_ended() from None
        patience = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            peer = self._accept(listener, _LOOK_SECONDS)
            if peer is not None:
                return peer
            if time.monotonic() > patience:
                patience = deadline
                with contextlib.suppress(AllocationSamplingError):
                    Target(self.pid, self._despite_seccomp)
                    return None
        raise self._fail("does not answer", self._why_not())

    def _accept(self, listener: socket.socket, seconds: float) -> socket.socket | None:
        """Wait for a connection from the process.

        Returns:
            The connection, or None if no connection arrives within `seconds`.
        """
        listener.settimeout(seconds)
        try:
            peer, _ = listener.accept()
        except OSError:
            if self._status()["State"][:1] in "ZX":
                raise self._has_ended() from None
            return None
        if pid_and_user(peer) == (self.pid, self.uid):
            peer.settimeout(max(self._timeout, 1.0))
            return peer
        peer.close()        # an unknown process has connected
        return None

    def _has_ended(self) -> AllocationSamplingError:
        return self._fail("has ended", "it cannot answer")

    def _why_not(self) -> str:
        status = self._status()
        if status["State"][:1] in "Tt":
            return "it is stopped; continue it with kill -CONT %d" % self.pid
        if int(status["SigBlk"], 16) >> self._signal - 1 & 1:
            return ("its main thread blocks signal %d; set another signal with %s"
                    % (self._signal, VARIABLE))
        if not has_descriptors(self.pid):
            return ("it has reached its limit of open descriptors; close some, or "
                    "raise the limit (prlimit --nofile)")
        return ("its main thread runs no Python code (it may wait in C, or in "
                "sigwait), it handles another signal than this command sends, or it "
                "can no longer import vmprof_allocation")


@contextlib.contextmanager
def _locked(folder: str, deadline: float) -> Iterator[int]:
    """Open and lock the folder of the sockets, and return its descriptor.

    With the lock, only one command at a time looks for, makes and removes sockets.
    """
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
        yield fd
    finally:
        os.close(fd)


def _file(name: str, folder: int) -> tuple[int, int]:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    return status.st_dev, status.st_ino
